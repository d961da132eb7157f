//! XRay traces of all versions and both byte orders are read as they were written.

use jitdump::ByteOrder;
use jitinject::Issue;
use jitinject::internals::traces::xray::format::{RecordKind, Trace, TraceMode};
use proptest::prelude::*;

use crate::support::xray_trace::{Buffer, Record, VERSIONS, Writer};

/// Size of a buffer, more than any buffer here needs.
const BUFFER_SIZE: u64 = 1 << 14;

fn payload() -> impl Strategy<Value = &'static [u8]> {
    // Some look like records, or like the start of a buffer.
    const PAYLOADS: [&[u8]; 5] = [b"", b"a", b"\x0f\x0f\x80\x87\x01", &[0; 64], &[0xff; 19]];
    (0..PAYLOADS.len()).prop_map(|at| PAYLOADS[at])
}

fn kind() -> impl Strategy<Value = RecordKind<'static>> {
    let function = 0..1_u32 << 28;
    prop_oneof![
        4 => function.clone().prop_map(|function| RecordKind::Enter { function }),
        4 => function.clone().prop_map(|function| RecordKind::Exit { function }),
        1 => function.clone().prop_map(|function| RecordKind::TailExit { function }),
        1 => function.prop_map(|function| RecordKind::EnterWithArguments { function }),
        1 => any::<u64>().prop_map(RecordKind::Argument),
        1 => payload().prop_map(|payload| RecordKind::Custom { payload }),
        1 => (any::<u16>(), payload()).prop_map(|(kind, payload)| RecordKind::Typed { kind, payload }),
    ]
}

/// Distances between ticks: small, arbitrary (ticks wrap around), or more than 32 bits.
fn steps() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..2_000_u64, 1 => any::<u64>(), 1 => Just(u64::from(u32::MAX) + 1)]
}

fn buffer() -> impl Strategy<Value = Buffer<'static>> {
    let records = prop::collection::vec((steps(), 0..300_u16, kind()), 1..40);
    let numbers = (any::<i32>(), -1..3_i32, 0..3_u64, 0..1_000_000_u32);
    (numbers, records).prop_map(|((process, thread, seconds, microseconds), steps)| {
        let (mut tick, mut last_cpu) = (0_u64, 0);
        let record = |(step, cpu, kind)| {
            // An argument belongs to the record before it, so the first record cannot be one.
            if !matches!(kind, RecordKind::Argument(_)) || tick == 0 {
                tick = tick.wrapping_add(step).max(1);
                last_cpu = cpu;
            }
            let kind = match kind {
                RecordKind::Argument(_) if tick == 0 => RecordKind::Enter { function: 1 },
                other => other,
            };
            let cpu = last_cpu;
            Record { tick, cpu, kind }
        };
        Buffer {
            process: process.wrapping_add(thread),
            thread: thread + 70_000,
            wall: (seconds, microseconds),
            records: steps.into_iter().map(record).collect(),
        }
    })
}

/// Returns what a trace of a mode and version has of a buffer.
fn in_version<'a>(buffer: &Buffer<'a>, mode: TraceMode, version: u16) -> Buffer<'a> {
    let mut buffer = buffer.clone();
    match mode {
        TraceMode::Basic => {
            let is_event = |kind| matches!(kind, RecordKind::Custom { .. } | RecordKind::Typed { .. });
            buffer.records.retain(|record| !is_event(record.kind));
            let mut last = None;
            // Arguments of an event now belong to the function before it.
            for record in &mut buffer.records {
                record.cpu &= 0xff;
                match (record.kind, last) {
                    (RecordKind::Argument(_), Some((tick, cpu))) => (record.tick, record.cpu) = (tick, cpu),
                    _ => last = Some((record.tick, record.cpu)),
                }
            }
            let is_argument = |record: &&Record<'_>| matches!(record.kind, RecordKind::Argument(_));
            let leading = buffer.records.iter().take_while(is_argument).count();
            buffer.records.drain(..leading);
        }
        TraceMode::Fdr if version == 4 => {
            // An argument has the thread's processor, but an event may have another one.
            buffer
                .records
                .retain(|record| !matches!(record.kind, RecordKind::Argument(_)));
        }
        TraceMode::Fdr => {}
    }
    buffer
}

/// Returns the records of a thread with their offsets.
fn read<'a>(trace: &Trace<'a>, process: Option<i32>, thread: i32) -> Vec<(u64, Record<'a>)> {
    let index = trace.index();
    assert!(index.faults.is_empty(), "{:?}", index.faults);
    let found = index
        .threads()
        .find(|it| (it.process, it.thread) == (process, thread));
    let mut all = Vec::new();
    for buffer in found.map_or(&[][..], |found| found.buffers) {
        let mut records = trace.records(buffer);
        for record in &mut records {
            let (tick, cpu, kind) = (record.tick, record.cpu, record.kind);
            all.push((record.offset, Record { tick, cpu, kind }));
        }
        let known = [Issue::XrayTickBack, Issue::XrayLostByWriter];
        assert!(records.faults().iter().all(|(fault, _)| known.contains(&fault)));
    }
    all
}

fn assert_reads_back(buffers: &[Buffer<'_>], mode: TraceMode, version: u16, endian: ByteOrder) {
    let mut writer = Writer::new(mode, version, endian, BUFFER_SIZE);
    let buffers = buffers.iter().map(|it| in_version(it, mode, version));
    // A buffer without records has no time.
    let buffers: Vec<_> = buffers.filter(|it| !it.records.is_empty()).collect();
    let offsets: Vec<_> = buffers.iter().map(|it| writer.buffer(it)).collect();
    let file = writer.finish();
    let trace = Trace::parse(&file).unwrap();
    assert_eq!((trace.header().endian, trace.header().version), (endian, version));
    let has_process = version >= 3;
    let owner = |it: &Buffer<'_>| (has_process.then_some(it.process), it.thread);
    for (process, thread) in buffers.iter().map(owner) {
        let mut own: Vec<_> = buffers
            .iter()
            .zip(&offsets)
            .filter(|(it, _)| owner(it) == (process, thread))
            .collect();
        if mode == TraceMode::Fdr {
            own.sort_by_key(|(it, _)| it.wall);
        }
        let with_offsets = |(it, offsets): &(&Buffer<'_>, &Vec<u64>)| -> Vec<_> {
            offsets
                .iter()
                .copied()
                .zip(it.records.iter().copied())
                .map(|(at, it)| (at, it.tick, it.cpu, format!("{:?}", it.kind)))
                .collect()
        };
        let expected: Vec<_> = own.iter().flat_map(with_offsets).collect();
        let found: Vec<_> = read(&trace, process, thread)
            .into_iter()
            .map(|(at, it)| (at, it.tick, it.cpu, format!("{:?}", it.kind)))
            .collect();
        assert_eq!(found, expected, "{mode:?} {version} {endian:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_version_and_byte_order_reads_back_as_it_was_written(buffers in prop::collection::vec(buffer(), 0..5)) {
        for (mode, version) in VERSIONS {
            for endian in [ByteOrder::Little, ByteOrder::Big] {
                assert_reads_back(&buffers, mode, version, endian);
            }
        }
    }

    /// However much of a file is missing, only written records are read, and all whole ones.
    #[test]
    fn a_cut_trace_keeps_its_whole_records(buffers in prop::collection::vec(buffer(), 1..4), cut in any::<prop::sample::Index>(), big in any::<bool>()) {
        let endian = if big { ByteOrder::Big } else { ByteOrder::Little };
        for (mode, version) in VERSIONS {
            let mut writer = Writer::new(mode, version, endian, BUFFER_SIZE);
            let buffers: Vec<_> = buffers.iter().map(|it| in_version(it, mode, version)).collect();
            let mut offsets: Vec<u64> = buffers.iter().flat_map(|it| writer.buffer(it)).collect();
            let file = writer.finish();
            let end = 32 + cut.index(file.len() - 31);
            let trace = Trace::parse(&file[..end]).unwrap();
            let index = trace.index();
            let mut found: Vec<u64> = Vec::new();
            for buffer in index.buffers() {
                let mut records = trace.records(buffer);
                found.extend(records.by_ref().map(|record| record.offset));
                prop_assert_eq!(records.faults().count(Issue::XrayCutRecord), 0, "reported as XrayCutTail instead");
            }
            found.sort_unstable();
            offsets.retain(|&offset| offset < end as u64);
            // The last record is truncated, unless it ends where the file does.
            prop_assert!(offsets.starts_with(&found) && offsets.len() <= found.len() + 1);
            prop_assert!(index.faults.iter().all(|(fault, _)| matches!(fault, Issue::XrayCutTail | Issue::XrayNoTick)));
        }
    }
}

#[test]
fn what_the_runtime_has_lost_of_typed_events_costs_the_last_records_only() {
    let typed = RecordKind::Typed {
        kind: 9,
        payload: b"of a type",
    };
    let whats = [
        RecordKind::Enter { function: 1 },
        typed,
        typed,
        RecordKind::Exit { function: 1 },
        RecordKind::Enter { function: 2 },
        RecordKind::Exit { function: 2 },
        RecordKind::Enter { function: 3 },
        RecordKind::Enter { function: 4 },
    ];
    let records = whats
        .into_iter()
        .zip(100..)
        .map(|(kind, tick)| Record { tick, cpu: 1, kind });
    let made = Buffer {
        process: 1,
        thread: 2,
        wall: (3, 4),
        records: records.collect(),
    };
    let next = Buffer {
        thread: 3,
        ..made.clone()
    };
    for endian in [ByteOrder::Little, ByteOrder::Big] {
        let mut writer = Writer::new(TraceMode::Fdr, 5, endian, BUFFER_SIZE);
        writer.lose_bytes();
        writer.buffer(&made);
        writer.buffer(&next);
        let file = writer.finish();
        let trace = Trace::parse(&file).unwrap();
        let index = trace.index();
        assert!(index.faults.is_empty());
        assert_eq!(index.buffers().len(), 2);
        for buffer in index.buffers() {
            let mut records = trace.records(buffer);
            let read: Vec<_> = records.by_ref().map(|record| record.kind).collect();
            // The lost 32 bytes are four function records.
            assert_eq!(read, whats[..4]);
            assert_eq!(records.faults().count(Issue::XrayLostByWriter), 32);
            assert_eq!(records.faults().iter().count(), 1);
        }
    }
}

#[test]
fn the_end_of_a_buffer_is_missed_once_if_it_is_missing() {
    let enter = Record {
        tick: 100,
        cpu: 1,
        kind: RecordKind::Enter { function: 1 },
    };
    let mut writer = Writer::new(TraceMode::Fdr, 1, ByteOrder::Little, BUFFER_SIZE);
    let offsets = writer.buffer(&Buffer {
        process: 1,
        thread: 2,
        wall: (3, 4),
        records: vec![enter],
    });
    let whole = writer.finish();
    let mut without_end = whole.clone();
    without_end[offsets[0] as usize + 8..].fill(0);
    for (file, missed) in [(whole, 0), (without_end, 1)] {
        let trace = Trace::parse(&file).unwrap();
        let index = trace.index();
        let mut records = trace.records(&index.buffers()[0]);
        assert_eq!(records.by_ref().count(), 1);
        for _ in 0..3 {
            assert_eq!(records.faults().count(Issue::XrayNoEnd), missed);
            assert_eq!(records.faults().iter().count() as u64, missed);
            assert!(records.next().is_none());
        }
    }
}
