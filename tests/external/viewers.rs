//! Other programs that read profiles through perf.

use std::collections::HashMap;

use serde_json::Value;

use crate::support::{capture, inject_into, perf, scratch, tools};

#[test]
fn json_of_perf_has_the_names() {
    let folder = scratch();
    let output = inject_into(folder.path(), &capture::profile("node20"), &[]);
    let json = folder.path().join("profile.json");
    perf::perf(&[
        "data",
        "convert",
        "--force",
        "-i",
        tools::text(&output),
        "--to-json",
        tools::text(&json),
    ]);
    let profile: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let mut found: HashMap<String, u64> = HashMap::new();
    for sample in profile["samples"].as_array().unwrap() {
        if let Some(symbol) = sample["callchain"][0]["symbol"].as_str() {
            *found.entry(symbol.to_owned()).or_default() += 1;
        }
    }
    let truth = capture::truth("node20");
    let truth: Vec<_> = truth
        .iter()
        .filter(|((_, name), (leaf, _))| *leaf > 0 && name.starts_with("JS:"))
        .collect();
    assert!(truth.len() > 8);
    for ((_, name), (leaf, _)) in truth {
        assert_eq!(found.get(name), Some(leaf), "{name}");
    }
}
