//! `jitinject check`: errors in files of runtimes, and in profiles.

pub mod files;
pub mod output;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use jitinject::Diagnostic;
use jitinject::internals::tools::check::rules;
use jitinject::internals::tools::check::rules::Severity;

use self::files::CheckedFile;
use crate::cli::commands::explain::{explain, list};

/// Examples at the end of the help.
const EXAMPLES: &str = "\
Examples:
  jitinject check jit-1234.dump
  jitinject check perf.data
  jitinject check --explain JD073

  # in a runtime's own tests
  jitinject check --level warning --json dumps/ > findings.json

Exit status: 0 no errors; 1 a file has errors or cannot be checked; 2 invalid usage.";

/// Arguments of `check`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CheckArguments {
    /// Profiles, jitdumps, Mono logs, XRay traces or directories; - is standard input
    ///
    /// File types are detected by content. Directories are searched for files with such content or with such a name
    /// (jit-*.dump, *.mlpd, xray-log.*). Profiles are also read with linux-perf-data, the reader of samply.
    #[arg(value_name = "FILE", required_unless_present_any = ["explain", "list"])]
    files: Vec<PathBuf>,

    /// Print the findings as one JSON document
    #[arg(long, conflicts_with_all = ["explain", "list"])]
    json: bool,

    /// Lowest severity to print
    #[arg(long, value_name = "LEVEL", default_value = "note")]
    level: Level,

    /// Explain a rule: problem, affected readers and remedy
    #[arg(long, value_name = "CODE", conflicts_with_all = ["files", "list"])]
    explain: Option<String>,

    /// List all rules
    #[arg(long, conflicts_with = "files")]
    list: bool,
}

/// Values of `--level`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Level {
    /// No reader gets anything wrong, or nearly all files have it
    Note,
    /// A reader gets something wrong, or loses something in some cases
    Warning,
    /// A reader loses something
    Error,
}

impl Level {
    fn severity(self) -> Severity {
        match self {
            Self::Note => Severity::Note,
            Self::Warning => Severity::Warning,
            Self::Error => Severity::Error,
        }
    }
}

impl CheckArguments {
    /// Checks files, or prints rules, and returns the exit status.
    pub fn run(&self) -> Result<ExitCode, Diagnostic> {
        if let Some(id) = &self.explain {
            return explain(Some(id));
        }
        if self.list {
            return list(rules::all());
        }
        let mut totals = output::Totals::default();
        let least = self.level.severity();
        // Lazily, as the findings of a file are printed before the next one is checked.
        let checked = files::check_all(&self.files).map(|mut checked: CheckedFile| {
            if let Ok(report) = &mut checked.result {
                totals.add(report);
                report.findings.retain(|finding| finding.rule.severity >= least);
            } else {
                totals.unreadable = totals.unreadable.saturating_add(1);
            }
            checked
        });
        if self.json {
            let checked: Vec<CheckedFile> = checked.collect();
            output::print_json(&checked, totals)?;
        } else {
            output::print_text(checked)?;
            output::print_totals(&totals)?;
        }
        Ok(if totals.has_failed() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}
