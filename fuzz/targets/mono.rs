//! Logs of Mono's profiler, packed or not: whatever they hold, events lie in their buffers one behind the other, lists
//! have as many elements as they say, and whatever is not used is told.

#![no_main]

use jitinject::runtime::mono::{Buffer, Index, Kind, Log, packed};
use jitinject_fuzz::choices::Choices;
use libfuzzer_sys::fuzz_target;

/// More comes out of no input.
const LIMIT: u64 = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let is_packed = choices.flag();
    let file = choices.rest();
    let mut out = Vec::new();
    if is_packed {
        let told = packed::unpack(file, LIMIT, &mut out).expect("a vector takes all");
        assert!(told.size == out.len() as u64 && told.size <= LIMIT);
        check(&out);
    }
    check(file);
    let _ = packed::is_log(file);
});

fn check(file: &[u8]) {
    let Ok(log) = Log::parse(file) else {
        return;
    };
    let mut events = 0;
    let mut end = log.header().size as u64;
    let mut buffers = log.buffers();
    let mut used = end;
    for buffer in &mut buffers {
        assert!(buffer.offset >= end, "buffers follow each other");
        let mut last = None;
        let mut walk = buffer.events();
        for event in &mut walk {
            assert!(last < Some(event.offset) && event.offset > buffer.offset);
            last = Some(event.offset);
            events += 1;
            check_lists(&event.kind);
        }
        end = buffer.offset + 48 + buffer.content().len() as u64;
        used += 48 + buffer.content().len() as u64;
        assert!(end <= file.len() as u64);
        // A new walk takes the same way.
        assert_eq!(buffer.events().count() as u64, count(&buffer));
    }
    let skipped: u64 = file.len() as u64 - used;
    assert!(
        skipped == 0 || !buffers.faults().is_empty(),
        "what is not used is told"
    );
    let index = Index::of(&log);
    assert_eq!(index.events, events);
    let code = &index.code;
    assert!(code.events().is_sorted_by_key(|event| event.time));
    assert_eq!(code.events().len(), code.functions().len());
    for (function, number) in code.functions().iter().zip(0..) {
        assert_eq!(code.range(number), Some(function.range));
        assert!(function.name().is_none_or(|name| !name.contains(&0)));
        for &(method, _) in &function.methods {
            assert!(index.names.method(method, function.time).is_some());
        }
    }
}

fn count(buffer: &Buffer<'_>) -> u64 {
    let mut events = buffer.events();
    let count = events.by_ref().count() as u64;
    assert!(events.next().is_none(), "the end is the end");
    count
}

/// Lists can be walked to their ends.
fn check_lists(kind: &Kind<'_>) {
    match *kind {
        Kind::Allocation { frames, .. }
        | Kind::HandleCreated { frames, .. }
        | Kind::HandleDestroyed { frames, .. }
        | Kind::Throw { frames, .. }
        | Kind::Monitor { frames, .. } => assert_eq!(frames.iter().count(), frames.len()),
        Kind::Moves(moves) => assert_eq!(moves.iter().count(), moves.len()),
        Kind::HeapObject { references, .. } => assert_eq!(references.iter().count(), references.len()),
        Kind::HeapRoots { roots, .. } => assert_eq!(roots.iter().count(), roots.len()),
        Kind::SampleHit {
            addresses, frames, ..
        } => {
            assert_eq!(addresses.iter().count(), addresses.len());
            assert_eq!(frames.iter().count(), frames.len());
        }
        Kind::CounterDescriptions(counters) => assert_eq!(counters.iter().count(), counters.len()),
        Kind::Counters { values, .. } => assert_eq!(values.iter().count(), values.len()),
        _ => {}
    }
}
