//! `jitinject explain`: the catalogue of diagnostics.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use jitinject::internals::results::diagnostics;
use jitinject::internals::results::diagnostics::CatalogueEntry;
use jitinject::{Diagnostic, Issue};

use crate::cli::terminal::{self, style};

/// Arguments of `explain`.
#[derive(Args, Debug)]
pub struct ExplainArguments {
    /// Code of a diagnostic, such as JI012 or JD073; without it, all codes are listed
    code: Option<String>,
}

impl ExplainArguments {
    /// Prints the explanation of a code, or a list of all codes.
    pub fn run(&self) -> Result<ExitCode, Diagnostic> {
        explain(self.code.as_deref())
    }
}

/// Prints the explanation of a code, or a list of all codes.
pub fn explain(code: Option<&str>) -> Result<ExitCode, Diagnostic> {
    let Some(code) = code else {
        return list(diagnostics::catalogue());
    };
    let unknown = || Diagnostic::new(Issue::UnknownCode).with("code", code);
    let entry = diagnostics::find(code).ok_or_else(unknown)?;
    terminal::print(|output| write!(output, "{entry}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints entries, one per line.
pub fn list(mut entries: impl Iterator<Item = &'static CatalogueEntry>) -> Result<ExitCode, Diagnostic> {
    terminal::print(|output| {
        entries.try_for_each(|entry| {
            let style = style(entry.severity);
            let severity = format!("{:<7}", entry.severity.to_string());
            writeln!(
                output,
                "{}  {style}{severity}{style:#}  {}",
                entry.id,
                entry.headline()
            )
        })
    })?;
    Ok(ExitCode::SUCCESS)
}
