//! What a run ends with, and what it advises: nothing that the profile does not need.

use std::path::Path;
use std::process::Output;

use jitinject::bytes::ByteOrder;
use serde_json::Value;

use crate::support::profile::ProfileWriter;
use crate::support::recording::PID;
use crate::support::{attempt, capture, inject, jitinject, said, scratch, tools};

const REGION: u64 = 0x7000_0000;
const PROGRAM: u64 = 0x40_0000;
const NEXT: &str = "next: perf report";

/// A profile in the making, in which each process maps a program and has memory for code.
struct Recorded {
    folder: tempfile::TempDir,
    profile: ProfileWriter,
    time: u64,
}

impl Recorded {
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

    /// A perf map with one symbol, at the start of the memory for code.
    fn map(&self, pid: u32) {
        let path = self.folder.path().join(format!("perf-{pid}.map"));
        std::fs::write(path, format!("{REGION:x} 40 symbol\n")).unwrap();
    }

    fn run(&self, more: &[&str]) -> Output {
        let input = self.folder.path().join("perf.data");
        std::fs::write(&input, self.profile.finish()).unwrap();
        attempt(&input, &self.folder.path().join("out.data"), more)
    }

    /// What is said, and the summary.
    fn told(&self) -> (String, Value) {
        let output = self.run(&["--summary", "-"]);
        assert!(output.status.success(), "{}", said(&output));
        (said(&output), serde_json::from_slice(&output.stdout).unwrap())
    }
}

/// Whether a summary has a warning that starts so, and how often it was.
fn warned(summary: &Value, what: &str) -> Option<u64> {
    let warnings = summary["warnings"].as_array().unwrap();
    let warning = warnings
        .iter()
        .find(|warning| warning["what"].as_str().unwrap().starts_with(what));
    warning.map(|warning| warning["count"].as_u64().unwrap())
}

#[test]
fn a_run_that_names_nothing_does_not_lead_to_perf_report() {
    let mut recorded = Recorded::new();
    recorded.process(10, "/usr/bin/node");
    let (said_of_none, summary) = recorded.told();
    assert!(
        said_of_none.contains("warning: the profile has no samples"),
        "{said_of_none}"
    );
    assert!(!said_of_none.contains(NEXT), "{said_of_none}");
    assert_eq!(warned(&summary, "the profile has no samples"), Some(1));
    assert_eq!(summary["samples"]["total"], 0);
    assert_eq!(summary["notes"], Value::Array(Vec::new()));

    recorded.sample(10, PROGRAM + 8);
    let (outside, summary) = recorded.told();
    assert!(outside.contains("1 sample, none in JIT code"), "{outside}");
    assert!(!outside.contains(NEXT), "{outside}");
    assert_eq!(summary["warnings"], Value::Array(Vec::new()));

    for _ in 0..3 {
        recorded.sample(10, REGION + 8);
    }
    let (unnamed, summary) = recorded.told();
    assert!(
        unnamed.contains("warning: no sample in JIT code has a name (3)"),
        "{unnamed}"
    );
    assert!(!unnamed.contains(NEXT), "{unnamed}");
    assert_eq!(warned(&summary, "no sample in JIT code has a name"), Some(3));
    assert_eq!(summary["samples"]["named_percent"], 0.0);
    assert_eq!(recorded.run(&["--fail-under", "1"]).status.code(), Some(3));

    recorded.map(10);
    let (named, summary) = recorded.told();
    assert!(
        named.contains("4 samples, 3 in JIT code, 3 of them named (100.0 %)"),
        "{named}"
    );
    assert!(named.contains(NEXT), "{named}");
    assert_eq!(summary["warnings"], Value::Array(Vec::new()));
    assert_eq!(recorded.run(&["--fail-under", "100"]).status.code(), Some(0));
}

/// The dump is lost, so that all samples in its code are without a name.
#[test]
fn a_lost_dump_leaves_nothing_for_perf_report() {
    let folder = scratch();
    let input = folder.path().join("perf.data");
    std::fs::copy(capture::profile("php82"), &input).unwrap();
    let said = inject(&input, &folder.path().join("out.data"), &[]);
    assert!(
        said.contains("warning: no sample in JIT code has a name (198)"),
        "{said}"
    );
    assert!(!said.contains(NEXT), "{said}");
}

/// Made of logs and traces, a profile has nothing but names.
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
        assert!(!said.contains("has a name"), "{said}");
    }
}

/// The names of the runtimes whose options are listed.
fn listed(said: &str) -> Vec<&str> {
    let notes = said
        .lines()
        .filter_map(|line| line.strip_prefix("jitinject: note: "));
    let names = notes.filter_map(|note| note.split_once(": "));
    names.map(|(name, _)| name).collect()
}

#[test]
fn only_runtimes_of_processes_with_unnamed_samples_are_listed() {
    let mut recorded = Recorded::new();
    recorded.process(10, "/usr/bin/dotnet");
    recorded.process(20, "/usr/bin/python3.13");
    recorded.map(10);
    recorded.sample(10, REGION + 8);
    recorded.sample(20, PROGRAM + 8);
    let (said, _) = recorded.told();
    assert!(listed(&said).is_empty(), "all are named: {said}");

    // One that nothing is known of, and a child of one that is known.
    recorded.process(30, "/usr/bin/unheard-of");
    recorded.sample(30, REGION + 8);
    let (said, _) = recorded.told();
    assert!(listed(&said).is_empty(), "{said}");
    assert!(
        said.contains("1 process has samples in JIT code that no file describes, and no known JIT runtime"),
        "{said}"
    );
    recorded.process(40, "/usr/bin/luajit");
    let time = recorded.tick();
    recorded.profile.fork(41, 40, time);
    recorded.sample(41, REGION + 8);
    let (said, _) = recorded.told();
    assert_eq!(listed(&said), ["LuaJIT"], "{said}");
    assert!(said.contains("LuaJIT: it has no option for this"), "{said}");
}

#[test]
fn where_no_file_is_found_only_runtimes_that_were_sampled_are_listed() {
    let mut recorded = Recorded::new();
    recorded.process(10, "/usr/bin/idle");
    recorded.process(20, "/usr/lib/libdnnl.so.3");
    recorded.process(30, "/usr/bin/node");
    recorded.sample(10, PROGRAM + 8);
    let (said, _) = recorded.told();
    assert!(listed(&said).is_empty(), "{said}");
    assert!(
        said.contains("No sampled process runs a known JIT runtime"),
        "{said}"
    );
    recorded.sample(20, REGION + 8);
    let (said, _) = recorded.told();
    assert_eq!(listed(&said), ["oneDNN"], "{said}");
    assert!(said.contains("ONEDNN_JIT_PROFILE=6"), "{said}");
}

/// What is in the place of its perf map is no file. That is worth a note only if names are missing.
#[test]
fn file_systems_of_processes_whose_samples_are_named_are_not_missed() {
    struct Running(std::process::Child);
    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
            let _ = std::fs::remove_dir(format!("/tmp/perf-{}.map", self.0.id()));
        }
    }
    let running = Running(std::process::Command::new("sleep").arg("1000").spawn().unwrap());
    let pid = running.0.id();
    std::fs::create_dir(format!("/tmp/perf-{pid}.map")).unwrap();
    let mut recorded = Recorded::new();
    // A process that runs may be another user's, whose file system can't be read.
    let other = PID;
    recorded.process(other, "/usr/bin/node");
    recorded.process(pid, "/usr/bin/sleep");
    recorded.sample(other, REGION + 8);
    recorded.sample(pid, PROGRAM + 8);
    let (said, _) = recorded.told();
    assert!(!said.contains("file systems"), "{said}");
    recorded.sample(pid, REGION + 8);
    let (said, _) = recorded.told();
    assert!(
        said.contains("cannot read the file systems of 1 process with unnamed samples"),
        "{said}"
    );
}

/// V8's damaged file names are repaired without a loss.
#[test]
fn repairs_are_notes_for_those_who_ask() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    let repaired = "lines with damaged file names";
    for (more, is_expected) in [(&[][..], false), (&["-v"], true)] {
        let said = inject(&capture::profile("node20"), &output, more);
        assert_eq!(said.contains(repaired), is_expected, "{said}");
    }
    let summary = attempt(&capture::profile("node20"), &output, &["-q", "--summary", "-"]);
    let summary: Value = serde_json::from_slice(&summary.stdout).unwrap();
    assert_eq!(summary["notes"], Value::Array(Vec::new()));
    assert!(
        summary["details"][0].as_str().unwrap().contains(repaired),
        "{summary}"
    );
}

fn run(arguments: &[&str], folder: &Path) -> Output {
    jitinject().args(arguments).current_dir(folder).output().unwrap()
}

#[test]
fn a_missing_file_of_an_option_is_no_reason_to_name_a_profile() {
    let folder = scratch();
    let input = capture::profile("php82");
    for option in ["--jitdump", "--perf-map", "--mono-log", "--xray-log"] {
        let output = run(&["-i", tools::text(&input), option, "nosuch.file"], folder.path());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot read nosuch.file"), "{said}");
        assert!(!said.contains("-i,"), "{said}");
    }
    let output = run(&["-i", "nosuch.data"], folder.path());
    assert!(
        said(&output).contains("name a profile with -i"),
        "{}",
        said(&output)
    );
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
            &["record", "node", "--perf-prof", "app.js"][..],
            "perf record -k mono -g -o perf.data node --perf-prof app.js, then jitinject perf.data",
        ),
        (
            &["report"],
            "jitinject perf.data, then perf report -i perf.jit.data",
        ),
        (
            &["script", "-i", "x"],
            "jitinject perf.data, then perf script -i perf.jit.data",
        ),
        (&["inject", "-i", "x"], "jitinject perf.data"),
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
