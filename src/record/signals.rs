//! Signals for the recorded program.
//!
//! Ctrl-C reaches the program from the terminal, as it does without a recording. All others are passed on, once. Elsewhere, the
//! program and the processes that it starts have a group of their own: the processes of a server must end as they do without a
//! recording, where they are in the group that `timeout` and the like send signals to.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, getpgrp, kill_process, kill_process_group};
use rustix::termios::tcgetpgrp;

use super::launch::Start;
use super::recorded::ProgramStatus;
use crate::load::running_processes::ProcessStat;

/// Returns whether this program gets the signals of a terminal.
#[expect(clippy::disallowed_methods, reason = "a device")]
pub fn is_foreground() -> bool {
    let terminal = File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

/// A signal that this program got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedSignal {
    /// Its number.
    pub number: i32,
    /// Whether the kernel sent it, as for Ctrl-C, and not a process.
    pub is_from_kernel: bool,
}

impl ReceivedSignal {
    /// Whether it ends most recordings. The others are requests to a program, such as to read its configuration again.
    pub(super) fn is_end(self) -> bool {
        let requests = [Signal::USR1, Signal::USR2].map(Signal::as_raw);
        !requests.contains(&self.number)
    }
}

/// Signals on their way to the program or to perf.
#[derive(Debug)]
pub struct Signals {
    /// Process ID of perf.
    perf: u32,
    /// File with the process ID of the program, if there is one.
    program: Option<PathBuf>,
    /// Whether the program shares the process group of the terminal, and so gets its signals.
    is_foreground: bool,
    /// Whether the program had been started when [`Signals::receive`] was last called.
    has_started: bool,
    pending: Vec<Signal>,
    /// The last one that was sent and that ends most programs.
    ending: Option<Signal>,
    /// The last one that came and that ends most recordings.
    pub received: Option<Signal>,
    /// Whether the end was requested.
    pub has_stopped: bool,
}

impl Signals {
    /// Creates a channel to perf, or to the program whose process ID will be in the file `program`.
    pub fn new(perf: u32, program: Option<PathBuf>, is_foreground: bool) -> Self {
        Self {
            perf,
            program,
            is_foreground,
            has_started: false,
            pending: Vec::new(),
            ending: None,
            received: None,
            has_stopped: false,
        }
    }

    /// Takes signals that this program got.
    pub fn receive(&mut self, signals: Vec<ReceivedSignal>) {
        for received in signals {
            let Some(signal) = Signal::from_named_raw(received.number) else {
                continue;
            };
            let is_end = received.is_end();
            if is_end {
                self.received = Some(signal);
            }
            let has_program = self.program.is_some();
            if has_program && !self.gets_it_from_terminal(signal, received) {
                self.pending.push(signal);
            } else if !has_program && is_end {
                // At this one, perf completes its profile.
                self.has_stopped = true;
                self.pending.push(Signal::INT);
            }
        }
        // A signal that came in between may reach the program twice, but is never lost.
        self.has_started = self.has_started
            || self
                .program
                .as_deref()
                .is_some_and(|file| Start::read(file) != Start::Pending);
    }

    /// Whether the program gets a signal without being sent it: as the terminal sends it to its whole group.
    fn gets_it_from_terminal(&self, signal: Signal, received: ReceivedSignal) -> bool {
        let is_of_terminal =
            received.is_from_kernel && matches!(signal, Signal::INT | Signal::QUIT | Signal::HUP);
        self.is_foreground && self.has_started && is_of_terminal
    }

    /// Ends the recording, once.
    pub fn stop(&mut self) {
        if !std::mem::replace(&mut self.has_stopped, true) {
            let signal = match self.program {
                Some(_) => Signal::TERM,
                None => Signal::INT,
            };
            self.pending.push(signal);
        }
    }

    /// Sends the signals, if the program has been started.
    pub fn deliver(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let perf = i32::try_from(self.perf).ok();
        let target = match &self.program {
            None => perf,
            Some(file) => match Start::read(file) {
                Start::Started(pid) if is_child(pid, self.perf) => Some(pid),
                Start::Pending => return,
                Start::Started(_) | Start::Failed(_) => None,
            },
        };
        let target = target.and_then(Pid::from_raw);
        let has_group = self.has_group();
        for signal in self.pending.drain(..) {
            if matches!(signal, Signal::HUP | Signal::TERM) {
                self.ending = Some(signal);
            }
            let is_of_keyboard = matches!(signal, Signal::INT | Signal::QUIT);
            // The process may have ended meanwhile.
            let _ = match target {
                Some(program) if is_of_keyboard && has_group => kill_process_group(program, signal),
                Some(program) => kill_process(program, signal),
                None => Ok(()),
            };
        }
    }

    /// Ends the processes that the program has left in its group when a signal ended it.
    pub fn end_group(&self) {
        if let Some(file) = self.program.as_deref().filter(|_| self.has_group())
            && let Start::Started(pid) = Start::read(file)
            && let (Some(group), Some(signal)) = (Pid::from_raw(pid), self.ending)
        {
            // Usually, none is left.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Returns the process group that a signal has reached: that of the program, or of the terminal.
    pub fn ending_group(&self) -> Option<i32> {
        let is_ending = self.received.is_some() || self.has_stopped;
        let program = self.program.as_deref().filter(|_| is_ending)?;
        match Start::read(program) {
            _ if self.is_foreground => Some(getpgrp().as_raw_nonzero().get()),
            Start::Started(pid) => Some(pid),
            Start::Pending | Start::Failed(_) => None,
        }
    }

    /// Returns the signal that ended the program if it was in the group of the terminal, where it may have left others.
    pub fn ending_in_foreground(&self) -> Option<Signal> {
        self.ending
            .filter(|_| self.program.is_some() && self.is_foreground)
    }

    /// Whether the program has a process group of its own.
    fn has_group(&self) -> bool {
        self.program.is_some() && !self.is_foreground
    }

    /// Returns whether no signal waits for the start of the program, and none will.
    pub fn are_delivered(&self) -> bool {
        self.pending.is_empty() && (self.has_started || self.program.is_none())
    }

    /// Returns how the program ended. perf exits with its status, or ends by the same signal. Java and shells exit with the
    /// number of a signal that they get.
    pub fn status_of_program(&self, status: ExitStatus) -> ProgramStatus {
        let status = ProgramStatus::of(status);
        let ended = ProgramStatus::Killed(Signal::TERM.as_raw());
        if self.has_stopped && status.exit_code() == ended.exit_code() {
            ProgramStatus::Stopped
        } else {
            status
        }
    }
}

/// Returns whether a process is a child of another: its ID may belong to a new process.
fn is_child(pid: i32, parent: u32) -> bool {
    let stat = u32::try_from(pid).ok().and_then(ProcessStat::of);
    stat.and_then(|stat| stat.field(ProcessStat::PARENT)) == Some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn signals_of_the_terminal_are_not_sent_twice() {
        let received = |is_foreground, has_started, program: Option<PathBuf>| {
            let mut signals = Signals::new(1, program, is_foreground);
            signals.has_started = has_started;
            let of_kernel = |signal: Signal, is_from_kernel| ReceivedSignal {
                number: signal.as_raw(),
                is_from_kernel,
            };
            signals.receive(vec![
                of_kernel(Signal::INT, true),
                of_kernel(Signal::TERM, false),
                of_kernel(Signal::HUP, false),
            ]);
            signals.pending
        };
        let program = || Some(PathBuf::from("pid"));
        assert_eq!(received(true, true, program()), [Signal::TERM, Signal::HUP]);
        assert_eq!(
            received(false, true, program()),
            [Signal::INT, Signal::TERM, Signal::HUP]
        );
        // perf has not started it yet.
        assert_eq!(
            received(true, false, program()),
            [Signal::INT, Signal::TERM, Signal::HUP]
        );
        assert_eq!(
            received(true, true, None),
            [Signal::INT, Signal::INT, Signal::INT]
        );
    }

    #[test]
    fn requests_reach_a_program_and_end_nothing() {
        let requests = [Signal::USR1, Signal::USR2];
        let passed = |program: Option<PathBuf>| {
            let mut signals = Signals::new(1, program, true);
            let received = requests.map(|signal| ReceivedSignal {
                number: signal.as_raw(),
                is_from_kernel: false,
            });
            signals.receive(received.to_vec());
            assert_eq!((signals.received, signals.has_stopped), (None, false));
            signals.pending
        };
        assert_eq!(passed(Some(PathBuf::from("pid"))), requests);
        assert!(passed(None).is_empty());
    }

    #[test]
    fn the_requested_end_is_no_failure_however_the_program_reports_it() {
        let mut signals = Signals::new(1, Some(PathBuf::from("pid")), false);
        let (killed, exited) = (ExitStatus::from_raw(15), ExitStatus::from_raw(143 << 8));
        let statuses = |signals: &Signals| [killed, exited].map(|status| signals.status_of_program(status));
        assert_eq!(
            statuses(&signals),
            [ProgramStatus::Killed(15), ProgramStatus::Exited(143)]
        );
        signals.stop();
        assert_eq!(statuses(&signals), [ProgramStatus::Stopped; 2]);
        let other = signals.status_of_program(ExitStatus::from_raw(5 << 8));
        assert_eq!(other, ProgramStatus::Exited(5));
    }

    #[test]
    fn a_process_is_the_child_of_its_parent() {
        let mut child = Command::new("sleep").arg("10").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(is_child(pid, std::process::id()));
        assert!(!is_child(pid, 1));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
