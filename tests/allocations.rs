//! Encoding lines and inlined calls allocates nothing once the buffers have grown, functions without samples take little
//! memory, and so do events without samples. A program of its own, since whatever else runs in it would be counted too.

// Tests read and write files of their own.
#![allow(clippy::disallowed_methods)]
// An allocator can't be written without it.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

#[allow(dead_code)]
#[path = "support/dump.rs"]
mod dump;
#[allow(dead_code)]
#[path = "support/profile.rs"]
mod profile;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use jitdump::debug_info::{DebugInfo, InlinedCall, LineRow, SourceFile, SourceFunction};
use jitdump::{ByteOrder, Machine};
use jitinject::inject;
use jitinject::internals::elf::dwarf::{Encoder, EncoderMemory, FunctionUnit, Settings, Version};
use jitinject::{InjectOptions, LoadOptions, Summary};

use crate::dump::DumpWriter;
use crate::profile::ProfileWriter;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|count| count.set(count.get() + 1));
}

/// Bytes that are allocated by all threads, and the most that were.
static BYTES: AtomicUsize = AtomicUsize::new(0);
static MOST_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Held by each test, since bytes are those of all threads.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn add_bytes(size: usize) {
    let bytes = BYTES.fetch_add(size, Ordering::Relaxed) + size;
    MOST_BYTES.fetch_max(bytes, Ordering::Relaxed);
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        add_bytes(layout.size());
        // SAFETY: the caller's promises are those that are asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        add_bytes(size);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The same function but for its names, which come in the same sizes again and again.
fn info(names: &[[u8; 8]; 3], rows: u32, calls: u32) -> DebugInfo<'_> {
    let mut info = raw_info(names, rows, calls);
    info.normalise(SIZE);
    info
}

/// Bytes of code that a function has.
const SIZE: u32 = 4000;

/// It as a runtime may tell of it.
fn raw_info(names: &[[u8; 8]; 3], rows: u32, calls: u32) -> DebugInfo<'_> {
    let [path, name, inlined] = names;
    let function = |name, file| SourceFunction {
        name,
        file: Some(file),
        line: 3,
        column: 1,
    };
    let row = |at| LineRow {
        offset: at * (SIZE / rows.max(1)),
        file: Some(at % 3),
        line: 10 + at * 7 % 50,
        column: at % 20,
        discriminator: at % 2,
    };
    let call = |at| InlinedCall {
        depth: at % 4,
        function: 1 + at % 2,
        ranges: (0..=at % 3)
            .map(|range| at * 40 + range * 9..at * 40 + range * 9 + 5)
            .collect(),
        line: 5,
        column: at,
    };
    DebugInfo {
        files: vec![
            SourceFile::from(&path[..]),
            SourceFile::from(&b"src/inlined.js"[..]),
            SourceFile {
                path: b"/lib/\xff\x1b.js".into(),
                text: Some(b"the text\n"),
                script: None,
            },
        ],
        functions: vec![
            function(name, 0),
            function(inlined, 1),
            function(b"\x07\xc2\x9f", 2),
        ],
        rows: (0..rows).map(row).collect(),
        calls: (0..calls).map(call).collect(),
    }
}

fn names(number: u64) -> [[u8; 8]; 3] {
    [1, 2, 3].map(|kind| {
        let number = number.wrapping_mul(kind).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        number.to_ne_bytes().map(|byte| b'a' + byte % 26)
    })
}

/// How often memory is asked for while 200 functions are encoded, `units` in each file.
fn allocations(version: Version, rows: u32, calls: u32, units: usize) -> u64 {
    const FUNCTIONS: u64 = 200;
    let settings = Settings {
        version,
        machine: Machine::new(62, ByteOrder::Little),
        directory: b"/home/me",
    };
    let names: Vec<_> = (0..FUNCTIONS).map(names).collect();
    let infos: Vec<_> = names.iter().map(|names| info(names, rows, calls)).collect();
    let mut buffers = EncoderMemory::default();
    let mut encode = || {
        let mut bytes = 0;
        for infos in infos.chunks(units) {
            let mut encoder = Encoder::new(&mut buffers, settings);
            for (at, info) in infos.iter().enumerate() {
                let function = FunctionUnit {
                    symbol: b"the symbol",
                    address: 0x40 + u64::from(SIZE) * at as u64,
                    size: SIZE,
                    info,
                };
                encoder.add(&function).unwrap();
            }
            bytes += encoder
                .finish()
                .iter()
                .map(|(_, bytes)| bytes.len())
                .sum::<usize>();
        }
        bytes
    };
    let first = encode();
    let before = ALLOCATIONS.get();
    assert_eq!(encode(), first);
    ALLOCATIONS.get() - before
}

#[test]
fn nothing_is_allocated_once_buffers_have_grown() {
    let _alone = ONE_AT_A_TIME.lock();
    assert!(ALLOCATIONS.get() > 0, "they are counted");
    for version in [Version::Four, Version::Five] {
        for (rows, calls) in [(0, 0), (10, 0), (40, 8), (400, 60)] {
            for units in [1, 50] {
                let count = allocations(version, rows, calls, units);
                assert_eq!(count, 0, "{version:?}, {rows} rows, {calls} calls, {units} units");
            }
        }
    }
}

#[test]
fn making_lines_consistent_allocates_for_calls_only() {
    let _alone = ONE_AT_A_TIME.lock();
    let names = names(7);
    let allocations = |rows, calls| {
        let mut info = raw_info(&names, rows, calls);
        let before = ALLOCATIONS.get();
        info.normalise(SIZE);
        ALLOCATIONS.get() - before
    };
    for rows in [0, 10, 400] {
        assert_eq!(allocations(rows, 0), 0, "{rows} rows");
    }
    // What is open, what is free of the function, places where rows are to start, and the rows that calls interrupt.
    let count = allocations(10, 1);
    assert!(count <= 8, "{count}");
}

/// Returns the most memory that injection takes, in bytes, with so many functions of which one has samples.
fn most_bytes(functions: u64) -> usize {
    const PID: u32 = 4000;
    const SAMPLED: u64 = 0x7000_0000;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut dump = DumpWriter::new(ByteOrder::Little, dump::X86_64, PID);
    for index in 0..functions {
        dump.load(
            1000 + index,
            SAMPLED + index * 256,
            index,
            b"function",
            &[0x90; 200],
        );
    }
    let dump_path = path(&format!("jit-{PID}.dump"));
    fs::write(&dump_path, &dump.bytes).unwrap();
    drop(dump);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, dump_path.to_str().unwrap(), 500);
    for sample in 0..100 {
        profile.sample(PID, 2000 + functions + sample, &[SAMPLED + sample], None);
    }
    fs::write(path("perf.data"), profile.finish()).unwrap();
    let options = InjectOptions {
        load: LoadOptions {
            input: path("perf.data"),
            ..LoadOptions::default()
        },
        output: path("out.data"),
        ..InjectOptions::default()
    };
    let (summary, most) = most_bytes_of(&options);
    assert_eq!(summary.functions.loaded, functions);
    assert_eq!((summary.functions.touched, summary.functions.written), (1, 1));
    most
}

/// Injects, and returns the most memory that this takes, in bytes.
fn most_bytes_of(options: &InjectOptions) -> (Summary, usize) {
    let before = BYTES.load(Ordering::Relaxed);
    MOST_BYTES.store(before, Ordering::Relaxed);
    let summary = inject(options, &mut ()).unwrap();
    (summary, MOST_BYTES.load(Ordering::Relaxed) - before)
}

/// Returns the most memory that injection with a summary takes and the size of the summary, in bytes, with so many events,
/// each of which has a sample in another thread.
fn most_bytes_with_events(events: u64) -> [usize; 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.sample_type |= profile::field::IDENTIFIER;
    for event in 0..events {
        // The event of a sample is the one with the first ID.
        profile.ids = vec![event + 1];
        profile.sample(4000 + event as u32, 1000 + event, &[0x7000_0000], None);
    }
    profile.ids = (1..=events).collect();
    fs::write(path("perf.data"), profile.finish()).unwrap();
    let options = InjectOptions {
        load: LoadOptions {
            input: path("perf.data"),
            ..LoadOptions::default()
        },
        output: path("out.data"),
        summary: Some(path("summary.json")),
        ..InjectOptions::default()
    };
    let (summary, most) = most_bytes_of(&options);
    assert_eq!(summary.profile.unwrap().threads.len() as u64, events);
    let written = fs::metadata(path("summary.json")).unwrap().len();
    [most, written as usize]
}

#[test]
fn a_summary_grows_as_events_and_threads_do() {
    let _alone = ONE_AT_A_TIME.lock();
    let (few, many) = (most_bytes_with_events(500), most_bytes_with_events(2000));
    for (few, many) in few.into_iter().zip(many) {
        let exponent = (many as f64 / few as f64).log(4.0);
        assert!(exponent <= 1.1, "{few} and {many} bytes");
    }
}

#[test]
fn a_function_without_samples_takes_few_bytes() {
    // Lists grow by doubling, so those of powers of two have no room for more.
    const FEW: u64 = 1 << 15;
    const MANY: u64 = 1 << 16;
    let _alone = ONE_AT_A_TIME.lock();
    let (few, many) = (most_bytes(FEW), most_bytes(MANY));
    let each = (many - few) as u64 / (MANY - FEW);
    assert!(each < 48, "{each} bytes");
}
