//! Real perf.

use std::path::Path;

use super::tools::{self, text};

/// One sample as `perf script` shows it.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Sample {
    pub pid: u32,
    /// In nanoseconds.
    pub time: u64,
    /// The symbols, innermost first; `[unknown]` where there is none.
    pub frames: Vec<String>,
}

/// Perf programs to show profiles with: Debian's, which unwinds with libunwind, and one that unwinds with
/// libdw, if the environment names it (`scripts/test --all` builds one).
pub fn programs() -> Vec<String> {
    let libdw = std::env::var("PERF_WITH_LIBDW").ok();
    std::iter::once("perf".to_owned()).chain(libdw).collect()
}

/// A perf that is newer than Debian's own.
pub fn newer() -> String {
    std::env::var("PERF_NEWER").expect("PERF_NEWER names no newer perf; scripts/test gets one")
}

/// Perf, with a build-id cache of its own, so that nothing from or into the user's plays a part.
pub fn perf(arguments: &[&str]) -> String {
    let cache = tempfile::tempdir().unwrap();
    perf_with_cache("perf", cache.path(), arguments)
}

/// Some perf, with some build-id cache.
pub fn perf_with_cache(program: &str, cache: &Path, arguments: &[&str]) -> String {
    let mut all = vec!["--buildid-dir", text(cache)];
    all.extend_from_slice(arguments);
    tools::run(program, &all)
}

/// All samples of a profile with their recorded or unwound call chains.
pub fn stacks(profile: &Path, more: &[&str]) -> Vec<Sample> {
    let cache = tempfile::tempdir().unwrap();
    stacks_with_cache("perf", cache.path(), profile, more)
}

/// The same, with some perf and some build-id cache.
pub fn stacks_with_cache(program: &str, cache: &Path, profile: &Path, more: &[&str]) -> Vec<Sample> {
    let mut arguments = vec![
        "script",
        "-f",
        "-i",
        text(profile),
        "--no-inline",
        "--ns",
        "-F",
        "pid,time,ip,sym",
    ];
    // perf 6.1 demangles unless it is told not to.
    arguments.push("--no-demangle");
    arguments.extend_from_slice(more);
    parse(&perf_with_cache(program, cache, &arguments))
}

/// Only the sampled functions, each as a call chain of one.
pub fn leaves(profile: &Path) -> Vec<Sample> {
    stacks(profile, &["-G"])
}

fn parse(text: &str) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for line in text.lines() {
        if let Some((sample, rest)) = head(line) {
            samples.push(sample);
            // With -G the function stands on the same line.
            push_frame(&mut samples, rest);
        } else {
            push_frame(&mut samples, line);
        }
    }
    samples
}

/// A line that starts a sample: pid and time, and then perhaps a frame.
fn head(line: &str) -> Option<(Sample, &str)> {
    let (pid, rest) = line.trim_start().split_once(char::is_whitespace)?;
    let (time, rest) = rest.trim_start().split_once(':')?;
    let (seconds, nanoseconds) = time.split_once('.')?;
    let time = seconds.parse::<u64>().ok()? * 1_000_000_000 + nanoseconds.parse::<u64>().ok()?;
    let frames = Vec::new();
    // perf shows a kernel thread's as -1
    let pid = pid.parse::<i32>().ok()? as u32;
    Some((Sample { pid, time, frames }, rest))
}

fn push_frame(samples: &mut [Sample], line: &str) {
    let line = line.trim();
    let Some(sample) = samples.last_mut().filter(|_| !line.is_empty()) else {
        return;
    };
    let symbol = line
        .split_once(' ')
        .map_or("[unknown]", |(_, symbol)| symbol.trim());
    sample.frames.push(symbol.to_owned());
}
