//! Lines of code that V8 has inlined from other functions and files (recording node20-inlined).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jitdump::ByteOrder;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::profile::ProfileWriter;
use crate::support::reports::{inject_with_summary, only};
use crate::support::tools::text;
use crate::support::{capture, code_sites, has_code, inject_into, objects_of, scratch};

/// Returns the functions and lines of all code of `hot`.
fn chains(more: &[&str]) -> BTreeSet<String> {
    let folder = scratch();
    let output = inject_into(folder.path(), &capture::profile("node20-inlined"), more);
    let chains = code_sites::chains(&objects_of(&output), |name| name.starts_with("JS:*hot "));
    chains.iter().map(|chain| code_sites::shown(chain)).collect()
}

/// `hot` is in lines 5 to 11 of a.js, `tiny` in lines 2 to 4, and `small` in lines 3 to 7 of lib.js.
#[test]
fn inlined_functions_have_their_own_files_and_lines() {
    let scripts = format!("/tmp/inlined={}", capture::folder("node20-inlined").display());
    let chains = chains(&["--path-map", &scripts]);
    for chain in &chains {
        let (inner, outer) = chain.split_once(" < ").unwrap_or((chain, ""));
        let (function, place) = inner.split_once(' ').unwrap();
        let (file, line) = place.split_once(':').unwrap();
        let line: u32 = line.parse().unwrap();
        let is_right = match function {
            "small" => file == "lib.js" && (3..=7).contains(&line) && outer == "hot a.js:8",
            "tiny" => file == "a.js" && (2..=4).contains(&line) && outer == "hot a.js:8",
            _ => function == "hot" && file == "a.js" && (5..=11).contains(&line) && outer.is_empty(),
        };
        assert!(is_right, "{chain}");
    }
    for expected in [
        "small lib.js:5 < hot a.js:8",
        "tiny a.js:3 < hot a.js:8",
        "hot a.js:8",
    ] {
        assert!(chains.contains(expected), "{expected}: {chains:?}");
    }
}

#[test]
fn baseline_code_is_enough_without_the_scripts() {
    let chains = chains(&["--path-map", "/tmp/inlined=/nowhere"]);
    for expected in [
        "small lib.js:5 < hot a.js:0",
        "tiny a.js:3 < hot a.js:0",
        "hot a.js:8",
    ] {
        assert!(chains.contains(expected), "{expected}: {chains:?}");
    }
    assert!(!chains.contains("hot a.js:3"), "{chains:?}");
}

/// Start of the code of the sampled function.
const START: u64 = 0x7000_0000;

/// Writes a dump and a profile with a sample at [`START`]. Returns the path of the profile.
fn recording(folder: &Path, dump: DumpWriter) -> PathBuf {
    let path = folder.join("jit-7.dump");
    std::fs::write(&path, dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, 0x6000_0000, 4096, 0, text(&path), 500);
    profile.sample(7, 1_000_000, &[START + 1], None);
    let input = folder.join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    input
}

/// webpack's default mode for development: the names of the functions have no path.
#[test]
fn evaluated_code_has_inlined_calls_under_its_url() {
    let folder = scratch();
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 7);
    let (index, library) = (b"webpack:///./src/index.js?", b"webpack:///./src/lib.js?");
    let (own, inlined) = (START + 0x100, START + 0x200);
    dump.positions(1000, own, index, &[(own, 5), (own + 1, 6)]);
    dump.load(1000, own, 1, b"JS:^loop :3:14", &[0x90; 24]);
    dump.positions(1001, inlined, library, &[(inlined, 17), (inlined + 1, 19)]);
    dump.load(1001, inlined, 2, b"JS:^hot :16:27", &[0x90; 24]);
    let lines = [(START, 5), (START + 8, 17), (START + 16, 19)];
    dump.positions(1002, START, index, &lines);
    dump.load(1002, START, 3, b"JS:*loop :3:14", &[0x90; 24]);
    let input = recording(folder.path(), dump);
    let output = inject_into(folder.path(), &input, &[]);
    let chains = code_sites::chains(&objects_of(&output), |name| name.starts_with("JS:*loop "));
    let chains: BTreeSet<String> = chains.iter().map(|chain| code_sites::shown(chain)).collect();
    let expected = [
        "hot lib.js?:17 < loop index.js?:0",
        "hot lib.js?:19 < loop index.js?:0",
        "loop index.js?:5",
    ];
    assert_eq!(chains, BTreeSet::from(expected.map(str::to_owned)));
}

/// A position before the function, with no baseline code and no script to tell whose it is.
#[test]
fn lines_of_unknown_functions_are_left_out_and_reported() {
    let folder = scratch();
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 7);
    let lines = [(START, 9), (START + 8, 2), (START + 16, 10)];
    dump.lines(1000, START, b"/nowhere/a.js", &lines);
    dump.load(1000, START, 1, b"JS:*hot /nowhere/a.js:5:13", &[0x90; 24]);
    let input = recording(folder.path(), dump);
    let (said, summary) = inject_with_summary(&input, &folder.path().join("out.data"), &["--verbose"]);
    assert!(has_code(&said, "JI028"), "{said}");
    assert_eq!(only(&summary, "JI028")["count"], 1);
}
