//! Java 17 and later write a perf map of the present code on request.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

use super::last_line;

/// Makes a Java process write a perf map. Fails with a reason.
pub fn write_map(pid: u32) -> Result<(), String> {
    let output = Command::new("jcmd")
        .args([&pid.to_string(), "Compiler.perfmap"])
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| match cause.kind() {
            ErrorKind::NotFound => "jcmd is not in PATH".to_owned(),
            _ => format!("jcmd: {cause}"),
        })?;
    match output.status.success() {
        true => Ok(()),
        false => Err(last_line(&output)),
    }
}
