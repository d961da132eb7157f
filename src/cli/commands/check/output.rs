//! Output of findings as text and JSON.

use std::io::{self, Write};

use jitdump::printable;
use jitinject::Diagnostic;
use jitinject::internals::results::summary::count;
use jitinject::internals::tools::check::{CheckReport, CheckedKind, Finding, Place, Severity};
use serde::Serialize;

use crate::cli::commands::check::files::CheckedFile;
use crate::cli::terminal::{self, print_message, report, style};

/// Version of the JSON document. It changes when a field is removed or changes its meaning.
const FORMAT: u32 = 2;

/// Number of places in text output.
const SHOWN_PLACES: usize = 3;

/// Totals of all files.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Totals {
    files: u64,
    /// Files that cannot be checked.
    pub unreadable: u64,
    errors: u64,
    warnings: u64,
    notes: u64,
}

impl Totals {
    /// Adds a file.
    pub fn add(&mut self, report: &CheckReport) {
        self.files = self.files.saturating_add(1);
        for (total, severity) in [
            (&mut self.errors, Severity::Error),
            (&mut self.warnings, Severity::Warning),
            (&mut self.notes, Severity::Note),
        ] {
            *total = total.saturating_add(report.count(severity) as u64);
        }
    }

    /// Returns whether the exit status is 1.
    pub fn has_failed(&self) -> bool {
        self.errors > 0 || self.unreadable > 0
    }
}

/// Prints findings, one line per rule and file.
pub fn print_text(mut checked: impl Iterator<Item = CheckedFile>) -> Result<(), Diagnostic> {
    terminal::print(|output| {
        for CheckedFile { path, result } in &mut checked {
            match result {
                Ok(report) => {
                    for finding in &report.findings {
                        write_finding(output, &path, finding)?;
                    }
                }
                Err(error) => {
                    // Keeps the order of standard output and standard error.
                    let flushed = output.flush();
                    report(&error.as_error());
                    flushed?;
                }
            }
        }
        Ok(())
    })?;
    // After a closed pipe, the exit status still covers all files.
    for CheckedFile { result, .. } in checked {
        if let Err(error) = result {
            report(&error.as_error());
        }
    }
    Ok(())
}

/// Writes a finding as one line.
fn write_finding(output: &mut impl Write, path: &str, finding: &Finding) -> io::Result<()> {
    let rule = finding.rule;
    let style = style(rule.severity);
    writeln!(
        output,
        "{path}: {style}{}[{}]{style:#}: {} ({})",
        rule.severity,
        rule.id,
        rule.title,
        format_places(finding.count, &finding.places)
    )
}

/// Prints the findings of a profile that was written, on standard error, with a line about the whole file unless only
/// errors are printed.
pub fn report_findings(path: &str, checked: &CheckReport, least: Severity) {
    let mut stderr = anstream::stderr().lock();
    let findings = checked.findings.iter();
    for finding in findings.filter(|finding| finding.rule.severity >= least) {
        // There is nowhere to report a closed standard error.
        let _ = write!(stderr, "jitinject: ").and_then(|()| write_finding(&mut stderr, path, finding));
    }
    drop(stderr);
    if least < Severity::Error {
        print_message(&format!(
            "{path}: verified, {}, {}, {}",
            count(checked.records, "record"),
            count(checked.count(Severity::Error) as u64, "error"),
            count(checked.count(Severity::Warning) as u64, "warning"),
        ));
    }
}

/// Formats the count and the first places.
fn format_places(count: u64, places: &[Place]) -> String {
    let mut text = match count {
        1 => String::new(),
        count => format!("{count}, the first "),
    };
    let mut places = places.iter().take(SHOWN_PLACES);
    if let Some(first) = places.next() {
        text.push_str(&format_place(first));
    }
    let others: Vec<String> = places.map(|place| format!("{:#x}", place.offset)).collect();
    if !others.is_empty() {
        text.push_str("; then at ");
        text.push_str(&others.join(", "));
    }
    text
}

/// Returns where a finding is, and what is there.
fn format_place(place: &Place) -> String {
    let mut text = format!("at {:#x}", place.offset);
    if !place.record.is_empty() {
        text.push_str(" in ");
        text.push_str(place.record);
    }
    if let Some(function) = &place.function {
        text.push_str(" of ");
        text.push_str(&printable(function.as_bytes()));
    }
    if !place.message.is_empty() {
        text.push_str(": ");
        text.push_str(&printable(place.message.as_bytes()));
    }
    text
}

/// Prints the totals.
pub fn print_totals(totals: &Totals) -> Result<(), Diagnostic> {
    let mut text = format!(
        "{}: {}, {}, {}",
        count(totals.files, "file"),
        count(totals.errors, "error"),
        count(totals.warnings, "warning"),
        count(totals.notes, "note"),
    );
    if totals.unreadable > 0 {
        text.push_str(&format!("; {} could not be checked", totals.unreadable));
    }
    if totals.errors + totals.warnings + totals.notes > 0 {
        text.push_str("; see jitinject explain CODE");
    }
    terminal::print(|output| writeln!(output, "{text}"))
}

/// The JSON document.
#[derive(Serialize)]
struct Document<'d> {
    format: u32,
    files: Vec<FileEntry<'d>>,
    totals: Totals,
}

#[derive(Serialize)]
struct FileEntry<'d> {
    path: &'d str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'d Diagnostic>,
    kind: Option<CheckedKind>,
    records: u64,
    findings: Vec<FindingEntry<'d>>,
}

#[derive(Serialize)]
struct FindingEntry<'d> {
    rule: &'static str,
    severity: Severity,
    title: &'static str,
    count: u64,
    places: &'d [Place],
}

impl<'d> From<&'d CheckedFile> for FileEntry<'d> {
    fn from(checked: &'d CheckedFile) -> Self {
        let report = checked.result.as_ref().ok();
        let findings = report
            .map(|report| report.findings.as_slice())
            .unwrap_or_default();
        Self {
            path: &checked.path,
            error: checked.result.as_ref().err(),
            kind: report.map(|report| report.kind),
            records: report.map_or(0, |report| report.records),
            findings: findings
                .iter()
                .map(|finding| FindingEntry {
                    rule: finding.rule.id,
                    severity: finding.rule.severity,
                    title: finding.rule.title,
                    count: finding.count,
                    places: &finding.places,
                })
                .collect(),
        }
    }
}

/// Prints all findings as one JSON document.
pub fn print_json(checked: &[CheckedFile], totals: Totals) -> Result<(), Diagnostic> {
    let document = Document {
        format: FORMAT,
        files: checked.iter().map(FileEntry::from).collect(),
        totals,
    };
    terminal::print_json(&document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_places_of_a_rule_are_printed() {
        let place = |offset| Place {
            offset,
            ..Place::default()
        };
        let places: Vec<Place> = (1..=10).map(place).collect();
        assert_eq!(format_places(1, &places[..1]), "at 0x1");
        assert_eq!(
            format_places(20, &places),
            "20, the first at 0x1; then at 0x2, 0x3"
        );
    }
}
