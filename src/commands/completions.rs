//! `jitinject completions`: shell completions.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use jitinject::diagnostics::Diagnostic;

use crate::cli::terminal;

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArguments {
    /// Shell to write completions for
    shell: Shell,
}

impl CompletionsArguments {
    /// Prints the completions of the `program`.
    pub fn run(&self, mut program: Command) -> Result<ExitCode, Diagnostic> {
        // The generator panics if writing fails.
        let mut script = Vec::new();
        generate(self.shell, &mut program, "jitinject", &mut script);
        terminal::print(|output| std::io::Write::write_all(output, &script))?;
        Ok(ExitCode::SUCCESS)
    }
}
