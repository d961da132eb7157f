//! What the tests share.

pub mod capture;
pub mod dump;
pub mod generator;
pub mod model;
pub mod perf;
pub mod profile;
pub mod tools;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder for one test, removed when it is dropped.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The program, ready for arguments.
pub fn jitinject() -> Command {
    Command::new(env!("CARGO_BIN_EXE_jitinject"))
}

/// Runs the program, which must succeed, and returns what it said.
pub fn run(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    let output = jitinject().args(arguments).output().unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{}: {said}", output.status);
    said
}

/// What a program said on standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Injects `input` into `out.data` of a folder, with more arguments, and returns the output's path.
pub fn inject_into(folder: &Path, input: &Path, more: &[&str]) -> PathBuf {
    let output = folder.join("out.data");
    let mut arguments = vec![
        OsStr::new("-i"),
        input.as_os_str(),
        OsStr::new("-o"),
        output.as_os_str(),
    ];
    arguments.extend(more.iter().map(OsStr::new));
    run(arguments);
    output
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
