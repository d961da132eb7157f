//! Runs perf.

use std::path::Path;

use super::scratch;
use super::tools::{self, text};

/// A sample as `perf script` prints it.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Sample {
    pub pid: u32,
    /// Time in nanoseconds.
    pub time: u64,
    /// Symbols, innermost first; `[unknown]` for frames without a symbol.
    pub frames: Vec<String>,
}

/// Symbol that perf prints for an address without a name.
pub const UNKNOWN: &str = "[unknown]";

/// Returns the perf programs in `PERF_PROGRAMS`, separated by colons.
pub fn named_programs() -> Vec<String> {
    let programs = std::env::var("PERF_PROGRAMS").unwrap_or_default();
    let programs = programs.split(':').filter(|program| !program.is_empty());
    programs.map(str::to_owned).collect()
}

/// Returns the perf programs in `PERF_PROGRAMS`, or the one in `PATH` if there are none.
pub fn programs() -> Vec<String> {
    let named = named_programs();
    if named.is_empty() {
        vec!["perf".to_owned()]
    } else {
        named
    }
}

/// Returns whether a file is an object that jitinject wrote.
pub fn is_object(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap();
    name.starts_with("jitted-")
}

/// Returns the arguments with which a perf command ignores this machine's kernel, whose symbols and build ID
/// differ from the recorded ones.
fn without_kernel<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let (command, rest) = arguments.split_first().unwrap();
    let more = match *command {
        "script" => &["--kallsyms", "/dev/null"][..],
        "report" => &["--kallsyms", "/dev/null", "--ignore-vmlinux"],
        "annotate" => &["--ignore-vmlinux"],
        _ => &[],
    };
    [&[*command][..], more, rest].concat()
}

/// Returns one of the named programs that reads formats of Linux 6.19 and later, which Debian's releases do not
/// have yet. perf built from a source package prints no version, so it is recognised by an option of Linux 7.0.
pub fn newest() -> Option<String> {
    let is_new = |program: &String| tools::report(program, &["inject", "-h"]).contains("--convert-callchain");
    named_programs().into_iter().find(is_new)
}

/// Runs perf with an empty build ID cache instead of the user's.
pub fn perf(arguments: &[&str]) -> String {
    let cache = scratch();
    perf_with_cache("perf", cache.path(), arguments)
}

/// Runs a perf program with a build ID cache; it must succeed.
pub fn perf_with_cache(program: &str, cache: &Path, arguments: &[&str]) -> String {
    tools::run(program, &with_cache(cache, &without_kernel(arguments)))
}

/// Returns the output of a perf program, whatever its exit status.
pub fn printed_with_cache(program: &str, cache: &Path, arguments: &[&str]) -> String {
    let output = tools::output(program, &with_cache(cache, &without_kernel(arguments)));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn with_cache<'a>(cache: &'a Path, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["--buildid-dir", text(cache)], arguments].concat()
}

/// Returns the warnings of a perf program about a profile. It must succeed.
pub fn complaints(program: &str, arguments: &[&str]) -> Vec<String> {
    let cache = scratch();
    let all = [
        &["--buildid-dir", text(cache.path())],
        &without_kernel(arguments)[..],
    ]
    .concat();
    let output = tools::output(program, &all);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {all:?}: {}: {said}",
        output.status
    );
    // Warnings about a missing kernel image do not concern the profile.
    let is_about_kernel = |line: &&str| ["kallsyms", "vmlinux"].iter().any(|name| line.contains(name));
    let lines = said
        .lines()
        .filter(|line| !line.trim().is_empty() && !is_about_kernel(line));
    lines.map(str::to_owned).collect()
}

/// Asserts that no perf report prints warnings about a profile.
pub fn assert_reports_are_silent(programs: &[String], profile: &Path) {
    for program in programs {
        let found = complaints(program, &["report", "-f", "-i", text(profile), "--stdio"]);
        assert!(found.is_empty(), "{program}: {found:?}");
    }
}

/// Returns all samples of a profile with their recorded or unwound call chains.
pub fn stacks(profile: &Path, more: &[&str]) -> Vec<Sample> {
    let cache = scratch();
    stacks_with_cache("perf", cache.path(), profile, more)
}

/// Returns the same with a given perf program and build ID cache.
pub fn stacks_with_cache(program: &str, cache: &Path, profile: &Path, more: &[&str]) -> Vec<Sample> {
    let arguments = [&script(profile, "pid,time,ip,sym")[..], more].concat();
    parse(&perf_with_cache(program, cache, &arguments))
}

/// Returns only the sampled functions, each as a call chain of one.
pub fn leaves(profile: &Path) -> Vec<Sample> {
    stacks(profile, &["-G"])
}

/// Returns the arguments that print some fields of all samples.
fn script<'a>(profile: &'a Path, fields: &'a str) -> [&'a str; 9] {
    // perf 6.1 demangles symbols by default.
    let [shown, names] = ["--no-inline", "--no-demangle"];
    [
        "script",
        "-f",
        shown,
        names,
        "--ns",
        "-i",
        text(profile),
        "-F",
        fields,
    ]
}

/// Returns the same; only functions in jitinject's objects have names.
pub fn stacks_in_objects(program: &str, profile: &Path, more: &[&str]) -> Vec<Sample> {
    let cache = scratch();
    let fields = "pid,time,ip,sym,dso";
    let arguments = [&script(profile, fields)[..], more].concat();
    let mut samples = parse(&perf_with_cache(program, cache.path(), &arguments));
    let symbols = samples.iter_mut().flat_map(|sample| &mut sample.frames);
    symbols.for_each(|symbol| *symbol = symbol_in_object(symbol));
    samples
}

/// Returns the sampled functions, including those of samples without a time.
pub fn symbols_in_objects(program: &str, profile: &Path) -> Vec<String> {
    let cache = scratch();
    let arguments = [&script(profile, "ip,sym,dso")[..], &["-G"]].concat();
    let shown = perf_with_cache(program, cache.path(), &arguments);
    let lines = shown.lines().filter_map(|line| line.trim().split_once(' '));
    lines.map(|(_, symbol)| symbol_in_object(symbol)).collect()
}

/// Returns the name in `NAME (FILE)` if the file is an object of jitinject.
fn symbol_in_object(shown: &str) -> String {
    let known = shown
        .trim()
        .strip_suffix(')')
        .and_then(|rest| rest.rsplit_once(" ("));
    match known {
        Some((name, file)) if is_object(file) => name.to_owned(),
        _ => UNKNOWN.to_owned(),
    }
}

fn parse(text: &str) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for line in text.lines() {
        if let Some((sample, rest)) = head(line) {
            samples.push(sample);
            // With -G the function is on the same line.
            push_frame(&mut samples, rest);
        } else {
            push_frame(&mut samples, line);
        }
    }
    samples
}

/// Parses the first line of a sample: PID, time, and possibly a frame.
fn head(line: &str) -> Option<(Sample, &str)> {
    let (pid, rest) = line.trim_start().split_once(char::is_whitespace)?;
    let (time, rest) = rest.trim_start().split_once(':')?;
    let (seconds, nanoseconds) = time.split_once('.')?;
    let time = seconds.parse::<u64>().ok()? * 1_000_000_000 + nanoseconds.parse::<u64>().ok()?;
    let frames = Vec::new();
    // perf prints a kernel thread's PID as -1
    let pid = pid.parse::<i32>().ok()? as u32;
    Some((Sample { pid, time, frames }, rest))
}

fn push_frame(samples: &mut [Sample], line: &str) {
    let line = line.trim();
    let Some(sample) = samples.last_mut().filter(|_| !line.is_empty()) else {
        return;
    };
    let symbol = line.split_once(' ').map_or(UNKNOWN, |(_, symbol)| symbol.trim());
    sample.frames.push(symbol.to_owned());
}

/// A frame as `perf script` prints it.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Frame {
    pub address: u64,
    pub symbol: String,
    /// File that contains the symbol.
    pub file: String,
}

/// A sample with all its fields, which `perf script` prints on one line, followed by a line per frame.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Event {
    pub comm: String,
    pub pid: u32,
    pub tid: u32,
    /// Time in nanoseconds.
    pub time: u64,
    pub period: u64,
    /// Event name.
    pub name: String,
    /// Frames, innermost first.
    pub frames: Vec<Frame>,
}

impl Event {
    /// Returns the innermost symbol; empty if there are no frames.
    pub fn leaf(&self) -> &str {
        self.frames.first().map_or("", |frame| &frame.symbol)
    }

    /// Returns the file of the innermost frame.
    pub fn leaf_file(&self) -> &str {
        self.frames.first().map_or("", |frame| &frame.file)
    }

    /// Returns the symbols, innermost first.
    pub fn symbols(&self) -> Vec<&str> {
        self.frames.iter().map(|frame| frame.symbol.as_str()).collect()
    }
}

/// Removes the addresses of the frames: some perf versions print addresses in memory, some those in the file.
pub fn without_addresses(mut events: Vec<Event>) -> Vec<Event> {
    let frames = events.iter_mut().flat_map(|event| &mut event.frames);
    frames.for_each(|frame| frame.address = 0);
    events
}

/// Returns all samples of all events, as a perf program prints them.
pub fn events(program: &str, profile: &Path) -> Vec<Event> {
    let cache = scratch();
    events_with_cache(program, cache.path(), profile)
}

/// Returns the same with a given build ID cache.
pub fn events_with_cache(program: &str, cache: &Path, profile: &Path) -> Vec<Event> {
    let arguments = script(profile, "comm,pid,tid,time,period,event,ip,sym,dso");
    let shown = perf_with_cache(program, cache, &arguments);
    let mut events: Vec<Event> = Vec::new();
    for line in shown.lines().filter(|line| !line.trim().is_empty()) {
        match frame(line) {
            Some(frame) => events.last_mut().unwrap().frames.push(frame),
            None => events.push(event(line).unwrap_or_else(|| panic!("{line}"))),
        }
    }
    events
}

/// Returns the same; only functions in jitinject's objects have names and files.
pub fn events_in_objects(program: &str, profile: &Path) -> Vec<Event> {
    let mut events = events(program, profile);
    for frame in events.iter_mut().flat_map(|event| &mut event.frames) {
        if !is_object(&frame.file) {
            frame.symbol = UNKNOWN.to_owned();
            frame.file = String::new();
        }
    }
    events
}

/// Parses the line of a frame, which starts with a tab.
fn frame(line: &str) -> Option<Frame> {
    let (address, rest) = line.strip_prefix('\t')?.trim().split_once(' ')?;
    let (symbol, file) = rest.strip_suffix(')')?.rsplit_once(" (")?;
    Some(Frame {
        address: u64::from_str_radix(address, 16).ok()?,
        symbol: symbol.to_owned(),
        file: file.to_owned(),
    })
}

/// Parses the line of a sample; thread names may contain spaces.
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
