//! Events of Mono logs as events of a profile: of a log alone, and added to a recording. Their sums are compared with
//! those of mprof-report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::support::capture::gunzipped;
use crate::support::mono_report::{Report, UNRESOLVED};
use crate::support::mono_sums::{alone, assert_calls, by_leaf, of, sum};
use crate::support::perf::{Event, assert_reports_are_silent, without_addresses};
use crate::support::shown;
use crate::support::{capture, inject, perf, scratch, tools};

fn log_of(name: &str) -> PathBuf {
    capture::folder(name).join("trace.mlpd")
}

fn report(name: &str) -> Report {
    Report::kept(&capture::folder(name).join("report.txt"))
}

/// Unpacks the report of all methods and stacks into a folder, and reads it.
fn unpacked_traces(name: &str, folder: &Path) -> Report {
    let packed = capture::folder(name).join("report-traces.txt.gz");
    let traces = folder.join("report-traces.txt");
    std::fs::write(&traces, gunzipped(&packed)).unwrap();
    Report::kept(&traces)
}

/// Compares allocations by type. mprof-report reads a log once, so it does not resolve types whose name comes later;
/// jitinject does.
fn assert_allocations(shown: &[Event], report: &Report) {
    let allocations = of(shown, "alloc-bytes");
    assert_eq!(sum(&allocations), report.allocated());
    let mut theirs = report.allocations();
    let unresolved = theirs.remove(UNRESOLVED).unwrap_or_default();
    let mut ours: BTreeMap<_, _> = by_leaf(&allocations)
        .into_iter()
        .map(|(name, sum)| (name.strip_prefix("new ").unwrap().to_owned(), sum))
        .collect();
    for (name, (bytes, count)) in theirs {
        let (our_bytes, our_count) = ours.get_mut(&name).unwrap_or_else(|| panic!("{name}"));
        *our_bytes = our_bytes.checked_sub(bytes).unwrap_or_else(|| panic!("{name}"));
        *our_count = our_count.checked_sub(count).unwrap_or_else(|| panic!("{name}"));
    }
    let more = ours
        .values()
        .fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
    assert_eq!(more, unresolved);
}

fn assert_collections(shown: &[Event], report: &Report) {
    let collections = of(shown, "gc-ns");
    let mut generations = 0;
    for generation in 0..=2 {
        let leaf = format!("[gc gen {generation}]");
        let ours = collections.iter().filter(|event| event.leaf() == leaf);
        let periods: Vec<u64> = ours.map(|event| event.period).collect();
        let Some([count, longest, total]) = report.collections(generation) else {
            assert!(periods.is_empty());
            continue;
        };
        generations += 1;
        assert_eq!(periods.len() as u64, count);
        assert_eq!(periods.iter().max().unwrap() / 1000, longest);
        assert_eq!(periods.iter().sum::<u64>() / 1000, total);
    }
    assert!(generations > 0);
    // The pause starts before its collection, and ends after it.
    let pauses = of(shown, "gc-pause-ns");
    assert!(pauses.iter().all(|event| event.leaf() == "[gc pause]"));
    assert!(sum(&pauses).0 > sum(&collections).0);
}

#[test]
fn allocations_and_collections_are_those_of_mprof_report() {
    for name in ["mono-alloc", "mono-alloc-zip", "mono-joined"] {
        let shown = alone(&log_of(name), &["--events", "alloc,gc"]);
        let report = report(name);
        assert_allocations(&shown, &report);
        assert_collections(&shown, &report);
    }
    let shown = alone(&log_of("mono-alloc"), &["--events", "alloc"]);
    assert_eq!(sum(&of(&shown, "alloc-bytes")), (100_344, 1996));
    assert_eq!(by_leaf(&of(&shown, "alloc-bytes"))["new Work.Node"].1, 930);
}

/// mprof-report prints the outermost frame first, and at most the number of frames of its option `--maxframes`.
#[test]
fn exceptions_have_the_stacks_that_mprof_report_shows() {
    let folder = scratch();
    let traces = unpacked_traces("mono-joined", folder.path());
    let shown = alone(&log_of("mono-joined"), &["--events", "exception"]);
    let mut ours: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for event in of(&shown, "exception") {
        assert_eq!(event.period, 1);
        let stack = event.symbols().into_iter().rev().map(str::to_owned);
        *ours.entry(stack.collect()).or_default() += 1;
    }
    assert_eq!(ours.values().sum::<u64>(), traces.number("Throws:"));
    assert_eq!(ours, traces.throws());
}

#[test]
fn a_log_of_all_that_mono_logs_by_default_becomes_a_profile_of_it() {
    let (log, report) = (log_of("mono-default"), report("mono-default"));
    let shown = alone(&log, &[]);
    let names: BTreeSet<&str> = shown.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(
        names,
        BTreeSet::from([
            "mono/contention-ns/",
            "mono/exception/",
            "mono/gc-ns/",
            "mono/gc-pause-ns/"
        ])
    );
    let (waited, waits) = sum(&of(&shown, "contention-ns"));
    // mprof-report rounds the time to microseconds.
    assert_eq!((waits, (waited + 500) / 1000), report.contention());
    assert_eq!((waits, waited), (1, 1_424_673));
    assert_eq!(sum(&of(&shown, "exception")).1, report.number("Throws:"));
    assert_collections(&shown, &report);
    let waits = of(&shown, "contention-ns");
    let [lock, caller, ..] = &waits[0].symbols()[..] else {
        panic!("{:?}", waits[0]);
    };
    assert!(lock.starts_with("[lock 0x"), "{lock}");
    assert!(caller.contains("onitor"), "{caller}");
}

#[test]
fn samples_of_the_profiler_are_where_mprof_report_has_them() {
    let shown = alone(&log_of("mono-joined"), &["--events", "sample"]);
    let samples = of(&shown, "sample");
    let report = report("mono-joined");
    let managed = report.number("Managed hits:");
    assert_eq!(sum(&samples).1, report.number("Unmanaged hits:") + managed);
    let spinning = samples
        .iter()
        .filter(|event| event.leaf() == "Work.Cpu:Spin (int)");
    assert_eq!(spinning.count() as u64, managed);
    let with_main = samples
        .iter()
        .filter(|event| event.symbols().contains(&"Work.Program:Main (string[])"));
    assert!(with_main.count() > 5);
}

#[test]
fn calls_and_times_of_methods_are_those_of_mprof_report() {
    let log = log_of("mono-calls");
    let shown = alone(&log, &["--events", "calls"]);
    let folder = scratch();
    // The short report has only the methods with the longest times.
    let report = unpacked_traces("mono-calls", folder.path());
    assert_eq!(report.number("Total calls:"), 5017);
    assert!(report.calls().len() > 100);
    assert_calls(&shown, &report);
}

/// Adds the events of a log to the recording of the same run; returns the output's path.
fn merged(folder: &Path, more: &[&str]) -> PathBuf {
    let output = folder.join("merged.data");
    let log = log_of("mono-joined");
    let more = [&["--mono-log", tools::text(&log)], more].concat();
    inject(&capture::profile("mono-joined"), &output, &more);
    output
}

#[test]
fn events_beside_a_recording_leave_its_samples_alone_and_have_the_same_sums() {
    const EVENTS: [&str; 2] = ["--events", "alloc,exception,sample"];
    let folder = scratch();
    let output = merged(folder.path(), &[]);
    let recorded = shown::events(&output);
    let output = merged(folder.path(), &EVENTS);
    assert_reports_are_silent(&perf::named_programs(), &output);
    let shown = shown::events(&output).into_iter();
    let (ours, own): (Vec<Event>, Vec<Event>) = shown.partition(|event| event.name.starts_with("mono/"));
    assert!(own == recorded);
    let ours = without_addresses(ours);

    let alone = alone(&log_of("mono-joined"), &EVENTS);
    let [ours_by_type, alone_by_type] = [&ours, &alone].map(|events| by_leaf(&of(events, "alloc-bytes")));
    assert_eq!(ours_by_type, alone_by_type);
    // Code compiled ahead of time has the library's symbol in one, and the log's name in the other.
    let thrower = "Work.Program:Thrower (int)";
    for events in [&ours, &alone] {
        let thrown = of(events, "exception");
        assert_eq!((sum(&thrown), by_leaf(&thrown)[thrower]), ((31, 31), (30, 30)));
    }
    let samples = |events| {
        let leaf = |event: &Event| event.leaf().to_owned();
        let managed = |leaf: &String| leaf.contains(':');
        let leaves = of(events, "sample").into_iter().map(leaf);
        (of(events, "sample").len(), leaves.filter(managed).count())
    };
    assert_eq!(samples(&ours).0, samples(&alone).0);
    assert!(
        samples(&ours).1 >= samples(&alone).1,
        "the libraries have symbols"
    );

    // The threads have the recording's IDs.
    let threads = |events: &[Event]| -> BTreeSet<(u32, u32)> {
        events.iter().map(|event| (event.pid, event.tid)).collect()
    };
    let (used, known) = (threads(&ours), threads(&own));
    assert!(used.is_subset(&known), "{used:?} {known:?}");
    for name in ["mono", "worker-0", "worker-1"] {
        let has_name = |event: &&Event| event.comm == name;
        let [ours, own] = [&ours, &own].map(|events| events.iter().find(has_name).unwrap().tid);
        assert_eq!(ours, own, "{name}");
    }
    // The main thread waits for its workers, then continues alone.
    let of_workers = of(&ours, "exception")
        .into_iter()
        .filter(|event| event.comm.starts_with("worker-"));
    assert_eq!(of_workers.count(), 20);
}
