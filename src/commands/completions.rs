//! `jitinject completions`: what a shell needs to complete the command line.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use crate::cli::CommandLine;
use crate::terminal;

/// What can be typed behind `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArguments {
    /// For which shell
    shell: Shell,
}

impl CompletionsArguments {
    /// Prints it.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        // The generator does not expect that its output can fail.
        let mut script = Vec::new();
        generate(self.shell, &mut CommandLine::command(), "jitinject", &mut script);
        terminal::print(|output| std::io::Write::write_all(output, &script))?;
        Ok(ExitCode::SUCCESS)
    }
}
