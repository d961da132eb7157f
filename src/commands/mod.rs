//! What can be done, a file for each command: what can be typed behind its name, and doing it.

pub mod check;
pub mod compare;
pub mod completions;
pub mod dump;
pub mod inject;
pub mod man;
mod opened;
mod runtime_files;
pub mod timeline;

use std::process::ExitCode;

use crate::cli::Command;

impl Command {
    /// Does it.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Compare(arguments) => arguments.run(),
            Self::Dump(arguments) => arguments.run(),
            Self::Check(arguments) => arguments.run(),
            Self::Man(arguments) => arguments.run(),
            Self::Completions(arguments) => arguments.run(),
            Self::Timeline(arguments) => arguments.run(),
        }
    }
}
