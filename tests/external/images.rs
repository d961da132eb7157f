//! Images: the functions of a code region in a few files, with holes between them.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jitdump::ByteOrder;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::profile::ProfileWriter;
use crate::support::tools::{self, text};
use crate::support::{inject_into, object_maps, objects_of, perf, scratch};

const IMAGE: [&str; 2] = ["--layout", "image"];

/// Address of the code, and distance between functions.
const REGION: u64 = 0x7f00_0000_0000;
const DISTANCE: u64 = 0x180;
const SIZE: u64 = 0x100;

fn address(function: u64) -> u64 {
    REGION + DISTANCE * function
}

/// Writes a profile with samples in the `touched` ones of many functions with a line each.
fn record(folder: &Path, functions: u64, touched: impl Iterator<Item = u64>) -> PathBuf {
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 10);
    for function in 0..functions {
        let start = address(function);
        dump.debug_info(1000, start, b"work.js", 1 + function as u32);
        let name = format!("function_{function}");
        dump.load(1000, start, function, name.as_bytes(), &[0x90; SIZE as usize]);
    }
    let dump_path = folder.join("jit-10.dump");
    std::fs::write(&dump_path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(10, "work", true, 100);
    let size = DISTANCE * functions;
    profile.mmap2(10, REGION, size.next_multiple_of(0x1000), 0, "//anon", 200);
    profile.mmap2(10, 0x7fff_0000_0000, 0x1000, 0, text(&dump_path), 300);
    for (time, function) in (2000..).zip(touched) {
        profile.sample(10, time, &[address(function) + 0x10], None);
    }
    let input = folder.join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    input
}

#[test]
fn few_functions_of_many_share_a_few_files_with_holes() {
    let folder = scratch();
    let touched = || (0..60_000).step_by(120);
    let input = record(folder.path(), 60_000, touched());
    let output = inject_into(folder.path(), &input, &IMAGE);
    let objects = objects_of(&output);
    assert!(objects.len() <= 2, "{objects:?}");
    let blocks: u64 = objects.iter().map(|path| path.metadata().unwrap().blocks()).sum();
    let size: u64 = objects.iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(size > DISTANCE * 50_000, "{size}");
    assert!(blocks * 512 < size / 4, "{blocks} blocks for {size} bytes");
    let found: Vec<String> = perf::leaves(&output)
        .iter()
        .map(|sample| sample.frames[0].clone())
        .collect();
    let expected = touched().map(|function| format!("function_{function}"));
    assert!(found.into_iter().eq(expected));
}

/// perf starts an addr2line per file and keeps it running, each with three file descriptors.
#[test]
fn no_line_is_lost_for_lack_of_descriptors() {
    // The largest number of functions with an object each, and many.
    for (functions, objects) in [(256, 256), (990, 1)] {
        let folder = scratch();
        let input = record(folder.path(), functions, 0..functions);
        let output = inject_into(folder.path(), &input, &["--layout", "auto"]);
        assert_eq!(objects_of(&output).len(), objects);
        check_lines(&output, functions);
    }
}

/// Checks that perf shows the line of each function.
fn check_lines(output: &Path, functions: u64) {
    for program in perf::programs() {
        let script = "ulimit -n 1024; exec \"$@\"";
        let command = [
            "script",
            "-f",
            "-i",
            text(output),
            "--no-inline",
            "-F",
            "ip,sym,srcline",
        ];
        let shown = tools::run("sh", &[&["-c", script, "sh", &program][..], &command].concat());
        let found: Vec<&str> = shown
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("work.js:"))
            .collect();
        let expected = (1..=functions).map(|line| format!("work.js:{line}"));
        assert!(
            found.iter().copied().eq(expected),
            "{program}: {} lines",
            found.len()
        );
    }
}

/// Newer perf versions use libdw, which finds nothing at the lowest addresses of an object.
#[test]
fn libdw_finds_the_lines_of_an_image() {
    let folder = scratch();
    let program = tools::compile(folder.path(), "lines.c", &["-ldw", "-lelf"]);
    let input = record(folder.path(), 100, 0..100);
    let output = inject_into(folder.path(), &input, &IMAGE);
    let objects = objects_of(&output);
    assert_eq!(objects.len(), 1);
    let [(start, _)] = object_maps(&output)[..] else {
        panic!("one map");
    };
    assert_eq!(start, REGION);
    let symbols = tools::run("readelf", &["-sW", text(&objects[0])]);
    let mut child = Command::new(program)
        .arg(&objects[0])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for line in symbols.lines().filter(|line| line.contains("function_")) {
        writeln!(stdin, "{}", line.split_whitespace().nth(1).unwrap()).unwrap();
    }
    drop(stdin);
    let found = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let expected = (1..=100).map(|line| format!("./work.js:{line}"));
    assert!(found.lines().eq(expected), "{found}");
}
