//! `jitinject man`: manual pages.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_mangen::Man;
use jitinject::{Diagnostic, Issue};

use crate::cli::terminal;

/// Arguments of `man`.
#[derive(Args, Debug)]
pub struct ManArguments {
    /// Command of the page; without one, the page of jitinject itself
    command: Option<String>,

    /// Write the pages of all commands to a directory, for packages
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    output_dir: Option<PathBuf>,
}

impl ManArguments {
    /// Prints a page of the `program`, or writes all pages.
    pub fn run(&self, program: Command) -> Result<ExitCode, Diagnostic> {
        // The pages of `help COMMAND` would repeat those of the commands.
        let mut program = program.disable_help_subcommand(true);
        program.build();
        if let Some(folder) = &self.output_dir {
            let failed = |cause| Diagnostic::cannot_write(folder, &cause);
            std::fs::create_dir_all(folder).map_err(failed)?;
            for command in program.get_subcommands().chain([&program]) {
                page(command.clone()).generate_to(folder).map_err(failed)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let subject = match &self.command {
            None => program,
            Some(name) => {
                let unknown = || Diagnostic::new(Issue::UnknownCommand).with("command", name);
                program.find_subcommand(name).cloned().ok_or_else(unknown)?
            }
        };
        let mut text = Vec::new();
        page(subject)
            .render(&mut text)
            .map_err(|cause| Diagnostic::new(Issue::CannotPrint).caused_by(&cause))?;
        terminal::print(|output| output.write_all(&text))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the page of a command. It has no date, and says so in quotes: the next word would be taken for one.
fn page(command: Command) -> Man {
    Man::new(command)
        .date("\"\"")
        .source(concat!("jitinject ", env!("CARGO_PKG_VERSION")))
}
