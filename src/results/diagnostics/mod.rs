//! Diagnostics: everything that jitinject reports about its input and output, by code.
//!
//! A code never changes its meaning, and a retired one is never reused, because scripts may depend on it. All texts
//! are in [`issues`] (for runs of jitinject) and in [`rules`] (for `jitinject check`). The rest of the program reports a code,
//! a file, an offset and the fields of the message.

#[macro_use]
mod define;
#[macro_use]
mod run_issues;
pub mod issues;
mod json;
mod of_jitdumps;
mod remedies;
pub mod rules;

use std::fmt;
use std::io;
use std::path::Path;

use crate::bytes::printable_path;
use jitdump::Tally;
use jitdump::printable;

pub use issues::Issue;

/// How severe a diagnostic is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Nothing is lost. In `check`: no reader gets anything wrong, or nearly all files have it.
    Note,
    /// A part of the profile is affected. In `check`: a reader gets something wrong, or loses something in some cases.
    Warning,
    /// There is no output. In `check`: a reader loses something.
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

/// The description of one code.
#[derive(PartialEq, Eq, Debug)]
pub struct CatalogueEntry {
    /// The code: two letters and three digits. `JI` is for runs of jitinject, `JD`, `ML`, `PD` and `XR` for `check`.
    pub id: &'static str,
    /// Default severity. A diagnostic is an error if the program cannot continue.
    pub severity: Severity,
    /// Template of the message. `{name}` is a field, `{count}` the number of occurrences, and `{one|many}` the singular
    /// or plural for that number.
    pub title: &'static str,
    /// Explanation of the problem.
    pub problem: &'static str,
    /// Affected readers of such files; may be empty.
    pub readers: &'static str,
    /// Recommended action; may be empty.
    pub remedy: &'static str,
    /// What is counted, unless it is obvious; may be empty.
    pub unit: &'static str,
    /// Known writers of such files; may be empty.
    pub seen: &'static str,
}

impl CatalogueEntry {
    /// Returns the message without values; names of fields are in capitals.
    pub fn headline(&self) -> String {
        render(self.title, 2, |name| match name {
            "count" => Some("N".into()),
            name => Some(name.to_uppercase()),
        })
    }
}

impl fmt::Display for CatalogueEntry {
    /// Formats the output of `jitinject explain`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}): {}", self.id, self.severity, self.headline())?;
        let remedy = render(self.remedy, 2, |name| Some(name.to_uppercase()));
        let paragraphs = [
            ("", self.problem),
            ("Readers: ", self.readers),
            ("Remedy: ", &*remedy),
            ("Counted: ", self.unit),
            ("Seen: ", self.seen),
        ];
        for (heading, text) in paragraphs.iter().filter(|(_, text)| !text.is_empty()) {
            writeln!(f, "\n{heading}{text}")?;
        }
        Ok(())
    }
}

/// Returns the whole catalogue. The codes with the same letters are sorted.
pub fn catalogue() -> impl Iterator<Item = &'static CatalogueEntry> {
    let issues = Issue::ALL.iter().map(|issue| issue.entry());
    issues.chain(rules::all())
}

/// Returns the entry of a code, which may be in upper or lower case.
pub fn find(id: &str) -> Option<&'static CatalogueEntry> {
    catalogue().find(|entry| entry.id.eq_ignore_ascii_case(id))
}

/// An error, a warning or a note.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Diagnostic {
    /// Kind of diagnostic, which determines its code.
    pub issue: Issue,
    /// Severity of this occurrence.
    pub severity: Severity,
    /// Number of occurrences.
    pub count: u64,
    /// Affected file, without control characters.
    pub file: Option<String>,
    /// Offset of the first occurrence in the file, in bytes; for a compressed log, in the decompressed content.
    pub offset: Option<u64>,
    fields: Vec<(&'static str, String)>,
    /// Recommended action, if it is not the catalogue's.
    remedy: Option<&'static str>,
    /// Whether the file is not used for this reason.
    is_unused: bool,
}

// How the program makes them.
#[doc(hidden)]
impl Diagnostic {
    /// Creates a diagnostic of one occurrence, without a file and offset.
    #[doc(hidden)]
    pub fn new(issue: Issue) -> Self {
        Self {
            issue,
            severity: issue.entry().severity,
            count: 1,
            file: None,
            offset: None,
            fields: Vec::new(),
            remedy: None,
            is_unused: false,
        }
    }

    /// Creates the error that a file cannot be read.
    #[doc(hidden)]
    pub fn cannot_read(path: &Path, cause: &io::Error) -> Self {
        Self::new(Issue::CannotRead).in_file(path).caused_by(cause)
    }

    /// Creates the error that a file given by the user cannot be read. `if_missing` is the action to recommend if it
    /// does not exist.
    #[doc(hidden)]
    pub fn cannot_read_named(path: &Path, cause: &io::Error, if_missing: &'static str) -> Self {
        let error = Self::cannot_read(path, cause);
        match cause.kind() {
            io::ErrorKind::NotFound => error.with_remedy(if_missing),
            _ => error,
        }
    }

    /// Creates the warning that a file cannot be read and is not used.
    #[doc(hidden)]
    pub fn unusable(cause: &io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::new(Issue::FileMissing),
            _ => Self::new(Issue::CannotRead).caused_by(cause).as_unused(),
        }
    }

    /// Creates the error that an output cannot be written; `-` is standard output. If the cause is a diagnostic, returns
    /// it instead.
    #[doc(hidden)]
    pub fn cannot_write(path: &Path, cause: &io::Error) -> Self {
        let diagnostic = cause.get_ref().and_then(|cause| cause.downcast_ref::<Self>());
        let path = if path == Path::new("-") {
            Path::new("standard output")
        } else {
            path
        };
        match diagnostic {
            Some(diagnostic) => diagnostic.clone().in_file(path),
            None => Self::new(Issue::CannotWrite).in_file(path).caused_by(cause),
        }
    }

    /// Creates a diagnostic for each issue of a tally. `has_offsets` is false if its offsets are not offsets in the file.
    pub(crate) fn of_tally<'t, K: Into<Issue> + Ord + Copy>(
        tally: &'t Tally<K>,
        file: Option<&Path>,
        has_offsets: bool,
    ) -> impl Iterator<Item = Self> + use<'t, K> {
        let file = file.map(printable_path);
        tally.iter().map(move |(issue, seen)| Self {
            count: seen.count,
            file: file.clone(),
            offset: tally.offsets(issue).first().copied().filter(|_| has_offsets),
            ..Self::new(issue.into())
        })
    }

    /// Sets a field of the message. Control characters are escaped.
    #[doc(hidden)]
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.fields.push((name, printable(value.to_string().as_bytes())));
        self
    }

    /// Sets the affected file.
    #[doc(hidden)]
    pub fn in_file(self, path: &Path) -> Self {
        self.in_file_called(printable_path(path))
    }

    /// Sets the name of the affected file, as it is printed.
    pub(crate) fn in_file_called(mut self, name: String) -> Self {
        self.file = Some(name);
        self
    }

    /// Sets the offset in the file.
    #[doc(hidden)]
    pub fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// Sets the number of occurrences.
    #[doc(hidden)]
    pub fn times(mut self, count: u64) -> Self {
        self.count = count;
        self
    }

    /// Sets the field `cause`, and the recommended action for it.
    #[doc(hidden)]
    pub fn caused_by(mut self, cause: &io::Error) -> Self {
        self.remedy = issues::remedy_of(cause);
        self.with("cause", cause)
    }

    /// Sets the recommended action, instead of the catalogue's.
    pub(crate) fn with_remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = Some(remedy);
        self
    }

    /// Changes it to a warning that the file is not used.
    #[doc(hidden)]
    pub fn as_unused(mut self) -> Self {
        self.severity = Severity::Warning;
        self.is_unused = true;
        self
    }

    /// Changes it to a warning: what is lost is much.
    #[doc(hidden)]
    pub fn as_warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// Changes it to a note, if nothing that was asked for is lost.
    #[doc(hidden)]
    pub fn as_note(mut self) -> Self {
        self.severity = Severity::Note;
        self
    }

    /// Changes it to an error, which ends the run.
    #[doc(hidden)]
    pub fn as_error(mut self) -> Self {
        self.severity = Severity::Error;
        self
    }
}

impl Diagnostic {
    /// Returns the message, without file and offset.
    pub fn message(&self) -> String {
        let mut message = render(self.issue.entry().title, self.count, |name| match name {
            "count" => Some(self.count.to_string()),
            _ => self.field(name).map(str::to_owned),
        });
        if self.is_unused {
            message.push_str("; not used");
        }
        message
    }

    /// Returns the recommended action; may be empty.
    pub fn help(&self) -> String {
        let remedy = self.remedy.unwrap_or(self.issue.entry().remedy);
        render(remedy, self.count, |name| self.field(name).map(str::to_owned))
    }

    /// Returns a field of the message.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields
            .find(|(known, _)| *known == name)
            .map(|(_, value)| &**value)
    }
}

impl fmt::Display for Diagnostic {
    /// Formats file, message and offset, without severity and code.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        f.write_str(&self.message())?;
        match (self.count, self.offset) {
            (_, None) => Ok(()),
            (1, Some(offset)) => write!(f, " (at {offset:#x})"),
            (_, Some(offset)) => write!(f, " (first at {offset:#x})"),
        }
    }
}

impl std::error::Error for Diagnostic {}

/// Fills in a template of the catalogue. A field without a value keeps its name in braces.
fn render(template: &str, count: u64, value: impl Fn(&str) -> Option<String>) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let Some((inside, after)) = after.split_once('}') else {
            rest = after;
            break;
        };
        match inside.split_once('|') {
            Some((one, many)) => text.push_str(if count == 1 { one } else { many }),
            None => text.push_str(&value(inside).unwrap_or_else(|| format!("{{{inside}}}"))),
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_message_has_its_file_count_and_first_offset() {
        let one = Diagnostic::new(Issue::JitdumpSkippedBytes);
        assert_eq!(one.to_string(), "1 invalid byte between records skipped");
        let many = one.in_file(Path::new("jit-77.dump")).times(78).at(0x10963);
        assert_eq!(
            many.to_string(),
            "jit-77.dump: 78 invalid bytes between records skipped (first at 0x10963)"
        );
        assert_eq!(many.clone().times(1).offset, Some(0x10963));
    }

    #[test]
    fn values_cannot_steer_a_terminal_and_are_not_templates() {
        let diagnostic = Diagnostic::new(Issue::CannotRead).with("cause", "\u{1b}[2J{count}");
        assert_eq!(diagnostic.message(), r"cannot be read: \u{1b}[2J{count}");
    }

    #[test]
    fn codes_are_unique_in_order_and_explained() {
        let ids: Vec<&str> = catalogue().map(|entry| entry.id).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        let own: Vec<&str> = Issue::ALL.iter().map(|issue| issue.id()).collect();
        assert!(own.is_sorted());
        for entry in catalogue() {
            assert!(!entry.problem.is_empty(), "{}", entry.id);
            assert!(entry.to_string().starts_with(entry.id));
            assert_eq!(find(&entry.id.to_lowercase()), Some(entry));
        }
        assert_eq!(find("JI999"), None);
    }
}
