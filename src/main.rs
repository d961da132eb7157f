//! The program: parses the command line and runs a command.

mod cli;
mod commands;

use std::process::ExitCode;

use clap::CommandFactory;
use jitinject::files::out_of_memory::CleanupOnOom;

use crate::cli::terminal::report;
use crate::cli::{Command, CommandLine};

#[global_allocator]
static ALLOCATOR: CleanupOnOom = CleanupOnOom;

fn main() -> ExitCode {
    if let Some(status) = commands::record::launch_recorded() {
        return status;
    }
    let line = CommandLine::read();
    let done = match &line.command {
        None => line.inject.run(),
        Some(Command::Inject(arguments)) => arguments.run_as_perf(),
        Some(Command::Record(arguments)) => arguments.run(),
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
