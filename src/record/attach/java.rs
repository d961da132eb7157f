//! Java 17 and later write a perf map of the present code on request.

use std::io::ErrorKind;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::last_line;
use crate::files::{Folder, OpenFile};
use crate::load::running_processes::{SLACK, owner_of};
use crate::record::process_files::{append_perf_map, open_perf_map};
use crate::record::short_command::{self, IsStopped};

/// How long to wait for jcmd. If the process does not reply, it gives up itself after 10.5 seconds, with its reason.
const PATIENCE: Duration = Duration::from_secs(15);

/// Makes a Java process write a perf map. Fails with a reason.
pub fn write_map(pid: u32, is_stopped: IsStopped<'_>) -> Result<(), String> {
    let mut command = Command::new("jcmd");
    command.args([&pid.to_string(), "Compiler.perfmap"]);
    let printed = short_command::run(command, true, PATIENCE, is_stopped);
    let printed = printed.map_err(|cause| match cause.kind() {
        ErrorKind::NotFound => "jcmd is not in PATH".to_owned(),
        ErrorKind::TimedOut => format!("jcmd has not ended within {} s", PATIENCE.as_secs()),
        _ => format!("jcmd: {cause}"),
    })?;
    if printed.status.success() {
        Ok(())
    } else {
        Err(last_line(&printed))
    }
}

/// Makes a Java process write a perf map, and copies it. Fails with a reason.
pub fn copy_map(pid: u32, dumps: &Folder, is_stopped: IsStopped<'_>) -> Result<(), String> {
    let asked = SystemTime::now();
    write_map(pid, is_stopped)?;
    // jcmd succeeds even if the process could not write it, since somebody else has a file of that name.
    let is_new = |modified| modified + SLACK >= asked;
    let modified = |map: &OpenFile| map.file().metadata()?.modified();
    let map = open_perf_map(pid).filter(|map| modified(map).is_ok_and(is_new));
    let (map, user) = map.zip(owner_of(pid)).ok_or("it has written no perf map")?;
    match append_perf_map(&map, pid, user, dumps, is_stopped) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("its perf map belongs to another user".to_owned()),
        Err(cause) => Err(format!("its perf map cannot be copied: {cause}")),
    }
}
