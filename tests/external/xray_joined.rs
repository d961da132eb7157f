//! XRay traces together with a recording of the same program: whether their times agree, and the call chains that
//! they give to its samples.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::perf::{
    Event, assert_reports_are_silent, events, events_with_cache, perf_with_cache, programs,
};
use crate::support::reports::{inject_with_summary, line_of, only};
use crate::support::{capture, has_code, inject, jitinject, said, scratch, tools};

/// Mode of the trace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    FlightDataRecorder,
    Basic,
}

/// A recording with a trace, and the binary that wrote it.
struct Joined {
    profile: PathBuf,
    trace: PathBuf,
    binary: PathBuf,
}

impl Joined {
    fn of_capture(name: &str) -> Self {
        Self {
            profile: capture::profile(name),
            trace: capture::folder(name).join("trace.xray"),
            binary: capture::folder("xray-fdr-pie14").join("work"),
        }
    }

    /// Records the program of the captures, compiled in some way. Its ticks are CLOCK_REALTIME on most virtual
    /// machines, and the CPU's elsewhere.
    fn record(folder: &Path, way: &str, rounds: &str, perf_options: &[&str]) -> Self {
        Self::record_in_mode(folder, way, rounds, perf_options, Mode::FlightDataRecorder)
    }

    fn record_in_mode(folder: &Path, way: &str, rounds: &str, perf_options: &[&str], mode: Mode) -> Self {
        let source = capture::folder("xray-fdr-pie14").join("work.cpp");
        let binary = folder.join("work");
        let mut arguments = "-std=c++17 -O2 -g1 -fxray-instrument -fxray-instruction-threshold=1 -Wl,--build-id -DHAVE_EVENTS=1 -pie -fPIE \
                             -lpthread"
            .split(' ')
            .collect::<Vec<_>>();
        arguments.extend([way, tools::text(&source), "-o", tools::text(&binary)]);
        tools::run("clang++", &arguments);
        let profile = folder.join("perf.data");
        let recorded = ["record", "-q", "-k", "mono", "-o", tools::text(&profile)];
        let mut command = Command::new("perf");
        command
            .args(recorded)
            .args(perf_options)
            .args([tools::text(&binary), rounds])
            .current_dir(folder);
        match mode {
            Mode::FlightDataRecorder => command
                .env(
                    "FDR_CFG",
                    "buffer_size=65536:buffer_max=256:func_duration_threshold_us=0",
                )
                .env(
                    "XRAY_OPTIONS",
                    "patch_premain=false xray_mode=xray-fdr xray_logfile_base=trace.",
                ),
            Mode::Basic => command
                .env("XRAY_BASIC_OPTIONS", "func_duration_threshold_us=0")
                .env(
                    "XRAY_OPTIONS",
                    "patch_premain=true xray_mode=xray-basic xray_logfile_base=trace.",
                ),
        };
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{}", said(&ran));
        let mut files = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let is_trace = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("trace.");
        let trace = files.find(is_trace).unwrap();
        Self {
            profile,
            trace,
            binary,
        }
    }

    fn options<'s>(&'s self, more: &[&'s str]) -> Vec<&'s str> {
        let trace = [
            "--xray-log",
            tools::text(&self.trace),
            "--xray-binary",
            tools::text(&self.binary),
        ];
        [&trace[..], more].concat()
    }

    /// Returns the events of a profile as perf prints them, with the binary where perf looks for it.
    fn events(&self, profile: &Path) -> Vec<Event> {
        let cache = scratch();
        let add = ["buildid-cache", "--add", tools::text(&self.binary)];
        perf_with_cache("perf", cache.path(), &add);
        events_with_cache("perf", cache.path(), profile)
    }

    /// Returns the events of the trace together with the recorded ones, and jitinject's standard error.
    fn beside(&self, more: &[&str]) -> (Vec<Event>, String) {
        let folder = scratch();
        let output = folder.path().join("out.data");
        let said = inject(&self.profile, &output, &self.options(more));
        assert_reports_are_silent(&programs(), &output);
        (self.events(&output), said)
    }
}

/// The stacks in a trace: for each thread, with their end times.
struct Stacks<'e> {
    by_thread: BTreeMap<u32, Vec<(u64, Vec<&'e str>)>>,
    functions: BTreeSet<&'e str>,
}

impl<'e> Stacks<'e> {
    fn of(shown: &'e [Event]) -> Self {
        let mut by_thread: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for event in shown.iter().filter(|event| event.name == "xray/self-ns/") {
            let thread = by_thread.entry(event.tid).or_default();
            thread.push((event.time, event.time - event.period, event.symbols()));
        }
        let functions = by_thread
            .values()
            .flatten()
            .flat_map(|(.., symbols)| symbols)
            .copied();
        Self {
            functions: functions.collect(),
            by_thread: by_thread
                .into_iter()
                .map(|(tid, stacks)| {
                    (
                        tid,
                        stacks
                            .into_iter()
                            .map(|(end, _, symbols)| (end, symbols))
                            .collect(),
                    )
                })
                .collect(),
        }
    }

    /// Returns the stack of a thread at a time.
    fn at(&self, tid: u32, time: u64) -> &[&'e str] {
        let Some(stacks) = self.by_thread.get(&tid) else {
            return &[];
        };
        let next = stacks.partition_point(|&(end, _)| end < time);
        stacks.get(next).map_or(&[], |(_, symbols)| symbols)
    }
}

/// For the samples with an instrumented function in their recorded call chain, returns how many have the same
/// innermost function in the trace, and how many samples there are.
fn agreement(shown: &[Event]) -> (usize, usize) {
    let stacks = Stacks::of(shown);
    let samples = shown.iter().filter(|event| !event.name.starts_with("xray/"));
    let innermost = samples.filter_map(|event| {
        let symbols = event.symbols();
        let innermost = symbols
            .into_iter()
            .find(|symbol| stacks.functions.contains(symbol))?;
        Some(stacks.at(event.tid, event.time).first() == Some(&innermost))
    });
    let agreeing: Vec<bool> = innermost.collect();
    (
        agreeing.iter().filter(|&&is_same| is_same).count(),
        agreeing.len(),
    )
}

/// Codes of clocks that differ or cannot be compared.
const CLOCKS: [&str; 7] = ["JI130", "JI131", "JI132", "JI133", "JI134", "JI240", "JI242"];

#[test]
fn a_recording_on_the_same_clock_shows_the_same_functions_at_the_same_times() {
    let joined = Joined::of_capture("xray-joined-mono14");
    let (shown, said) = joined.beside(&[]);
    assert!(CLOCKS.iter().all(|code| !has_code(&said, code)), "{said}");
    assert!(said.contains("4 buffers agree to 0.8 us"), "{said}");
    let (same, all) = agreement(&shown);
    assert!(same >= 197 && all == 202, "{same} of {all}");
}

#[test]
fn a_recording_on_another_clock_is_warned_of() {
    let joined = Joined::of_capture("xray-joined-tsc-defclock14");
    let (_, said) = joined.beside(&[]);
    let warning = format!("warning[JI132]: {}: ", joined.trace.display());
    let mut lines = said.lines().skip_while(|line| !line.contains(&warning));
    assert!(lines.next().is_some(), "{said}");
    let help = lines
        .next()
        .and_then(|line| line.strip_prefix("jitinject: help: "));
    assert!(
        help.is_some_and(|help| help.contains("-k mono") && help.contains("--clock-offset")),
        "{said}"
    );
    let (_, said) = joined.beside(&["--time-offset", "1900000"]);
    assert!(CLOCKS.iter().all(|code| !has_code(&said, code)), "{said}");
    assert!(said.contains("moved by --clock-offset"), "{said}");
}

#[test]
fn a_live_recording_shows_the_same_functions_at_the_same_times() {
    let folder = scratch();
    let options = ["-F", "9999", "-g"];
    let joined = Joined::record(folder.path(), "-fno-omit-frame-pointer", "600", &options);
    let (shown, said) = joined.beside(&[]);
    let (same, all) = agreement(&shown);
    println!("{same} of {all}: {said}");
    assert!(all > 50, "{all}");
    assert!(same * 100 >= all * 95, "{same} of {all}: {said}");
}

#[test]
fn recorded_samples_stay_as_they_were_beside_the_events() {
    let joined = Joined::of_capture("xray-joined-mono14");
    let recorded = joined.events(&joined.profile);
    let (mut shown, _) = joined.beside(&[]);
    assert!(shown.is_sorted_by_key(|event| event.time));
    shown.retain(|event| !event.name.starts_with("xray/"));
    assert_eq!(shown, recorded);
}

#[test]
fn call_chains_of_code_without_frame_pointers_are_those_of_the_trace() {
    let folder = scratch();
    let options = ["-F", "9999", "-g"];
    let joined = Joined::record(folder.path(), "-fomit-frame-pointer", "600", &options);
    let output = folder.path().join("spliced.data");
    let said = inject(
        &joined.profile,
        &output,
        &joined.options(&["--splice-stacks", "-v"]),
    );
    assert!(has_code(&said, "JI292"), "{said}");
    assert_reports_are_silent(&programs(), &output);
    let alone = folder.path().join("alone.data");
    let ran = jitinject()
        .args(joined.options(&["--events", "calls", "-o", tools::text(&alone)]))
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", crate::support::said(&ran));
    let traced = events("perf", &alone);
    let stacks = Stacks::of(&traced);
    let (mut same, mut all) = (0, 0);
    for event in events("perf", &output) {
        let user: Vec<&str> = event
            .frames
            .iter()
            .filter(|frame| frame.address < 1 << 63)
            .map(|frame| &*frame.symbol)
            .collect();
        let expected = stacks.at(event.tid, event.time);
        let is_in_binary = event.frames.iter().find(|frame| frame.address < 1 << 63);
        if expected.is_empty() || is_in_binary.is_none_or(|frame| !frame.file.ends_with("/work")) {
            continue;
        }
        all += 1;
        // The sampled function is the innermost call, or a function without records.
        same += usize::from(user == expected || user[1..] == *expected);
    }
    println!("{same} of {all}: {said}");
    assert!(all > 50, "{all}");
    // The delay between a call and its record is longer on a busy machine. Without the trace, no call chain is
    // right.
    assert!(same * 100 >= all * 90, "{same} of {all}");
}

#[test]
fn the_clock_of_basic_mode_is_aligned_by_the_profiles_wall_clock() {
    let folder = scratch();
    let way = "-fno-omit-frame-pointer";
    let joined = Joined::record_in_mode(folder.path(), way, "600", &["-F", "9999", "-g"], Mode::Basic);
    let (shown, said) = joined.beside(&["--events", "calls"]);
    let (same, all) = agreement(&shown);
    println!("{same} of {all}: {said}");
    assert!(said.contains("(CLOCK_DATA)"), "{said}");
    assert!(all > 50, "{all}");
    assert!(same * 100 >= all * 90, "{same} of {all}: {said}");
}

#[test]
fn a_trace_of_another_process_is_reported_and_its_process_can_be_named() {
    let joined = Joined::of_capture("xray-joined-mono14");
    let other = capture::folder("xray-fdr-pie14").join("trace.xray");
    let folder = scratch();
    let output = folder.path().join("out.data");
    let options = ["--xray-log", tools::text(&other)];
    let said = inject(&joined.profile, &output, &options);
    let unused = line_of(&said, "JI128");
    let start = format!("jitinject: warning[JI128]: {}: ", other.display());
    assert!(
        unused.starts_with(&start) && unused.contains("23194") && unused.contains("--pid"),
        "{said}"
    );
    let said = inject(
        &joined.profile,
        &output,
        &[&options[..], &["--pid", "24100"]].concat(),
    );
    assert!(said.contains("4 threads, 384 calls"), "{said}");
    assert!(
        events("perf", &output)
            .iter()
            .any(|event| event.name == "xray/calls/" && event.pid == 24100)
    );
}

#[test]
fn faults_of_a_trace_are_reported_if_only_its_stacks_are_used() {
    let joined = Joined::of_capture("xray-joined-mono14");
    let folder = scratch();
    let output = folder.path().join("out.data");
    let options = joined.options(&["--splice-stacks"]);
    let (said, summary) = inject_with_summary(&joined.profile, &output, &options);
    assert_eq!(only(&summary, "JI281")["count"], 600);
    assert!(said.contains("12356 calls, 300 logged events"), "{said}");
    let without_binary = ["--xray-log", tools::text(&joined.trace), "--splice-stacks"];
    let said = inject(&joined.profile, &output, &without_binary);
    assert!(has_code(&said, "JI135"), "{said}");
}

#[test]
fn functions_without_a_binary_are_named_in_a_program_that_was_executed_while_it_was_recorded() {
    let joined = Joined::of_capture("xray-joined-mono14");
    let folder = scratch();
    let output = folder.path().join("out.data");
    inject(
        &joined.profile,
        &output,
        &["--xray-log", tools::text(&joined.trace)],
    );
    let shown = events("perf", &output);
    let calls = shown.iter().filter(|event| event.name == "xray/calls/");
    let named = calls.clone().filter(|event| event.leaf().starts_with("[xray #"));
    assert_eq!((calls.clone().count(), named.count()), (12_356, 12_356));
}

#[test]
fn events_that_are_named_for_one_format_are_none_of_the_other() {
    let joined = Joined::of_capture("xray-joined-mono14");
    let (shown, _) = joined.beside(&["--events", "alloc"]);
    assert!(!shown.iter().any(|event| event.name.starts_with("xray/")));
    let (shown, _) = joined.beside(&["--events", "custom"]);
    let traced: BTreeSet<&str> = shown
        .iter()
        .map(|event| &*event.name)
        .filter(|name| name.starts_with("xray/"))
        .collect();
    assert_eq!(traced, BTreeSet::from(["xray/custom/"]));
}
