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
pub mod record;
pub mod report;
mod runtime_files;
mod source_files;
pub mod timeline;

use std::process::ExitCode;

use clap::CommandFactory;

use crate::cli::terminal::report;
use crate::cli::{Command, CommandLine};

/// Parses the command line and runs a command; returns the exit status.
pub fn run() -> ExitCode {
    if let Some(status) = record::launch_recorded() {
        return status;
    }
    let line = CommandLine::read();
    let done = match &line.command {
        None => line.inject.run(),
        Some(Command::Inject(arguments)) => arguments.run_as_perf(),
        Some(Command::Record(arguments)) => arguments.run(),
        Some(Command::Report(arguments)) => arguments.run(),
        Some(Command::Compare(arguments)) => arguments.run(),
        Some(Command::Dump(arguments)) => arguments.run(),
        Some(Command::Check(arguments)) => arguments.run(),
        Some(Command::Explain(arguments)) => arguments.run(),
        Some(Command::Man(arguments)) => arguments.run(CommandLine::command()),
        Some(Command::Completions(arguments)) => arguments.run(CommandLine::command()),
        Some(Command::Timeline(arguments)) => arguments.run(),
    };
    done.unwrap_or_else(|error| {
        report(&error.as_error());
        ExitCode::FAILURE
    })
}
