//! Runs with many functions and source files are compared.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{assert_linear, run};

/// Writes a summary with these functions; returns its path.
fn summary(folder: &Path, name: &str, functions: Vec<Value>) -> PathBuf {
    let event = json!({"name": "cpu-clock:u", "unit": "count", "samples": 1_000_000, "period": 1_000_000});
    let summary = json!({
        "format": 3, "input": "perf.data", "version": "1.2.0",
        "samples": {"total": 1_000_000, "jit": 0, "named": 0, "named_percent": 100.0,
            "unnamed": {"before_load": 0, "not_in_dump": 0, "dump_unusable": 0, "no_dump": 0}},
        "profile": {"command": ["node", "app.js"], "host": "ci", "arch": "x86_64", "cpu_time_ns": null, "labels": {},
            "events": [event], "threads": [], "functions": functions, "stacks": [], "stacks_omitted": 0},
    });
    let path = folder.join(name);
    std::fs::write(&path, summary.to_string()).unwrap();
    path
}

/// Compares two runs with `count` functions each, in files that `path` names.
fn work(count: u64, path: fn(&str, u64) -> String) -> u64 {
    let functions = |root: &str, line: u64| -> Vec<Value> {
        let function = |number: u64| {
            let name = format!("JS:*f{number} {}:{}:1", path(root, number), number + line);
            json!({"name": name, "kind": "jit", "runtime": "V8", "tier": "TurboFan", "size": 100 + number % 999,
                "self": [10], "total": [20], "callers": [[number / 2, 5], [number / 3, 5]]})
        };
        (0..count).map(function).collect()
    };
    compare([vec![functions("/home/me", 1)], vec![functions("/ci", 3)]], count)
}

/// Compares the runs of two sides, which must have `count` functions; returns the blocks passed.
fn compare(sides: [Vec<Vec<Value>>; 2], count: u64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let files = |side: &str, runs: Vec<Vec<Value>>| -> Vec<OsString> {
        let runs = runs.into_iter().enumerate();
        runs.map(|(run, functions)| summary(folder.path(), &format!("{side}{run}.json"), functions).into())
            .collect()
    };
    let [before, after] = sides;
    let mut arguments: Vec<OsString> = vec!["compare".into(), "--json".into()];
    arguments.extend(files("before", before));
    arguments.push("--".into());
    arguments.extend(files("after", after));
    let work = run(arguments);
    assert!(work.output.status.success(), "{}", work.said());
    let comparison: Value = serde_json::from_slice(&work.output.stdout).unwrap();
    assert_eq!(comparison["functions"].as_array().unwrap().len(), count as usize);
    work.blocks
}

#[test]
fn work_grows_with_the_functions() {
    assert_linear("functions", 500, |count| {
        work(count, |root, number| {
            format!("{root}/{}/{}.js", number % 100, number % 2000)
        })
    });
}

/// Each may be any of the others.
#[test]
fn files_of_one_name_are_compared_with_a_few() {
    assert_linear("files of one name", 500, |count| {
        work(count, |root, number| format!("{root}/{number}/index.js"))
    });
}

/// Each run has functions of its own, or those of all others in another folder.
#[test]
fn work_grows_with_the_runs() {
    const FUNCTIONS: u64 = 10;
    for (name, is_moved) in [("runs", false), ("runs in other folders", true)] {
        assert_linear(name, 100, |runs| {
            let functions = |run: u64| -> Vec<Value> {
                let first = if is_moved { 0 } else { run * FUNCTIONS };
                let function = |number: u64| {
                    json!({"name": format!("JS:*f{number} /{run}/lib/{number}.js:6:7"), "kind": "jit", "runtime": "V8",
                        "tier": "TurboFan", "size": 64, "self": [10], "total": [20]})
                };
                (first..first + FUNCTIONS).map(function).collect()
            };
            let sides = [0..runs / 2, runs / 2..runs].map(|side| side.map(functions).collect());
            compare(sides, if is_moved { FUNCTIONS } else { FUNCTIONS * runs })
        });
    }
}

#[test]
fn tiers_of_a_renamed_function_are_found_once() {
    assert_linear("tiers", 1000, |count| {
        let functions = |name: &str| -> Vec<Value> {
            let tiers = (0..count).map(|number| format!("T{number}"));
            let function = |tier: String| {
                json!({"name": name, "kind": "jit", "tier": tier, "size": 64,
                    "self": [10], "total": [20]})
            };
            tiers.map(function).collect()
        };
        compare([vec![functions("f")], vec![functions("g")]], 1)
    });
}
