//! Arbitrary logs of Mono's profiler, packed or not: events are adjacent in their buffers, lists have the right
//! length, everything unused is reported, the index contains everything in the events, and events that are written
//! again read the same.

use jitinject::internals::traces::detect::is_mono_log;
use jitinject::internals::traces::mono::format::event::{CodeBufferKind, CounterValue, MonitorEvent};
use jitinject::internals::traces::mono::format::{Log, LogBuffer, LogEvent, LogEventKind, LogIndex, packed};
use jitinject_fuzz::choices::Choices;
use jitinject_fuzz::mono_log::{Bases, Writer};

/// Maximum size of decompressed inputs.
const LIMIT: u64 = 1 << 20;

pub fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let is_packed = choices.flag();
    let file = choices.rest();
    let mut out = Vec::new();
    if is_packed {
        let unpacked = packed::unpack(file, LIMIT, &mut out).expect("a vector takes all");
        assert!(unpacked.size == out.len() as u64 && unpacked.size <= LIMIT);
        check(&out);
    }
    check(file);
    let _ = is_mono_log(file);
}

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
        // Iterating again gives the same result.
        assert_eq!(buffer.events().count() as u64, count(&buffer));
    }
    let skipped: u64 = file.len() as u64 - used;
    assert!(
        skipped == 0 || !buffers.faults().is_empty(),
        "unused bytes are reported"
    );
    check_index(&log, events);
    check_written_again(&log);
}

/// Checks that the index has read the same events, and contains their information.
fn check_index(log: &Log<'_>, events: u64) {
    let index = LogIndex::of(log);
    assert_eq!(index.events, events);
    let mut walk = log.events();
    let mut span = None;
    for event in &mut walk {
        let (first, last) = span.unwrap_or((event.time, event.time));
        span = Some((event.time.min(first), event.time.max(last)));
        if let LogEventKind::Jit { method, .. } = event.kind {
            assert!(index.names.method(method, event.time).is_some());
        }
    }
    assert_eq!(index.times, span);
    assert!(index.faults.iter().eq(walk.faults().iter()));
    let functions = &index.code.functions;
    assert!(functions.is_sorted_by_key(|function| function.time));
    for function in functions {
        assert!(function.name().is_none_or(|name| !name.contains(&0)));
        for &(method, _) in &function.methods {
            assert!(index.names.method(method, function.time).is_some());
        }
    }
}

fn count(buffer: &LogBuffer<'_>) -> u64 {
    let mut events = buffer.events();
    let count = events.by_ref().count() as u64;
    assert!(events.next().is_none(), "the end is the end");
    count
}

/// Checks that the supported events, written again, form a log of the same events.
fn check_written_again(log: &Log<'_>) {
    let version = log.header().data_version;
    // The writer uses the format of roots that all but the first logs of Mono 2 have.
    if version == 14 && log.header().major > 1 {
        return;
    }
    let mut writer = Writer::new(version);
    let mut written = Vec::new();
    for buffer in log.buffers() {
        writer.buffer(Bases {
            time: buffer.time_base.0,
            pointer: buffer.pointer_base(),
            object: buffer.object_base(),
            thread: buffer.thread.0,
            method: buffer.method_base(),
        });
        for event in buffer.events() {
            if is_writable(&event.kind, version) && write(&mut writer, &event, version) {
                written.push(event);
            }
        }
    }
    let file = writer.finish();
    let log = Log::parse(&file).expect("what was written is a log");
    let mut again = log.events();
    for event in written {
        let read = again.next().expect("all events are there");
        assert_eq!(read.thread, event.thread);
        assert_eq!(unstamped(read.kind), unstamped(event.kind));
        // In older versions, some events have the time of the previous one, which may not have been written.
        if version >= 13 {
            assert_eq!(read.time, event.time);
        }
    }
    assert_eq!(again.next(), None);
    assert!(again.faults().is_empty());
}

fn write(writer: &mut Writer, event: &LogEvent<'_>, version: u8) -> bool {
    let time = event.time.0;
    match event.kind {
        LogEventKind::HeapObject {
            object,
            class,
            size,
            generation,
            references,
        } => {
            let references: Vec<_> = references.iter().collect();
            writer.heap_object(time, (object, class, size), generation.unwrap_or(0), &references);
            true
        }
        LogEventKind::HeapRoots { collection, roots } => {
            let roots: Vec<_> = roots.iter().collect();
            version >= 3 && writer.roots(time, collection.unwrap_or(0), &roots)
        }
        _ => writer.event(event),
    }
}

/// Returns whether the writer supports all of an event: it writes what Mono wrote, but more can be read.
fn is_writable(kind: &LogEventKind<'_>, version: u8) -> bool {
    match *kind {
        LogEventKind::Monitor { event, frames, .. } => {
            version >= 14 || event == MonitorEvent::Contention || frames.is_empty()
        }
        LogEventKind::HandleCreated { frames, .. } | LogEventKind::HandleDestroyed { frames, .. } => {
            version >= 11 || frames.is_empty()
        }
        LogEventKind::CodeBuffer { kind, .. } => kind != CodeBufferKind::Other(-1),
        LogEventKind::Counters { values, .. } => {
            // NaN does not equal itself.
            let mut values = values.iter();
            values.all(|it| !matches!(it.value, CounterValue::Double(value) if value.is_nan()))
        }
        _ => true,
    }
}

/// Returns an event without the values that the writer generates.
fn unstamped(mut kind: LogEventKind<'_>) -> LogEventKind<'_> {
    match &mut kind {
        LogEventKind::SampleHit { sample_type, .. } => *sample_type = None,
        LogEventKind::Counters { milliseconds, .. } => *milliseconds = None,
        _ => {}
    }
    kind
}

/// Iterates over all lists of an event.
fn check_lists(kind: &LogEventKind<'_>) {
    match *kind {
        LogEventKind::Allocation { frames, .. }
        | LogEventKind::HandleCreated { frames, .. }
        | LogEventKind::HandleDestroyed { frames, .. }
        | LogEventKind::Throw { frames, .. }
        | LogEventKind::Monitor { frames, .. } => assert_eq!(frames.iter().count(), frames.iter().len()),
        LogEventKind::Moves(moves) => assert_eq!(moves.iter().count(), moves.iter().len()),
        LogEventKind::HeapObject { references, .. } => {
            assert_eq!(references.iter().count(), references.iter().len())
        }
        LogEventKind::HeapRoots { roots, .. } => assert_eq!(roots.iter().count(), roots.iter().len()),
        LogEventKind::SampleHit {
            addresses, frames, ..
        } => {
            assert_eq!(addresses.iter().count(), addresses.iter().len());
            assert_eq!(frames.iter().count(), frames.iter().len());
        }
        LogEventKind::CounterDescriptions(counters) => {
            assert_eq!(counters.iter().count(), counters.iter().len())
        }
        LogEventKind::Counters { values, .. } => assert_eq!(values.iter().count(), values.iter().len()),
        _ => {}
    }
}
