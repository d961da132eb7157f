//! The commands: arguments and implementation of each.

pub mod check;
pub mod compare;
pub mod completions;
pub mod dump;
pub mod explain;
pub mod headings;
pub mod inject;
mod input;
pub mod man;
mod runtime_files;
pub mod timeline;

use std::process::ExitCode;

use jitinject::diagnostics::{Diagnostic, Issue};
use jitinject::threads;

use crate::cli::Command;
use crate::interrupt::{self, FirstInterrupt};
use crate::terminal::report;

/// Starts threads and signal handling for long work.
fn begin(is_verbose: bool) -> Result<FirstInterrupt, Diagnostic> {
    let interrupt = interrupt::listen().map_err(|cause| Diagnostic::new(Issue::Signals).caused_by(&cause))?;
    if let Err(cause) = threads::start()
        && is_verbose
    {
        report(&Diagnostic::new(Issue::OneThread).with("cause", cause));
    }
    Ok(interrupt)
}

impl Command {
    /// Runs it.
    pub fn run(&self) -> Result<ExitCode, Diagnostic> {
        match self {
            Self::Compare(arguments) => arguments.run(),
            Self::Dump(arguments) => arguments.run(),
            Self::Check(arguments) => arguments.run(),
            Self::Explain(arguments) => arguments.run(),
            Self::Man(arguments) => arguments.run(),
            Self::Completions(arguments) => arguments.run(),
            Self::Timeline(arguments) => arguments.run(),
        }
    }
}
