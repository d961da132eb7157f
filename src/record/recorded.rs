//! A finished recording, and how the program ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, SystemTime};

use super::watch::Seen;
use crate::results::diagnostics::Diagnostic;

/// How the program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramStatus {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it.
    Killed(i32),
    /// The recording was ended as requested, by a duration or a signal.
    Stopped,
}

impl ProgramStatus {
    /// Converts the status of a process.
    pub(super) fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, Some(signal)) => Self::Killed(signal),
            (None, None) => Self::Stopped,
        }
    }

    /// Returns the exit status that a shell would report.
    pub fn exit_code(self) -> u8 {
        let code = match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => 128 + signal,
            Self::Stopped => 0,
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

/// A finished recording.
#[derive(Debug)]
pub struct Recorded {
    /// How the program ended.
    pub status: ProgramStatus,
    /// The last signal that this program got meanwhile, and that ends most recordings.
    pub interrupt: Option<i32>,
    /// When it started.
    pub started: SystemTime,
    /// How long it took.
    pub duration: Duration,
    /// What was seen of its processes.
    pub seen: Seen,
    /// What went wrong with running processes at the end.
    pub diagnostics: Vec<Diagnostic>,
}

impl Recorded {
    /// Whether a signal may have ended processes of the program. Shells exit with the number of the one that ended the last.
    pub(super) fn has_signal(&self) -> bool {
        let is_of_signal = (129..=192).contains(&self.status.exit_code());
        self.interrupt.is_some() || self.status == ProgramStatus::Stopped || is_of_signal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_those_of_a_shell() {
        assert_eq!(ProgramStatus::Exited(7).exit_code(), 7);
        assert_eq!(ProgramStatus::Killed(15).exit_code(), 143);
        assert_eq!(ProgramStatus::Stopped.exit_code(), 0);
    }
}
