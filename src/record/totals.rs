//! The hottest functions of an interpreter with compiled calls, such as CPython's.
//!
//! Their own code does nothing but call the interpreter, so only their callers and callees show where the time goes. perf
//! finds them when it unwinds the copies of stacks.

use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::elf::store::{FUNCTION_PREFIX, IMAGE_PREFIX};

/// Time for perf to unwind the stacks.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Time between two looks at perf.
const PERIOD: Duration = Duration::from_millis(20);

/// A function of JIT code.
#[derive(Clone, PartialEq, Debug)]
pub struct FunctionTotal {
    /// Samples in it and in what it calls, in percent of all samples.
    pub total: f64,
    /// Samples in its own code, in percent of all samples.
    pub own: f64,
    /// Name.
    pub name: String,
}

/// Returns the functions of JIT code that are in most stacks of a profile, as perf report counts them; nothing if perf fails
/// or takes too long.
pub fn totals(profile: &Path, count: usize) -> Vec<FunctionTotal> {
    let printed = report(profile).unwrap_or_default();
    printed.lines().filter_map(parse).take(count).collect()
}

/// Runs perf report.
fn report(profile: &Path) -> Option<String> {
    // A pipe that nobody reads meanwhile may become full.
    let mut output = tempfile::tempfile().ok()?;
    let mut perf = Command::new("perf")
        .args([
            "report",
            "--stdio",
            "--children",
            "--no-inline",
            "-q",
            "-g",
            "none",
        ])
        .args(["-F", "overhead_children,overhead,dso,sym", "-t", "\t", "-i"])
        .arg(profile)
        .stdin(Stdio::null())
        .stdout(output.try_clone().ok()?)
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let started = Instant::now();
    while perf.try_wait().ok()?.is_none() {
        if started.elapsed() > TIMEOUT {
            let _ = perf.kill();
            let _ = perf.wait();
            return None;
        }
        sleep(PERIOD);
    }
    let mut printed = Vec::new();
    output.rewind().ok()?;
    output.read_to_end(&mut printed).ok()?;
    Some(String::from_utf8_lossy(&printed).into_owned())
}

/// Parses a line of perf report: total, own share, file and symbol.
fn parse(line: &str) -> Option<FunctionTotal> {
    let mut fields = line.splitn(4, '\t').map(str::trim);
    let mut share = || fields.next()?.trim_end_matches('%').parse::<f64>().ok();
    let (total, own) = (share()?, share()?);
    let (file, symbol) = (fields.next()?, fields.next()?);
    let is_jit = [FUNCTION_PREFIX, IMAGE_PREFIX]
        .iter()
        .any(|prefix| file.starts_with(prefix));
    // "[.]" for user code.
    let name = symbol.split_once("] ").map_or(symbol, |(_, name)| name);
    is_jit.then(|| FunctionTotal {
        total,
        own,
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_jit_code_are_parsed() {
        let line = "  95.77%\t   0.81%\tjit-image-7-7f00-0123456789ab.so  \t[.] py::fib:/a/app.py";
        let found = FunctionTotal {
            total: 95.77,
            own: 0.81,
            name: "py::fib:/a/app.py".into(),
        };
        assert_eq!(parse(line), Some(found));
        assert_eq!(
            parse("98.05%\t46.42%\tpython3.13\t[.] _PyEval_EvalFrameDefault"),
            None
        );
        assert_eq!(parse("# Samples: 614"), None);
        assert_eq!(parse(""), None);
    }
}
