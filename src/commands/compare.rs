//! `jitinject compare`: what changed between two runs.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use jitinject::compare::{Figures, compare};
use jitinject::files::search::shown;
use jitinject::files::spool::copy_if;

use crate::commands::inject::percent;
use crate::terminal;

/// What is said behind the options.
const EXAMPLES: &str = "\
Shares are percent of all samples of a profile. A star marks a change that is more than chance makes of so many samples: \
three standard deviations.

Examples:
  jitinject -q -i old.data -o old.jit.data --summary old.json
  jitinject -q -i new.data -o new.jit.data --summary new.json
  jitinject compare old.json new.json";

/// What can be typed behind `compare`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompareArguments {
    /// The summary of the run before, as --summary wrote it
    before: PathBuf,

    /// The summary of the run after
    after: PathBuf,

    /// Leave out what changed by less, in percent of all samples
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "0.5")]
    min_change: f64,

    /// Print all changes as JSON
    #[arg(long, conflicts_with = "min_change")]
    json: bool,
}

impl CompareArguments {
    /// Reads both, and prints what changed.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let comparison = compare(&read(&self.before)?, &read(&self.after)?);
        match self.json {
            true => terminal::print_json(&comparison)?,
            false => terminal::print(|output| output.write_all(comparison.text(self.min_change).as_bytes()))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn read(path: &Path) -> anyhow::Result<Figures> {
    let mut json = Vec::new();
    let may_be_object = |start: &[u8]| start.trim_ascii_start().starts_with(b"{");
    File::open(path)
        .and_then(|file| Ok(copy_if(file, &mut json, may_be_object)?))
        .with_context(|| format!("cannot read {}", shown(path)))?;
    Figures::parse(&json).map_err(|error| anyhow::anyhow!("{} {error}", shown(path)))
}
