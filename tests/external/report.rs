//! `jitinject report` against perf report of the output.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::{capture, inject, jitinject, perf, said, scratch, tools};

/// Runs the program.
fn run(arguments: &[&str]) -> Output {
    jitinject().args(arguments).output().unwrap()
}

/// Captures of several runtimes, with one event each.
const CAPTURES: [&str; 8] = [
    "node20",
    "node22",
    "node20-inlined",
    "php82",
    "multi",
    "mono-map",
    "cpython312-map",
    "erlang25",
];

/// Share in percent and number of samples of each row of perf report that has a name.
type Rows = BTreeMap<String, Vec<(f64, u64)>>;

/// Returns the rows of perf report for functions in objects of jitinject: by their own samples or, with callers, by all.
fn of_perf(program: &str, cache: &Path, profile: &Path, has_callers: bool) -> Rows {
    let (children, fields) = match has_callers {
        true => ("--children", "overhead_children,sample,dso,sym"),
        false => ("--no-children", "overhead,sample,dso,sym"),
    };
    let arguments = [
        "report",
        "-f",
        "-i",
        tools::text(profile),
        "--stdio",
        children,
        "-F",
        fields,
        "-t",
        "\t",
        "-g",
        "none",
        "--no-inline",
        "--no-demangle",
    ];
    let printed = perf::perf_with_cache(program, cache, &arguments);
    let mut rows = Rows::new();
    for line in printed.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').map(str::trim).collect();
        let [share, samples, module, symbol] = fields[..] else {
            continue;
        };
        if perf::is_object(module) {
            let name = symbol.trim_start_matches("[.]").trim().to_owned();
            let share = share.trim_end_matches('%').parse().unwrap();
            rows.entry(name)
                .or_default()
                .push((share, samples.parse().unwrap()));
        }
    }
    rows
}

#[test]
fn symbols_have_the_shares_of_perf_report() {
    let (folder, cache) = (scratch(), scratch());
    for name in CAPTURES {
        let (dumps, profile) = (capture::folder(name), capture::profile(name));
        let files = [
            "--jitdump",
            tools::text(&dumps),
            "--perf-map",
            tools::text(&dumps),
        ];
        let output = folder.path().join(format!("{name}.data"));
        inject(&profile, &output, &files);
        let report = [
            "report",
            "--json",
            "-n",
            "0",
            "--by",
            "symbol",
            "-i",
            tools::text(&profile),
        ];
        let reported = run(&[&report[..], &files].concat());
        assert!(reported.status.success(), "{}", said(&reported));
        let report: Value = serde_json::from_slice(&reported.stdout).unwrap();
        let all = report["event"]["samples"]["period"].as_f64().unwrap();
        let rows = report["rows"].as_array().unwrap().iter();
        let ours: BTreeMap<&str, &Value> = rows.map(|row| (row["name"].as_str().unwrap(), row)).collect();
        let share = |row: &Value, column: &str| row[column]["period"].as_f64().unwrap() * 100.0 / all;
        for program in perf::programs() {
            let own = of_perf(&program, cache.path(), &output, false);
            assert!(!own.is_empty(), "{name}");
            for (function, rows) in &own {
                let found = ours.get(function.as_str());
                let found = found.unwrap_or_else(|| panic!("{name}: {function}"));
                let samples: u64 = rows.iter().map(|(_, samples)| samples).sum();
                assert_eq!(found["self"]["samples"], samples, "{name}: {function}");
                let expected: f64 = rows.iter().map(|(share, _)| share).sum();
                // perf rounds each row.
                let rounding = 0.006 * rows.len() as f64;
                let found = share(found, "self");
                assert!(
                    (found - expected).abs() < rounding,
                    "{name}: {function}: {found} {expected}"
                );
            }
            let total = of_perf(&program, cache.path(), &output, true);
            // Rows of one name add up only if they are never in one stack.
            for (function, rows) in total.iter().filter(|(_, rows)| rows.len() == 1) {
                let found = share(ours[function.as_str()], "total");
                let (expected, _) = rows[0];
                assert!(
                    (found - expected).abs() < 0.006,
                    "{name}: {function}: {found} {expected}"
                );
            }
        }
    }
}
