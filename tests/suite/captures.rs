//! Real recordings: real perf names every JIT frame as the truth has it.

use std::collections::{HashMap, HashSet};

use crate::support::{
    OBJECT_LAYOUTS, capture, inject, inject_capture, jitinject, objects_of, scratch, shown, tools,
};

/// Frames that the truth has and perf, on our output, does not.
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
        // A frame that is only a leaf is in its own stack.
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

/// The summary of a run on a recording, with everything that was said.
fn said(name: &str) -> String {
    let folder = scratch();
    let dumps = capture::folder(name);
    let output = folder.path().join("out.data");
    inject(
        &capture::profile(name),
        &output,
        &["--jitdump", tools::text(&dumps)],
    )
}

#[test]
fn damage_by_fork_is_told_and_costs_nothing_else() {
    let said = said("cpython313-fork");
    assert!(
        said.contains("bytes that are no records, passed over (78, the first at 0x10963)"),
        "{said}"
    );
    assert!(said.contains("records written twice, used once (20"), "{said}");
    assert!(
        said.contains("jit-23236.dump: last record cut off by the end of the file"),
        "{said}"
    );
    assert!(said.contains("745 functions loaded"), "{said}");
}

#[test]
fn clocks_that_differ_are_aligned_and_it_is_said() {
    let said = said("node20-nomono");
    assert!(
        said.contains("clock: another than the profile's, moved by -0.0"),
        "{said}"
    );
    assert!(said.contains("can't be earlier than the marker"), "{said}");
}

#[test]
fn cycle_counts_that_cannot_be_converted_say_what_is_missing() {
    let said = said("java17-tsc");
    assert!(said.contains("the profile has no TIME_CONV record"), "{said}");
    assert!(
        said.contains("217 not named: the jitdump of the process is missing or unusable"),
        "{said}"
    );
}

#[test]
fn flags_that_were_never_set_are_ignored() {
    let said = said("llvm19-jitlink");
    assert!(
        said.contains("unknown flags in its header, ignored (at 0x20)"),
        "{said}"
    );
}

/// The same input gives the same bytes, whatever the number of threads.
#[test]
fn output_is_deterministic() {
    let read = |threads: &str, layout: &[&str]| {
        let folder = scratch();
        let output = folder.path().join("out.data");
        let status = jitinject()
            .env("RAYON_NUM_THREADS", threads)
            .args(layout)
            .args(["-q", "-i", tools::text(&capture::profile("cpython313-dwarf"))])
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
