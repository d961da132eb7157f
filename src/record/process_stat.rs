//! What the kernel says of a running process.

use crate::files::kernel;
use std::str::FromStr;

/// The fields of `/proc/PID/stat`, numbered as in proc_pid_stat(5).
pub struct ProcessStat(String);

impl ProcessStat {
    /// Number of the field with the process ID of the parent.
    pub const PARENT: usize = 4;
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
