//! Traces that were read, and the synthetic symbols of their processes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jitdump::{Tally, Time};

use crate::bytes::printable_path;
use crate::files::InputFile;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::conversion::source::TracedThread;
use crate::traces::xray::binary::{InstrumentedBinary, LoadBias};
use crate::traces::xray::clock::FoundClock;
use crate::traces::xray::format::{Trace, TraceIndex};
use crate::traces::xray::frame_addresses::FrameAddresses;
use crate::units::Pid;

/// A trace that was read.
#[derive(Debug)]
pub struct ReadTrace<'a> {
    /// The file.
    pub file: &'a InputFile,
    /// Reader of the trace's header and records.
    pub trace: Trace<'a>,
    /// Threads and buffers of the trace.
    pub index: TraceIndex,
    /// The trace's clock.
    pub clock: FoundClock,
    /// Threads of the trace, in the order of the index; `None` if their process is not in the profile.
    pub threads: Vec<Option<TracedThread<'static>>>,
}

/// Counts of a trace's replay.
#[derive(Clone, Debug, Default)]
pub struct TraceCounts {
    /// Number of calls.
    pub calls: u64,
    /// Number of events that the program logged.
    pub events: u64,
    /// Records that could not be used.
    pub faults: Tally<Issue>,
    /// Records that could not be converted in full.
    pub conversion_faults: Tally<Issue>,
}

/// A process that traces are from.
#[derive(Debug)]
pub struct TracedProcess<'a> {
    /// The first trace that names it.
    pub file: &'a Arc<InputFile>,
    /// Addresses of its functions.
    pub frame_addresses: FrameAddresses<'a>,
    /// Load bias of the binary in the process; `None` if the process has not mapped it.
    pub base: Option<LoadBias>,
    /// Time just before the first record of the process.
    pub since: Time,
}

/// The traces that belong to a profile.
#[derive(Debug, Default)]
pub struct Traces<'a> {
    /// Traces that were read.
    pub all: Vec<ReadTrace<'a>>,
    /// Counts of each trace.
    pub counts: Vec<TraceCounts>,
    /// Processes that the traces are from.
    pub processes: BTreeMap<Pid, TracedProcess<'a>>,
    /// The instrumented binary, if the user gave one.
    pub binary: Option<&'a InstrumentedBinary>,
    /// What to report of them as a whole.
    pub diagnostics: Vec<Diagnostic>,
    /// What to report of those that are not used.
    pub opening: Vec<Diagnostic>,
}

impl ReadTrace<'_> {
    /// Returns the trace's path for messages.
    pub fn name(&self) -> String {
        printable_path(self.file.path())
    }
}
