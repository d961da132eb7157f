//! Running programs: signals to them, and what they are doing.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Nothing that works takes so long, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Waits for something that is sure to happen.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
        sleep(Duration::from_millis(1));
    }
}

/// Sends a signal.
pub fn send(process: &Child, signal: Signal) {
    kill_process(Pid::from_child(process), signal).unwrap();
}

/// Sends a signal to jitinject and waits until its thread for signals has seen it.
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

/// Whether SIGSTOP has stopped it.
pub fn is_stopped(process: &Child) -> bool {
    let status = PathBuf::from(format!("/proc/{}/status", process.id()));
    field(&status, "State:").starts_with('T')
}

/// The state of the thread that waits for signals.
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

/// How often it has begun to wait.
fn waits(status: &PathBuf) -> u64 {
    field(status, "voluntary_ctxt_switches:").parse().unwrap_or(0)
}

/// Lets a program react to SIGHUP, SIGINT and SIGTERM in the usual way even if whoever started the tests ignores them, as
/// nohup does.
#[allow(unsafe_code)]
pub fn with_usual_signals(command: &mut Command) -> &mut Command {
    let reset = || {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
            // SAFETY: it is called with a signal that may be changed, and no handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: signal() may be called between fork() and exec().
    unsafe { command.pre_exec(reset) }
}
