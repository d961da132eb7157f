//! Processes that ran before the recording.

use std::fs;
use std::process::{Command, Stdio};

use super::runtime::Runtime;
use crate::diagnostics::{Diagnostic, Issue};

/// Makes a running process write a perf map, if its runtime can. Java 17 and later can, with `jcmd`.
pub fn request_map(pid: u32) -> Result<(), Diagnostic> {
    if Runtime::of_process(pid) != Some(Runtime::Java) {
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

/// Returns whether a process of Node.js was started without the option that makes it log its code, which cannot be set later.
pub fn is_node_without_log(pid: u32) -> bool {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let started = [read("cmdline"), read("environ")].concat();
    let has_option = started.windows(7).any(|part| part == b"--perf-");
    Runtime::of_process(pid) == Some(Runtime::Node) && !has_option
}
