//! Java 17 and later write a perf map of the present code on request.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use super::last_line;
use crate::record::program::{find, search_path};

/// Makes a Java process write a perf map. Fails with a reason.
pub fn write_map(pid: u32) -> Result<(), String> {
    if find(OsStr::new("jcmd"), &search_path()).is_none() {
        return Err("jcmd is not in PATH".to_owned());
    }
    let output = Command::new("jcmd")
        .args([&pid.to_string(), "Compiler.perfmap"])
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| format!("jcmd: {cause}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(last_line(&output)),
    }
}
