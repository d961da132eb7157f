//! Arbitrary XRay traces and instrumentation maps: records are adjacent in their buffers, buffers do not overlap,
//! and everything unused is reported. A valid trace survives a round trip.

use jitinject::Issue;
use jitinject::internals::traces::xray::format::{
    InstrumentationMap, RecordKind, Trace, TraceBuffer, TraceMode, is_trace,
};
use jitinject_fuzz::choices::Choices;
use jitinject_fuzz::xray_trace::{self, VERSIONS, Writer};

pub fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    match choices.byte() % 3 {
        0 => check(choices.rest()),
        1 => read_back(choices),
        _ => check_map(choices.rest()),
    }
}

fn check(file: &[u8]) {
    let _ = is_trace(file);
    let Ok(trace) = Trace::parse(file) else {
        return;
    };
    let header = trace.header();
    let index = trace.index();
    let mut buffers: Vec<&TraceBuffer> = index.buffers().iter().collect();
    buffers.sort_by_key(|buffer| buffer.offset);
    let mut end = 32;
    let mut unused = 0;
    for buffer in buffers {
        let content = buffer.content();
        assert!(buffer.offset >= end, "buffers follow each other");
        assert!(content.start >= buffer.offset && content.start <= content.end);
        unused += buffer.offset - end;
        end = content.end;
        assert!(end <= file.len() as u64);
        assert_eq!(buffer.wall.is_some(), buffer.anchor().is_some());
        check_records(&trace, buffer);
    }
    unused += file.len() as u64 - end;
    // Empty buffers hold nothing, and are not reported.
    let empty = if header.mode == TraceMode::Fdr && header.version >= 2 {
        16
    } else {
        1 << 40
    };
    assert!(
        unused % empty == 0 || !index.faults.is_empty(),
        "unused bytes are reported"
    );
    let mut of_threads = 0;
    let mut last = None;
    for thread in index.threads() {
        assert!(last < Some((thread.process, thread.thread)));
        last = Some((thread.process, thread.thread));
        of_threads += thread.buffers.len();
        assert!(
            thread
                .buffers
                .is_sorted_by_key(|buffer| (buffer.wall, buffer.offset))
        );
        let is_own = |it: &TraceBuffer| (it.process, it.thread) == (thread.process, thread.thread);
        assert!(thread.buffers.iter().all(is_own));
    }
    assert_eq!(of_threads, index.buffers().len());
}

fn check_records(trace: &Trace<'_>, buffer: &TraceBuffer) {
    let content = buffer.content();
    let mut records = trace.records(buffer);
    let mut end = content.start;
    let mut tick = buffer.tick;
    let mut back = 0;
    for record in &mut records {
        assert!(record.offset >= end, "records follow each other");
        let size = match (trace.header().mode, record.kind) {
            (TraceMode::Basic, _) => 32,
            (_, RecordKind::Argument(_)) => 16,
            (_, RecordKind::Custom { payload } | RecordKind::Typed { payload, .. }) => {
                16 + payload.len() as u64
            }
            (
                _,
                RecordKind::Enter { function }
                | RecordKind::Exit { function }
                | RecordKind::TailExit { function },
            ) => {
                assert!(function < 1 << 28);
                8
            }
            _ => 8,
        };
        end = record.offset + size;
        assert!(end <= content.end);
        back += u64::from(record.tick < tick);
        tick = record.tick;
    }
    assert!(records.next().is_none(), "the end is the end");
    assert_eq!(records.faults().count(Issue::XrayTickBack), back);
    // Iterating again gives the same result.
    let mut again = trace.records(buffer);
    let last = again.by_ref().last().map(|record| record.tick);
    assert_eq!(last.unwrap_or(buffer.tick), tick);
    let list = |faults: &jitdump::Tally<Issue>| faults.iter().collect::<Vec<_>>();
    assert_eq!(list(again.faults()), list(records.faults()));
}

/// Writes buffers according to the choices and reads them back.
fn read_back(mut choices: Choices<'_>) {
    let (mode, version) = VERSIONS[usize::from(choices.byte()) % VERSIONS.len()];
    let endian = choices.endian();
    let mut writer = Writer::new(mode, version, endian, 1 << 14);
    let mut written = Vec::new();
    for thread in 1..=i32::from(choices.byte() % 4) {
        let (wall, count) = (choices.u64() >> 32, choices.byte() % 100);
        let mut last = (choices.u64(), choices.byte().into());
        let process = choices.byte().into();
        let records = (0..count).filter_map(|_| record(&mut choices, &mut last, mode, version));
        let made = xray_trace::Buffer {
            process,
            thread,
            wall: (wall, 999_999),
            records: records.collect(),
        };
        // A buffer without records has no tick, which is reported.
        if !made.records.is_empty() {
            let offsets = writer.buffer(&made);
            written.push((made, offsets));
        }
    }
    let file = writer.finish();
    check(&file);
    let trace = Trace::parse(&file).expect("a sound header");
    assert_eq!((trace.header().endian, trace.header().version), (endian, version));
    let index = trace.index();
    assert!(index.faults.is_empty());
    for (made, offsets) in &written {
        let buffers = index.buffers().iter().filter(|it| it.thread == made.thread);
        let mut found = buffers.flat_map(|buffer| trace.records(buffer));
        for (expected, &offset) in made.records.iter().zip(offsets) {
            let record = found.next().expect("as many as were written");
            assert_eq!((record.offset, record.kind), (offset, expected.kind));
            let is_argument = matches!(record.kind, RecordKind::Argument(_));
            assert!(is_argument || (record.tick, record.cpu) == (expected.tick, expected.cpu));
        }
        assert!(found.next().is_none());
    }
}

/// Returns a record that the version supports.
fn record<'a>(
    choices: &mut Choices<'a>,
    (tick, cpu): &mut (u64, u16),
    mode: TraceMode,
    version: u16,
) -> Option<xray_trace::Record<'a>> {
    let choice = choices.byte();
    *tick = match choice >> 4 {
        0 => choices.u64(),
        1 => {
            *cpu = choices.byte().into();
            *tick
        }
        step => tick.wrapping_add(step.into()),
    };
    // No function has ID 0: in version 1, it marks unused bytes.
    let function = (u32::from(choices.u16()) << (choice >> 6)).max(1);
    let is_fdr = mode == TraceMode::Fdr;
    let kind = match choice % 8 {
        0 | 1 => RecordKind::Enter { function },
        2 | 3 => RecordKind::Exit { function },
        4 => RecordKind::TailExit { function },
        5 => RecordKind::EnterWithArguments { function },
        6 => RecordKind::Argument(function.into()),
        _ if !is_fdr => return None,
        _ => {
            let size = choices.byte() % 40;
            let payload = choices.bytes(size.into());
            if version == 1 || size % 2 == 0 {
                RecordKind::Custom { payload }
            } else {
                RecordKind::Typed { kind: 7, payload }
            }
        }
    };
    let (tick, cpu) = (*tick, *cpu);
    Some(xray_trace::Record { tick, cpu, kind })
}

fn check_map(file: &[u8]) {
    let Ok(functions) = InstrumentationMap::read(file) else {
        return;
    };
    let count = functions.addresses().len();
    // Entries have at least 16 bytes.
    assert!(count <= file.len() / 16);
    assert_eq!(functions.address(0), None);
    assert_eq!(functions.address(count as u32 + 1), None);
    assert!(functions.pointer_size == 8 || functions.addresses().iter().all(|it| it.0 <= u32::MAX.into()));
    assert!(functions.build_id.len() <= file.len());
}
