//! Traces of XRay beside a recording of the same program: whether they are at the same times, and the call chains that
//! they give to its samples.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::perf::{
    Event, assert_reports_are_silent, events, events_with_cache, perf_with_cache, programs,
};
use crate::support::{capture, inject, jitinject, said, scratch, tools};

/// How the runtime writes its trace.
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

    /// Records the program of the captures, compiled in some way. Its ticks are CLOCK_REALTIME on most virtual machines,
    /// and the processor's elsewhere.
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

    /// What perf shows of a profile, with the binary where it looks for it.
    fn events(&self, profile: &Path) -> Vec<Event> {
        let cache = scratch();
        let add = ["buildid-cache", "--add", tools::text(&self.binary)];
        perf_with_cache("perf", cache.path(), &add);
        events_with_cache("perf", cache.path(), profile)
    }

    /// The events of the trace beside those that were recorded.
    fn beside(&self, more: &[&str]) -> (Vec<Event>, String) {
        let folder = scratch();
        let output = folder.path().join("out.data");
        let told = inject(&self.profile, &output, &self.options(more));
        assert_reports_are_silent(&programs(), &output);
        (self.events(&output), told)
    }
}

/// The stacks that a trace tells of: for each thread, when each ends.
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

    /// The stack of a thread at a time.
    fn at(&self, tid: u32, time: u64) -> &[&'e str] {
        let Some(stacks) = self.by_thread.get(&tid) else {
            return &[];
        };
        let next = stacks.partition_point(|&(end, _)| end < time);
        stacks.get(next).map_or(&[], |(_, symbols)| symbols)
    }
}

/// Of the samples with an instrumented function in their recorded call chain, how many have the one that is innermost there
/// innermost in the trace as well, and how many they are.
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

#[test]
fn a_recording_on_the_same_clock_shows_the_same_functions_at_the_same_times() {
    let joined = Joined::of_capture("xray-joined-mono14");
    let (shown, told) = joined.beside(&[]);
    assert!(!told.contains("record with perf record -k mono"), "{told}");
    assert!(told.contains("4 buffers agree to 0.8 us"), "{told}");
    let (same, all) = agreement(&shown);
    assert!(same >= 197 && all == 202, "{same} of {all}");
}

#[test]
fn a_recording_on_another_clock_is_warned_of() {
    let joined = Joined::of_capture("xray-joined-tsc-defclock14");
    let (_, told) = joined.beside(&[]);
    let warning = "its times are CLOCK_MONOTONIC, and the profile was recorded on another clock, which may be milliseconds away";
    assert!(told.contains(warning), "{told}");
    assert!(
        told.contains("record with perf record -k mono, or give the distance with --clock-offset"),
        "{told}"
    );
    let (_, told) = joined.beside(&["--time-offset", "1900000"]);
    assert!(!told.contains(warning), "{told}");
    assert!(told.contains("moved as was asked for"), "{told}");
}

#[test]
fn a_live_recording_shows_the_same_functions_at_the_same_times() {
    let folder = scratch();
    let options = ["-F", "9999", "-g"];
    let joined = Joined::record(folder.path(), "-fno-omit-frame-pointer", "600", &options);
    let (shown, told) = joined.beside(&[]);
    let (same, all) = agreement(&shown);
    println!("{same} of {all}: {told}");
    assert!(all > 50, "{all}");
    assert!(same * 100 >= all * 95, "{same} of {all}: {told}");
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
    let told = inject(&joined.profile, &output, &joined.options(&["--splice-stacks"]));
    assert!(
        told.contains("samples in its code got the call chain that it tells of"),
        "{told}"
    );
    assert_reports_are_silent(&programs(), &output);
    let alone = folder.path().join("alone.data");
    let ran = jitinject()
        .args(joined.options(&["--events", "calls", "-o", tools::text(&alone)]))
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
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
        // The sampled function is the innermost call, or one that tells of no calls.
        same += usize::from(user == expected || user[1..] == *expected);
    }
    println!("{same} of {all}: {told}");
    assert!(all > 50, "{all}");
    // Between a call and the record that tells of it lies more time on a busy machine. Without the trace, none are right.
    assert!(same * 100 >= all * 90, "{same} of {all}");
}

#[test]
fn basic_mode_is_brought_to_the_profile_by_the_wall_clock_that_it_tells() {
    let folder = scratch();
    let way = "-fno-omit-frame-pointer";
    let joined = Joined::record_in_mode(folder.path(), way, "600", &["-F", "9999", "-g"], Mode::Basic);
    let (shown, told) = joined.beside(&["--events", "calls"]);
    let (same, all) = agreement(&shown);
    println!("{same} of {all}: {told}");
    assert!(
        told.contains("by what the profile tells of the wall clock (CLOCK_DATA)"),
        "{told}"
    );
    assert!(all > 50, "{all}");
    assert!(same * 100 >= all * 90, "{same} of {all}: {told}");
}

#[test]
fn a_trace_of_another_process_is_told_and_its_process_can_be_said() {
    let joined = Joined::of_capture("xray-joined-mono14");
    let other = capture::folder("xray-fdr-pie14").join("trace.xray");
    let folder = scratch();
    let output = folder.path().join("out.data");
    let options = ["--xray-log", tools::text(&other)];
    let told = inject(&joined.profile, &output, &options);
    let expected =
        "is of process 23194, which is not in the profile: not used; say with --pid which one it is of";
    assert!(told.contains(expected), "{told}");
    let told = inject(
        &joined.profile,
        &output,
        &[&options[..], &["--pid", "24100"]].concat(),
    );
    assert!(told.contains("4 threads, 384 calls"), "{told}");
    assert!(
        events("perf", &output)
            .iter()
            .any(|event| event.name == "xray/calls/" && event.pid == 24100)
    );
}

#[test]
fn what_is_wrong_with_a_trace_is_told_where_only_its_stacks_are_used() {
    let joined = Joined::of_capture("xray-joined-mono14");
    let folder = scratch();
    let output = folder.path().join("out.data");
    let told = inject(&joined.profile, &output, &joined.options(&["--splice-stacks"]));
    assert!(
        told.contains("calls whose end is not told of, ended with the call around them (600"),
        "{told}"
    );
    assert!(told.contains("12356 calls, 300 logged events"), "{told}");
    let without_binary = ["--xray-log", tools::text(&joined.trace), "--splice-stacks"];
    let told = inject(&joined.profile, &output, &without_binary);
    assert!(told.contains("call chains need --xray-binary"), "{told}");
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
