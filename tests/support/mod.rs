//! Shared test support. Each test binary uses a part of it.

#![allow(dead_code)]

pub mod bare_records;
pub mod build_id_cache;
pub mod capture;
pub mod code_sites;
pub mod damage;
pub mod debug_lists;
pub mod dump;
pub mod dwarf_contents;
pub mod dwarf_units;
pub mod elf;
pub mod formats;
pub mod generator;
pub mod gimli_writer;
pub mod hostile;
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
pub mod reports;
pub mod scene;
pub mod shown;
pub mod summaries;
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

/// Returns a temporary directory for one test, removed on drop. It is in `TMPDIR` if that is set, else in memory
/// if there is room: some file systems take a minute for the files of all tests.
pub fn scratch() -> tempfile::TempDir {
    const MEMORY: &str = "/dev/shm";
    // Other programs treat files in /dev differently: hotspot reads no symbols there.
    let is_hermetic = env!("CARGO_CRATE_NAME") == "suite";
    if is_hermetic && std::env::var_os("TMPDIR").is_none() && has_room(MEMORY) {
        tempfile::tempdir_in(MEMORY).or_else(|_| tempfile::tempdir())
    } else {
        tempfile::tempdir()
    }
    .unwrap()
}

/// Returns whether a directory has room for the files of all tests, and permits running programs.
fn has_room(folder: &str) -> bool {
    const ROOM: u64 = 4 << 30;
    rustix::fs::statvfs(folder).is_ok_and(|there| {
        there.f_bavail.saturating_mul(there.f_frsize) >= ROOM
            && !there.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC)
    })
}

/// Options for all object layouts.
pub const OBJECT_LAYOUTS: [&[&str]; 4] = [
    &["--layout", "function"],
    &["--layout", "function", "--all"],
    &["--layout", "image"],
    &["--layout", "image", "--all"],
];

/// Returns a command that runs jitinject.
pub fn jitinject() -> Command {
    Command::new(env!("CARGO_BIN_EXE_jitinject"))
}

/// Returns the standard error of a program.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the codes of the diagnostics in a program's standard error, in order.
pub fn codes(said: &str) -> Vec<&str> {
    let starts = ["error[", "warning[", "note["];
    let lines = said.lines().filter_map(|line| line.strip_prefix("jitinject: "));
    let coded = lines.filter_map(|line| starts.iter().find_map(|start| line.strip_prefix(start)));
    coded.filter_map(|rest| rest.split(']').next()).collect()
}

/// Returns whether a program has reported a diagnostic.
pub fn has_code(said: &str, code: &str) -> bool {
    codes(said).contains(&code)
}

/// Returns the diagnostics of one code in a summary.
pub fn diagnostics<'s>(summary: &'s serde_json::Value, code: &str) -> Vec<&'s serde_json::Value> {
    let all = summary["diagnostics"].as_array().unwrap();
    all.iter()
        .filter(|diagnostic| diagnostic["code"] == code)
        .collect()
}

/// Returns the commands that the help lists.
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

/// Options for one object per function, for tests of single functions.
pub const FUNCTION_LAYOUT: [&str; 2] = ["--layout", "function"];

/// Runs jitinject on `input`, which may fail. Writes one object per function, unless `more` includes a layout.
pub fn attempt(input: &Path, output: &Path, more: &[&str]) -> Output {
    let files = [
        OsStr::new("-i"),
        input.as_os_str(),
        OsStr::new("-o"),
        output.as_os_str(),
    ];
    let layout = if more.contains(&"--layout") {
        &[][..]
    } else {
        &FUNCTION_LAYOUT
    };
    jitinject().args(files).args(layout).args(more).output().unwrap()
}

/// Runs jitinject on `input`, which must succeed; returns its standard error.
pub fn inject(input: &Path, output: &Path, more: &[&str]) -> String {
    let ran = attempt(input, output, more);
    assert!(ran.status.success(), "{}: {}", ran.status, said(&ran));
    said(&ran)
}

/// Runs jitinject with the output `out.data` in a directory; returns the output's path.
pub fn inject_into(folder: &Path, input: &Path, more: &[&str]) -> PathBuf {
    let output = folder.join("out.data");
    inject(input, &output, more);
    output
}

/// Runs jitinject on a recording, whose dumps may be anywhere in its directory; returns the output's path.
pub fn inject_capture(folder: &Path, name: &str, more: &[&str]) -> PathBuf {
    let dumps = capture::folder(name);
    let more = [&["--jitdump", tools::text(&dumps)], more].concat();
    inject_into(folder, &capture::profile(name), &more)
}

/// Returns the mappings of objects in an output: start and end addresses.
pub fn object_maps(output: &Path) -> Vec<(u64, u64)> {
    let parts = model::parse(&std::fs::read(output).unwrap());
    let is_object = |name: &String| name.contains(".elf/");
    let records = parts.records.iter();
    let maps =
        records.filter(|record| model::map_name(record, parts.endian).is_some_and(|name| is_object(&name)));
    maps.map(|record| model::map_range(record, parts.endian))
        .collect()
}

/// Returns the names of objects without the build IDs in them.
pub fn stems_of(objects: &[PathBuf]) -> Vec<&str> {
    let names = objects
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap());
    names.map(|name| name.rsplit_once('-').unwrap().0).collect()
}

/// Returns the objects of an output, sorted by name.
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
