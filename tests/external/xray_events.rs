//! Compares the events that are made of XRay traces with the output of llvm-xray.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use jitinject::internals::traces::xray::format::{InstrumentationMap, TraceHeader};
use object::{Object, ObjectSymbol, SymbolKind};
use serde_json::Value;

use crate::support::llvm_xray::{self, Amount};
use crate::support::perf::{Event, assert_reports_are_silent, events, programs, without_addresses};
use crate::support::reports::{line_of, only};
use crate::support::xray_lines::{SHORT, SOUND, real};
use crate::support::{capture, inject_into, jitinject, said, scratch, tools};

/// Returns the trace of a capture.
fn trace_of(name: &str) -> PathBuf {
    capture::folder(name).join("trace.xray")
}

/// Returns the binary that wrote the trace, which is the same for most captures.
fn binary_of(name: &str) -> PathBuf {
    let own = capture::folder(name).join("work");
    if own.exists() {
        own
    } else {
        capture::folder("xray-fdr-pie14").join("work")
    }
}

/// Returns the IDs of functions by symbol.
fn numbers(binary: &Path) -> BTreeMap<String, u32> {
    let file = std::fs::read(binary).unwrap();
    let functions = InstrumentationMap::read(&file).unwrap();
    let by_address: BTreeMap<u64, u32> = functions
        .addresses()
        .iter()
        .map(|address| address.0)
        .zip(1..)
        .collect();
    let elf = object::File::parse(&*file).unwrap();
    let symbols = elf.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
    let named = symbols.filter_map(|symbol| {
        let number = by_address.get(&symbol.address())?;
        Some((symbol.name().unwrap().to_owned(), *number))
    });
    named.collect()
}

/// Returns the stack of an event as function IDs, outermost first.
fn functions(event: &Event, numbers: &BTreeMap<String, u32>) -> Vec<u32> {
    let symbols = event.symbols().into_iter().rev();
    symbols
        .map(|symbol| {
            let number = || symbol.strip_prefix("[xray #")?.strip_suffix(']')?.parse().ok();
            numbers
                .get(symbol)
                .copied()
                .or_else(number)
                .unwrap_or_else(|| panic!("{event:?}"))
        })
        .collect()
}

/// Returns the events of a profile made from a trace alone, which must be the same with each perf.
fn alone(name: &str, more: &[&str]) -> Vec<Event> {
    let folder = scratch();
    let output = inject_into(folder.path(), &trace_of(name), more);
    let [shown, others @ ..] = &programs()
        .iter()
        .map(|program| without_addresses(events(program, &output)))
        .collect::<Vec<_>>()[..]
    else {
        panic!("no perf");
    };
    assert!(others.iter().all(|other| other == shown));
    assert_reports_are_silent(&programs(), &output);
    shown.clone()
}

fn with_binary(name: &str, more: &[&str]) -> Vec<Event> {
    let binary = binary_of(name);
    alone(name, &[&["--xray-binary", tools::text(&binary)], more].concat())
}

fn of<'e>(events: &'e [Event], name: &str) -> Vec<&'e Event> {
    let name = format!("xray/{name}/");
    events.iter().filter(|event| event.name == name).collect()
}

/// Returns calls and inclusive nanoseconds of each function.
fn account(shown: &[Event], numbers: &BTreeMap<String, u32>) -> BTreeMap<u32, Amount> {
    let mut amounts: BTreeMap<u32, Amount> = BTreeMap::new();
    for event in of(shown, "calls") {
        let stack = functions(event, numbers);
        amounts.entry(*stack.last().unwrap()).or_default().calls += event.period;
    }
    for event in of(shown, "self-ns") {
        for function in functions(event, numbers) {
            amounts.entry(function).or_default().ticks += event.period;
        }
    }
    amounts
}

/// Returns inclusive nanoseconds of each stack of each thread.
fn stacks(shown: &[Event], numbers: &BTreeMap<String, u32>) -> BTreeMap<(u32, Vec<u32>), u64> {
    let mut amounts = BTreeMap::new();
    for event in of(shown, "self-ns") {
        let mut stack = functions(event, numbers);
        while !stack.is_empty() {
            *amounts.entry((event.tid, stack.clone())).or_default() += event.period;
            stack.pop();
        }
    }
    amounts
}

/// Returns whether nanoseconds equal llvm-xray's ticks: exactly if a tick is one nanosecond, else within one
/// nanosecond per interval between two records.
fn is_same(nanoseconds: u64, ticks: u64, header: &TraceHeader, times: u64) -> bool {
    const NANOSECONDS: u64 = 1_000_000_000;
    let expected = ticks as f64 * NANOSECONDS as f64 / header.frequency as f64;
    let slack = match header.frequency {
        NANOSECONDS => 0.0,
        _ => times as f64,
    };
    // It prints seven digits.
    (nanoseconds as f64 - expected).abs() <= slack + expected * 5e-7
}

/// A trace as llvm-xray needs it, and its events.
struct Compared {
    folder: tempfile::TempDir,
    sorted: PathBuf,
    numbers: BTreeMap<String, u32>,
    header: TraceHeader,
    shown: Vec<Event>,
}

impl Compared {
    fn of(name: &str) -> Self {
        let folder = scratch();
        Self {
            sorted: llvm_xray::sorted(folder.path(), &trace_of(name)),
            numbers: numbers(&binary_of(name)),
            header: TraceHeader::parse(&real(name)).unwrap(),
            shown: with_binary(name, &["--events", "calls"]),
            folder,
        }
    }
}

#[test]
fn calls_and_times_of_functions_are_those_of_llvm_xray() {
    for name in SOUND {
        let Compared {
            folder: _folder,
            sorted,
            numbers,
            header,
            shown,
        } = Compared::of(name);
        let (ours, theirs) = (account(&shown, &numbers), llvm_xray::account(&sorted));
        assert!(theirs.len() >= 6, "{name}");
        assert!(ours.keys().eq(theirs.keys()), "{name}");
        let times = of(&shown, "self-ns").len() as u64;
        for (function, theirs) in &theirs {
            let ours = ours[function];
            assert_eq!(ours.calls, theirs.calls, "{name}: {function}");
            assert!(
                is_same(ours.ticks, theirs.ticks, &header, times),
                "{name}: {function}: {ours:?}, {theirs:?}"
            );
        }
        let calls = of(&shown, "calls").len() as u64;
        assert_eq!(calls, llvm_xray::chrome_calls(&sorted), "{name}");
    }
}

/// Returns the durations of the calls of each function of a trace, sorted.
fn durations(name: &str) -> BTreeMap<u32, Vec<u64>> {
    let numbers = numbers(&binary_of(name));
    let shown = with_binary(name, &["--events", "durations"]);
    let mut durations: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for event in of(&shown, "call-ns") {
        let stack = functions(event, &numbers);
        let calls = durations.entry(*stack.last().unwrap()).or_default();
        calls.push(event.period);
    }
    durations.values_mut().for_each(|calls| calls.sort_unstable());
    durations
}

/// Returns minimum, median, 90 %, 99 % and maximum.
fn percentiles(sorted: &[u64]) -> [u64; 5] {
    let at = |share: f64| sorted[(sorted.len() as f64 * share).floor() as usize];
    [sorted[0], at(0.5), at(0.9), at(0.99), sorted[sorted.len() - 1]]
}

/// C++ names have spaces.
#[test]
fn the_commands_of_the_document_print_all_functions_with_their_percentiles() {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/xray.md")).unwrap();
    let (_, commands) = document
        .rsplit_once("    jitinject --xray-log xray-log.app.Xo5bpR")
        .unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let name = "xray-fdr-pie14";
    let folder = scratch();
    std::os::unix::fs::symlink(binary_of(name), folder.path().join("app")).unwrap();
    let (jitinject, trace) = (env!("CARGO_BIN_EXE_jitinject"), trace_of(name));
    let script = format!("{jitinject} -q --xray-log {}{commands}", trace.display());
    let ran = Command::new("sh")
        .args(["-euc", &script])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    let printed = String::from_utf8(ran.stdout).unwrap();
    let mut rows: Vec<Vec<u64>> = printed
        .lines()
        .map(|line| {
            let mut numbers: Vec<u64> = line
                .rsplitn(7, ' ')
                .take(6)
                .map(|number| number.parse().unwrap())
                .collect();
            numbers.reverse();
            numbers
        })
        .collect();
    rows.sort_unstable();
    let durations = durations(name);
    let expected = durations.values();
    let expected = expected.map(|calls| [&[calls.len() as u64][..], &percentiles(calls)].concat());
    let mut expected: Vec<Vec<u64>> = expected.collect();
    expected.sort_unstable();
    assert_eq!(rows, expected, "{printed}");
    assert!(printed.lines().any(|line| line.contains(", ")), "{printed}");
}

#[test]
fn durations_of_calls_have_the_percentiles_of_llvm_xray() {
    for name in SOUND {
        let folder = scratch();
        let sorted = llvm_xray::sorted(folder.path(), &trace_of(name));
        let header = TraceHeader::parse(&real(name)).unwrap();
        let durations = durations(name);
        let theirs = llvm_xray::percentiles(&sorted);
        assert!(durations.keys().eq(theirs.keys()), "{name}");
        for (function, theirs) in &theirs {
            let ours = percentiles(&durations[function]);
            for (ours, theirs) in ours.into_iter().zip(*theirs) {
                assert!(
                    is_same(ours, theirs, &header, 1),
                    "{name}: {function}: {ours}, {theirs}"
                );
            }
        }
    }
}

#[test]
fn times_of_stacks_are_those_of_llvm_xray() {
    for name in SOUND {
        let Compared {
            folder: _folder,
            sorted,
            numbers,
            header,
            shown,
        } = Compared::of(name);
        let (ours, theirs) = (stacks(&shown, &numbers), llvm_xray::stacks(&sorted));
        assert!(theirs.len() > 10, "{name}");
        let times = of(&shown, "self-ns").len() as u64;
        for (stack, ticks) in &theirs {
            let ours = ours.get(stack).copied().unwrap_or_default();
            assert!(
                is_same(ours, *ticks, &header, times),
                "{name}: {stack:?}: {ours}, {ticks}"
            );
        }
        let longer = ours.iter().filter(|&(stack, _)| !theirs.contains_key(stack));
        assert_eq!(longer.count(), 0, "{name}");
    }
}

#[test]
fn functions_without_a_binary_have_their_numbers() {
    let numbers = numbers(&binary_of("xray-fdr-pie14"));
    let of_binary = with_binary("xray-fdr-pie14", &[]);
    let of_none = alone("xray-fdr-pie14", &[]);
    assert_eq!(of_binary.len(), of_none.len());
    for (one, other) in of_binary.iter().zip(&of_none) {
        assert_eq!(
            (one.time, one.tid, one.period, &one.name),
            (other.time, other.tid, other.period, &other.name)
        );
        assert_eq!(functions(one, &numbers), functions(other, &BTreeMap::new()));
    }
}

/// Runs jitinject on a trace or a folder alone, with the output in a folder.
fn run_alone(folder: &Path, trace: &Path, more: &[&str]) -> Output {
    let output = folder.join("out.data");
    jitinject()
        .args(["--xray-log", tools::text(trace), "-o", tools::text(&output)])
        .args(more)
        .output()
        .unwrap()
}

/// Makes a profile of a trace or a folder alone; returns standard error and the summary.
fn summary_alone(trace: &Path, more: &[&str]) -> (String, Value) {
    let folder = scratch();
    let summary = folder.path().join("summary.json");
    let more = [&["--summary", tools::text(&summary)], more].concat();
    let ran = run_alone(folder.path(), trace, &more);
    assert!(ran.status.success(), "{}: {}", trace.display(), said(&ran));
    let summary = std::fs::read(summary).unwrap();
    (said(&ran), serde_json::from_slice(&summary).unwrap())
}

/// Runs jitinject on a trace or a folder alone, which must fail; returns standard error.
fn refused_alone(trace: &Path) -> String {
    let folder = scratch();
    let ran = run_alone(folder.path(), trace, &[]);
    assert_eq!(ran.status.code(), Some(1), "{}: {}", trace.display(), said(&ran));
    said(&ran)
}

#[test]
fn damaged_traces_are_reported_and_used_as_far_as_they_go() {
    let bad_trace = |name: &str| capture::folder("xray-bad").join(format!("{name}.xray"));
    let whole = "384 calls, 8 logged events";
    let used = [
        ("bad-trunc-boundary", "1 thread, 95 calls, 2 logged events"),
        ("bad-extents+8", whole),
        ("bad-extents-huge", whole),
        ("bad-noise-between", whole),
        ("bad-nopid", "1 thread, 95 calls, 2 logged events"),
        ("bad-freq0", whole),
        ("v1-stale-filler", whole),
        ("bad-hdronly", "0 threads"),
    ];
    for (name, expected) in used {
        let (said, _) = summary_alone(&bad_trace(name), &[]);
        assert!(said.contains(expected), "{name}: {said}");
    }
    let reported = [
        ("bad-trunc-mid", "JI117", 1),
        ("bad-trunc-5", "JI117", 1),
        ("bad-extents-8", "JI112", 8),
        ("bad-kind127", "JI105", 1),
    ];
    for (name, code, count) in reported {
        let trace = bad_trace(name);
        let (_, summary) = summary_alone(&trace, &[]);
        let diagnostic = only(&summary, code);
        assert_eq!(diagnostic["file"], tools::text(&trace), "{name}");
        assert_eq!(diagnostic["count"], count, "{name}");
    }
    // The message has the version and type, the type, and the size.
    let refused = [
        ("bad-ver6", "JI103", &["6", "1"][..]),
        ("bad-type2", "JI104", &["2"]),
        ("bad-hdr", "JI101", &["20"]),
    ];
    for (name, code, values) in refused {
        let trace = bad_trace(name);
        let said = refused_alone(&trace);
        let start = format!("jitinject: error[{code}]: {}: ", trace.display());
        let message = line_of(&said, code).strip_prefix(&start);
        let words = message
            .unwrap_or_default()
            .split(|sign: char| !sign.is_alphanumeric());
        let words: Vec<&str> = words.collect();
        assert!(values.iter().all(|value| words.contains(value)), "{name}: {said}");
    }
}

#[test]
fn fewer_events_have_the_same_sums() {
    let name = "xray-joined-mono14";
    let numbers = numbers(&binary_of(name));
    let all = with_binary(name, &["--events", "calls"]);
    let exact = account(&all, &numbers);

    let aggregated = with_binary(name, &["--events", "calls", "--aggregate"]);
    assert_eq!(account(&aggregated, &numbers), exact);
    assert_eq!(stacks(&aggregated, &numbers), stacks(&all, &numbers));
    let each: Vec<_> = of(&aggregated, "self-ns")
        .iter()
        .map(|event| (event.tid, functions(event, &numbers)))
        .collect();
    let different: std::collections::BTreeSet<_> = each.iter().collect();
    assert_eq!(each.len(), different.len(), "one for each stack of a thread");

    const STEP: u64 = 10_000;
    let resampled = with_binary(name, &["--resample", "10us"]);
    assert!(of(&resampled, "calls").is_empty() && !of(&resampled, "custom").is_empty());
    let steps = of(&resampled, "self-ns");
    assert!(steps.iter().all(|event| event.period == STEP));
    // The step count of each period in calls may be off by one; each thread has at least one such period.
    let total: u64 = of(&all, "self-ns").iter().map(|event| event.period).sum();
    let counted = steps.len() as u64 * STEP;
    assert!(counted.abs_diff(total) < total / 20, "{counted} of {total}");
    assert!(steps.len() * 2 < of(&all, "self-ns").len(), "{}", steps.len());
}

#[test]
fn what_a_program_logs_is_shown_with_its_bytes_where_it_was() {
    let folder = scratch();
    let trace = trace_of(SHORT);
    let options = ["--xray-binary", tools::text(&binary_of(SHORT))].map(str::to_owned);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let output = inject_into(folder.path(), &trace, &options);
    let shown = events("perf", &output);
    let logged = of(&shown, "custom");
    assert_eq!(logged.len(), 16);
    let numbers = numbers(&binary_of(SHORT));
    assert!(
        logged
            .iter()
            .all(|event| event.symbols().iter().any(|name| numbers.contains_key(*name)))
    );
    // For other events, perf prints that they have no such bytes.
    let printed = tools::run("perf", &["script", "-f", "-i", tools::text(&output)]);
    for number in [0, 4] {
        let texts = printed.matches(&format!("custom-event #{number}")).count();
        assert_eq!(texts, 4, "{printed}");
    }
    // The others have their type, 7, as a frame.
    let typed = printed.matches("0000: 74 79 70 65 64 2d").count();
    assert_eq!(typed, 8, "{printed}");
    let of_type = logged.iter().filter(|event| event.leaf() == "[type 7]");
    assert_eq!(of_type.count(), 8);
    // For functions, all problems are reported except what the runtime did not write.
    let (_, summary) = summary_alone(&trace, &options);
    assert_eq!(only(&summary, "JI111")["count"], 128);
}

#[test]
fn traces_of_several_processes_make_one_profile() {
    let names = ["xray-fdr-pie14", "xray-basic19"];
    let each = names.map(|name| alone(name, &[]));
    let folder = scratch();
    for name in names {
        std::fs::copy(
            trace_of(name),
            folder.path().join(format!("xray-log.{name}.AbCdEf")),
        )
        .unwrap();
    }
    std::fs::write(folder.path().join("other"), "no trace").unwrap();
    let output = folder.path().join("out.data");
    let first = trace_of("xray-joined-mono14");
    // A file that is given twice is read once.
    let again = folder.path().join(format!("xray-log.{}.AbCdEf", names[0]));
    let ran = jitinject()
        .args([
            "--xray-log",
            tools::text(&first),
            "--xray-log",
            tools::text(folder.path()),
        ])
        .args(["--xray-log", tools::text(&again), "-o", tools::text(&output)])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    let said = said(&ran);
    assert!(line_of(&said, "JI133").contains(names[1]), "{said}");
    let shown = events("perf", &output);
    assert!(shown.is_sorted_by_key(|event| event.time));
    for (name, each) in names.iter().zip(&each) {
        let pid = each[0].pid;
        let same = shown.iter().filter(|event| event.pid == pid);
        let same: Vec<&Event> = same.collect();
        assert_eq!(same.len(), each.len(), "{name}");
        // As XRay's runtime names its files.
        let comm: String = name.chars().take(15).collect();
        assert!(same[0].comm.starts_with(&comm), "{}", same[0].comm);
        let parts = |event: &Event| {
            (
                event.tid,
                event.period,
                event.name.clone(),
                event.symbols().join(";"),
            )
        };
        assert!(
            same.iter()
                .zip(each)
                .all(|(one, other)| parts(one) == parts(other)),
            "{name}"
        );
    }
}

#[test]
fn a_folder_of_traces_can_stand_alone() {
    let folder = scratch();
    std::fs::write(folder.path().join("a"), "no trace").unwrap();
    for name in ["xray-fdr-pie14", "xray-joined-mono14"] {
        std::fs::copy(trace_of(name), folder.path().join(name)).unwrap();
    }
    let (said, _) = summary_alone(folder.path(), &[]);
    assert!(
        said.contains("384 calls") && said.contains("12356 calls"),
        "{said}"
    );
    let empty = scratch();
    refused_alone(empty.path());
}
