//! The program: parses the command line and runs a command.

mod cli;
mod out_of_memory;

use std::process::ExitCode;

use crate::out_of_memory::CleanupOnOom;

#[global_allocator]
static ALLOCATOR: CleanupOnOom = CleanupOnOom;

fn main() -> ExitCode {
    out_of_memory::keep_reserve();
    cli::commands::run()
}
