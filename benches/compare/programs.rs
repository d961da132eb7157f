//! The programs that are compared, and what they leave behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A command that says nothing.
fn silent(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// jitinject, from `input` to `output`.
pub fn jitinject(input: &Path, output: &Path, more: &[&str]) -> Command {
    let mut command = silent(env!("CARGO_BIN_EXE_jitinject"));
    command
        .args(["-q", "-i"])
        .arg(input)
        .arg("-o")
        .arg(output)
        .args(more);
    command
}

/// perf inject, from `input` to `output`, with `cache` for its build-id cache.
pub fn perf_inject(input: &Path, output: &Path, cache: &Path) -> Command {
    let mut command = silent("perf");
    command
        .arg("--buildid-dir")
        .arg(cache)
        .args(["inject", "--jit", "-i"]);
    command.arg(input).arg("-o").arg(output);
    command
}

/// perf report, by some perf, with `cache` for its build-id cache. It shows where samples were taken, without
/// call chains: made-up ones have hardly anything in common, which takes perf minutes.
pub fn perf_report(perf: &str, input: &Path, cache: &Path) -> Command {
    let mut command = silent(perf);
    command.arg("--buildid-dir").arg(cache);
    command
        .args(["report", "--stdio", "--no-children", "-g", "none", "-f", "-i"])
        .arg(input);
    command
}

/// LLVM's reader of XRay's traces, which tells how often functions were called and how long they took.
pub fn account(trace: &Path, binary: &Path) -> Command {
    let mut command = silent("llvm-xray");
    command.args(["account", "-d", "-m"]).arg(binary).arg(trace);
    command
}

/// What a program calls its version.
pub fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A perf that is newer than the one that is installed, if the environment names one.
pub fn newer_perf() -> Option<String> {
    std::env::var("PERF_NEWER").ok().filter(|newer| newer != "perf")
}

/// How many files there are under some paths, links and folders counted.
pub fn files(paths: &[PathBuf]) -> u64 {
    let count = |path: &PathBuf| match fs::read_dir(path) {
        Ok(entries) => {
            let paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
            let (folders, others): (Vec<_>, Vec<_>) = paths
                .into_iter()
                .partition(|path| path.is_dir() && !path.is_symlink());
            others.len() as u64 + folders.len() as u64 + files(&folders)
        }
        Err(_) => 0,
    };
    paths.iter().map(count).sum()
}
