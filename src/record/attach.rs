//! Processes that ran before the recording.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use super::program::{find, search_path};
use super::watch;
use crate::diagnostics::{Diagnostic, Issue};
use crate::runtimes::Runtime;

/// Makes a running process write a perf map, if its runtime can. Java 17 and later can, with `jcmd`.
pub fn request_map(pid: u32) -> Result<(), Diagnostic> {
    if Runtime::of_process(pid) != Some(Runtime::Java) || !has_jcmd() {
        // Without jcmd, this was reported at the start.
        return Ok(());
    }
    let failed = |cause: String| {
        let failed = Diagnostic::new(Issue::PerfMapNotWritten).with("pid", pid);
        failed.with("cause", cause)
    };
    let output = Command::new("jcmd")
        .args([&pid.to_string(), "Compiler.perfmap"])
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| failed(format!("jcmd: {cause}")))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    let last = printed.lines().rfind(|line| !line.trim().is_empty());
    Err(failed(last.map_or(output.status.to_string(), str::to_owned)))
}

/// Returns why the code of a running process will have no names, if that is clear from the start.
pub fn without_log(pid: u32) -> Option<Diagnostic> {
    let runtime = watch::runtime_of(pid)?;
    if runtime.runtime == Runtime::Java {
        let missing = Diagnostic::new(Issue::PerfMapNotWritten).with("pid", pid);
        return (!has_jcmd()).then(|| missing.with("cause", "jcmd is not in PATH"));
    }
    let without = Diagnostic::new(Issue::StartedWithoutLog).with("pid", pid);
    let without = without.with("runtime", runtime.name).with("how", runtime.how);
    (!watch::has_files(pid)).then_some(without)
}

fn has_jcmd() -> bool {
    find(OsStr::new("jcmd"), &search_path()).is_some()
}
