//! `jitinject check`: what is wrong with the files that runtimes write.

mod files;
mod output;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use jitinject::check::rules::{self, Severity};

use self::files::Checked;
use crate::terminal;

/// Examples at the end of the help.
const EXAMPLES: &str = "\
Examples:
  jitinject check jit-1234.dump
  jitinject check --explain JD073

  # in a runtime's own tests
  jitinject check --level warning --json dumps/ > findings.json

Exit status: 0 no errors; 1 a file has errors, or can't be read or is none of these; 2 wrong usage.";

/// What can be typed behind `check`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CheckArguments {
    /// Jitdumps, logs of Mono's profiler and traces of XRay, or folders with such; - for standard input
    ///
    /// What a file is, its content tells. Of a folder, all that is one of these or has the name of one (jit-*.dump,
    /// *.mlpd, xray-log.*) is checked, and all in folders below.
    #[arg(value_name = "FILE", required_unless_present_any = ["explain", "list"])]
    files: Vec<PathBuf>,

    /// Print the findings as one JSON document
    #[arg(long, conflicts_with_all = ["explain", "list"])]
    json: bool,

    /// Leave out what is less severe than this
    #[arg(long, value_name = "LEVEL", default_value = "note")]
    level: Level,

    /// Say more about a rule: what is wrong, which readers suffer, and what to do
    #[arg(long, value_name = "ID", conflicts_with_all = ["files", "list"])]
    explain: Option<String>,

    /// Print all rules, one a line
    #[arg(long, conflicts_with = "files")]
    list: bool,
}

/// How severe findings are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Level {
    /// Worth knowing: no reader is wrong about it, or nearly all files have it
    Note,
    /// A reader gets something wrong, or loses something in some cases only
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
    /// Checks files, or tells of rules.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(id) = &self.explain {
            return explain(id);
        }
        if self.list {
            return list();
        }
        let mut totals = output::Totals::default();
        let least = self.level.severity();
        let checked = files::all(&self.files).map(|mut checked: Checked| {
            if let Ok(report) = &mut checked.result {
                totals.add(report);
                report.findings.retain(|finding| finding.rule.severity >= least);
            } else {
                totals.unreadable = totals.unreadable.saturating_add(1);
            }
            checked
        });
        if self.json {
            let checked: Vec<Checked> = checked.collect();
            output::json(&checked, totals)?;
        } else {
            output::text(checked)?;
            output::end(&totals)?;
        }
        Ok(match totals.has_failed() {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        })
    }
}

fn explain(id: &str) -> anyhow::Result<ExitCode> {
    let Some(rule) = rules::find(id) else {
        let ids: Vec<&str> = rules::all().map(|rule| rule.id).collect();
        anyhow::bail!("there is no rule {id}; the rules are {}", ids.join(", "));
    };
    terminal::print(|output| write!(output, "{rule}"))?;
    Ok(ExitCode::SUCCESS)
}

fn list() -> anyhow::Result<ExitCode> {
    terminal::print(|output| {
        rules::all().try_for_each(|rule| {
            let style = output::style(rule.severity);
            let severity = format!("{:<7}", rule.severity.to_string());
            writeln!(output, "{}  {style}{severity}{style:#}  {}", rule.id, rule.title)
        })
    })?;
    Ok(ExitCode::SUCCESS)
}
