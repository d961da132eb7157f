//! What the tests share. Each of the programs that they make uses a part of it.

#![allow(dead_code)]

pub mod bare_records;
pub mod build_id_cache;
pub mod capture;
pub mod damage;
pub mod dump;
pub mod dwarf_contents;
pub mod dwarf_units;
pub mod effort;
pub mod formats;
pub mod generator;
pub mod gimli_writer;
pub mod lines;
pub mod lives;
pub mod model;
pub mod mono_log;
pub mod mono_report;
pub mod mono_sums;
pub mod perf;
pub mod perf_map_case;
pub mod processes;
pub mod profile;
pub mod reader;
pub mod recording;
pub mod scene;
pub mod shown;
pub mod symbolizer;
pub mod timeline;
pub mod tools;
pub mod xray_functions;
pub mod xray_lines;
pub mod xray_map;
pub mod xray_trace;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder for one test, removed when it is dropped: in `TMPDIR`, or in memory where there is room. Some file systems take
/// a minute for all the files that the tests make.
pub fn scratch() -> tempfile::TempDir {
    const MEMORY: &str = "/dev/shm";
    match std::env::var_os("TMPDIR").is_none() && has_room(MEMORY) {
        true => tempfile::tempdir_in(MEMORY).or_else(|_| tempfile::tempdir()),
        false => tempfile::tempdir(),
    }
    .unwrap()
}

/// Whether a folder has room for the files of all tests, and programs can be run there.
fn has_room(folder: &str) -> bool {
    const ROOM: u64 = 4 << 30;
    rustix::fs::statvfs(folder).is_ok_and(|there| {
        there.f_bavail.saturating_mul(there.f_frsize) >= ROOM
            && !there.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC)
    })
}

/// The options for all ways to lay out functions.
pub const OBJECT_LAYOUTS: [&[&str]; 4] = [
    &["--layout", "function"],
    &["--layout", "function", "--all"],
    &["--layout", "image"],
    &["--layout", "image", "--all"],
];

/// The program, ready for arguments.
pub fn jitinject() -> Command {
    Command::new(env!("CARGO_BIN_EXE_jitinject"))
}

/// What a program said on standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The commands, as the help lists them.
pub fn commands() -> Vec<String> {
    let output = jitinject().arg("-h").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let list = help.split("Commands:\n").nth(1).unwrap();
    let list = list.split("\n\n").next().unwrap();
    let names = list
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.map(|line| line.split_whitespace().next().unwrap().to_owned());
    names.filter(|name| name != "help").collect()
}

/// The options for a file for each function, for tests that look at one function at a time.
pub const FUNCTION_LAYOUT: [&str; 2] = ["--layout", "function"];

/// Runs the program on `input`, whatever comes of it; with a file for each function, unless `more` has a layout.
pub fn attempt(input: &Path, output: &Path, more: &[&str]) -> Output {
    let files = [
        OsStr::new("-i"),
        input.as_os_str(),
        OsStr::new("-o"),
        output.as_os_str(),
    ];
    let layout = match more.contains(&"--layout") {
        true => &[][..],
        false => &FUNCTION_LAYOUT,
    };
    jitinject().args(files).args(layout).args(more).output().unwrap()
}

/// Runs the program on `input`, which must succeed, and returns what it said.
pub fn inject(input: &Path, output: &Path, more: &[&str]) -> String {
    let ran = attempt(input, output, more);
    assert!(ran.status.success(), "{}: {}", ran.status, said(&ran));
    said(&ran)
}

/// The same with `out.data` of a folder for the output, whose path it returns.
pub fn inject_into(folder: &Path, input: &Path, more: &[&str]) -> PathBuf {
    let output = folder.join("out.data");
    inject(input, &output, more);
    output
}

/// The same with a recording, whose dumps may lie anywhere in its folder.
pub fn inject_capture(folder: &Path, name: &str, more: &[&str]) -> PathBuf {
    let dumps = capture::folder(name);
    let more = [&["--jitdump", tools::text(&dumps)], more].concat();
    inject_into(folder, &capture::profile(name), &more)
}

/// The maps of objects in an output: start and end.
pub fn object_maps(output: &Path) -> Vec<(u64, u64)> {
    let parts = model::parse(&std::fs::read(output).unwrap());
    let is_object = |name: &String| name.contains(".elf/");
    let records = parts.records.iter();
    let maps =
        records.filter(|record| model::map_name(record, parts.order).is_some_and(|name| is_object(&name)));
    maps.map(|record| model::map_range(record, parts.order)).collect()
}

/// The objects that belong to an output, in the order of their names.
pub fn objects_of(output: &Path) -> Vec<PathBuf> {
    let mut folder = output.as_os_str().to_owned();
    folder.push(".elf");
    let mut objects: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    objects.sort();
    objects
}
