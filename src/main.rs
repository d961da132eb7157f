//! The program: parses the command line and runs a command.

mod cli;
mod commands;
mod interrupt;
mod progress;
mod terminal;

use std::process::ExitCode;

use jitinject::files::out_of_memory::CleanupOnOom;

use crate::cli::CommandLine;
use crate::terminal::report;

#[global_allocator]
static ALLOCATOR: CleanupOnOom = CleanupOnOom;

fn main() -> ExitCode {
    let line = CommandLine::read();
    let done = match &line.command {
        Some(command) => command.run(),
        None => commands::inject::run(&line.inject),
    };
    done.unwrap_or_else(|error| {
        report(&error.as_error());
        ExitCode::FAILURE
    })
}
