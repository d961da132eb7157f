//! What is wrong with the files that runtimes write, for those who make runtimes.
//!
//! ```text
//! file ──► which kind it is, by its content ──► its reader in runtime/, and a walk of our own
//!                                                        │ [jitdump], [mono], [xray]
//!          rules: what can be wrong  [rules] ──────────► findings: rule, count, first places
//! ```
//!
//! What a reader tells of a damaged file is taken from it. What it puts right in silence, since its users can't
//! do anything about it, is looked for here, and so is what other readers get wrong.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod findings;
mod jitdump;
mod mono;
pub mod rules;
mod xray;

use crate::runtime::{FileKind, mono as log};
use crate::tally::Tally;

pub use findings::{Finding, MAX_SHOWN_NAME, Place};
pub use rules::{Rule, Severity};

/// What was found in a file.
#[derive(Clone, Debug)]
pub struct Report {
    /// What kind of file it is.
    pub kind: FileKind,
    /// How many records or events it has.
    pub records: u64,
    /// What is wrong, the worst first, and by the ids of rules.
    pub findings: Vec<Finding>,
}

impl Report {
    /// How many findings there are of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        let findings = self.findings.iter();
        findings.filter(|it| it.rule.severity == severity).count()
    }
}

/// Checks a file of a kind. `name` is its base name, which readers of jitdumps look for; a packed log is to be unpacked,
/// and `unpacking` is what was wrong with that.
pub fn check(kind: FileKind, file: &[u8], name: &[u8], unpacking: &Tally<log::Fault>) -> Report {
    let (records, findings) = match kind {
        FileKind::Jitdump => jitdump::check(file, name),
        FileKind::MonoLog => mono::check(file, unpacking),
        FileKind::XrayTrace => xray::check(file),
    };
    Report {
        kind,
        records,
        findings: findings.finish(),
    }
}
