//! The program: parses the command line and runs a command.

mod cli;

use std::process::ExitCode;

use jitinject::internals::files::out_of_memory::CleanupOnOom;

#[global_allocator]
static ALLOCATOR: CleanupOnOom = CleanupOnOom;

fn main() -> ExitCode {
    cli::commands::run()
}
