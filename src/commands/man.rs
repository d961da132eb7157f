//! `jitinject man`: the manual.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use jitinject::files::search::shown;

use crate::cli::CommandLine;
use crate::terminal;

/// What can be typed behind `man`.
#[derive(Args, Debug)]
pub struct ManArguments {
    /// The command that the page is about; jitinject itself if there is none
    command: Option<String>,

    /// Write the pages of all commands into a folder, for packages
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    output_dir: Option<PathBuf>,
}

impl ManArguments {
    /// Prints a page, or writes them all.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let mut program = CommandLine::command();
        program.build();
        if let Some(folder) = &self.output_dir {
            let place = || format!("cannot write the manual to {}", shown(folder));
            std::fs::create_dir_all(folder).with_context(place)?;
            clap_mangen::generate_to(program, folder).with_context(place)?;
            return Ok(ExitCode::SUCCESS);
        }
        let subject = match &self.command {
            None => program,
            Some(name) => page_of(&program, name)?,
        };
        let mut page = Vec::new();
        Man::new(subject).render(&mut page)?;
        terminal::print(|output| output.write_all(&page))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The command of a name.
fn page_of(program: &Command, name: &str) -> anyhow::Result<Command> {
    let command = program.find_subcommand(name);
    let command = command.with_context(|| format!("there is no command {name}; see jitinject --help"))?;
    Ok(command.clone())
}
