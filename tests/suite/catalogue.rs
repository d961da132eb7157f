//! The catalogue of diagnostics: a test for each code, and what `explain` prints.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jitinject::Issue;
use jitinject::internals::results::diagnostics::catalogue;

use crate::support::{has_code, jitinject, said};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the files with an extension in a directory and below.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path, extension)
            } else {
                vec![path]
            }
        })
        .filter(|path| path.extension().is_some_and(|it| it == extension))
        .collect()
}

/// Returns the codes that the source of a test mentions, by ID or by name.
fn codes_in(source: &str) -> BTreeSet<&'static str> {
    let mentions = |name: &str| {
        let mut rest = source;
        std::iter::from_fn(|| {
            let (_, after) = rest.split_once(name)?;
            rest = after;
            Some(!after.starts_with(|next: char| next.is_alphanumeric()))
        })
        .any(|is_whole| is_whole)
    };
    let issues = Issue::ALL
        .iter()
        .filter(|issue| mentions(issue.id()) || mentions(&format!("Issue::{issue:?}")));
    issues.map(|issue| issue.id()).collect()
}

/// "No diagnostic without a test": a code that no test expects is one that nobody has seen printed.
#[test]
fn every_code_is_expected_by_a_test() {
    let mut tested = BTreeSet::new();
    for file in files(&root().join("tests"), "rs") {
        if !file.ends_with("catalogue.rs") {
            tested.extend(codes_in(&std::fs::read_to_string(file).unwrap()));
        }
    }
    for file in files(&root().join("src"), "rs") {
        let source = std::fs::read_to_string(&file).unwrap();
        if file.ends_with("tests.rs") {
            tested.extend(codes_in(&source));
        }
        // The tests of the catalogue itself take some codes as examples.
        let is_catalogue = file.ends_with("diagnostics/mod.rs") || file.ends_with("terminal.rs");
        if let Some((_, tests)) = source.split_once("#[cfg(test)]").filter(|_| !is_catalogue) {
            tested.extend(codes_in(tests));
        }
    }
    let all: BTreeSet<&str> = Issue::ALL.iter().map(|issue| issue.id()).collect();
    let untested: Vec<&str> = all.difference(&tested).copied().collect();
    assert!(untested.is_empty(), "codes without a test: {untested:?}");
}

#[test]
fn codes_are_explained() {
    for entry in catalogue() {
        let output = jitinject().args(["explain", entry.id]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text, entry.to_string());
        // `{a,b}:S` is perf's notation of a group of events.
        assert!(!text.replace("{a,b}", "").contains('{'), "{text}");
    }
    let all = jitinject().arg("explain").output().unwrap();
    let list = String::from_utf8(all.stdout).unwrap();
    assert_eq!(list.lines().count(), catalogue().count());
    let unknown = jitinject().args(["explain", "JI999"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(1));
    assert!(has_code(&said(&unknown), "JI420"));
}
