//! Benchmarks of each codec: time, bytes per second, and allocations. `cargo bench` runs all of them, or those
//! whose names contain a given text.
//!
//! Benchmarks of one function have that in their name; their allocations are per function. The others process
//! whole files of [`FUNCTIONS`] functions or [`SAMPLES`] samples.

// Benchmarks read and write files of their own.
#![allow(clippy::disallowed_methods)]
// Benchmarks report failures by panicking.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[allow(dead_code)]
#[path = "../tests/support/dump.rs"]
mod dump;
#[allow(dead_code)]
#[path = "../tests/support/generator.rs"]
mod generator;
#[allow(dead_code)]
#[path = "../tests/support/lines.rs"]
mod lines;
#[allow(dead_code)]
#[path = "../tests/support/profile.rs"]
mod profile;

#[allow(dead_code)]
#[path = "../tests/support/xray_trace.rs"]
mod xray_trace;

use std::io;
use std::sync::LazyLock;

use divan::counter::{BytesCount, ItemsCount};
use divan::{AllocProfiler, Bencher, black_box};
use jitdump::debug_info::DebugInfo;
use jitdump::internals::format::marker;
use jitdump::internals::format::unwinding::Unwinding;
use jitdump::internals::units::Pid;
use jitdump::{Address, AddressRange, ByteOrder, Dump, Function, Machine, Time};
use jitinject::internals::code::profile_index::ProfileIndex;
use jitinject::internals::code::selection::{Doubts, DumpState, Selector};
use jitinject::internals::code::timeline::{FileIndex, FunctionId, PlacedEvent, Timeline};
use jitinject::internals::elf::dwarf::{Encoder, EncoderMemory, FunctionUnit, Sections, Settings};
use jitinject::internals::elf::eh_frame::{EhFrame, FdeIndex, TableLayout, UnwindTables};
use jitinject::internals::elf::object::{ObjectContent, PlacedTables};
use jitinject::internals::elf::{dwarf, object};
use jitinject::internals::files::objects::sparse::SparseBytes;
use jitinject::internals::perf::compression::Compressor;
use jitinject::internals::perf::record::data::ProfileBytes;
use jitinject::internals::perf::{Profile, compression};
use jitinject::internals::traces::mono::format as mono;
use jitinject::internals::traces::xray::format::{RecordKind, Trace, TraceMode};

use crate::generator::{Lines, Plan};
use crate::lines::{LAYOUTS, Layout};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const FUNCTIONS: u64 = 10_000;
const SAMPLES: u64 = 20_000;

fn main() {
    divan::main();
}

/// Files of a process, in memory.
struct Files {
    profile: Vec<u8>,
    dump: Vec<u8>,
}

impl Files {
    fn make(lines: Lines) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan {
            functions: FUNCTIONS,
            samples: SAMPLES,
            sampled: 10,
            depth: 32,
            distance: 256,
            lines,
            has_tables: true,
            ..Plan::default()
        };
        let profile = generator::write(folder.path(), &plan, |_| {});
        Self {
            profile: std::fs::read(profile).unwrap(),
            dump: std::fs::read(folder.path().join("jit-5000.dump")).unwrap(),
        }
    }

    /// Returns the files whose dump has lines in a layout.
    fn with(layout: Layout) -> &'static Self {
        static ALL: LazyLock<[Files; 3]> =
            LazyLock::new(|| LAYOUTS.map(|layout| Files::make(Lines::Model(layout))));
        let at = LAYOUTS.iter().position(|known| *known == layout);
        &ALL[at.unwrap()]
    }

    fn dump(&self) -> Dump<'_> {
        Dump::parse(&self.dump, machine()).unwrap()
    }

    fn profile(&self) -> Profile<'_> {
        Profile::parse(&self.profile).unwrap()
    }
}

fn machine() -> Machine {
    Machine::new(dump::X86_64, ByteOrder::Little)
}

/// Index of a function in the middle of a dump.
const FUNCTION: u32 = FUNCTIONS as u32 / 2;

fn some_function<'a>(dump: &'a Dump<'_>) -> Function<'a> {
    dump.function(FUNCTION).unwrap()
}

/// Indexes the functions of a whole dump.
#[divan::bench(args = LAYOUTS)]
fn jitdump_index(bencher: Bencher<'_, '_>, layout: Layout) {
    let files = Files::with(layout);
    let bytes = BytesCount::of_slice(&files.dump);
    bencher
        .counter(bytes)
        .counter(ItemsCount::new(FUNCTIONS))
        .bench(|| Dump::parse(black_box(&files.dump), machine()));
}

/// Returns a real log of Mono's profiler, with its buffers repeated to some megabytes.
fn mono_log(name: &str) -> Vec<u8> {
    const REPEATED: usize = 100;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let log = std::fs::read(folder.join(name).join("trace.mlpd")).unwrap();
    let header = mono::LogHeader::parse(&log).unwrap().size;
    [&log[..header], &log[header..].repeat(REPEATED)].concat()
}

/// Reads all events and stacks of a whole log of Mono's profiler.
#[divan::bench(args = ["mono-calls", "mono-alloc", "mono-joined"])]
fn mono_events(bencher: Bencher<'_, '_>, name: &str) {
    let file = mono_log(name);
    let log = mono::Log::parse(&file).unwrap();
    bencher
        .counter(BytesCount::of_slice(&file))
        .counter(ItemsCount::new(log.events().count()))
        .bench(|| log.events().map(|event| black_box(event).offset).max());
}

/// Indexes code and names in a whole log of Mono's profiler.
#[divan::bench(args = ["mono-calls", "mono-alloc", "mono-joined"])]
fn mono_index(bencher: Bencher<'_, '_>, name: &str) {
    let file = mono_log(name);
    let log = mono::Log::parse(&file).unwrap();
    bencher
        .counter(BytesCount::of_slice(&file))
        .counter(ItemsCount::new(log.events().count()))
        .bench(|| mono::LogIndex::of(black_box(&log)));
}

/// Returns an XRay trace of some megabytes, in buffers of 64 KiB: calls of two threads, a hundred ticks apart.
fn xray_trace(mode: TraceMode, version: u16) -> Vec<u8> {
    const BUFFERS: u64 = 200;
    const CALLS: u64 = 4_000;
    let mut writer = xray_trace::Writer::new(mode, version, ByteOrder::Little, 1 << 16);
    for buffer in 0..BUFFERS {
        let call = |at: u64| {
            let function = (at % 1_000) as u32;
            [RecordKind::Enter { function }, RecordKind::Exit { function }]
        };
        let ticks = (buffer * 1_000_000..).step_by(100);
        let records = (0..CALLS).flat_map(call).zip(ticks);
        writer.buffer(&xray_trace::Buffer {
            process: 1,
            thread: (buffer % 2) as i32,
            wall: (buffer, 0),
            records: records
                .map(|(kind, tick)| xray_trace::Record { tick, cpu: 1, kind })
                .collect(),
        });
    }
    writer.finish()
}

/// Reads all buffers and records of a whole XRay trace, thread by thread.
#[divan::bench(args = [(TraceMode::Fdr, 5), (TraceMode::Fdr, 1), (TraceMode::Basic, 3)])]
fn xray_records(bencher: Bencher<'_, '_>, (mode, version): (TraceMode, u16)) {
    let file = xray_trace(mode, version);
    let records = |file| {
        let trace = Trace::parse(file).unwrap();
        let index = trace.index();
        let buffers = index.threads().flat_map(|thread| thread.buffers);
        let ticks = buffers
            .flat_map(|buffer| trace.records(buffer))
            .map(|record| black_box(record).tick);
        ticks.fold((0_u64, 0), |(count, last), tick| (count + 1, last.max(tick)))
    };
    bencher
        .counter(BytesCount::of_slice(&file))
        .counter(ItemsCount::new(records(&file).0))
        .bench(|| records(black_box(&file)));
}

/// Reads only the buffers of a whole XRay trace.
#[divan::bench(args = [(TraceMode::Fdr, 5), (TraceMode::Fdr, 1), (TraceMode::Basic, 3)])]
fn xray_index(bencher: Bencher<'_, '_>, (mode, version): (TraceMode, u16)) {
    let file = xray_trace(mode, version);
    let trace = Trace::parse(&file).unwrap();
    bencher
        .counter(BytesCount::of_slice(&file))
        .bench(|| black_box(&trace).index());
}

/// Indexes a whole profile, without its samples.
#[divan::bench]
fn index_profile(bencher: Bencher<'_, '_>) {
    let files = Files::with(Layout::Lines);
    let profile = files.profile();
    bencher
        .counter(BytesCount::new(profile.data.len()))
        .counter(ItemsCount::new(SAMPLES))
        .bench(|| ProfileIndex::of(black_box(&profile), marker::dump_path));
}

/// Finds the functions that the samples of a whole profile hit.
#[divan::bench]
fn profile_selection(bencher: Bencher<'_, '_>) {
    let files = Files::with(Layout::Lines);
    let (profile, dump) = (files.profile(), files.dump());
    let profile_index = ProfileIndex::of(&profile, marker::dump_path);
    let timeline = timeline(&profile_index, &dump);
    let selector = Selector {
        profile: &profile,
        processes: &profile_index.processes,
        timeline: &timeline,
        dumps: profile_index.processes.spaces.map(|_| DumpState::Read),
        doubts: Doubts::default(),
    };
    bencher
        .counter(BytesCount::new(profile.data.len()))
        .counter(ItemsCount::new(SAMPLES))
        .bench(|| black_box(&selector).walk(&profile_index.marks, |_| {}));
}

/// Builds the timeline of all code of a dump.
#[divan::bench]
fn timeline_of_dump(bencher: Bencher<'_, '_>) {
    let files = Files::with(Layout::Lines);
    let (profile, dump) = (files.profile(), files.dump());
    let profile_index = ProfileIndex::of(&profile, marker::dump_path);
    bencher
        .counter(ItemsCount::new(FUNCTIONS))
        .bench(|| timeline(&profile_index, black_box(&dump)));
}

fn timeline(profile_index: &ProfileIndex, dump: &Dump<'_>) -> Timeline {
    let placed = dump.events().map(|event| {
        let time = Time(event.time.0);
        PlacedEvent {
            time,
            space: profile_index.processes.space_at(Pid(event.pid), time).unwrap(),
            function: FunctionId {
                file: FileIndex(0),
                function: event.function,
            },
            range: dump.range(event.function),
            left: None,
        }
    });
    Timeline::new(&profile_index.processes, placed.collect())
}

/// Reads and normalises lines and inlined calls of one function.
#[divan::bench(args = LAYOUTS)]
fn debug_info_of_function(bencher: Bencher<'_, '_>, layout: Layout) {
    let dump = Files::with(layout).dump();
    let view = some_function(&dump);
    bencher
        .counter(BytesCount::new(dump.record_bytes(FUNCTION) - view.range.size()))
        .bench(|| black_box(&view).sources());
}

/// Encodes lines and inlined calls of one function as DWARF.
#[divan::bench(args = LAYOUTS)]
fn dwarf_of_function(bencher: Bencher<'_, '_>, layout: Layout) {
    let dump = Files::with(layout).dump();
    let view = some_function(&dump);
    let info = view.sources().info.unwrap();
    let mut memory = EncoderMemory::default();
    let size = |sections: Sections<'_>| sections.iter().map(|(_, content)| content.len()).sum::<usize>();
    let bytes = size(dwarf_of(&view, &info, &mut memory));
    bencher
        .counter(BytesCount::new(bytes))
        .bench_local(|| size(dwarf_of(black_box(&view), &info, &mut memory)));
}

fn dwarf_of<'b>(view: &Function<'_>, info: &DebugInfo<'_>, memory: &'b mut EncoderMemory) -> Sections<'b> {
    let unit = FunctionUnit {
        symbol: view.name,
        address: object::TEXT_OFFSET,
        size: view.range.size() as u32,
        info,
    };
    let settings = Settings {
        version: dwarf::Version::Four,
        machine: machine(),
        directory: b".",
    };
    let mut encoder = Encoder::new(memory, settings);
    encoder.add(&unit).unwrap();
    encoder.finish()
}

/// Reads and rebuilds the unwinding tables of one function.
#[divan::bench]
fn unwinding_of_function(bencher: Bencher<'_, '_>) {
    let dump = Files::with(Layout::Lines).dump();
    let code = some_function(&dump).range;
    let table = dump.unwinding(FUNCTION).unwrap();
    bencher
        .counter(BytesCount::of_slice(table.eh_frame))
        .bench(|| tables_of(code, black_box(&table)));
}

fn tables_of(code: AddressRange, table: &Unwinding<'_>) -> UnwindTables {
    let behind = Address(code.start.0 + code.size().next_multiple_of(8));
    let entries = FdeIndex::read(EhFrame {
        section: table.eh_frame,
        address: behind,
        endian: ByteOrder::Little,
        address_size: 8,
    });
    let entries = entries
        .overlapping(code)
        .map(|entry| (entry, object::TEXT_OFFSET));
    let layout = TableLayout {
        eh_frame: 0x1000,
        endian: ByteOrder::Little,
        address_size: 8,
    };
    UnwindTables::build(entries, layout).unwrap()
}

/// Encodes the object of one function from existing parts.
#[divan::bench]
fn object_of_function(bencher: Bencher<'_, '_>) {
    let dump = Files::with(Layout::Lists).dump();
    let view = some_function(&dump);
    let info = view.sources().info.unwrap();
    let table = dump.unwinding(FUNCTION).unwrap();
    let mut memory = EncoderMemory::default();
    let (debug, tables) = (dwarf_of(&view, &info, &mut memory), tables_of(view.range, &table));
    let function = ObjectContent {
        machine: machine(),
        functions: &[object::ObjectFunction {
            name: view.name,
            code: object::CodeBytes::Known(view.code.unwrap()),
            address: object::TEXT_OFFSET,
        }],
        address: view.range.start.0,
        time: 1,
        tables: PlacedTables {
            tables: &tables,
            address: 0x1000,
        },
        debug: &debug,
    };
    let mut out = SparseBytes::default();
    object::encode(&function, &mut out);
    bencher
        .counter(BytesCount::new(out.stored_size()))
        .bench_local(|| object::encode(black_box(&function), &mut out));
}

/// Returns the compressed records of a profile.
fn compressed(profile: &Profile<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut compressor = Compressor::new(1, ByteOrder::Little).unwrap();
    compressor
        .write(profile.data.in_memory().unwrap(), &mut out)
        .unwrap();
    compressor.flush(&mut out).unwrap();
    out
}

/// Compresses the records of a whole profile; throughput in uncompressed bytes.
#[divan::bench]
fn compress(bencher: Bencher<'_, '_>) {
    let profile = Files::with(Layout::Lines).profile();
    bencher
        .counter(BytesCount::new(profile.data.len()))
        .bench(|| compressed(black_box(&profile)));
}

/// Decompresses the records of a whole profile; throughput in uncompressed bytes.
#[divan::bench]
fn expand(bencher: Bencher<'_, '_>) {
    let profile = Files::with(Layout::Lines).profile();
    let packed = compressed(&profile);
    bencher.counter(BytesCount::new(profile.data.len())).bench(|| {
        let records = ProfileBytes::from(black_box(&packed[..]));
        compression::expand(records, ByteOrder::Little, &mut io::sink())
    });
}
