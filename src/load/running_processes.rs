//! What the kernel says of running processes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use rustix::param::clock_ticks_per_second;

use crate::collections::hash::HashMap;
use crate::files::kernel;
use crate::units::Pid;

/// How much older than an event the files that were written after it may seem, since file systems store rounded times.
pub const SLACK: Duration = Duration::from_secs(2);

/// The fields of `/proc/PID/stat`, numbered as in proc_pid_stat(5).
pub struct ProcessStat(String);

impl ProcessStat {
    /// Number of the field with the state.
    pub const STATE: usize = 3;
    /// Number of the field with the process ID of the parent.
    pub const PARENT: usize = 4;
    /// Number of the field with the process group.
    pub const GROUP: usize = 5;
    /// Number of the field with the user time in clock ticks.
    pub const USER_TIME: usize = 14;
    /// Number of the field with the system time in clock ticks.
    pub const SYSTEM_TIME: usize = 15;
    /// Number of the field with the start time in clock ticks since the boot.
    const START: usize = 22;

    /// Reads the fields; `None` if there is no such process.
    pub fn of(pid: u32) -> Option<Self> {
        kernel::read_text(format!("/proc/{pid}/stat")).ok().map(Self)
    }

    /// Returns the start in clock ticks since the boot.
    pub fn start(&self) -> Option<u64> {
        self.field(Self::START)
    }

    /// Returns a field after the second one, the name.
    pub fn field<T: FromStr>(&self, number: usize) -> Option<T> {
        // The name in parentheses may have any characters.
        let (_, fields) = self.0.rsplit_once(')')?;
        fields
            .split_whitespace()
            .nth(number.checked_sub(3)?)?
            .parse()
            .ok()
    }
}

/// Returns when a process started, or a moment before.
pub fn start_of(pid: u32) -> Option<SystemTime> {
    // First, so that the result is no later if this takes long.
    let now = SystemTime::now();
    let uptime = kernel::read_text("/proc/uptime").ok()?;
    start_at(now, &uptime, ProcessStat::of(pid)?.start()?)
}

/// Returns the same for a process that started some clock ticks after the boot. `uptime` is what `/proc/uptime` has at `now`.
fn start_at(now: SystemTime, uptime: &str, ticks: u64) -> Option<SystemTime> {
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let age = uptime - ticks as f64 / clock_ticks_per_second() as f64;
    let age = Duration::try_from_secs_f64(age.max(0.0)).ok()?;
    now.checked_sub(age)?.checked_sub(SLACK)
}

/// Returns the effective user ID of a process that runs. Its directory in `/proc` may be root's: that of a process that is not
/// dumpable, as programs with capabilities are.
pub fn owner_of(pid: u32) -> Option<u32> {
    let ids = kernel::status_of(pid, "Uid")?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

/// Paths of the open files of a process, by inode.
pub type OpenFiles = HashMap<u64, Vec<PathBuf>>;

/// Returns the folder of a process in `/proc`, which exists as long as the process runs.
pub fn process_folder(pid: Pid) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Returns the open files of a process, or none if it has exited.
pub fn open_files_of(pid: Pid) -> OpenFiles {
    let mut open = OpenFiles::default();
    let files = fs::read_dir(process_folder(pid).join("fd"));
    for file in files.into_iter().flatten().filter_map(Result::ok) {
        let path = file.path();
        if let Ok(metadata) = fs::metadata(&path) {
            open.entry(metadata.ino()).or_default().push(path);
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_starts_before_its_files_are_written() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10_000);
        let ticks = 3 * clock_ticks_per_second();
        let start = start_at(now, "1003.50 77.00\n", ticks).unwrap();
        assert_eq!(
            now.duration_since(start).unwrap(),
            Duration::from_millis(1_000_500) + Duration::from_secs(2)
        );
        // The clock of the file is less exact than the one of the process.
        let start = start_at(now, "3.00 0.00\n", ticks + 1).unwrap();
        assert_eq!(now.duration_since(start).unwrap(), Duration::from_secs(2));
        assert_eq!(start_at(now, "", ticks), None);
        let me = start_of(std::process::id()).unwrap();
        assert!(me <= SystemTime::now());
        assert_eq!(start_of(u32::MAX), None);
    }
}
