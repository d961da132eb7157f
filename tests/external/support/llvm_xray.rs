//! Parses the output of llvm-xray, LLVM's own reader of traces.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::tools::{self, text};

/// Calls and ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    pub calls: u64,
    pub ticks: u64,
}

/// Writes the records of a trace sorted by time. llvm-xray rejects records out of order, which all threads except
/// the first have in most traces. Ticks are kept, since the file does not contain their frequency.
pub fn sorted(folder: &Path, trace: &Path) -> PathBuf {
    let yaml = tools::run("llvm-xray", &["convert", "--sort", "-f", "yaml", text(trace)]);
    let (header, records) = yaml.split_once("records:\n").unwrap();
    let header = header
        .lines()
        .map(|line| match line.split_once(':').unwrap_or((line, "")).0.trim() {
            // The only values that it reads from YAML.
            "version" => "  version: 1".to_owned(),
            "type" => "  type: 0".to_owned(),
            "cycle-frequency" => "  cycle-frequency: 0".to_owned(),
            _ => line.to_owned(),
        });
    let header: Vec<String> = header.collect();
    let path = folder.join("sorted.yaml");
    std::fs::write(&path, format!("{}\nrecords:\n{records}", header.join("\n"))).unwrap();
    path
}

/// Returns the calls of each function and their time. Above 10,000,000 ticks, it prints the first seven digits.
pub fn account(sorted: &Path) -> BTreeMap<u32, Amount> {
    let csv = tools::run("llvm-xray", &["account", "-d", "-f", "csv", text(sorted)]);
    let rows = csv.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let amount = Amount {
            calls: fields[1].parse().unwrap(),
            ticks: fields[7].parse::<f64>().unwrap().round() as u64,
        };
        (fields[0].parse().unwrap(), amount)
    });
    rows.collect()
}

/// Returns the shortest, the median, the 90th and the 99th percentile and the longest duration of the calls of each function.
pub fn percentiles(sorted: &Path) -> BTreeMap<u32, [u64; 5]> {
    let csv = tools::run("llvm-xray", &["account", "-d", "-f", "csv", text(sorted)]);
    let rows = csv.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let ticks = |field: usize| fields[field].parse::<f64>().unwrap().round() as u64;
        (fields[0].parse().unwrap(), [2, 3, 4, 5, 6].map(ticks))
    });
    rows.collect()
}

/// Returns the inclusive time of each call stack of each thread.
pub fn stacks(sorted: &Path) -> BTreeMap<(u32, Vec<u32>), u64> {
    let options = ["--all-stacks", "--stack-format=flame", "--aggregation-type=time"];
    let flame = tools::run("llvm-xray", &[&["stack"], &options[..], &[text(sorted)]].concat());
    let lines = flame.lines().filter_map(|line| {
        let line = line.strip_prefix("thread_")?;
        let mut parts = line.split(';').map(str::trim);
        let thread = parts.next()?.parse().ok()?;
        let ticks = parts.next_back()?.parse().ok()?;
        let functions = parts.map(|part| part.trim_start_matches('#').parse());
        Some(((thread, functions.collect::<Result<_, _>>().ok()?), ticks))
    });
    lines.collect()
}

/// Returns the number of calls in a trace for Chrome.
pub fn chrome_calls(sorted: &Path) -> u64 {
    let json = tools::run("llvm-xray", &["convert", "-f", "trace_event", text(sorted)]);
    json.matches("\"ph\" : \"B\"").count() as u64
}
