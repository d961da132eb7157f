//! The profile in a summary, against what `perf script` prints of the output.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::{inject, perf, scratch, tools};

/// perf demangles nothing here, and C has nothing to demangle.
#[test]
fn functions_of_a_live_recording_have_the_samples_that_perf_counts() {
    let folder = scratch();
    let program = tools::compile(folder.path(), "jit.c", &[]);
    let recorded = folder.path().join("perf.data");
    let record = [
        "record",
        "-q",
        "-k",
        "mono",
        "-F",
        "999",
        "-g",
        "-o",
        tools::text(&recorded),
        "--",
    ];
    let command = [&record[..], &[tools::text(&program), "frames", "truth"]].concat();
    let ran = std::process::Command::new("perf")
        .args(&command)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let (output, summary) = (folder.path().join("out.data"), folder.path().join("summary.json"));
    inject(&recorded, &output, &["--summary", tools::text(&summary)]);
    let summary: Value = serde_json::from_slice(&std::fs::read(&summary).unwrap()).unwrap();
    let mut found = BTreeMap::new();
    for function in summary["profile"]["functions"].as_array().unwrap() {
        let is_own = |module: &Value| module.as_str() == Some(tools::text(&program));
        if function["kind"] == "jit" || function["kind"] == "native" && is_own(&function["module"]) {
            let count = |counts: &Value| counts[0].as_u64().unwrap();
            let name = function["name"].as_str().unwrap().to_owned();
            // Linkage stubs are `_init` in perf 6.1.
            if !name.ends_with("@plt") {
                found.insert(name, (count(&function["self"]), count(&function["total"])));
            }
        }
    }
    let cache = scratch();
    for perf_program in perf::programs() {
        let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for sample in perf::stacks_with_cache(&perf_program, cache.path(), &output, &[]) {
            if let Some(leaf) = sample.frames.first() {
                expected.entry(leaf.clone()).or_default().0 += 1;
            }
            for function in sample.frames.iter().collect::<BTreeSet<_>>() {
                expected.entry(function.clone()).or_default().1 += 1;
            }
        }
        // Functions of libraries and the kernel depend on the symbols that the machine has.
        expected.retain(|name, _| found.contains_key(name));
        assert_eq!(found, expected, "{perf_program}");
    }
    let (_, total) = found["main"];
    assert!(total > 100 && found["inner_4"].0 > 20, "{found:?}");
}
