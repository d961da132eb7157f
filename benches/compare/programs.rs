//! The compared programs, and their output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The perf to compare with, unless it is that of PATH.
pub static PERF: OnceLock<String> = OnceLock::new();

/// Returns the perf to compare with.
pub fn perf() -> String {
    PERF.get().cloned().unwrap_or_else(|| "perf".into())
}

/// Returns a command without output.
fn silent(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Returns jitinject, from `input` to `output`.
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

/// Returns perf inject, from `input` to `output`, with `cache` as its build ID cache.
pub fn perf_inject(input: &Path, output: &Path, cache: &Path) -> Command {
    let mut command = silent(perf());
    command
        .arg("--buildid-dir")
        .arg(cache)
        .args(["inject", "--jit", "-i"]);
    command.arg(input).arg("-o").arg(output);
    command
}

/// Returns perf report of a given perf, with `cache` as its build ID cache. It omits call chains: generated ones
/// have hardly anything in common, which takes perf minutes.
pub fn perf_report(perf: &str, input: &Path, cache: &Path) -> Command {
    let mut command = silent(perf);
    command.arg("--buildid-dir").arg(cache);
    command
        .args(["report", "--stdio", "--no-children", "-g", "none", "-f", "-i"])
        .arg(input);
    command
}

/// Returns perf script, which unwinds copied stacks, without inlined calls.
pub fn perf_script(input: &Path, cache: &Path) -> Command {
    let mut command = silent(perf());
    command.arg("--buildid-dir").arg(cache);
    command
        .args(["script", "-f", "--no-inline", "-F", "ip,sym", "-i"])
        .arg(input);
    command
}

/// Returns perf inject of a newer perf, which replaces copied stacks by call chains.
pub fn convert_stacks(perf: &str, input: &Path, output: &Path, cache: &Path) -> Command {
    let mut command = silent(perf);
    command.arg("--buildid-dir").arg(cache);
    command.args(["inject", "-f", "--convert-callchain", "-i"]);
    command.arg(input).arg("-o").arg(output);
    command
}

/// Returns LLVM's reader of XRay traces, which prints the number of calls and the time of functions.
pub fn account(trace: &Path, binary: &Path) -> Command {
    let mut command = silent("llvm-xray");
    command.args(["account", "-d", "-m"]).arg(binary).arg(trace);
    command
}

/// Returns the output of a program's `--version`.
pub fn version(program: &str) -> String {
    line_of(Command::new(program).arg("--version"))
}

/// Returns what a command prints.
pub fn line_of(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns a newer perf than the installed one, if the environment names one.
pub fn newer_perf() -> Option<String> {
    std::env::var("PERF_NEWER").ok().filter(|newer| newer != "perf")
}

/// Returns the number of files under some paths, including links and directories.
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
