//! hotspot's parser reads the output.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jitdump::ByteOrder;

use crate::support::generator::{Plan, generate};
use crate::support::hotspot::{Frame, parse};
use crate::support::profile::ProfileWriter;
use crate::support::{OBJECT_LAYOUTS, capture, inject_capture, inject_into, scratch};

/// Counts how often each value occurs.
fn counts<T: Ord>(values: impl IntoIterator<Item = T>) -> BTreeMap<T, u64> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts
}

#[test]
fn hotspot_names_the_functions_of_every_stack() {
    let folder = scratch();
    let plan = Plan {
        functions: 500,
        ..Plan::default()
    };
    let generated = generate(folder.path(), &plan);
    let expected = counts(generated.expected.into_iter().map(|sample| sample.frames));
    let functions: BTreeSet<&String> = expected.keys().flatten().collect();
    assert!(functions.len() > 450);
    for layout in OBJECT_LAYOUTS {
        let output = inject_into(folder.path(), &generated.profile, layout);
        let shown = counts(parse(folder.path(), &output).stacks());
        assert!(shown == expected, "{layout:?}: {shown:?}");
    }
}

/// Adjacent symbols of a perf map, as in CPython 3.12.
#[test]
fn hotspot_names_symbols_without_code_however_close_they_are() {
    const START: u64 = 0x7f84_ac0e_0000;
    let folder = scratch();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    let mut map = String::new();
    profile.mmap2(10, START, 0x1_0000, START, "//anon", 1000);
    let name = |number: u64| format!("py::function_{number}:/tmp/work.py");
    for number in 0..500 {
        let start = START + 11 * number;
        map.push_str(&format!("{start:x} b {}\n", name(number)));
        profile.sample(10, 2000 + number, &[start + 5], None);
    }
    std::fs::write(folder.path().join("perf-10.map"), map).unwrap();
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = inject_into(folder.path(), &input, &[]);
    let shown: Vec<_> = parse(folder.path(), &output).stacks().collect();
    let expected: Vec<_> = (0..500).map(|number| vec![name(number)]).collect();
    assert_eq!(shown, expected);
}

/// Functions of node20 inline each other, at calls whose lines V8 does not record.
#[test]
fn hotspot_counts_the_samples_of_functions_right() {
    for name in ["node20", "java17"] {
        let folder = scratch();
        let output = inject_capture(folder.path(), name, &[]);
        let stacks: Vec<_> = parse(folder.path(), &output).stacks().collect();
        let leaves = counts(stacks.iter().filter_map(|stack| stack.first()));
        let anywhere = counts(stacks.iter().flat_map(BTreeSet::from_iter));
        let truth = capture::truth(name);
        assert!(truth.len() > 20);
        for ((_, function), expected) in &truth {
            let count = |of: &BTreeMap<&String, u64>| of.get(function).copied().unwrap_or(0);
            assert_eq!(
                (count(&leaves), count(&anywhere)),
                *expected,
                "{name}: {function}"
            );
        }
    }
}

/// The function that was compiled, and the inlined one in which most samples are, with their lines.
#[test]
fn hotspot_shows_original_lines_and_inlined_functions() {
    let folder = scratch();
    let shown = |name: &str, recorded: &str, compiled: &str| {
        let scripts = format!("{recorded}={}", capture::folder(name).display());
        let output = inject_into(folder.path(), &capture::profile(name), &["--path-map", &scripts]);
        let stream = parse(folder.path(), &output);
        let is_compiled = |frames: &Vec<Frame>| frames.last().unwrap().function.starts_with(compiled);
        let mut found: HashMap<String, u64> = HashMap::new();
        for frames in stream.leaves().filter(is_compiled) {
            let of = |Frame { function, line }: &Frame| {
                let function = function.split_once(' ').map_or(function.as_str(), |(own, _)| own);
                format!("{function} {}:{}", line.0, line.1)
            };
            let frames: Vec<String> = frames.iter().map(of).collect();
            *found.entry(frames.join(" < ")).or_default() += 1;
        }
        found
    };
    let typescript = shown("node20-typescript", "/tmp/typescript/bundle", "JS:*round ");
    assert_eq!(typescript["slowPath work.ts:5 < JS:*round main.ts:10"], 351);
    assert_eq!(typescript["fastPath work.ts:12 < JS:*round main.ts:10"], 98);
    assert_eq!(typescript["perimeter shapes.ts:10 < JS:*round main.ts:10"], 41);
    assert_eq!(typescript.values().sum::<u64>(), 492);
    let inlined = shown("node20-inlined", "/tmp/inlined", "JS:*hot ");
    assert_eq!(inlined["small lib.js:5 < JS:*hot a.js:8"], 191);
    assert_eq!(inlined.values().sum::<u64>(), 193);
}
