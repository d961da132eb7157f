//! Runs a program once and measures it.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Measurements of one run.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub wall: Duration,
    /// CPU time in user space and in the kernel, with a resolution of 10 ms.
    pub cpu: Duration,
    /// Peak resident memory in KiB, including mapped files.
    pub peak: u64,
    /// Peak anonymous memory in KiB.
    pub anonymous: u64,
    pub end: End,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Done,
    Failed,
    /// Killed at the time limit.
    Stopped,
}

/// Interval between checks of the memory.
const INTERVAL: Duration = Duration::from_millis(2);

/// Runs a program, for at most `limit`.
pub fn run(command: &mut Command, limit: Duration) -> Measured {
    let started = Instant::now();
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let pid = Pid::from_child(&child);
    let is_over = AtomicBool::new(false);
    let (wall, ticks, memory) = thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut memory = Memory::default();
            while !is_over.load(Ordering::Relaxed) {
                memory.look(pid);
                if started.elapsed() > limit && !memory.is_stopped {
                    // The process has not been reaped yet, so its PID is still valid.
                    memory.is_stopped = kill_process(pid, Signal::KILL).is_ok();
                }
                thread::sleep(INTERVAL);
            }
            memory
        });
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let wall = started.elapsed();
        is_over.store(true, Ordering::Relaxed);
        (wall, processor_ticks(pid), watching.join().unwrap())
    });
    let status = child.wait().unwrap();
    Measured {
        wall,
        // The kernel reports 10 ms ticks to user space, whatever its internal resolution.
        cpu: Duration::from_millis(10 * ticks),
        peak: memory.peak,
        anonymous: memory.anonymous,
        end: match (memory.is_stopped, status.success()) {
            (true, false) => End::Stopped,
            (_, true) => End::Done,
            (_, false) => End::Failed,
        },
    }
}

#[derive(Default)]
struct Memory {
    peak: u64,
    anonymous: u64,
    is_stopped: bool,
}

impl Memory {
    fn look(&mut self, pid: Pid) {
        let path = format!("/proc/{}/status", pid.as_raw_nonzero());
        let status = fs::read_to_string(path).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_end_matches("kB").trim().parse::<u64>().ok()
        };
        self.peak = self.peak.max(field("VmHWM:").unwrap_or(0));
        self.anonymous = self.anonymous.max(field("RssAnon:").unwrap_or(0));
    }
}

/// Returns the user and kernel time, in ticks, of a process that has ended and was not reaped.
fn processor_ticks(pid: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    // The name in parentheses may contain anything; the state after it is field 3.
    let fields = stat.rsplit_once(')').unwrap().1;
    let fields = fields.split_whitespace().skip(14 - 3).take(2);
    fields.map(|field| field.parse::<u64>().unwrap()).sum()
}
