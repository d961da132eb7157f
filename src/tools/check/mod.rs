//! Validation of the files that runtimes write, for authors of runtimes, and of profiles.
//!
//! ```text
//! file ──► kind, detected by content ──► its reader, and a walk over its records
//!                                                       │ [jitdump], [mono], [xray], [profile]
//! [`crate::results::diagnostics::rules`]: table of rules ──► findings: rule, count, first places
//! ```
//!
//! Faults that a reader reports are findings. This module also finds errors that the readers repair silently, because
//! their users cannot do anything about them, and errors that only other readers get wrong.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod call_stack;
mod findings;
mod jitdump;
mod mono;
mod profile;
mod xray;

use std::io;

use ::jitdump::Tally;
use serde::Serialize;

use crate::results::FileKind;
use crate::results::diagnostics::Issue;

pub use crate::results::diagnostics::Severity;
pub use crate::results::diagnostics::rules;
pub use findings::{Finding, MAX_NAME_LENGTH, Place};

/// Kind of a checked file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckedKind {
    /// A profile.
    Profile,
    /// A file of a runtime.
    #[serde(untagged)]
    Runtime(FileKind),
}

/// Result of checking a file.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// Kind of the file.
    pub kind: CheckedKind,
    /// Number of records or events in the file.
    pub records: u64,
    /// Findings, the most severe first, then by rule ID.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Returns the number of findings with a severity.
    pub fn count(&self, severity: Severity) -> usize {
        let findings = self.findings.iter();
        findings.filter(|it| it.rule.severity == severity).count()
    }
}

/// Returns the text of a source file by the name that a runtime gave it; `None` if it is not on this machine.
pub type ReadSource<'r> = &'r dyn Fn(&[u8]) -> Option<Vec<u8>>;

/// Checks a file of a runtime. `name` is its base name, by which perf finds jitdumps. A compressed log must be passed decompressed,
/// with the faults of its decompression in `unpacking`. `read_source` gets the source files that lines are in.
pub fn check(
    kind: FileKind,
    file: &[u8],
    name: &[u8],
    unpacking: &Tally<Issue>,
    read_source: ReadSource<'_>,
) -> CheckReport {
    let (records, findings) = match kind {
        FileKind::Jitdump => jitdump::check(file, name, read_source),
        FileKind::MonoLog => mono::check(file, unpacking),
        FileKind::XrayTrace => xray::check(file),
    };
    CheckReport {
        kind: CheckedKind::Runtime(kind),
        records,
        findings: findings.finish(),
    }
}

/// Checks a profile. Fails if its compressed records cannot be written to a temporary file.
pub fn check_profile(file: &[u8]) -> io::Result<CheckReport> {
    let (records, findings) = profile::check(file)?;
    Ok(CheckReport {
        kind: CheckedKind::Profile,
        records,
        findings: findings.finish(),
    })
}
