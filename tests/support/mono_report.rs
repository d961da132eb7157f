//! Parses the output of mprof-report, Mono's own reader of its profiler's logs.

use std::collections::BTreeMap;
use std::path::Path;

use super::tools;

/// Name that it prints for types that the log names only after their objects.
pub const UNRESOLVED: &str = "unresolved class (nil)";

/// A report.
pub struct Report(String);

/// A method in the summary of calls; times in milliseconds, rounded down.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Called {
    pub total: u64,
    pub own: u64,
    pub calls: u64,
}

/// Bytes and objects by type.
pub type Amounts = BTreeMap<String, (u64, u64)>;

/// Returns the integers in a line, which may have units.
fn numbers(line: &str) -> Vec<u64> {
    let words = line.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.filter_map(|word| word.parse().ok()).collect()
}

impl Report {
    /// Reads a stored report.
    pub fn kept(path: &Path) -> Self {
        Self(std::fs::read_to_string(path).unwrap())
    }

    /// Returns the report of a log, with all methods and types.
    pub fn of(log: &Path) -> Self {
        Self(tools::run("mprof-report", &["--verbose", tools::text(log)]))
    }

    /// Returns the lines after the one that contains `title`, up to the first one that contains `end`.
    fn section<'a>(&'a self, title: &str, end: &'a str) -> impl Iterator<Item = &'a str> {
        let lines = self.0.lines().skip_while(move |line| !line.contains(title));
        let lines: Vec<&str> = lines.skip(1).take_while(|line| !line.contains(end)).collect();
        assert!(!lines.is_empty(), "no {title} in {}", self.0);
        lines.into_iter()
    }

    /// Returns the numbers of the first line that contains `label`, without those in the label.
    pub fn numbers(&self, label: &str) -> Option<Vec<u64>> {
        let line = self.0.lines().find(|line| line.contains(label))?;
        Some(numbers(line.split_once(label).unwrap().1))
    }

    /// Returns the first number of that line.
    pub fn number(&self, label: &str) -> u64 {
        self.numbers(label).unwrap_or_else(|| panic!("no {label}"))[0]
    }

    /// Sums bytes and counts by type, from lines with bytes, count, average and name.
    fn amounts<'a>(lines: impl Iterator<Item = &'a str>) -> Amounts {
        let parsed = lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            let bytes: u64 = words.next()?.parse().ok()?;
            let count: u64 = words.next()?.parse().ok()?;
            let _average: u64 = words.next()?.parse().ok()?;
            Some((words.collect::<Vec<_>>().join(" "), (bytes, count)))
        });
        let mut amounts = Amounts::new();
        for (name, (bytes, count)) in parsed {
            // Types of several domains can have the same name.
            let sum = amounts.entry(name).or_default();
            *sum = (sum.0 + bytes, sum.1 + count);
        }
        amounts
    }

    /// Returns the allocations by type.
    pub fn allocations(&self) -> Amounts {
        Self::amounts(self.section("Allocation summary", "Total memory allocated"))
    }

    /// Returns the bytes and objects of all allocations.
    pub fn allocated(&self) -> (u64, u64) {
        let numbers = self.numbers("Total memory allocated").unwrap();
        (numbers[0], numbers[1])
    }

    /// Returns the objects of the first heap shot: those with a known type, and all.
    pub fn heap(&self) -> (Amounts, (u64, u64)) {
        let shot = Self::amounts(self.section("Heap shot 0", "Counters"));
        let all = self.numbers("secs: size:").unwrap();
        (shot, (all[0], all[1]))
    }

    /// Returns the objects of each heap shot by type, and all of it.
    pub fn heap_shots(&self) -> Vec<(Amounts, (u64, u64))> {
        let parts = self.0.split("\n\tHeap shot ").skip(1).map(|part| {
            let (title, rest) = part.split_once('\n').unwrap();
            let all = numbers(title.split_once("size:").unwrap().1);
            let lines = rest.lines().take_while(|line| line.starts_with("\t "));
            // From the second one on, each line has the difference to the one before.
            let lines = lines.map(|line| line.split(" (bytes: ").next().unwrap());
            (Self::amounts(lines), (all[0], all[1]))
        });
        parts.collect()
    }

    /// Returns how often threads waited for each lock, by address, and the total and the longest time in microseconds.
    pub fn locks(&self) -> BTreeMap<String, [u64; 3]> {
        let mut locks = BTreeMap::new();
        let mut lines = self.0.lines();
        while let Some(line) = lines.next() {
            let Some((address, count)) = line
                .trim()
                .strip_prefix("Lock object ")
                .and_then(|rest| rest.split_once(": "))
            else {
                continue;
            };
            let times = lines.next().unwrap().trim().replace("secs total wait time,", "");
            let micros = |word: &str| -> u64 {
                let (seconds, micros) = word.split_once('.').unwrap();
                seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
            };
            let times: Vec<&str> = times.split_whitespace().collect();
            let amounts = [numbers(count)[0], micros(times[0]), micros(times[1])];
            locks.insert(address.to_owned(), amounts);
        }
        locks
    }

    /// Returns the samples of each function by name.
    pub fn hits(&self) -> BTreeMap<String, u64> {
        let lines = self
            .0
            .lines()
            .skip_while(|line| !line.contains("Unmanaged hits:"));
        let lines = lines.take_while(|line| !line.is_empty());
        let hits = lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            let count: u64 = words.next()?.parse().ok()?;
            let _share: f64 = words.next()?.parse().ok()?;
            Some((words.collect::<Vec<_>>().join(" "), count))
        });
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        hits.for_each(|(name, count)| *by_name.entry(name).or_default() += count);
        by_name
    }

    /// Returns the calls by method, from lines with three numbers, between stacks. Methods may share names.
    pub fn calls(&self) -> Vec<(String, Called)> {
        let lines = self.section("Total(ms) Self(ms)", "Total calls");
        let parsed = lines.filter(|line| !line.starts_with('\t')).map(|line| {
            let mut words = line.split_whitespace();
            let mut number = || words.next().unwrap().parse().unwrap();
            let called = Called {
                total: number(),
                own: number(),
                calls: number(),
            };
            (words.collect::<Vec<_>>().join(" "), called)
        });
        parsed.collect()
    }

    /// For the collections of a generation, returns their number, the longest and the total duration, in
    /// microseconds, rounded down.
    pub fn collections(&self, generation: u64) -> Option<[u64; 3]> {
        let numbers = self.numbers(&format!("Gen{generation} collections:"))?;
        Some([numbers[0], numbers[1], numbers[2]])
    }

    /// Returns how often threads waited for locks, and the total time in microseconds.
    pub fn contention(&self) -> (u64, u64) {
        let waits = self.0.lines().filter_map(|line| {
            let (time, _) = line.trim().split_once(" secs total wait time")?;
            let (seconds, micros) = time.split_once('.')?;
            Some(seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap())
        });
        (self.number("Lock contentions:"), waits.sum())
    }

    /// Returns the stacks of exceptions in a report of traces, outermost first, with the count of each.
    pub fn throws(&self) -> BTreeMap<Vec<String>, u64> {
        let mut stacks = Vec::new();
        for line in self.section("Throws:", "Executed catch") {
            match line.trim().split_once(" throws from:") {
                Some((count, "")) => stacks.push((Vec::new(), count.parse().unwrap())),
                _ => stacks.last_mut().unwrap().0.push(line.trim().to_owned()),
            }
        }
        stacks.into_iter().collect()
    }
}
