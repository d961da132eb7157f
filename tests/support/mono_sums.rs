//! Compares the totals of a Mono log's events in a profile with mprof-report's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jitinject::internals::traces::mono::format::{Kind, Log};

use super::mono_report::{Called, Report};
use super::perf::{self, Event, assert_reports_are_silent, without_addresses};
use super::{inject_into, scratch, shown};

/// Returns the events of a profile that was made from a log alone. perf report must not warn about it.
pub fn alone(log: &Path, more: &[&str]) -> Vec<Event> {
    let folder = scratch();
    let output = inject_into(folder.path(), log, more);
    assert_reports_are_silent(&perf::named_programs(), &output);
    without_addresses(shown::events(&output))
}

/// Returns the samples of one event.
pub fn of<'a>(events: &'a [Event], name: &str) -> Vec<&'a Event> {
    let name = format!("mono/{name}/");
    events.iter().filter(|event| event.name == name).collect()
}

/// Returns the sum of the periods and the number of samples.
pub fn sum(events: &[&Event]) -> (u64, u64) {
    (events.iter().map(|event| event.period).sum(), events.len() as u64)
}

/// Returns the same for each innermost symbol.
pub fn by_leaf(events: &[&Event]) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for event in events {
        let sum = sums.entry(event.leaf().to_owned()).or_default();
        *sum = (sum.0 + event.period, sum.1 + 1);
    }
    sums
}

/// Maps each method name in a log to a common name of all methods with the same code: an external method and its
/// wrapper share it, and mprof-report has a line for each.
fn shared_names(log: &[u8]) -> BTreeMap<String, String> {
    let mut by_code: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for event in Log::parse(log).unwrap().events() {
        if let Kind::Jit {
            code,
            name,
            size: 1..,
            ..
        } = event.kind
        {
            let name = String::from_utf8(name.to_vec()).unwrap();
            by_code.entry(code.0).or_default().insert(name);
        }
    }
    let shared = by_code.values().flat_map(|names| {
        let first = names.first().unwrap();
        names.iter().map(move |name| (name.clone(), first.clone()))
    });
    shared.collect()
}

/// Calls of a function (by the names of [`shared_names`]): count, exclusive and inclusive time in nanoseconds.
/// Each recursive call of a method counts, as in mprof-report.
#[derive(Default, Debug)]
struct Spent {
    calls: u64,
    own: u64,
    total: u64,
}

fn spent<'a>(shown: &'a [Event], name: impl Fn(&'a str) -> &'a str) -> BTreeMap<&'a str, Spent> {
    let mut spent: BTreeMap<&str, Spent> = BTreeMap::new();
    for event in of(shown, "calls") {
        spent.entry(name(event.leaf())).or_default().calls += event.period;
    }
    for event in of(shown, "self-ns") {
        spent.entry(name(event.leaf())).or_default().own += event.period;
        for method in event.symbols() {
            spent.entry(name(method)).or_default().total += event.period;
        }
    }
    spent
}

/// Compares the calls with those of a report of all methods.
pub fn assert_calls(shown: &[Event], log: &[u8], report: &Report) {
    let shared = shared_names(log);
    let name = |name| shared.get(name).map_or(name, String::as_str);
    assert_eq!(sum(&of(shown, "calls")).1, report.number("Total calls:"));
    let ours = spent(shown, name);
    let lines = report.calls();
    let mut theirs: BTreeMap<&str, Vec<Called>> = BTreeMap::new();
    for (method, called) in &lines {
        theirs.entry(name(method)).or_default().push(*called);
    }
    assert!(theirs.keys().eq(ours.keys()));
    for (name, called) in theirs {
        let sum = |part: fn(&Called) -> u64| called.iter().map(part).sum::<u64>();
        // Each line was rounded down to milliseconds.
        let is_near = |nanoseconds: u64, milliseconds: u64| {
            let most = milliseconds + called.len() as u64;
            (milliseconds * 1_000_000..most * 1_000_000).contains(&nanoseconds)
        };
        let ours = &ours[name];
        assert_eq!(ours.calls, sum(|it| it.calls), "{name}");
        let has_times = is_near(ours.own, sum(|it| it.own)) && is_near(ours.total, sum(|it| it.total));
        assert!(has_times, "{name}: {ours:?}, {called:?}");
    }
}
