//! `jitinject compare`: changes between two runs.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use jitinject::compare::{ParsedSummary, compare};
use jitinject::diagnostics::Diagnostic;
use jitinject::files::temp_file::copy_if;

use crate::cli::terminal;
use crate::commands::inject::percent;

/// Text after the options.
const AFTER_HELP: &str = "\
Shares are percentages of all samples of a profile. * = significant (3 sigma).

Examples:
  jitinject -q -i old.data -o old.jit.data --summary old.json
  jitinject -q -i new.data -o new.jit.data --summary new.json
  jitinject compare old.json new.json";

/// Arguments of `compare`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct CompareArguments {
    /// Summary of the first run, written by --summary
    before: PathBuf,

    /// Summary of the second run
    after: PathBuf,

    /// Hide changes below PERCENT of all samples
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "0.5")]
    min_change: f64,

    /// Print all changes as JSON
    #[arg(long, conflicts_with = "min_change")]
    json: bool,
}

impl CompareArguments {
    /// Reads both summaries and prints the changes.
    pub fn run(&self) -> Result<ExitCode, Diagnostic> {
        let comparison = compare(&read(&self.before)?, &read(&self.after)?);
        match self.json {
            true => terminal::print_json(&comparison)?,
            false => terminal::print(|output| output.write_all(comparison.text(self.min_change).as_bytes()))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn read(path: &Path) -> Result<ParsedSummary, Diagnostic> {
    let mut json = Vec::new();
    let may_be_object = |start: &[u8]| start.trim_ascii_start().starts_with(b"{");
    File::open(path)
        .and_then(|file| Ok(copy_if(file, &mut json, may_be_object)?))
        .map_err(|cause| Diagnostic::cannot_read(path, &cause))?;
    ParsedSummary::parse(&json).map_err(|error| error.in_file(path))
}
