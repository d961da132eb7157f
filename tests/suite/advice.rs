//! The last lines of a run, and its hints: only those that the profile needs.

use std::path::{Path, PathBuf};
use std::process::Output;

use jitdump::ByteOrder;
use jitinject::internals::results::diagnostics::issues::{CHECK_PATH, RECORD_FIRST};
use serde_json::Value;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::processes;
use crate::support::profile::ProfileWriter;
use crate::support::recording::PID;
use crate::support::{
    attempt, capture, codes, diagnostics, has_code, inject, jitinject, said, scratch, tools,
};

const REGION: u64 = 0x7000_0000;
const PROGRAM: u64 = 0x40_0000;
const NEXT: &str = "next: perf report";

/// A profile to fill, in which each process maps a program and has memory for JIT code.
struct TestProfile {
    folder: tempfile::TempDir,
    profile: ProfileWriter,
    time: u64,
}

impl TestProfile {
    fn new() -> Self {
        Self {
            folder: scratch(),
            profile: ProfileWriter::new(ByteOrder::Little),
            time: 1_000_000_000,
        }
    }

    fn tick(&mut self) -> u64 {
        self.time += 1_000_000;
        self.time
    }

    fn process(&mut self, pid: u32, program: &str) {
        let time = self.tick();
        self.profile.comm(pid, "program", true, time);
        self.profile.mmap2(pid, PROGRAM, 0x1000, 0, program, time);
        self.profile.mmap2(pid, REGION, 0x1000, 0, "//anon", time);
    }

    fn sample(&mut self, pid: u32, address: u64) {
        let time = self.tick();
        self.profile.sample(pid, time, &[address], None);
    }

    /// Writes a perf map with one symbol, at the start of the memory for JIT code.
    fn map(&self, pid: u32) {
        let path = self.folder.path().join(format!("perf-{pid}.map"));
        std::fs::write(path, format!("{REGION:x} 40 symbol\n")).unwrap();
    }

    /// Writes the profile; returns its path.
    fn write(&self) -> PathBuf {
        let path = self.folder.path().join("perf.data");
        std::fs::write(&path, self.profile.finish()).unwrap();
        path
    }

    fn run(&self, more: &[&str]) -> Output {
        attempt(&self.write(), &self.folder.path().join("out.data"), more)
    }

    fn summarize(&self) -> (String, Value) {
        summarize(&self.write(), &self.folder.path().join("out.data"))
    }
}

/// Runs jitinject, which must succeed; returns its standard error and its summary.
fn summarize(input: &Path, output: &Path) -> (String, Value) {
    let ran = attempt(input, output, &["--summary", "-"]);
    assert!(ran.status.success(), "{}", said(&ran));
    (said(&ran), serde_json::from_slice(&ran.stdout).unwrap())
}

/// Returns the codes and counts of all diagnostics in a summary, which must be warnings.
fn warnings(summary: &Value) -> Vec<(&str, u64)> {
    let all = summary["diagnostics"].as_array().unwrap().iter();
    let warnings = all.map(|diagnostic| {
        assert_eq!(diagnostic["severity"], "warning", "{diagnostic}");
        (
            diagnostic["code"].as_str().unwrap(),
            diagnostic["count"].as_u64().unwrap(),
        )
    });
    warnings.collect()
}

#[test]
fn a_run_that_names_nothing_does_not_lead_to_perf_report() {
    let mut profile = TestProfile::new();
    profile.process(10, "/usr/bin/node");
    let (empty, summary) = profile.summarize();
    assert_eq!(codes(&empty), ["JI171"]);
    assert!(!empty.contains(NEXT), "{empty}");
    assert_eq!(warnings(&summary), [("JI171", 1)]);
    assert_eq!(summary["samples"]["total"], 0);

    profile.sample(10, PROGRAM + 8);
    let (outside, summary) = profile.summarize();
    assert!(outside.contains("1 sample, none in JIT code"), "{outside}");
    assert!(!outside.contains(NEXT), "{outside}");
    // How to make the runtime describe its code.
    assert_eq!(warnings(&summary), [("JI173", 1), ("JI175", 1)]);

    for _ in 0..3 {
        profile.sample(10, REGION + 8);
    }
    let (unnamed, summary) = profile.summarize();
    assert!(has_code(&unnamed, "JI172"), "{unnamed}");
    assert!(!unnamed.contains(NEXT), "{unnamed}");
    assert!(warnings(&summary).contains(&("JI172", 3)), "{summary}");
    assert_eq!(summary["samples"]["named_percent"], 0.0);
    assert_eq!(profile.run(&["--fail-under", "1"]).status.code(), Some(3));

    profile.map(10);
    let (named, summary) = profile.summarize();
    assert!(
        named.contains("4 samples, 3 in JIT code, 3 of them named (100.0 %)"),
        "{named}"
    );
    assert!(named.contains(NEXT), "{named}");
    assert_eq!(summary["diagnostics"], Value::Array(Vec::new()));
    assert_eq!(profile.run(&["--fail-under", "100"]).status.code(), Some(0));
}

/// perf 6.1 and later count lost samples apart from other lost records, and those that a filter rejected.
#[test]
fn lost_samples_are_counted_and_many_are_a_warning() {
    const LOST: u32 = 2;
    const LOST_SAMPLES: u32 = 13;
    const BY_FILTER: u16 = 1 << 15;
    for (records, expected) in [
        (&[(LOST_SAMPLES, BY_FILTER, 50)][..], None),
        (&[(LOST, 0, 1)], Some((1, "note"))),
        (&[(LOST, 0, 9), (LOST_SAMPLES, 0, 1)], Some((1, "note"))),
        (&[(LOST, 0, 2), (LOST, 0, 3)], Some((5, "warning"))),
        (
            &[(LOST_SAMPLES, 0, u64::MAX), (LOST_SAMPLES, 0, 7)],
            Some((u64::MAX, "warning")),
        ),
    ] {
        let mut profile = TestProfile::new();
        profile.process(PID, "/usr/bin/program");
        for _ in 0..40 {
            profile.sample(PID, PROGRAM);
        }
        for &(kind, misc, number) in records {
            let id = (kind == LOST).then_some(0);
            let body: Vec<u8> = id
                .into_iter()
                .chain([number])
                .flat_map(u64::to_le_bytes)
                .collect();
            profile.profile.record(kind, misc, &body);
        }
        let (_, summary) = profile.summarize();
        let all = summary["diagnostics"].as_array().unwrap();
        let lost = all.iter().filter(|found| found["code"] == "JI189");
        let found: Vec<_> = lost
            .map(|lost| {
                (
                    lost["count"].as_u64().unwrap(),
                    lost["severity"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(found, Vec::from_iter(expected), "{summary:#}");
        let input = profile.write();
        let report = jitinject()
            .args(["report", "--json", "-i"])
            .arg(input)
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        assert_eq!(report["missing"]["lost"], expected.map_or(0, |(count, _)| count));
    }
}

/// Without the jitdump, no sample in its code has a name.
#[test]
fn a_lost_dump_leaves_nothing_for_perf_report() {
    let folder = scratch();
    let input = folder.path().join("perf.data");
    std::fs::copy(capture::profile("php82"), &input).unwrap();
    let (said, summary) = summarize(&input, &folder.path().join("out.data"));
    assert!(has_code(&said, "JI172"), "{said}");
    assert!(warnings(&summary).contains(&("JI172", 198)), "{summary}");
    assert!(!said.contains(NEXT), "{said}");
}

/// All code in a profile made of a log or trace has a name.
#[test]
fn a_profile_made_of_a_log_leads_to_perf_report() {
    for (name, file) in [("mono-alloc", "trace.mlpd"), ("xray-fdr-pie14", "trace.xray")] {
        let folder = scratch();
        let said = inject(
            &capture::folder(name).join(file),
            &folder.path().join("out.data"),
            &[],
        );
        assert!(said.contains(NEXT), "{said}");
        assert!(!has_code(&said, "JI172"), "{said}");
    }
}

/// Returns the names of the runtimes whose options are printed.
fn listed(said: &str) -> Vec<&str> {
    let hints = said
        .lines()
        .filter_map(|line| line.strip_prefix("jitinject: warning[JI175]: "));
    hints.map(|hint| hint.split_once(": ").unwrap().0).collect()
}

#[test]
fn only_runtimes_of_processes_with_unnamed_samples_are_listed() {
    let mut profile = TestProfile::new();
    profile.process(10, "/usr/bin/dotnet");
    profile.process(20, "/usr/bin/python3.13");
    profile.map(10);
    profile.sample(10, REGION + 8);
    profile.sample(20, PROGRAM + 8);
    let (said, _) = profile.summarize();
    assert!(listed(&said).is_empty(), "all samples have names: {said}");

    // An unknown program, and a child process of a known one.
    profile.process(30, "/usr/bin/unheard-of");
    profile.sample(30, REGION + 8);
    let (said, summary) = profile.summarize();
    assert!(listed(&said).is_empty(), "{said}");
    assert!(has_code(&said, "JI177"), "{said}");
    assert!(warnings(&summary).contains(&("JI177", 1)), "{summary}");
    assert!(
        said.contains("Config::profiler(ProfilingStrategy::JitDump)"),
        "{said}"
    );
    profile.process(40, "/usr/bin/luajit");
    let time = profile.tick();
    profile.profile.fork(41, 40, time);
    profile.sample(41, REGION + 8);
    let (said, summary) = profile.summarize();
    assert!(has_code(&said, "JI176"), "{said}");
    assert!(warnings(&summary).contains(&("JI176", 2)), "{summary}");
    assert_eq!(listed(&said), ["LuaJIT"], "{said}");
    assert!(said.contains("LUAJIT_USE_PERFTOOLS"), "{said}");
}

/// CPython compiles little by itself, and old versions cannot log it.
#[test]
fn code_of_a_library_in_python_leads_to_its_own_options() {
    for (program, option) in [
        ("/usr/bin/python3.13", "-X perf_jit app.py"),
        ("/usr/bin/python3.11", "3.12 and later do"),
    ] {
        let mut profile = TestProfile::new();
        profile.process(10, program);
        profile.sample(10, REGION + 8);
        let (said, _) = profile.summarize();
        assert_eq!(listed(&said), ["CPython"], "{said}");
        assert!(said.contains(option), "{said}");
        assert!(said.contains("ProfilingStrategy"), "{said}");
        // That of another runtime.
        profile.process(20, "/usr/bin/node");
        profile.sample(20, REGION + 8);
        let (said, _) = profile.summarize();
        assert_eq!(listed(&said), ["Node.js", "CPython"], "{said}");
        assert!(!said.contains("ProfilingStrategy"), "{said}");
    }
}

/// A program in Python, whose code is described, starts one in Java.
#[test]
fn what_a_process_ran_before_its_exec_is_not_listed() {
    let mut profile = TestProfile::new();
    profile.process(10, "/usr/bin/python3.13");
    profile.map(10);
    profile.sample(10, REGION + 8);
    let time = profile.tick();
    profile.profile.fork(11, 10, time);
    profile.process(11, "/usr/lib/jvm/bin/java");
    profile.sample(11, REGION + 8);
    let (said, _) = profile.summarize();
    assert_eq!(listed(&said), ["Java"], "{said}");
}

/// A jitdump describes what its process runs when it maps it, and later. CPython 3.11 can have none.
#[test]
fn what_ran_before_an_exec_and_an_old_python_are_not_missed_in_stacks() {
    for (python, is_replaced, is_missed) in [
        ("/nowhere/python3.13", false, true),
        ("/nowhere/python3.11", false, false),
        ("/nowhere/python3.13", true, false),
    ] {
        let mut test = TestProfile::new();
        test.process(PID, python);
        for _ in 0..30 {
            test.sample(PID, PROGRAM);
        }
        if is_replaced {
            test.process(PID, "/nowhere/node");
        }
        let path = test.folder.path().join(format!("jit-{PID}.dump"));
        let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, PID);
        let time = test.tick();
        test.profile
            .mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&path), time);
        dump.load(test.tick(), REGION, 0, b"work", &[0x90; 16]);
        std::fs::write(&path, dump.bytes).unwrap();
        test.sample(PID, REGION);
        let said = said(&test.run(&[]));
        assert_eq!(has_code(&said, "JI179"), is_missed, "{python}: {said}");
    }
}

/// Runtimes leave out some of their stubs.
#[test]
fn a_map_that_lacks_little_leads_to_no_options() {
    for (unnamed, is_listed) in [(2, false), (20, true)] {
        let mut profile = TestProfile::new();
        profile.process(10, "/usr/bin/dotnet");
        profile.map(10);
        for _ in 0..40 {
            profile.sample(10, REGION + 8);
        }
        for _ in 0..unnamed {
            profile.sample(10, REGION + 0x800);
        }
        let (said, summary) = profile.summarize();
        assert_eq!(summary["samples"]["named"], 40, "{said}");
        assert_eq!(summary["samples"]["unnamed"]["no_dump"], unnamed, "{summary}");
        assert_eq!(listed(&said) == [".NET"], is_listed, "{said}");
    }
}

/// That its times cannot be converted is the reason, and it is reported.
#[test]
fn a_runtime_that_logs_cycle_counts_is_not_silent() {
    /// Long after the profile.
    const CYCLES: u64 = 5_000_000_000_000_000;
    for (flags, expected) in [(1, "JI243"), (0, "JI177")] {
        let mut test = TestProfile::new();
        test.process(7, "/usr/bin/unknown");
        let path = test.folder.path().join("jit-7.dump");
        let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 7);
        // JITDUMP_FLAGS_ARCH_TIMESTAMP
        dump.bytes[32] = flags;
        // Without cycle counts, where no sample is.
        let (start, first) = match flags {
            1 => (REGION, CYCLES),
            _ => (REGION + 0x100, test.tick()),
        };
        for (index, name) in [(0, "first"), (1, "second")] {
            dump.load(first + index, start, index, name.as_bytes(), &[0x90; 64]);
        }
        std::fs::write(&path, &dump.bytes).unwrap();
        let time = test.tick();
        test.profile
            .mmap2(7, 0x6000_0000, 0x1000, 0, tools::text(&path), time);
        test.sample(7, REGION + 4);
        let (_, summary) = test.summarize();
        for code in ["JI243", "JI177"] {
            let count = diagnostics(&summary, code).len();
            assert_eq!(count, usize::from(code == expected), "{summary:#}");
        }
    }
}

/// Such as rustc.
#[test]
fn programs_that_use_llvm_have_its_jit_compilers_if_they_have_code_in_memory() {
    for has_memory in [false, true] {
        let mut profile = TestProfile::new();
        let time = profile.tick();
        let writer = &mut profile.profile;
        writer.comm(10, "program", true, time);
        writer.mmap2(10, PROGRAM, 0x1000, 0, "/usr/lib/libLLVM-18.so.1", time);
        if has_memory {
            writer.mmap2(10, REGION, 0x1000, 0, "//anon", time);
        }
        profile.sample(10, PROGRAM + 8);
        let (said, _) = profile.summarize();
        assert_eq!(listed(&said) == ["LLVM"], has_memory, "{said}");
        assert_eq!(listed(&said).is_empty(), !has_memory, "{said}");
    }
}

#[test]
fn where_no_file_is_found_only_runtimes_that_were_sampled_are_listed() {
    let mut profile = TestProfile::new();
    profile.process(10, "/usr/bin/idle");
    profile.process(20, "/usr/lib/libdnnl.so.3");
    profile.process(30, "/usr/bin/node");
    profile.sample(10, PROGRAM + 8);
    let (said, _) = profile.summarize();
    assert!(listed(&said).is_empty(), "{said}");
    assert!(has_code(&said, "JI174"), "{said}");
    // Node.js runs, too, and record says so if it is left running.
    assert!(said.contains("none with samples"), "{said}");
    assert!(!said.contains("ProfilingStrategy"), "{said}");
    profile.sample(20, REGION + 8);
    let (said, _) = profile.summarize();
    assert!(has_code(&said, "JI173"), "{said}");
    assert_eq!(listed(&said), ["oneDNN"], "{said}");
    assert!(said.contains("ONEDNN_JIT_PROFILE=6"), "{said}");
}

/// A directory at the path of its perf map counts as an unreadable file system of the process. That is reported only if
/// names are missing.
#[test]
fn file_systems_of_processes_whose_samples_are_named_are_not_missed() {
    let running = processes::start_without_perf_map();
    let pid = running.0.id();
    std::fs::create_dir(format!("/tmp/perf-{pid}.map")).unwrap();
    let mut profile = TestProfile::new();
    // Not a running process, whose file system may be unreadable as well.
    let other = PID;
    profile.process(other, "/usr/bin/node");
    profile.process(pid, "/usr/bin/sleep");
    profile.sample(other, REGION + 8);
    profile.sample(pid, PROGRAM + 8);
    let (said, summary) = profile.summarize();
    assert!(!has_code(&said, "JI178"), "{said}");
    assert!(diagnostics(&summary, "JI178").is_empty(), "{summary}");
    profile.sample(pid, REGION + 8);
    let (said, summary) = profile.summarize();
    assert!(has_code(&said, "JI178"), "{said}");
    assert!(warnings(&summary).contains(&("JI178", 1)), "{summary}");
}

/// Repairing V8's damaged file names loses nothing.
#[test]
fn repairs_are_notes_for_those_who_ask() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    for (more, is_expected) in [(&[][..], false), (&["-v"], true)] {
        let said = inject(&capture::profile("node20"), &output, more);
        assert_eq!(has_code(&said, "JI024"), is_expected, "{said}");
    }
    let summary = attempt(&capture::profile("node20"), &output, &["-q", "--summary", "-"]);
    let summary: Value = serde_json::from_slice(&summary.stdout).unwrap();
    assert_eq!(summary["diagnostics"].as_array().unwrap().len(), 1, "{summary}");
    assert_eq!(summary["diagnostics"][0]["code"], "JI024");
    assert_eq!(summary["diagnostics"][0]["severity"], "note");
}

fn run(arguments: &[&str], folder: &Path) -> Output {
    jitinject().args(arguments).current_dir(folder).output().unwrap()
}

#[test]
fn for_a_missing_file_of_an_option_no_profile_is_suggested() {
    let folder = scratch();
    let input = capture::profile("php82");
    for option in ["--jitdump", "--perf-map", "--mono-log", "--xray-log"] {
        let output = run(&["-i", tools::text(&input), option, "nosuch.file"], folder.path());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(codes(&said), ["JI400"], "{said}");
        assert!(said.contains("error[JI400]: nosuch.file: "), "{said}");
        assert!(said.contains(&format!("help: {CHECK_PATH}")), "{said}");
        assert!(!said.contains(RECORD_FIRST), "{said}");
    }
    let said = said(&run(&["-i", "nosuch.data"], folder.path()));
    assert_eq!(codes(&said), ["JI400"], "{said}");
    assert!(said.contains("error[JI400]: nosuch.data: "), "{said}");
    assert!(said.contains(&format!("help: {RECORD_FIRST}")), "{said}");
}

#[test]
fn a_profile_can_be_named_without_an_option() {
    let folder = scratch();
    for file in ["perf.data", "jit-26234.dump"] {
        std::fs::copy(capture::folder("php82").join(file), folder.path().join(file)).unwrap();
    }
    std::fs::rename(folder.path().join("perf.data"), folder.path().join("mine.data")).unwrap();
    let summary = |arguments: &[&str]| {
        let output = run(&[arguments, &["--summary", "-"]].concat(), folder.path());
        assert!(output.status.success(), "{}", said(&output));
        output.stdout
    };
    let expected = summary(&["-i", "mine.data"]);
    assert_eq!(summary(&["mine.data"]), expected);
    assert_eq!(summary(&["mine.data", "-i", "mine.data"]), expected);
    let both = run(&["mine.data", "-i", "other.data"], folder.path());
    assert_eq!(both.status.code(), Some(2), "{}", said(&both));
    let page = run(&["timeline", "-q", "mine.data", "-o", "-"], folder.path());
    assert!(
        page.status.success() && page.stdout.starts_with(b"<!"),
        "{}",
        said(&page)
    );
}

#[test]
fn slips_are_answered_with_what_to_type() {
    let folder = scratch();
    for (arguments, expected) in [
        (
            &["annotate"][..],
            "jitinject perf.data, then perf annotate -i perf.jit.data",
        ),
        (
            &["script", "-i", "x"],
            "jitinject perf.data, then perf script -i perf.jit.data",
        ),
        (&["timelin"], "'timeline'"),
    ] {
        let output = run(arguments, folder.path());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
        let is_of_perf = arguments != ["timelin"];
        assert!(!is_of_perf || said.trim_end().lines().count() == 1, "{said}");
    }
}

/// The option was followed: another hint is needed.
#[test]
fn an_option_that_the_program_had_is_not_advised() {
    /// `HEADER_CMDLINE`: the number of words, and each with its size.
    const CMDLINE: u32 = 11;
    let mut command = 2u32.to_le_bytes().to_vec();
    for word in ["node", "--perf-prof"] {
        command.extend(64u32.to_le_bytes());
        let mut padded = word.as_bytes().to_vec();
        padded.resize(64, 0);
        command.extend(padded);
    }
    let mut case = TestProfile::new();
    case.process(7, "/usr/bin/node");
    case.sample(7, REGION);
    let advice = |case: &TestProfile| {
        let (_, summary) = case.summarize();
        let [found] = diagnostics(&summary, "JI175")[..] else {
            panic!("{summary:#}")
        };
        found["message"].as_str().unwrap().to_owned()
    };
    assert!(advice(&case).contains("node --perf-prof"), "{}", advice(&case));
    case.profile.features = vec![(CMDLINE, command)];
    let said = advice(&case);
    assert!(
        said.contains("it had --perf-prof; its file was not found"),
        "{said}"
    );
}

#[test]
fn callers_without_a_name_have_a_reason() {
    let mut case = TestProfile::new();
    case.process(7, "/usr/bin/program");
    case.map(7);
    let time = case.tick();
    case.profile.sample(7, time, &[REGION, REGION + 0x801], None);
    let (said, _) = case.summarize();
    assert!(said.contains("1 of their 2 JIT frames named (50.0 %)"), "{said}");
    assert!(
        said.contains("  1 caller not named: no jitdump or perf map has"),
        "{said}"
    );
}
