//! Parse, run, exit.

mod cli;
mod commands;
mod interrupt;
mod progress;
mod terminal;

use std::process::ExitCode;

use jitinject::files::out_of_memory::CleanupOnOom;
use jitinject::inject;

use crate::cli::CommandLine;
use crate::terminal::say;

#[global_allocator]
static ALLOCATOR: CleanupOnOom = CleanupOnOom;

fn main() -> ExitCode {
    let line = CommandLine::read();
    let done = match &line.command {
        Some(command) => command.run(),
        None => commands::inject::run(&line.inject),
    };
    done.unwrap_or_else(|error| {
        say(&format!("error: {error:#}"));
        if let Some(advice) = advice(&error) {
            say(&format!("note: {advice}"));
        }
        ExitCode::FAILURE
    })
}

/// What to do about an error, where it does not say that itself.
fn advice(error: &anyhow::Error) -> Option<&'static str> {
    let by_run = error.downcast_ref().and_then(inject::Error::advice);
    let mut chain = error.chain();
    by_run.or_else(|| chain.find_map(|cause| inject::hints::of(cause.downcast_ref()?)))
}
