//! `jitinject compare`: what changed between two runs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use jitinject::compare::{Figures, compare};

use crate::terminal;

/// What can be typed behind `compare`.
#[derive(Args, Debug)]
pub struct CompareArguments {
    /// The summary of the run before, as --summary wrote it
    before: PathBuf,

    /// The summary of the run after
    after: PathBuf,

    /// Leave out what changed by less, in percent of all samples
    #[arg(long, value_name = "PERCENT", default_value = "0.5")]
    min_change: f64,

    /// Print all changes as JSON
    #[arg(long, conflicts_with = "min_change")]
    json: bool,
}

impl CompareArguments {
    /// Reads both, and prints what changed.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let comparison = compare(&read(&self.before)?, &read(&self.after)?);
        let text = match self.json {
            true => serde_json::to_string_pretty(&comparison)? + "\n",
            false => comparison.text(self.min_change),
        };
        terminal::print(|output| output.write_all(text.as_bytes()))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn read(path: &Path) -> anyhow::Result<Figures> {
    let json = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Figures::parse(&json).map_err(|error| anyhow::anyhow!("{} {error}", path.display()))
}
