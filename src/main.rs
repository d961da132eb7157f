//! The program: parses the command line and runs a command.

mod cli;

use std::process::ExitCode;

use crate::cli::out_of_memory::{self, CleanupOnOom};

#[global_allocator]
static ALLOCATOR: CleanupOnOom = CleanupOnOom;

fn main() -> ExitCode {
    out_of_memory::keep_reserve();
    cli::commands::run()
}
