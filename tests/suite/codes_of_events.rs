//! Diagnostics of events from logs and traces, of outputs and of the command line that no other file of tests covers.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};

use jitdump::{Address, ByteOrder};
use jitinject::internals::traces::mono::format::event::{
    LogEventKind, ManagedObject, Metadata, Method, MonitorEvent, Stage, ThreadId,
};
use jitinject::internals::traces::xray::format::{RecordKind, TraceMode};
use serde_json::{Value, json};

use crate::support::dump::{self, DumpWriter};
use crate::support::mono_log::{Bases, Writer};
use crate::support::profile::{ProfileWriter, field};
use crate::support::recording::{PID, Recording};
use crate::support::reports::inject_with_summary;
use crate::support::tools::text;
use crate::support::xray_trace::{Buffer, Record, Writer as TraceWriter};
use crate::support::{attempt, capture, codes, diagnostics, has_code, jitinject, said, scratch};

/// Returns a Mono log with a method, whose events `add` writes.
fn log(add: impl FnOnce(&mut Writer, Method)) -> Vec<u8> {
    let mut log = Writer::new(17);
    log.buffer(Bases {
        time: 1_000_000,
        thread: 0x7000,
        ..Bases::default()
    });
    let method = Method(0x5000);
    log.kind(
        1_000_000,
        &LogEventKind::Jit {
            method,
            code: Address(0x4000_0000),
            size: 0x80,
            name: b"Some:Method ()",
        },
    );
    add(&mut log, method);
    log.finish()
}

/// Runs jitinject on a log of its own; returns the summary.
fn summary_of_log(content: &[u8], more: &[&str]) -> Value {
    let folder = scratch();
    let path = folder.path().join("trace.mlpd");
    std::fs::write(&path, content).unwrap();
    let (_, summary) = inject_with_summary(&path, &folder.path().join("out.data"), more);
    summary
}

#[test]
fn unmatched_events_of_a_mono_log_are_counted() {
    let waits = log(|log, method| {
        let object = ManagedObject(0x8000);
        log.monitor(1_001_000, MonitorEvent::Done, object, &[]);
        log.monitor(1_002_000, MonitorEvent::Contention, object, &[method]);
    });
    let summary = summary_of_log(&waits, &[]);
    let unpaired = diagnostics(&summary, "JI285");
    assert_eq!(unpaired.len(), 1, "{summary}");
    assert_eq!(unpaired[0]["count"], 2);

    let calls = log(|log, method| {
        log.kind(1_001_000, &LogEventKind::Leave(method));
        log.kind(1_002_000, &LogEventKind::Enter(method));
        log.kind(1_003_000, &LogEventKind::Leave(method));
    });
    let summary = summary_of_log(&calls, &[]);
    let unmatched = diagnostics(&summary, "JI282");
    assert_eq!(unmatched.len(), 1, "{summary}");
    assert_eq!(unmatched[0]["count"], 1);
}

#[test]
fn call_chains_of_a_mono_log_have_a_limit() {
    let deep = log(|log, method| log.throw(1_001_000, ManagedObject(0x8000), &[method; 200]));
    let summary = summary_of_log(&deep, &[]);
    let cut = diagnostics(&summary, "JI280");
    assert_eq!(cut.len(), 1, "{summary}");
    assert_eq!(cut[0]["count"], 1);
}

#[test]
fn a_trace_without_its_binary_is_reported() {
    let folder = scratch();
    let joined = capture::folder("xray-joined-mono14");
    let trace = joined.join("trace.xray");
    let (_, summary) = inject_with_summary(&trace, &folder.path().join("out.data"), &[]);
    assert_eq!(diagnostics(&summary, "JI124").len(), 1, "{summary}");
    // The binary of another recording.
    let binary = capture::folder("xray-basic19").join("work");
    let profile = joined.join("perf.data");
    let more = ["--xray-log", text(&trace), "--xray-binary", text(&binary)];
    let (_, summary) = inject_with_summary(&profile, &folder.path().join("out.data"), &more);
    let not_mapped = diagnostics(&summary, "JI125");
    assert_eq!(not_mapped.len(), 1, "{summary}");
    assert_eq!(not_mapped[0]["file"], text(&binary));
    assert!(diagnostics(&summary, "JI124").is_empty());
}

/// Unwinding tables of another function.
#[test]
fn a_function_without_an_entry_in_its_tables_is_reported() {
    let recording = Recording::new();
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, PID);
    let (tables, header) = dump::tables(0x10, 8);
    dump.unwinding(1000, &tables[..tables.len() - 8], &header);
    dump.load(1000, 0x4000_0000, 0, b"function", &[0x90; 64]);
    std::fs::write(&recording.dump, &dump.bytes).unwrap();
    let said = recording.inject(&["--all"]);
    assert_eq!(codes(&said), ["JI260"], "{said}");
}

#[test]
fn a_summary_among_the_objects_is_refused() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    let summary = folder.path().join("out.data.elf/summary.json");
    let ran = attempt(
        &capture::profile("php82"),
        &output,
        &["--summary", text(&summary)],
    );
    assert_eq!(ran.status.code(), Some(1));
    assert_eq!(codes(&said(&ran)), ["JI404"]);
    assert!(said(&ran).contains(text(&summary)));
    assert!(!output.exists());
}

/// Runs jitinject with a profile on standard input.
fn piped(profile: &[u8], output: &Path, variable: (&str, &str)) -> Output {
    let mut child = jitinject()
        .args(["-i", "-", "-o", text(output)])
        .env(variable.0, variable.1)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(profile);
    child.wait_with_output().unwrap()
}

#[test]
fn without_a_folder_for_temporary_files_a_stream_is_an_error() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    let profile = std::fs::read(capture::profile("php82")).unwrap();
    let missing = folder.path().join("missing");
    let ran = piped(&profile, &output, ("TMPDIR", text(&missing)));
    assert_eq!(ran.status.code(), Some(1));
    assert_eq!(codes(&said(&ran)), ["JI402"]);
    assert!(said(&ran).contains(text(&missing)));
}

#[test]
fn errors_of_commands_have_codes() {
    let unknown = jitinject().args(["man", "nonsense"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(1));
    assert!(has_code(&said(&unknown), "JI421"));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let child = jitinject()
        .arg("explain")
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn();
    let ran = child.unwrap().wait_with_output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    assert_eq!(codes(&said(&ran)), ["JI426"]);
}

/// Returns a trace with a call in each of `processes` processes, numbered from 1000.
fn trace(processes: u32) -> Vec<u8> {
    trace_of(processes, 1)
}

/// Returns the same with calls of a function with this ID.
fn trace_of(processes: u32, function: u32) -> Vec<u8> {
    let mut trace = TraceWriter::new(TraceMode::Fdr, 5, ByteOrder::Little, 1 << 16);
    for number in 0..processes {
        let process = 1000 + number as i32;
        let record = |tick, kind| Record { tick, cpu: 0, kind };
        trace.buffer(&Buffer {
            process,
            thread: process,
            wall: (1, 0),
            records: vec![
                record(1000, RecordKind::Enter { function }),
                record(2000, RecordKind::Exit { function }),
            ],
        });
    }
    trace.finish()
}

/// Returns a profile of these processes, the first `mapped` of which have mapped a binary.
fn profile_of(processes: u32, mapped: u32, binary: &Path) -> Vec<u8> {
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    for pid in 1000..1000 + processes {
        profile.comm(pid, "work", true, 10);
        if pid < 1000 + mapped {
            profile.mmap2(pid, 0x5555_0000_0000, 0x10_0000, 0, text(binary), 20);
        }
        profile.sample(pid, 1500, &[0x5555_0000_1000], None);
    }
    profile.finish()
}

#[test]
fn traced_processes_without_the_binary_are_counted() {
    let folder = scratch();
    let binary = capture::folder("xray-basic19")
        .join("work")
        .canonicalize()
        .unwrap();
    let (input, traces) = (folder.path().join("perf.data"), folder.path().join("trace.xray"));
    let more = [
        "--xray-log",
        text(&traces),
        "--xray-binary",
        text(&binary),
        "--splice-stacks",
    ];
    std::fs::write(&input, profile_of(3, 1, &binary)).unwrap();
    std::fs::write(&traces, trace(3)).unwrap();
    let (_, summary) = inject_with_summary(&input, &folder.path().join("out.data"), &more);
    let without = diagnostics(&summary, "JI127");
    assert_eq!(without.len(), 1, "{summary}");
    assert_eq!(
        (&without[0]["count"], &without[0]["file"]),
        (&json!(2), &json!(text(&binary)))
    );
}

#[test]
fn functions_that_the_binary_does_not_have_are_counted() {
    let folder = scratch();
    let binary = capture::folder("xray-basic19").join("work");
    let traces = folder.path().join("trace.xray");
    for (function, missing) in [(1, 0), (0, 1), (1000, 1)] {
        std::fs::write(&traces, trace_of(1, function)).unwrap();
        let more = ["--xray-binary", text(&binary)];
        let (_, summary) = inject_with_summary(&traces, &folder.path().join("out.data"), &more);
        let found = diagnostics(&summary, "JI136");
        assert_eq!(found.len(), missing, "{summary}");
        assert!(found.iter().all(|found| found["offset"].is_null()), "{summary}");
    }
}

#[test]
fn a_binary_of_another_build_is_reported() {
    /// Kernel record with a build ID in place of device and inode.
    const MMAP2: u32 = 10;
    const MISC_BUILD_ID: u16 = 1 << 14;
    const MISC_USER: u16 = 2;
    let folder = scratch();
    let binary = capture::folder("xray-basic19")
        .join("work")
        .canonicalize()
        .unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(1000, "work", true, 10);
    let mut body = [1000_u32, 1000].map(u32::to_le_bytes).concat();
    body.extend(
        [0x5555_0000_0000_u64, 0x10_0000, 0]
            .iter()
            .flat_map(|word| word.to_le_bytes()),
    );
    body.extend([20, 0, 0, 0]);
    body.extend([0xab; 20]);
    body.extend([5_u32, 2].map(u32::to_le_bytes).concat());
    body.extend(text(&binary).bytes());
    body.extend(vec![0; 8 - body.len() % 8]);
    profile.record(MMAP2, MISC_USER | MISC_BUILD_ID, &body);
    profile.sample(1000, 1500, &[0x5555_0000_1000], None);
    let (input, traces) = (folder.path().join("perf.data"), folder.path().join("trace.xray"));
    std::fs::write(&input, profile.finish()).unwrap();
    std::fs::write(&traces, trace(1)).unwrap();
    let more = ["--xray-log", text(&traces), "--xray-binary", text(&binary)];
    let (_, summary) = inject_with_summary(&input, &folder.path().join("out.data"), &more);
    let other = diagnostics(&summary, "JI126");
    assert_eq!(other.len(), 1, "{summary}");
    assert_eq!(other[0]["file"], text(&binary));
}

/// Returns an ELF core file with one segment at `address`.
fn core_file(address: u64, memory: &[u8]) -> Vec<u8> {
    const HEADER: u64 = 64;
    const PROGRAM_HEADER: u64 = 56;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [4_u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for word in [0, HEADER, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [HEADER as u16, PROGRAM_HEADER as u16, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    file.extend([1_u32, 4].iter().flat_map(|word| word.to_le_bytes()));
    let size = memory.len() as u64;
    for word in [HEADER + PROGRAM_HEADER, address, 0, size, size, 1] {
        file.extend(word.to_le_bytes());
    }
    file.extend(memory);
    file
}

#[test]
fn a_core_file_without_the_code_of_a_log_is_reported() {
    let folder = scratch();
    let log = log(|log, method| log.throw(1_001_000, ManagedObject(0x8000), &[method]));
    let (path, core) = (folder.path().join("trace.mlpd"), folder.path().join("core"));
    std::fs::write(&path, log).unwrap();
    for (address, expected) in [(0x4000_0000, 0), (0x5000_0000, 1)] {
        std::fs::write(&core, core_file(address, &[0x90; 0x1000])).unwrap();
        let (_, summary) = inject_with_summary(
            &path,
            &folder.path().join("out.data"),
            &["--code-from", text(&core)],
        );
        let without = diagnostics(&summary, "JI092");
        assert_eq!(without.len(), expected, "{summary}");
        assert!(without.iter().all(|it| it["file"] == text(&core)));
    }
}

#[test]
fn the_page_of_a_profile_without_times_says_so() {
    let folder = scratch();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.sample_type &= !field::TIME;
    profile.comm(1000, "work", true, 0);
    profile.sample(1000, 0, &[0x5555_0000_1000], None);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let page = folder.path().join("page.html");
    let ran = jitinject()
        .args(["timeline", "-i", text(&input), "-o", text(&page)])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(has_code(&said(&ran), "JI306"), "{}", said(&ran));
}

#[test]
fn objects_in_too_deep_a_folder_are_an_error() {
    /// Maximum length of a path that the kernel accepts, with its NUL.
    const PATH_MAX: usize = 4096;
    let folder = scratch();
    let mut deep = folder.path().to_owned();
    while deep.as_os_str().len() < PATH_MAX - 220 {
        deep.push("d".repeat(200));
    }
    deep.push("d".repeat(PATH_MAX - 31 - deep.as_os_str().len()));
    let output = folder.path().join("out.data");
    let ran = attempt(
        &capture::profile("php82"),
        &output,
        &["--layout", "image", "--elf-dir", text(&deep)],
    );
    assert_eq!(ran.status.code(), Some(1));
    assert_eq!(codes(&said(&ran)), ["JI410"], "{}", said(&ran));
    assert!(!output.exists());
}

/// Returns a trace of process 1000 with a buffer for each wall-clock time in seconds. Ticks are nanoseconds, and the
/// buffers a second apart.
fn trace_at(mode: TraceMode, walls: &[u64]) -> Vec<u8> {
    let version = match mode {
        TraceMode::Fdr => 5,
        TraceMode::Basic => 3,
    };
    let mut trace = TraceWriter::new(mode, version, ByteOrder::Little, 1 << 16);
    for (second, &wall) in (1_u64..).zip(walls) {
        let tick = second * 1_000_000_000;
        let record = |tick, kind| Record { tick, cpu: 0, kind };
        trace.buffer(&Buffer {
            process: 1000,
            thread: 1000,
            wall: (wall, 0),
            records: vec![
                record(tick, RecordKind::Enter { function: 1 }),
                record(tick + 1000, RecordKind::Exit { function: 1 }),
            ],
        });
    }
    trace.finish()
}

/// Returns a profile of process 1000 on a clock.
fn profile_on(clock: Option<u32>) -> Vec<u8> {
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.clock = clock;
    profile.comm(1000, "work", true, 10);
    profile.sample(1000, 1500, &[0x5555_0000_1000], None);
    profile.finish()
}

/// In basic mode, a trace has only the processor's counter, here of CLOCK_REALTIME.
#[test]
fn a_trace_on_another_clock_is_reported() {
    const CLOCKS: [&str; 5] = ["JI130", "JI131", "JI132", "JI133", "JI134"];
    const MONOTONIC: u32 = 1;
    let folder = scratch();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let monotonic = file("monotonic.data", &profile_on(Some(MONOTONIC)));
    let default = file("default.data", &profile_on(None));
    let log = file("trace.mlpd", &log(|_, _| ()));
    let fdr = file("fdr.xray", &trace_at(TraceMode::Fdr, &[1]));
    let basic = file("basic.xray", &trace_at(TraceMode::Basic, &[1]));
    // The second buffer was written nine seconds late.
    let spread = file("spread.xray", &trace_at(TraceMode::Fdr, &[1, 11, 3]));
    for (input, trace, expected) in [
        (&monotonic, &fdr, json!([])),
        (&monotonic, &spread, json!([["JI130", text(&spread)]])),
        (&monotonic, &basic, json!([["JI131", text(&basic)]])),
        (&default, &fdr, json!([["JI132", text(&fdr)]])),
        (&fdr, &basic, json!([["JI133", text(&basic)]])),
        (&log, &basic, json!([["JI134", null]])),
    ] {
        let (_, summary) = inject_with_summary(
            input,
            &folder.path().join("out.data"),
            &["--xray-log", text(trace)],
        );
        let of_clocks = CLOCKS.iter().flat_map(|code| diagnostics(&summary, code));
        let found: Vec<Value> = of_clocks.map(|it| json!([it["code"], it["file"]])).collect();
        assert_eq!(json!(found), expected, "{summary}");
    }
}

#[test]
fn traced_processes_that_are_not_in_the_profile_are_reported() {
    let folder = scratch();
    let (input, traces) = (folder.path().join("perf.data"), folder.path().join("trace.xray"));
    std::fs::write(&input, profile_on(Some(1))).unwrap();
    std::fs::write(&traces, trace(3)).unwrap();
    let more = ["--xray-log", text(&traces), "--splice-stacks"];
    let (_, summary) = inject_with_summary(&input, &folder.path().join("out.data"), &more);
    let unknown = diagnostics(&summary, "JI128");
    assert_eq!(unknown.len(), 1, "{summary}");
    assert_eq!(unknown[0]["file"], text(&traces));
    // The first process without samples.
    assert!(unknown[0]["message"].as_str().unwrap().contains("1001"));
    assert_eq!(diagnostics(&summary, "JI135").len(), 1, "{summary}");
}

#[test]
fn unmatched_calls_of_a_trace_are_counted() {
    let mut trace = TraceWriter::new(TraceMode::Fdr, 5, ByteOrder::Little, 1 << 16);
    let record = |tick, kind| Record { tick, cpu: 0, kind };
    let offsets = trace.buffer(&Buffer {
        process: 1000,
        thread: 1000,
        wall: (1, 0),
        records: vec![
            record(1000, RecordKind::Enter { function: 1 }),
            record(2000, RecordKind::Enter { function: 2 }),
            record(3000, RecordKind::Exit { function: 1 }),
            record(4000, RecordKind::Exit { function: 7 }),
        ],
    });
    let folder = scratch();
    let path = folder.path().join("trace.xray");
    std::fs::write(&path, trace.finish()).unwrap();
    let (_, summary) = inject_with_summary(&path, &folder.path().join("out.data"), &[]);
    for (code, offset) in [("JI281", offsets[2]), ("JI282", offsets[3])] {
        let found = diagnostics(&summary, code);
        assert_eq!(found.len(), 1, "{summary}");
        let place = json!([found[0]["file"], found[0]["offset"], found[0]["count"]]);
        assert_eq!(place, json!([text(&path), offset, 1]), "{code}");
    }
}

#[test]
fn events_of_a_trace_that_exceed_a_record_are_truncated() {
    let payload = [b'x'; 70_000];
    let calls = (0_u32..130).map(|depth| Record {
        tick: 1000 + u64::from(depth),
        cpu: 0,
        kind: RecordKind::Enter { function: 1 + depth },
    });
    let event = Record {
        tick: 2000,
        cpu: 0,
        kind: RecordKind::Custom { payload: &payload },
    };
    let mut trace = TraceWriter::new(TraceMode::Fdr, 5, ByteOrder::Little, 1 << 20);
    let offsets = trace.buffer(&Buffer {
        process: 1000,
        thread: 1000,
        wall: (1, 0),
        records: calls.chain([event]).collect(),
    });
    let folder = scratch();
    let path = folder.path().join("trace.xray");
    std::fs::write(&path, trace.finish()).unwrap();
    let (_, summary) = inject_with_summary(&path, &folder.path().join("out.data"), &["--events", "custom"]);
    for (code, offset) in [("JI280", json!(offsets[130])), ("JI287", json!(null))] {
        let found = diagnostics(&summary, code);
        assert_eq!(found.len(), 1, "{summary}");
        let place = json!([found[0]["file"], found[0]["offset"], found[0]["count"]]);
        assert_eq!(place, json!([text(&path), offset, 1]), "{code}");
    }
    let limited = diagnostics(&summary, "JI280");
    let message = limited[0]["message"].as_str().unwrap();
    assert!(message.contains("127") && !message.contains('{'), "{message}");
}

#[test]
fn a_long_name_of_a_thread_is_truncated() {
    let named = log(|log, method| {
        let subject = Metadata::Thread {
            thread: ThreadId(0x7000),
            name: &[b'n'; 300],
        };
        let stage = Stage::Name;
        log.kind(1_000_000, &LogEventKind::Metadata { stage, subject });
        log.throw(1_001_000, ManagedObject(0x8000), &[method]);
    });
    let summary = summary_of_log(&named, &[]);
    let cut = diagnostics(&summary, "JI288");
    assert_eq!(cut.len(), 1, "{summary}");
    assert_eq!(
        (&cut[0]["count"], &cut[0]["file"]),
        (&json!(1), &summary["input"])
    );
}

/// The process maps all addresses that can be reached from its code.
#[test]
fn a_function_without_unused_addresses_near_it_is_reported() {
    let recording = Recording::new();
    let mut writer = DumpWriter::new(ByteOrder::Little, dump::X86_64, PID);
    let (tables, header) = dump::tables(64, 16);
    writer.unwinding(1000, &tables, &header);
    writer.load(1000, 0x4000_0000, 0, b"function", &[0x90; 64]);
    std::fs::write(&recording.dump, &writer.bytes).unwrap();
    for (size, expected) in [(0x1000, &[][..]), (1 << 32, &["JI262"])] {
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        profile.mmap2(PID, 0x600_0000, 0x1000, 0, text(&recording.dump), 500);
        profile.mmap2(PID, 0x4000_0000, size, 0, "//anon", 501);
        profile.sample(PID, 2000, &[0x4000_0004], None);
        std::fs::write(&recording.profile, profile.finish()).unwrap();
        let said = recording.inject(&[]);
        assert_eq!(codes(&said), expected, "{said}");
    }
}

/// The addresses of the symbol in its object exceed those of a 32-bit program.
#[test]
fn a_symbol_beyond_the_limits_of_dwarf_is_written_without_its_line() {
    /// Header feature with the machine (HEADER_ARCH).
    const ARCH: u32 = 6;
    let folder = scratch();
    let map = folder.path().join(format!("perf-{PID}.map"));
    std::fs::write(map, "10000 fffff000 JS:~work /app.js:1\n").unwrap();
    let input = folder.path().join("perf.data");
    for (machine, expected) in [("x86_64", 0), ("i686", 1)] {
        let mut arch = 64_u32.to_le_bytes().to_vec();
        arch.extend(machine.bytes());
        arch.resize(4 + 64, 0);
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        profile.features.push((ARCH, arch));
        profile.comm(PID, "work", true, 10);
        profile.mmap2(PID, 0x4000_0000, 0x1000, 0, "//anon", 20);
        profile.sample(PID, 2000, &[0x4000_0004], None);
        std::fs::write(&input, profile.finish()).unwrap();
        let (_, summary) = inject_with_summary(&input, &folder.path().join("out.data"), &[]);
        let without = diagnostics(&summary, "JI263");
        assert_eq!(without.len(), expected, "{summary}");
        assert!(without.iter().all(|it| it["count"] == 1), "{summary}");
        assert_eq!(summary["samples"]["named"], 1, "{summary}");
    }
}

#[test]
fn a_profile_is_not_written_to_a_terminal() {
    // The master of a new pseudoterminal is a terminal, too.
    let terminal = File::options().read(true).write(true).open("/dev/ptmx").unwrap();
    let ran = jitinject()
        .args(["-i", text(&capture::profile("php82")), "-o", "-"])
        .stdout(terminal)
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert_eq!(codes(&said(&ran)), ["JI412"]);
}
