//! What a recording and its code need of logs and traces, whatever their format.

use std::fmt::Debug;
use std::sync::Arc;

use jitdump::{RuntimeTime, Tally};

use crate::code::clock::{Alignment, RuntimeClock};
use crate::code::symbol_only_code::SymbolOnlyCode;
use crate::files::InputFile;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::summary::TraceSummary;
use crate::units::{Pid, Tid};

/// Logs and traces in use.
#[derive(Debug, Default)]
pub struct UsedLogs<'a> {
    /// Those of each format.
    pub(super) formats: Vec<Box<dyn FormatFiles + 'a>>,
    /// Data that the profile does not contain as it was logged.
    pub faults: Tally<Issue>,
    /// Messages about clocks and call chains.
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl UsedLogs<'_> {
    /// Returns all files that were read.
    pub fn files(&self) -> impl Iterator<Item = &InputFile> {
        self.formats.iter().flat_map(|format| format.files())
    }

    /// Returns the garbage collections of each log.
    pub fn garbage_collections(
        &self,
        alignments: &[Option<Alignment>],
    ) -> impl Iterator<Item = LoggedCollections> {
        let formats = self.formats.iter();
        formats.flat_map(move |format| format.garbage_collections(alignments))
    }

    /// Returns the summary of each trace.
    pub fn summaries(&self) -> Vec<TraceSummary> {
        let formats = self.formats.iter();
        formats.flat_map(|format| format.summaries()).collect()
    }

    /// Returns what to report.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        let faults = self.formats.iter().flat_map(|format| format.faults());
        let own = self.formats.iter().flat_map(|format| format.diagnostics());
        let all = faults.chain(own);
        all.chain(self.diagnostics.iter().cloned()).collect()
    }
}

/// The logs or traces of one format that belong to a profile.
pub trait FormatFiles: Debug {
    /// Whether there are none.
    fn is_empty(&self) -> bool;

    /// Returns all files that were read.
    fn files(&self) -> Vec<&InputFile>;

    /// Returns the garbage collections of each log. `alignments` has those of the logs with the profile's
    /// clock.
    fn garbage_collections(&self, _alignments: &[Option<Alignment>]) -> Vec<LoggedCollections> {
        Vec::new()
    }

    /// Returns the summary of each trace.
    fn summaries(&self) -> Vec<TraceSummary> {
        Vec::new()
    }

    /// Returns what to report of each file.
    fn faults(&self) -> Vec<Diagnostic>;

    /// Returns what to report of them as a whole.
    fn diagnostics(&self) -> Vec<Diagnostic>;
}

/// Code of a process in a log.
#[derive(Debug)]
pub struct LoggedCode<'a> {
    /// The log.
    pub file: &'a Arc<InputFile>,
    /// Its name for messages.
    pub name: String,
    /// The process.
    pub pid: Pid,
    /// Its functions.
    pub code: SymbolOnlyCode<'a>,
    /// What the log shows of its clock.
    pub clock: RuntimeClock,
    /// What to report of the bytes of functions.
    pub diagnostic: Option<Diagnostic>,
}

/// Garbage collections of a process.
#[derive(Clone, Debug)]
pub struct LoggedCollections {
    /// The process.
    pub pid: Pid,
    /// Conversion of the log's times to the profile's clock.
    pub alignment: Alignment,
    /// The garbage collections.
    pub all: Vec<GarbageCollection>,
    /// Number of starts and ends without their counterpart.
    pub unpaired: u64,
}

/// A garbage collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GarbageCollection {
    /// The oldest generation that was collected.
    pub generation: u64,
    /// When it started.
    pub start: RuntimeTime,
    /// When it ended.
    pub end: RuntimeTime,
    /// Thread of the profile that collected, if known.
    pub tid: Option<Tid>,
}
