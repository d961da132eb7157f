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

use std::fmt;

use serde::Serialize;

use crate::runtime::jitdump::marker;
use crate::runtime::mono::packed;
use crate::runtime::xray as trace;
use crate::runtime::{jitdump as dump, mono as log};
use crate::tally::Tally;

pub use findings::{Finding, MAX_SHOWN_NAME, Place};
pub use rules::{Rule, Severity};

/// What kind of file it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A jitdump.
    Jitdump,
    /// A log of Mono's profiler.
    MonoLog,
    /// A trace of XRay.
    XrayTrace,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jitdump => "jitdump",
            Self::MonoLog => "Mono log",
            Self::XrayTrace => "XRay trace",
        })
    }
}

impl Kind {
    /// The kind of a file by its first bytes, beyond doubt: all of the file, or some hundred bytes.
    pub fn of(start: &[u8]) -> Option<Self> {
        match dump::Header::parse(start) {
            Ok(_) => return Some(Self::Jitdump),
            // It starts with the magic.
            Err(dump::Error::TooShort(size)) if size >= 4 => return Some(Self::Jitdump),
            Err(_) => {}
        }
        if packed::is_log(start) {
            Some(Self::MonoLog)
        } else {
            trace::is_trace(start).then_some(Self::XrayTrace)
        }
    }

    /// The kind of a file that somebody takes for one of these: also where its start is damaged or missing, and
    /// only its name tells. `name` is the base name.
    pub fn of_named(start: &[u8], name: &[u8]) -> Option<Self> {
        let by_name = || {
            if marker::is_dump_name(name) {
                Some(Self::Jitdump)
            } else if name.ends_with(b".mlpd") {
                Some(Self::MonoLog)
            } else {
                name.starts_with(b"xray-log.").then_some(Self::XrayTrace)
            }
        };
        let may_be_trace = || xray::may_be_trace(start).then_some(Self::XrayTrace);
        let by_content = Self::of(start).or_else(may_be_trace);
        by_content.or_else(|| start.is_empty().then(by_name)?)
    }
}

/// What was found in a file.
#[derive(Clone, Debug)]
pub struct Report {
    /// What kind of file it is.
    pub kind: Kind,
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
pub fn check(kind: Kind, file: &[u8], name: &[u8], unpacking: &Tally<log::Fault>) -> Report {
    let (records, findings) = match kind {
        Kind::Jitdump => jitdump::check(file, name),
        Kind::MonoLog => mono::check(file, unpacking),
        Kind::XrayTrace => xray::check(file),
    };
    Report {
        kind,
        records,
        findings: findings.finish(),
    }
}
