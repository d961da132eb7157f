//! Several tracks of positions: the lines of `--track`, and what `dump` prints.

use std::collections::BTreeSet;
use std::path::PathBuf;

use jitdump::ByteOrder;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::profile::ProfileWriter;
use crate::support::reports::line_of;
use crate::support::tools::text;
use crate::support::{code_sites, has_code, inject, jitinject, objects_of, scratch};

const START: u64 = 0x7000_0000;

/// Two functions with lines, the first of which has the tracks `bytecode` and `ir`.
fn dump(endian: ByteOrder) -> Vec<u8> {
    let mut dump = DumpWriter::new(endian, X86_64, 7);
    dump.record(827_346_261, 900, b"/src/a.ir\0one\ntwo\nthree\n");
    dump.lines(1000, START, b"/src/a.js", &[(START, 9)]);
    dump.track(1000, START, b"bytecode", b"/src/a.bytecode", &[(0, 70), (8, 71)]);
    dump.track(1000, START, b"ir", b"/src/a.ir", &[(0, 1), (16, 3)]);
    dump.load(1000, START, 1, b"first", &[0x90; 24]);
    dump.lines(1000, START + 64, b"/src/a.js", &[(START + 64, 12)]);
    dump.load(1000, START + 64, 2, b"second", &[0x90; 24]);
    dump.bytes
}

/// Runs jitinject; returns the lines of all code, the objects, and what it said.
fn run(endian: ByteOrder, more: &[&str]) -> (BTreeSet<String>, Vec<PathBuf>, String) {
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    std::fs::write(&path, dump(endian)).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, 0x6000_0000, 4096, 0, text(&path), 500);
    profile.sample(7, 1_000_000, &[START + 1], None);
    profile.sample(7, 1_000_001, &[START + 65], None);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    let said = inject(&input, &output, &[&["--verbose"], more].concat());
    let (objects, sources): (Vec<_>, Vec<_>) =
        objects_of(&output).into_iter().partition(|path| path.is_file());
    let chains = code_sites::chains(&objects, |_| true);
    let lines = chains.iter().map(|chain| code_sites::shown(chain)).collect();
    (lines, sources, said)
}

fn set(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}

#[test]
fn lines_are_those_of_the_track() {
    for endian in [ByteOrder::Little, ByteOrder::Big] {
        for more in [&[][..], &["--track", "original"], &["--track", "generated"]] {
            let (lines, _, said) = run(endian, more);
            assert_eq!(lines, set(&["first a.js:9", "second a.js:12"]), "{said}");
            assert!(!has_code(&said, "JI032"), "{said}");
        }
        let (lines, _, said) = run(endian, &["--track", "bytecode"]);
        let expected = ["first a.bytecode:70", "first a.bytecode:71", "second a.js:12"];
        assert_eq!(lines, set(&expected), "{said}");
        assert!(line_of(&said, "JI032").contains("1 function without"), "{said}");
        // The dump has the text of this file.
        let (lines, sources, said) = run(endian, &["--track", "ir"]);
        assert_eq!(
            lines,
            set(&["first a.ir:1", "first a.ir:3", "second a.js:12"]),
            "{said}"
        );
        assert_eq!(sources.len(), 1);
        let (lines, _, said) = run(endian, &["--track", "wasm"]);
        assert_eq!(lines, set(&["first a.js:9", "second a.js:12"]), "{said}");
        assert!(line_of(&said, "JI032").contains("2 functions without"), "{said}");
    }
}

#[test]
fn dump_shows_all_tracks() {
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    std::fs::write(&path, dump(ByteOrder::Little)).unwrap();
    let ran = jitinject()
        .args(["dump", "--name", "first", text(&path)])
        .output()
        .unwrap();
    let shown = String::from_utf8(ran.stdout).unwrap();
    for expected in [
        "code_addr=0x70000000 track=\"bytecode\"",
        "code_addr=0x70000000 track=\"ir\"",
        "code_offset=0x10 line=3 column=1 file=\"/src/a.ir\"",
        "line=9",
    ] {
        let is_there = shown.contains(expected) || shown.contains(&expected.replace("0x10", "16"));
        assert!(is_there, "{expected}: {shown}");
    }
}

/// Writes the dump and a profile with two samples to a folder; returns the profile's path.
fn recorded(folder: &std::path::Path) -> PathBuf {
    let path = folder.join("jit-7.dump");
    std::fs::write(&path, dump(ByteOrder::Little)).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, 0x6000_0000, 4096, 0, text(&path), 500);
    profile.sample(7, 1_000_000, &[START + 1], None);
    profile.sample(7, 1_000_001, &[START + 65], None);
    let input = folder.join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    input
}

#[test]
fn the_page_has_the_lines_of_the_track() {
    let folder = scratch();
    let input = recorded(folder.path());
    let page = |more: &[&str]| {
        let page = folder.path().join("page.html");
        let ran = jitinject()
            .args(["timeline", "-i", text(&input), "-o", text(&page)])
            .args(more)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", crate::support::said(&ran));
        String::from_utf8(std::fs::read(page).unwrap()).unwrap()
    };
    let usual = page(&[]);
    assert!(usual.contains("/src/a.js") && !usual.contains("/src/a.ir"));
    let track = page(&["--track", "ir"]);
    assert!(track.contains("/src/a.ir") && track.contains("/src/a.js"));
}

#[test]
fn a_recording_can_have_a_track() {
    let folder = scratch();
    let ran = jitinject()
        .current_dir(folder.path())
        .args(["record", "--print", "--track", "ir", "--", "true"])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", crate::support::said(&ran));
    let printed = String::from_utf8(ran.stdout).unwrap();
    let inject = printed.lines().find(|line| line.starts_with("jitinject -i"));
    assert!(inject.unwrap().ends_with(" --track ir"), "{printed}");
}
