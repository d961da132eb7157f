//! Sends signals to programs and waits for states.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Timeout that no working program exceeds, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Waits for a condition; panics after [`PATIENCE`].
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
        sleep(Duration::from_millis(1));
    }
}

/// A process that ends with its test. What the test puts at the path of its perf map goes, too.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let map = format!("/tmp/perf-{}.map", self.0.id());
        let _ = fs::remove_file(&map).or_else(|_| fs::remove_dir(&map));
    }
}

/// Starts a process that sleeps, and has no perf map in /tmp. Files of earlier processes may be there.
pub fn start_without_perf_map() -> Running {
    loop {
        let mut process = Command::new("sleep").arg("1000").spawn().unwrap();
        let map = format!("/tmp/perf-{}.map", process.id());
        if fs::symlink_metadata(map).is_err() {
            return Running(process);
        }
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

/// Sends a signal.
pub fn send(process: &Child, signal: Signal) {
    kill_process(Pid::from_child(process), signal).unwrap();
}

/// Sends a signal to jitinject and waits until its signal thread has received it.
pub fn send_and_wait(process: &Child, signal: Signal) {
    let mut thread = None;
    wait_until("a thread for signals", || {
        thread = signal_thread(process);
        thread.as_ref().is_some_and(is_waiting)
    });
    let status = thread.unwrap();
    let before = waits(&status);
    send(process, signal);
    wait_until("the signal is handled", || {
        waits(&status) > before && is_waiting(&status)
    });
}

/// Waits until a process that waits again and again, for short times, has done so `rounds` times more.
pub fn wait_for_rounds(process: &Child, rounds: u64) {
    let status = PathBuf::from(format!("/proc/{}/status", process.id()));
    let before = waits(&status);
    wait_until("it waits again", || waits(&status) >= before + rounds);
}

/// Returns whether the process is stopped by SIGSTOP.
pub fn is_stopped(process: &Child) -> bool {
    let status = PathBuf::from(format!("/proc/{}/status", process.id()));
    field(&status, "State:").starts_with('T')
}

/// Returns the status file of the thread that waits for signals.
fn signal_thread(process: &Child) -> Option<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.id())).ok()?;
    let mut folders = tasks.filter_map(|task| Some(task.ok()?.path()));
    let is_it =
        |folder: &PathBuf| fs::read_to_string(folder.join("comm")).is_ok_and(|name| name.trim() == "signals");
    folders.find(is_it).map(|folder| folder.join("status"))
}

fn field(status: &PathBuf, name: &str) -> String {
    let text = fs::read_to_string(status).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

fn is_waiting(status: &PathBuf) -> bool {
    field(status, "State:").starts_with('S')
}

/// Returns how often the thread has begun to wait.
fn waits(status: &PathBuf) -> u64 {
    field(status, "voluntary_ctxt_switches:").parse().unwrap_or(0)
}

/// Resets SIGHUP, SIGINT and SIGTERM to their default actions, in case the parent of the tests ignores them, as
/// nohup does.
#[allow(unsafe_code)]
pub fn with_usual_signals(command: &mut Command) -> &mut Command {
    let reset = || {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
            // SAFETY: signal() gets a signal whose action may be changed, and no handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: signal() may be called between fork() and exec().
    unsafe { command.pre_exec(reset) }
}
