//! What a format needs to become a part of a profile.

use std::fmt::Debug;
use std::sync::Arc;

use jitdump::Machine;

use crate::code::clock::Alignment;
use crate::code::profile_index::IndexedProfile;
use crate::code::symbol_only_code::SymbolOnlyCode;
use crate::files::InputFile;
use crate::results::diagnostics::Diagnostic;
use crate::traces::conversion::event_selection::EventSet;
use crate::traces::conversion::splice::StackSource;
use crate::traces::conversion::synthesize::EventSource;
use crate::traces::options::TraceOptions;
use crate::traces::used_logs::{FormatFiles, LoggedCode};
use crate::units::Pid;

/// Opened logs or traces of one format, whose data [`LogFormat`] borrows.
pub trait OpenedFiles: Debug {
    /// Reads them. `clock_offset` is the number of nanoseconds to add to their times, if the user gave it. `recorded` is the
    /// profile that they belong to, if there is one. Fails if one has an invalid header.
    fn read<'a>(
        &'a self,
        options: &TraceOptions,
        clock_offset: Option<i64>,
        recorded: Option<&IndexedProfile<'_>>,
    ) -> Result<Box<dyn LogFormat<'a> + 'a>, Diagnostic>;
}

/// Logs or traces that become events, call chains and code of a profile. The code borrows data that live for `'a`.
pub trait LogFormat<'a>: FormatFiles {
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

    /// Returns the code of each log, with times that are to be aligned with the profile's clock. `with_bytes` is whether the
    /// bytes of functions are needed.
    fn code<'s>(
        &'s self,
        _profile: &'s IndexedProfile<'_>,
        _machine: Machine,
        _with_bytes: bool,
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
