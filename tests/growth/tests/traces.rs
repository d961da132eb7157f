//! XRay traces designed to be slow.

use std::fs;

use jitdump::ByteOrder;
use jitinject::internals::traces::xray::format::{RecordKind, TraceMode};

use crate::support::xray_trace::{Buffer, Record, Writer};
use crate::support::{assert_linear, inject};

/// A kind of trace, and options for it.
struct Kind {
    name: &'static str,
    options: &'static [&'static str],
    /// Returns the thread and the content of a record, by its index.
    record: fn(u64) -> (i32, Record<'static>),
    /// Whether the threads are processes of their own.
    has_processes: bool,
}

fn enter(tick: u64, function: u32) -> Record<'static> {
    let kind = RecordKind::Enter { function };
    Record { tick, cpu: 0, kind }
}

fn exit(tick: u64, function: u32) -> Record<'static> {
    let kind = RecordKind::Exit { function };
    Record { tick, cpu: 0, kind }
}

/// Returns a record of consecutive calls.
fn flat(at: u64) -> Record<'static> {
    match at % 2 {
        0 => enter(at * 50, 1),
        _ => exit(at * 50, 1),
    }
}

const KINDS: [Kind; 8] = [
    Kind {
        name: "a call after another",
        options: &[],
        record: |at| (1, flat(at)),
        has_processes: false,
    },
    Kind {
        name: "each call in a thread of its own",
        options: &[],
        record: |at| ((at / 2 + 1) as i32, flat(at)),
        has_processes: false,
    },
    Kind {
        name: "each call in a process of its own",
        options: &[],
        record: |at| ((at / 2 + 1) as i32, flat(at)),
        has_processes: true,
    },
    Kind {
        name: "calls that never end",
        options: &["--aggregate"],
        record: |at| (1, enter(at * 50, (at % 7 + 1) as u32)),
        has_processes: false,
    },
    Kind {
        name: "exits that belong to no call, below many calls",
        options: &[],
        record: |at| match at {
            0..500 => (1, enter(at * 50, 1)),
            _ => (1, exit(at * 50, (at + 2) as u32)),
        },
        has_processes: false,
    },
    Kind {
        name: "durations of calls that end with those around them",
        options: &["--events", "durations"],
        record: |at| match at % 500 {
            0 => (1, enter(at * 50, 1)),
            499 => (1, exit(at * 50, 1)),
            _ => (1, enter(at * 50, 2)),
        },
        has_processes: false,
    },
    Kind {
        name: "long calls in short steps",
        options: &["--resample", "1ns"],
        record: |at| (1, flat(at * 1001)),
        has_processes: false,
    },
    Kind {
        name: "a function for each call",
        options: &[],
        record: |at| match at % 2 {
            0 => (1, enter(at * 50, (at + 1) as u32)),
            _ => (1, exit(at * 50, at as u32)),
        },
        has_processes: false,
    },
];

/// Returns the blocks passed for a trace of `records` records.
fn work(kind: &Kind, records: u64) -> u64 {
    /// Maximum number of records in a buffer; real ones are smaller.
    const MAX_RECORDS: usize = 100_000;
    let mut writer = Writer::new(TraceMode::Fdr, 5, ByteOrder::Little, 1 << 20);
    let mut buffer = Buffer {
        process: 1,
        thread: 1,
        wall: (1000, 0),
        records: Vec::new(),
    };
    for (thread, record) in (0..records).map(kind.record) {
        if !buffer.records.is_empty() && (thread != buffer.thread || buffer.records.len() == MAX_RECORDS) {
            writer.buffer(&buffer);
            buffer.records.clear();
        }
        buffer.thread = thread;
        buffer.process = if kind.has_processes { thread } else { 1 };
        // Ticks are nanoseconds of the wall clock.
        buffer.wall = (
            1000 + record.tick / 1_000_000_000,
            (record.tick % 1_000_000_000 / 1000) as u32,
        );
        buffer.records.push(record);
    }
    writer.buffer(&buffer);
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("trace.xray");
    fs::write(&input, writer.finish()).unwrap();
    inject(
        &input,
        &folder.path().join("out.data"),
        kind.options,
        "XRay trace, ",
    )
}

#[test]
fn hostile_traces_make_no_more_work_than_their_size_justifies() {
    for kind in &KINDS {
        assert_linear(kind.name, 2000, |records| work(kind, records));
    }
}
