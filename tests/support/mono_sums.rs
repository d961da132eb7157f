//! Compares the totals of a Mono log's events in a profile with mprof-report's.

use std::collections::BTreeMap;
use std::path::Path;

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

/// Calls of a function: count, exclusive and inclusive time in nanoseconds.
/// Each recursive call of a method counts, as in mprof-report.
#[derive(Default, Debug)]
struct Spent {
    calls: u64,
    own: u64,
    total: u64,
}

fn spent(shown: &[Event]) -> BTreeMap<&str, Spent> {
    let mut spent: BTreeMap<&str, Spent> = BTreeMap::new();
    for event in of(shown, "calls") {
        spent.entry(event.leaf()).or_default().calls += event.period;
    }
    for event in of(shown, "self-ns") {
        spent.entry(event.leaf()).or_default().own += event.period;
        for method in event.symbols() {
            spent.entry(method).or_default().total += event.period;
        }
    }
    spent
}

/// Compares the calls with those of a report of all methods.
pub fn assert_calls(shown: &[Event], report: &Report) {
    assert_eq!(sum(&of(shown, "calls")).1, report.number("Total calls:"));
    let ours = spent(shown);
    let lines = report.calls();
    let mut theirs: BTreeMap<&str, Vec<Called>> = BTreeMap::new();
    for (method, called) in &lines {
        theirs.entry(method).or_default().push(*called);
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
