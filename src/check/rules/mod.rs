//! The catalogue: everything that can be wrong with a file, as one table.
//!
//! An id never changes its meaning, and that of a rule that is gone is never used again: people have them in
//! their scripts.

pub mod debug_info;
pub mod jitdump;
pub mod mono;
pub mod unwinding;
pub mod xray;

use std::fmt;

use serde::Serialize;

/// How bad something is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing: no reader is wrong about it, or nearly all files have it, so that it tells little of this one.
    Note,
    /// A reader gets something wrong, or loses something in some cases only, which the rule names.
    Warning,
    /// A reader loses something.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// One thing that can be wrong.
#[derive(PartialEq, Eq, Debug)]
pub struct Rule {
    /// What it is known by: two letters for the kind of file, and three digits.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What is found, in a few words.
    pub title: &'static str,
    /// What is wrong.
    pub problem: &'static str,
    /// Which readers suffer, and how.
    pub readers: &'static str,
    /// What the writer does instead.
    pub remedy: &'static str,
    /// What a finding counts, where that is not what stands at its places: records, events, buffers, the file.
    pub unit: &'static str,
    /// Who writes it; empty where nobody is known to.
    pub seen: &'static str,
}

impl fmt::Display for Rule {
    /// All there is to say about it, a paragraph each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}): {}", self.id, self.severity, self.title)?;
        let paragraphs = [
            ("", self.problem),
            ("Readers: ", self.readers),
            ("Remedy: ", self.remedy),
            ("Counted: ", self.unit),
            ("Seen: ", self.seen),
        ];
        for (heading, text) in paragraphs.iter().filter(|(_, text)| !text.is_empty()) {
            writeln!(f, "\n{heading}{text}")?;
        }
        Ok(())
    }
}

/// Defines rules and a table of them.
macro_rules! rules {
    ($(
        rule $name:ident $id:literal $severity:ident $title:literal
        problem $problem:literal
        readers $readers:literal
        remedy $remedy:literal
        $(unit $unit:literal)?
        $(seen $seen:literal)?
    )+) => {
        $(
            #[doc = concat!($id, ": ", $title, ".")]
            pub static $name: $crate::check::rules::Rule = $crate::check::rules::Rule {
                id: $id,
                severity: $crate::check::rules::Severity::$severity,
                title: $title,
                problem: $problem,
                readers: $readers,
                remedy: $remedy,
                unit: concat!($($unit)?),
                seen: concat!($($seen)?),
            };
        )+

        /// All of them, by their ids.
        pub static ALL: &[&$crate::check::rules::Rule] = &[$(&$name),+];
    };
}
use rules;

/// All rules of all kinds of files, by their ids.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [
        jitdump::ALL,
        debug_info::ALL,
        unwinding::ALL,
        mono::ALL,
        xray::ALL,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// The rule of an id, in small letters or capitals.
pub fn find(id: &str) -> Option<&'static Rule> {
    all().find(|rule| rule.id.eq_ignore_ascii_case(id))
}
