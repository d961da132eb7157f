//! Finds diagnostics in the summary and the standard error of jitinject.

use std::path::Path;

use serde_json::Value;

use super::tools::text;
use super::{diagnostics, has_code, inject};

/// Runs jitinject on `input`, which must succeed; returns its standard error and the summary.
pub fn inject_with_summary(input: &Path, output: &Path, more: &[&str]) -> (String, Value) {
    let summary = output.with_extension("json");
    let said = inject(input, output, &[&["--summary", text(&summary)], more].concat());
    let summary = std::fs::read(summary).unwrap();
    (said, serde_json::from_slice(&summary).unwrap())
}

/// Returns the only diagnostic of a code in a summary.
pub fn only<'s>(summary: &'s Value, code: &str) -> &'s Value {
    let [diagnostic] = diagnostics(summary, code)[..] else {
        panic!("not one {code}: {summary:#}");
    };
    diagnostic
}

/// Returns whether a line of a program's standard error has a diagnostic's code and contains `text`.
pub fn reports(said: &str, code: &str, text: &str) -> bool {
    said.lines()
        .any(|line| has_code(line, code) && line.contains(text))
}

/// Returns the only line with a code in a program's standard error.
pub fn line_of<'s>(said: &'s str, code: &str) -> &'s str {
    let mark = format!("[{code}]: ");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(&mark)).collect();
    let [line] = lines[..] else {
        panic!("not one {code}: {said}");
    };
    line
}
