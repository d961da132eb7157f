//! hotspot's parser reads the output.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use jitinject::bytes::ByteOrder;

use crate::support::generator::{Plan, generate};
use crate::support::profile::ProfileWriter;
use crate::support::{OBJECT_LAYOUTS, capture, inject_into, scratch, tools};

/// Returns the path of hotspot's parser, which unwinds with elfutils and reads symbols itself. It is in Debian's
/// package hotspot.
fn hotspot_parser() -> PathBuf {
    let places = [
        std::env::var_os("HOTSPOT_PERFPARSER").map(PathBuf::from),
        Some("/usr/lib/x86_64-linux-gnu/libexec/hotspot-perfparser".into()),
    ];
    let found = places.into_iter().flatten().find(|path| path.exists());
    found.expect("hotspot-perfparser is missing; scripts/test installs it")
}

/// Returns the strings in the output of hotspot's parser for a profile.
fn strings_of_hotspot(folder: &Path, profile: &Path) -> HashSet<String> {
    let parsed = folder.join("parsed");
    let parser = hotspot_parser();
    let arguments = ["--input", tools::text(profile), "--output", tools::text(&parsed)];
    tools::run(tools::text(&parser), &arguments);
    // Each string is preceded by its length.
    let bytes = std::fs::read(parsed).unwrap();
    let text = |at: usize| {
        let length = u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize;
        let text = bytes.get(at + 4..(at + 4).checked_add(length)?)?;
        (1..500)
            .contains(&length)
            .then(|| String::from_utf8(text.to_vec()).ok())?
    };
    (0..bytes.len()).filter_map(text).collect()
}

#[test]
fn hotspot_names_every_function_that_a_sample_hits() {
    let folder = scratch();
    let plan = Plan {
        functions: 500,
        ..Plan::default()
    };
    let generated = generate(folder.path(), &plan);
    let hit: HashSet<&String> = generated
        .expected
        .iter()
        .flat_map(|sample| &sample.frames)
        .collect();
    assert!(hit.len() > 450);
    for layout in OBJECT_LAYOUTS {
        let output = inject_into(folder.path(), &generated.profile, layout);
        let strings = strings_of_hotspot(folder.path(), &output);
        let missing: Vec<_> = hit.iter().filter(|name| !strings.contains(**name)).collect();
        assert!(missing.is_empty(), "{layout:?}: {missing:?}");
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
    for number in 0..500 {
        let start = START + 11 * number;
        map.push_str(&format!("{start:x} b py::function_{number}:/tmp/work.py\n"));
        profile.sample(10, 2000 + number, &[start + 5], None);
    }
    std::fs::write(folder.path().join("perf-10.map"), map).unwrap();
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = inject_into(folder.path(), &input, &[]);
    let strings = strings_of_hotspot(folder.path(), &output);
    let is_missing = |number: &i32| !strings.contains(&format!("py::function_{number}:/tmp/work.py"));
    let missing: Vec<i32> = (0..500).filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn hotspot_names_the_functions_of_v8() {
    let folder = scratch();
    let output = inject_into(folder.path(), &capture::profile("node20"), &[]);
    let strings = strings_of_hotspot(folder.path(), &output);
    let truth = capture::truth("node20");
    let sampled: HashMap<_, _> = truth
        .iter()
        .filter(|((_, name), (leaf, _))| *leaf > 0 && name.starts_with("JS:"))
        .collect();
    assert!(sampled.len() > 8);
    for (_, name) in sampled.keys() {
        assert!(strings.contains(name), "{name}");
    }
}
