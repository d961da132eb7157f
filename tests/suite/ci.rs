//! What continuous integration relies on: the format of summaries, and comparing them.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::support::{capture, codes, inject, jitinject, said, scratch, tools};

/// Returns the text of a file of the project.
fn document(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Runs jitinject, which must succeed; returns its summary.
fn summary(folder: &Path, input: &Path, more: &[&str]) -> Value {
    let path = folder.join("summary.json");
    inject(
        input,
        &folder.join("out.data"),
        &[&["--summary", tools::text(&path)], more].concat(),
    );
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The schema permits no additional properties, so a field that it does not describe is an error as well.
#[test]
fn summaries_of_all_kinds_are_as_the_schema_says() {
    let schema: Value = serde_json::from_str(&document("docs/summary.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let folder = scratch();
    let cache = folder.path().join("cache");
    let joined = capture::folder("mono-joined");
    let trace = capture::folder("xray-fdr-pie14").join("trace.xray");
    let log = capture::folder("mono-alloc").join("trace.mlpd");
    let cases: [(&Path, Vec<&str>); 7] = [
        (
            &capture::profile("node20"),
            vec!["--tiers", "--build-id-cache", tools::text(&cache)],
        ),
        (&capture::profile("cpython313-fork"), vec![]),
        (&capture::profile("node20-nomono"), vec![]),
        (&capture::profile("mono-map"), vec!["--tiers"]),
        (
            &joined.join("perf.data"),
            vec!["--mono-log", tools::text(&joined)],
        ),
        (&log, vec![]),
        (&trace, vec![]),
    ];
    for (input, more) in cases {
        let mut summary = summary(folder.path(), input, &more);
        let errors: Vec<String> = validator
            .iter_errors(&summary)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", input.display());
        summary["format"] = 1.into();
        assert!(!validator.is_valid(&summary));
    }
    assert!(!validator.is_valid(&serde_json::json!({"format": 3})));
}

#[test]
fn the_summary_has_the_samples_of_each_function_that_the_recording_had() {
    let folder = scratch();
    for name in ["node20", "php82", "multi", "java17"] {
        let dumps = capture::folder(name);
        let summary = summary(
            folder.path(),
            &capture::profile(name),
            &["--jitdump", tools::text(&dumps)],
        );
        let functions = summary["profile"]["functions"].as_array().unwrap();
        // Own samples of inlined functions are in rows of their own.
        let mut expected = BTreeMap::<String, u64>::new();
        let mut all = 0;
        for ((_, symbol), (leaf, in_stack)) in capture::truth(name) {
            *expected.entry(symbol).or_default() += leaf.max(in_stack);
            all += leaf;
        }
        let mut found = BTreeMap::<String, u64>::new();
        let mut own = 0;
        for function in functions
            .iter()
            .filter(|function| function["kind"] == "jit" && function["name"] != "[JIT code without a name]")
        {
            let samples = |part: &str| function[part][0].as_u64().unwrap();
            let symbol = function["name"].as_str().unwrap().to_owned();
            *found.entry(symbol).or_default() += samples("total");
            own += samples("self");
        }
        assert_eq!(own, all, "{name}");
        for (symbol, samples) in expected.into_iter().filter(|&(_, samples)| samples > 0) {
            assert_eq!(found.get(&symbol), Some(&samples), "{name} {symbol}");
        }
    }
}

/// Recordings of one program in two versions of Node.js, in two folders.
#[test]
fn summaries_of_recordings_are_compared() {
    let folder = scratch();
    let write = |name: &str| {
        let path = folder.path().join(format!("{name}.json"));
        let json = summary(folder.path(), &capture::profile(name), &[]);
        std::fs::write(&path, json.to_string()).unwrap();
        path
    };
    let (one, other) = (write("node20"), write("node22"));
    let compare = |before: &Path, after: &Path, more: &[&str]| {
        let output = jitinject()
            .arg("compare")
            .args([before, after])
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let same = compare(&one, &one, &["--fail-on", "self > 0.5%"]);
    assert!(same.contains("verdict: no significant change"), "{same}");
    assert!(
        same.contains("625 samples, 72.8 % in JIT code, 100.0 % of them named"),
        "{same}"
    );
    // Both have the functions of the program, whose tiers and paths differ.
    let json: Value = serde_json::from_str(&compare(&one, &other, &["--json"])).unwrap();
    let functions = json["functions"].as_array().unwrap();
    let is_in_both = |function: &&Value| {
        let value = |side: &str| function["self"][side].as_f64().unwrap();
        function["kind"] == "jit" && value("before") > 3.0 && value("after") > 3.0
    };
    let names: Vec<&Value> = functions
        .iter()
        .filter(is_in_both)
        .map(|function| &function["name"])
        .collect();
    assert!(
        names.contains(&&Value::from("expr")) && names.len() > 2,
        "{names:?}"
    );
    let output = jitinject()
        .arg("compare")
        .arg(capture::profile("node20"))
        .arg(&one)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert_eq!(codes(&said), ["JI417"], "{said}");
}
