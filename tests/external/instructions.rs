//! `jitinject report FUNCTION --instructions` against perf annotate of the output, which runs objdump.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::support::{capture, inject, jitinject, perf, said, scratch, tools};

/// Captures of several compilers.
const CAPTURES: [&str; 4] = ["node20", "java17", "php82", "lli14-mcjit"];

/// Functions of each capture that are compared, the hottest ones.
const FUNCTIONS: usize = 5;

/// A copy of a function: samples and percentage of each instruction that has any, by offset.
type Copy = BTreeMap<u64, (u64, f64)>;

/// Runs `jitinject report` with files of a capture.
fn report(files: &[&str], more: &[&str]) -> Value {
    let output = jitinject()
        .args([&["report", "--json"], files, more].concat())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the copies of a function by symbol, and the offsets of all their instructions.
fn of_report(files: &[&str], function: &str) -> BTreeMap<String, (Vec<Copy>, BTreeSet<u64>)> {
    let report = report(files, &["--instructions=0", function]);
    let mut found: BTreeMap<String, (Vec<Copy>, BTreeSet<u64>)> = BTreeMap::new();
    for copy in report["function"]["code"]["copies"].as_array().unwrap() {
        let all = copy["self"]["period"].as_f64().unwrap();
        let (copies, starts) = found
            .entry(copy["symbol"].as_str().unwrap().to_owned())
            .or_default();
        let mut samples = Copy::new();
        for instruction in copy["instructions"].as_array().unwrap() {
            let (offset, own) = (instruction["offset"].as_u64().unwrap(), &instruction["self"]);
            starts.insert(offset);
            let percent = own["period"].as_f64().unwrap() * 100.0 / all;
            match own["samples"].as_u64().unwrap() {
                0 => {}
                count => _ = samples.insert(offset, (count, percent)),
            }
        }
        copies.push(samples);
    }
    found
}

/// Returns the values at addresses that perf annotate prints for each copy of a symbol.
fn annotated(
    program: &str,
    cache: &Path,
    profile: &Path,
    more: &[&str],
    symbol: &str,
) -> Vec<Vec<(u64, f64)>> {
    let arguments = [
        "annotate",
        "-f",
        "--stdio",
        "--no-demangle",
        "-i",
        tools::text(profile),
    ];
    let printed = perf::perf_with_cache(program, cache, &[&arguments[..], more, &[symbol]].concat());
    let mut copies: Vec<Vec<(u64, f64)>> = Vec::new();
    for line in printed.lines() {
        if line.contains("Source code & Disassembly") {
            copies.push(Vec::new());
            continue;
        }
        let mut fields = line.splitn(3, ':').map(str::trim);
        let value = fields.next().and_then(|value| value.parse().ok());
        let address = fields
            .next()
            .and_then(|address| u64::from_str_radix(address, 16).ok());
        if let (Some(value), Some(address), Some(copy)) = (value, address, copies.last_mut()) {
            copy.push((address, value));
        }
    }
    copies
}

/// Returns the copies of a symbol as perf annotate has them, and the offsets of all their instructions.
fn of_perf(program: &str, cache: &Path, profile: &Path, symbol: &str) -> (Vec<Copy>, BTreeSet<u64>) {
    let counts = annotated(program, cache, profile, &["-n"], symbol);
    let percents = annotated(program, cache, profile, &[], symbol);
    let mut starts = BTreeSet::new();
    let copies = counts.iter().zip(&percents).map(|(counts, percents)| {
        let start = counts[0].0;
        starts.extend(counts.iter().map(|(address, _)| address - start));
        let both = counts.iter().zip(percents);
        both.filter(|((_, count), _)| *count > 0.0)
            .map(|(&(address, count), &(_, percent))| (address - start, (count as u64, percent)))
            .collect()
    });
    (copies.collect(), starts)
}

/// Sorts copies by what both programs agree on.
fn sorted(mut copies: Vec<Copy>) -> Vec<Copy> {
    let counts = |copy: &Copy| -> Vec<(u64, u64)> {
        let samples = copy.iter();
        samples.map(|(&offset, &(count, _))| (offset, count)).collect()
    };
    copies.sort_by_key(counts);
    copies
}

#[test]
fn instructions_have_the_samples_of_perf_annotate() {
    let (folder, cache) = (scratch(), scratch());
    let mut checked = 0;
    // perf 6.12 of Debian prints nothing.
    let programs: Vec<String> = [Some("perf".to_owned()), perf::newest()]
        .into_iter()
        .flatten()
        .collect();
    for name in CAPTURES {
        let (dumps, profile) = (capture::folder(name), capture::profile(name));
        let output = folder.path().join(format!("{name}.data"));
        inject(&profile, &output, &["--jitdump", tools::text(&dumps)]);
        let files = ["--jitdump", tools::text(&dumps), "-i", tools::text(&profile)];
        let all = report(&files, &["-n", "0"]);
        let rows = all["rows"].as_array().unwrap().iter();
        let is_compiled = |row: &&Value| row["kind"] == "language" && row["self"]["samples"] != 0;
        for row in rows.filter(is_compiled).take(FUNCTIONS) {
            for (symbol, (copies, starts)) in of_report(&files, row["name"].as_str().unwrap()) {
                let copies = sorted(copies);
                for program in &programs {
                    let (expected, expected_starts) = of_perf(program, cache.path(), &output, &symbol);
                    let expected = sorted(expected);
                    assert_eq!(copies.len(), expected.len(), "{name}: {symbol}");
                    // Of long functions, not all instructions are shown.
                    assert!(starts.is_subset(&expected_starts), "{name}: {symbol}");
                    for (copy, expected) in copies.iter().zip(&expected) {
                        assert_eq!(
                            copy.len(),
                            expected.len(),
                            "{name}: {symbol}: {copy:?} {expected:?}"
                        );
                        for ((offset, (count, percent)), (expected_offset, expected)) in
                            copy.iter().zip(expected)
                        {
                            assert_eq!(
                                (offset, count),
                                (expected_offset, &expected.0),
                                "{name}: {symbol}"
                            );
                            assert!(
                                (percent - expected.1).abs() < 0.006,
                                "{name}: {symbol}: {percent} {expected:?}"
                            );
                            checked += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(checked > 400, "{checked}");
}
