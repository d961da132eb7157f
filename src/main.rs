//! The program: parses the command line and runs a command.

mod cli;
mod commands;

use std::process::ExitCode;

use jitinject::files::out_of_memory::CleanupOnOom;

#[global_allocator]
static ALLOCATOR: CleanupOnOom = CleanupOnOom;

fn main() -> ExitCode {
    commands::run()
}
