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

/// The newest perf there is, if the environment names it: it reads what older ones do not.
pub fn newest() -> Option<String> {
    std::env::var("PERF_NEWEST").ok()
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

/// A frame as `perf script` shows it.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Frame {
    pub address: u64,
    pub symbol: String,
    /// The file that it is in.
    pub file: String,
}

/// One sample with all that it is told of: a line for itself, and one for each frame.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Event {
    pub comm: String,
    pub pid: u32,
    pub tid: u32,
    /// In nanoseconds.
    pub time: u64,
    pub period: u64,
    /// What was counted.
    pub name: String,
    /// Innermost first.
    pub frames: Vec<Frame>,
}

impl Event {
    /// The innermost symbol; nothing if there is no frame.
    pub fn leaf(&self) -> &str {
        self.frames.first().map_or("", |frame| &frame.symbol)
    }

    /// The file that it is in.
    pub fn leaf_file(&self) -> &str {
        self.frames.first().map_or("", |frame| &frame.file)
    }

    /// The symbols, innermost first.
    pub fn symbols(&self) -> Vec<&str> {
        self.frames.iter().map(|frame| frame.symbol.as_str()).collect()
    }
}

/// The samples without the addresses of their frames: some perfs show them as they were recorded, some as they lie in the
/// file.
pub fn without_addresses(mut events: Vec<Event>) -> Vec<Event> {
    let frames = events.iter_mut().flat_map(|event| &mut event.frames);
    frames.for_each(|frame| frame.address = 0);
    events
}

/// All samples of all events, as some perf tells of them. It must have nothing to say against the profile.
pub fn events(program: &str, profile: &Path) -> Vec<Event> {
    let cache = tempfile::tempdir().unwrap();
    events_with_cache(program, cache.path(), profile)
}

/// The same, with some build-id cache.
pub fn events_with_cache(program: &str, cache: &Path, profile: &Path) -> Vec<Event> {
    let fields = "comm,pid,tid,time,period,event,ip,sym,dso";
    let arguments = [
        "--buildid-dir",
        text(cache),
        "script",
        "-f",
        "-i",
        text(profile),
        "--no-inline",
        "--no-demangle",
        "--ns",
        "-F",
        fields,
    ];
    let shown = tools::checked(program, &arguments);
    let mut events: Vec<Event> = Vec::new();
    for line in shown.lines().filter(|line| !line.trim().is_empty()) {
        match frame(line) {
            Some(frame) => events.last_mut().unwrap().frames.push(frame),
            None => events.push(event(line).unwrap_or_else(|| panic!("{line}"))),
        }
    }
    events
}

/// A line of a frame starts with a tabulator.
fn frame(line: &str) -> Option<Frame> {
    let (address, rest) = line.strip_prefix('\t')?.trim().split_once(' ')?;
    let (symbol, file) = rest.strip_suffix(')')?.rsplit_once(" (")?;
    Some(Frame {
        address: u64::from_str_radix(address, 16).ok()?,
        symbol: symbol.to_owned(),
        file: file.to_owned(),
    })
}

/// The name of a thread may have spaces.
fn event(line: &str) -> Option<Event> {
    let (head, name) = line.trim().strip_suffix(':')?.rsplit_once(' ')?;
    let (head, period) = head.trim().rsplit_once(' ')?;
    let (head, time) = head.trim().strip_suffix(':')?.rsplit_once(' ')?;
    let (seconds, nanoseconds) = time.split_once('.')?;
    let (comm, ids) = head.trim().rsplit_once(' ')?;
    let (pid, tid) = ids.split_once('/')?;
    Some(Event {
        comm: comm.trim().to_owned(),
        pid: pid.parse::<i32>().ok()? as u32,
        tid: tid.parse::<i32>().ok()? as u32,
        time: seconds.parse::<u64>().ok()? * 1_000_000_000 + nanoseconds.parse::<u64>().ok()?,
        period: period.parse().ok()?,
        name: name.to_owned(),
        frames: Vec::new(),
    })
}
