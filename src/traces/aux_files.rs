//! What the profile and the timeline need of logs and traces, whatever their format.

use std::fmt::Debug;
use std::sync::Arc;

use jitdump::{Machine, RuntimeTime};

use crate::code::clock::{Alignment, RuntimeClock};
use crate::code::profile_index::IndexedProfile;
use crate::code::symbol_only_code::SymbolOnlyCode;
use crate::files::InputFile;
use crate::results::diagnostics::Diagnostic;
use crate::results::summary::TraceSummary;
use crate::traces::event_selection::EventSet;
use crate::traces::options::TraceOptions;
use crate::traces::splice::StackSource;
use crate::traces::synthesize::EventSource;
use crate::units::{Pid, Tid};

/// Opened logs or traces of one format, whose data [`AuxSource`] borrows.
pub trait OpenedFiles: Debug {
    /// Reads them. `clock_offset` is the number of nanoseconds to add to their times, if the user gave it. `recorded` is the
    /// profile that they belong to, if there is one. Fails if one has an invalid header.
    fn read<'a>(
        &'a self,
        options: &TraceOptions,
        clock_offset: Option<i64>,
        recorded: Option<&IndexedProfile<'_>>,
    ) -> Result<Box<dyn AuxSource<'a> + 'a>, Diagnostic>;
}

/// The logs or traces of one format that belong to a profile.
pub trait AuxFiles: Debug {
    /// Whether there are none.
    fn is_empty(&self) -> bool;

    /// Returns all files that were read.
    fn files(&self) -> Vec<&InputFile>;

    /// Returns the garbage collections of each log. `alignments` are as in [`AuxSource::prepare`].
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

/// Logs or traces that become events, call chains and code of a profile. The code borrows data that live for `'a`.
pub trait AuxSource<'a>: AuxFiles {
    /// Whether events are to be added to a profile.
    fn has_events(&self, options: &TraceOptions) -> bool;

    /// Returns the architecture as `uname -m` prints it; empty if that is not known.
    fn architecture(&self) -> &[u8];

    /// Returns the ID of the clock of a profile that is made of them alone; `None` if it is not known.
    fn clock_id(&self) -> Option<i32>;

    /// Prepares the conversion of events and stacks, for a `recorded` profile if there is one. `alignments` has those of
    /// [`code`](Self::code) with the profile's clock.
    fn prepare(&mut self, _recorded: Option<&IndexedProfile<'_>>, _alignments: &[Option<Alignment>]) {}

    /// Adds the events to convert. `is_beside` is whether there is a profile.
    fn select_events(&mut self, options: &TraceOptions, is_beside: bool, event_set: &mut EventSet);

    /// Returns the events as samples.
    fn event_sources<'s>(
        &'s mut self,
        options: &TraceOptions,
        event_set: &'s EventSet,
    ) -> Vec<Box<dyn EventSource + 's>>;

    /// Returns the stacks of calls.
    fn stack_sources<'s>(&'s mut self) -> Vec<Box<dyn StackSource + 's>>;

    /// Counts for the summary what the conversion of events would count.
    fn count(&mut self) {}

    /// Returns the code of each log, with times that are to be aligned with the profile's clock. `has_bytes` is whether the
    /// bytes of functions are needed.
    fn code<'s>(
        &'s self,
        _profile: &'s IndexedProfile<'_>,
        _machine: Machine,
        _has_bytes: bool,
    ) -> Box<dyn Iterator<Item = LoggedCode<'a>> + 's>
    where
        'a: 's,
    {
        Box::new(std::iter::empty())
    }

    /// Returns the synthetic symbols of each process of traces, with times on the profile's clock.
    fn symbols(&self, _machine: Machine) -> Vec<(&Arc<InputFile>, Pid, SymbolOnlyCode<'static>)> {
        Vec::new()
    }
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
