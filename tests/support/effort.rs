//! Measures CPU time, which does not depend on how busy the machine is.

use std::ffi::OsStr;
use std::process::{Command, Output};
use std::time::Duration;

/// Runs a closure in this thread; returns the CPU time that it took.
#[allow(unsafe_code)]
pub fn of(work: impl FnOnce()) -> Duration {
    let now = || {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: clock_gettime() only writes to the struct that it gets.
        let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        assert_eq!(status, 0);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let before = now();
    work();
    now() - before
}

/// Runs jitinject in a shell, after `limits`. Returns its output, with some lines of the shell at the end, and the
/// CPU time in seconds.
pub fn of_jitinject<A: AsRef<OsStr>>(limits: &str, arguments: impl IntoIterator<Item = A>) -> (Output, f64) {
    let script = format!("{limits}; \"$@\"; status=$?; times; exit $status");
    let ran = Command::new("sh")
        .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_jitinject")])
        .args(arguments)
        .output()
        .unwrap();
    // The shell's own times, then those of its children: "0m0.003000s 0m0.002000s" each.
    let text = String::from_utf8_lossy(&ran.stdout);
    let times = text.lines().next_back().unwrap_or_default().split_whitespace();
    let seconds = times.map(|time| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
    });
    let seconds = seconds.sum();
    (ran, seconds)
}
