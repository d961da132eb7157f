//! Real recordings: perf names every JIT frame as expected.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::support::{
    OBJECT_LAYOUTS, capture, codes, diagnostics, inject, inject_capture, jitinject, objects_of, scratch,
    shown, tools,
};

/// Returns the expected frames that perf does not show on our output.
fn missing(name: &str, layout: &[&str]) -> Vec<String> {
    let folder = scratch();
    let output = inject_capture(folder.path(), name, layout);
    let mut leaf: HashMap<(u32, String), u64> = HashMap::new();
    let mut stack = leaf.clone();
    for sample in shown::leaves(&output) {
        for frame in sample.frames {
            *leaf.entry((sample.pid, frame)).or_default() += 1;
        }
    }
    for sample in shown::stacks(&output) {
        for frame in sample.frames.into_iter().collect::<HashSet<_>>() {
            *stack.entry((sample.pid, frame)).or_default() += 1;
        }
    }
    let truth = capture::truth(name);
    let mut missing = Vec::new();
    for (function, (in_leaf, in_stack)) in truth {
        let got_leaf = leaf.get(&function).copied().unwrap_or(0);
        // A leaf counts as part of its own stack.
        let got_stack = stack.get(&function).copied().unwrap_or(0).max(got_leaf);
        if got_leaf < in_leaf || got_stack < in_stack {
            missing.push(format!(
                "{name} {layout:?}: {function:?}: leaf {got_leaf} of {in_leaf}, in stack {got_stack} of {in_stack}"
            ));
        }
    }
    missing
}

#[test]
fn every_recording_is_named_whole() {
    let names = capture::WITH_TRUTH.iter().chain(&capture::OTHER_FORMATS);
    let names = names.chain([&capture::WITHOUT_MAPS]);
    let layouts = [&["--layout", "function"][..], &["--layout", "image", "--all"]];
    let missing: Vec<String> = names
        .flat_map(|name| layouts.iter().flat_map(|layout| missing(name, layout)))
        .collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Runs jitinject on a recording; returns its standard error and its summary.
fn summarize(name: &str) -> (String, Value) {
    let folder = scratch();
    let dumps = capture::folder(name);
    let summary = folder.path().join("summary.json");
    let said = inject(
        &capture::profile(name),
        &folder.path().join("out.data"),
        &[
            // This machine may have the files for it.
            "--no-unwind",
            "--jitdump",
            tools::text(&dumps),
            "--summary",
            tools::text(&summary),
        ],
    );
    let summary = serde_json::from_slice(&std::fs::read(summary).unwrap()).unwrap();
    (said, summary)
}

/// Returns file name, offset and count of the diagnostics of one code.
fn found(summary: &Value, code: &str) -> Vec<(String, Value, Value)> {
    let found = diagnostics(summary, code).into_iter().map(|diagnostic| {
        let file = diagnostic["file"].as_str().unwrap();
        let name = file.rsplit('/').next().unwrap().to_owned();
        (name, diagnostic["offset"].clone(), diagnostic["count"].clone())
    });
    found.collect()
}

#[test]
fn damage_by_fork_is_reported_and_costs_nothing_else() {
    let (said, summary) = summarize("cpython313-fork");
    // Duplicates are a note, which is only in the summary. Stacks recorded by frame pointers end in the interpreter.
    assert_eq!(
        codes(&said),
        ["JI012", "JI013", "JI018", "JI013", "JI179"],
        "{said}"
    );
    let parent = |offset: u64, count: u64| ("jit-23220.dump".to_owned(), json!(offset), json!(count));
    assert_eq!(found(&summary, "JI012"), [parent(0x10963, 78)]);
    assert_eq!(found(&summary, "JI010"), [parent(0x1098a, 20)]);
    let cut = found(&summary, "JI013");
    assert!(cut.iter().any(|(file, ..)| file == "jit-23236.dump"), "{cut:?}");
    assert!(said.contains("745 functions loaded"), "{said}");
}

#[test]
fn clocks_that_differ_are_aligned_and_it_is_said() {
    let (said, _) = summarize("node20-nomono");
    assert!(
        said.contains("clock: another than the profile's, moved by -0.0"),
        "{said}"
    );
    assert!(said.contains("can't be earlier than the marker"), "{said}");
}

#[test]
fn cycle_counts_that_cannot_be_converted_name_what_is_certain() {
    let (said, summary) = summarize("java17-tsc");
    // The dump was shortened to the functions of the start.
    assert_eq!(codes(&said), ["JI243", "JI172", "JI176", "JI175"], "{said}");
    let unused = diagnostics(&summary, "JI243");
    assert!(unused[0]["file"].as_str().unwrap().ends_with("/jit-10186.dump"));
    assert!(said.contains("231 of their 2264 JIT frames named"), "{said}");
}

#[test]
fn flags_that_were_never_set_are_ignored() {
    let (said, summary) = summarize("llvm19-jitlink");
    assert_eq!(codes(&said), ["JI006"], "{said}");
    let flags = ("jit-31120.dump".to_owned(), json!(0x20), json!(1));
    assert_eq!(found(&summary, "JI006"), [flags]);
}

/// The output does not depend on the number of threads.
#[test]
fn output_is_deterministic() {
    let read = |threads: &str, layout: &[&str]| {
        let folder = scratch();
        let output = folder.path().join("out.data");
        let status = jitinject()
            .env("RAYON_NUM_THREADS", threads)
            .args(layout)
            .args(["-q", "--no-unwind", "-i"])
            .arg(capture::profile("cpython313-dwarf"))
            .args(["-o", tools::text(&output)])
            .status()
            .unwrap();
        assert!(status.success());
        let objects = objects_of(&output);
        let names: Vec<_> = objects
            .iter()
            .map(|path| path.file_name().unwrap().to_owned())
            .collect();
        let contents: Vec<_> = objects.iter().map(|path| std::fs::read(path).unwrap()).collect();
        (names, contents)
    };
    for layout in OBJECT_LAYOUTS {
        let one = read("1", layout);
        assert!(!one.0.is_empty());
        assert!(one == read("4", layout), "{layout:?}");
    }
}
