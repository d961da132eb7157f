//! Objects of very many groups of functions, as perf and hotspot print them.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use jitdump::ByteOrder;

use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::{FUNCTION_LAYOUT, hotspot, inject_into, objects_of, perf, scratch, tools};

const PID: u32 = 10;
const CODE: u64 = 0x7f84_0000_0000;
const COUNT: u64 = 400;

/// The default of the program.
const AUTO: [&str; 2] = ["--layout", "auto"];

/// Functions at a hundred addresses, each used four times, one that moves between two addresses after each of them, and stacks
/// of all that is there. Each function has a line.
fn code_that_changes(folder: &Path) -> PathBuf {
    const MOVED: u64 = CODE + 0x10_0000;
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, PID);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    let path = folder.join(format!("jit-{PID}.dump"));
    profile.mmap2(PID, CODE, 0x20_0000, CODE, "//anon", 400);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    dump.debug_info(900, MOVED, b"/moved.js", 77);
    dump.load(900, MOVED, COUNT, b"moved", &[0x90; 64]);
    for at in 0..COUNT {
        let address = CODE + 0x80 * (at % 100);
        dump.debug_info(1000 + 10 * at, address, b"/work.js", 1 + at as u32);
        let name = format!("function_{at}");
        dump.load(1000 + 10 * at, address, at, name.as_bytes(), &[0x90; 64]);
        let place = |at: u64| MOVED + at % 2 * 0x40;
        dump.moved(1001 + 10 * at, place(at), place(at + 1), 64, COUNT);
        let chain = [
            address + 1,
            place(at + 1) + 2,
            CODE + 0x80 * ((at + 50) % 100) + 3,
            CODE + 0x80 * ((at + 50) % 100) + 0x50,
        ];
        profile.sample(PID, 1005 + 10 * at, &chain, None);
    }
    fs::write(&path, &dump.bytes).unwrap();
    let input = folder.join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    input
}

/// Symbols of a perf map, some next to each other, and stacks of them.
fn symbols(folder: &Path) -> PathBuf {
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    let mut map = String::new();
    profile.mmap2(PID, CODE, 0x2000 * COUNT, CODE, "//anon", 1000);
    let address = |at: u64| CODE + at / 4 * 0x2000 + at % 4 * 11;
    for at in 0..COUNT {
        writeln!(map, "{:x} b symbol_{at}", address(at)).unwrap();
        let chain = [at, (at + 100) % COUNT, (at + 201) % COUNT].map(|at| address(at) + 5);
        profile.sample(PID, 2000 + at, &chain, None);
    }
    fs::write(folder.join(format!("perf-{PID}.map")), map).unwrap();
    let input = folder.join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    input
}

/// Returns the fields of all frames, as perf prints them.
fn frames(profile: &Path, fields: &str) -> Vec<String> {
    let arguments = [
        "script",
        "-f",
        "--no-inline",
        "-i",
        tools::text(profile),
        "-F",
        fields,
    ];
    let shown = perf::perf(&arguments);
    let lines = shown.lines().map(|line| line.trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

/// Returns names and offsets without the addresses, which are those in the objects.
fn names(profile: &Path) -> Vec<String> {
    let frames = frames(profile, "ip,sym,symoff");
    let name = |frame: &String| frame.split_once(' ').map(|(_, name)| name.to_owned());
    frames.iter().filter_map(name).collect()
}

#[test]
fn shared_objects_name_the_same_code_as_separate_ones() {
    for make in [code_that_changes, symbols] {
        let folders = [scratch(), scratch()];
        let options: [&[&str]; 2] = [&AUTO, &FUNCTION_LAYOUT];
        let outputs: Vec<PathBuf> = folders
            .iter()
            .zip(options)
            .map(|(folder, options)| inject_into(folder.path(), &make(folder.path()), options))
            .collect();
        let [shared, separate] = &outputs[..] else {
            panic!()
        };
        let files = objects_of(shared).len();
        assert!(files <= 2, "{files}");
        assert!(objects_of(separate).len() >= COUNT as usize);
        let found = names(shared);
        assert_eq!(found, names(separate));
        assert!(found.len() >= 3 * COUNT as usize, "{}", found.len());
        let named = found.iter().filter(|name| name.contains('_')).count();
        assert!(named >= COUNT as usize, "{named}");
    }
}

#[test]
fn hotspot_names_all_functions_of_a_stack_in_a_shared_object() {
    for (make, frames) in [(code_that_changes as fn(&Path) -> PathBuf, 3), (symbols, 3)] {
        let folder = scratch();
        let output = inject_into(folder.path(), &make(folder.path()), &AUTO);
        let stream = hotspot::parse(folder.path(), &output);
        let stacks: Vec<Vec<String>> = stream.stacks().collect();
        assert_eq!(stacks.len(), COUNT as usize);
        // Before that, the code at the third address is not there yet.
        for stack in stacks.iter().skip(100) {
            let named = stack.iter().filter(|name| !name.is_empty()).count();
            assert_eq!(named, frames, "{stack:?}");
        }
    }
}

#[test]
fn a_function_that_moves_keeps_its_lines_in_a_shared_object() {
    let folder = scratch();
    let output = inject_into(folder.path(), &code_that_changes(folder.path()), &AUTO);
    let lines = frames(&output, "ip,sym,srcline");
    let count = |line: &str| lines.iter().filter(|shown| shown.ends_with(line)).count();
    assert_eq!(count("moved.js:77"), COUNT as usize, "{lines:?}");
    assert!(count("work.js:1") >= 1);
    assert!(count("work.js:400") >= 1);
}
