//! `jitinject completions`: shell completions.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use jitinject::diagnostics::Diagnostic;

use crate::cli::CommandLine;
use crate::terminal;

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArguments {
    /// Shell to write completions for
    shell: Shell,
}

impl CompletionsArguments {
    /// Prints the completions.
    pub fn run(&self) -> Result<ExitCode, Diagnostic> {
        // The generator panics if writing fails.
        let mut script = Vec::new();
        generate(self.shell, &mut CommandLine::command(), "jitinject", &mut script);
        terminal::print(|output| std::io::Write::write_all(output, &script))?;
        Ok(ExitCode::SUCCESS)
    }
}
