//! What can be done, a file for each command: what can be typed behind its name, and doing it.

pub mod check;
pub mod compare;
pub mod completions;
pub mod dump;
pub mod inject;
mod input;
pub mod man;
mod runtime_files;
pub mod timeline;

use std::process::ExitCode;

use anyhow::Context;
use jitinject::threads;

use crate::cli::Command;
use crate::interrupt::{self, FirstInterrupt};
use crate::terminal::say;

/// Prepares for long work: threads, and signals that end it.
fn begin(is_quiet: bool) -> anyhow::Result<FirstInterrupt> {
    let interrupt = interrupt::listen().context("cannot listen to signals")?;
    if let Err(reason) = threads::start()
        && !is_quiet
    {
        say(&format!(
            "note: running on one thread, since no more can be started: {reason}"
        ));
    }
    Ok(interrupt)
}

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
