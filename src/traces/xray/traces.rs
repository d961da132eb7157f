//! Traces that were read, and the synthetic symbols of their processes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jitdump::{Machine, RuntimeTime, Tally, Time};

use crate::bytes::printable_path;
use crate::code::symbol_only_code::SymbolOnlyCode;
use crate::files::InputFile;
use crate::results::FileKind;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::summary::TraceSummary;
use crate::traces::source::TracedThread;
use crate::traces::xray::binary::{Binary, LoadBias};
use crate::traces::xray::clock::FoundClock;
use crate::traces::xray::format::{Index, Trace};
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
    pub index: Index,
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
    pub losses: Tally<Issue>,
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
    pub binary: Option<&'a Binary>,
    /// What to report of them as a whole.
    pub diagnostics: Vec<Diagnostic>,
}

impl Traces<'_> {
    /// Returns the architecture of the binary as `uname -m` prints it; empty without a binary.
    pub fn architecture(&self) -> &'static [u8] {
        self.binary.map_or(b"", |binary| binary.code.architecture)
    }

    /// Returns all input files: the traces and the binary.
    pub fn files(&self) -> impl Iterator<Item = &InputFile> {
        let binary = self.binary.map(|binary| &*binary.file);
        self.all.iter().map(|trace| trace.file).chain(binary)
    }

    /// Returns the synthetic symbols of each process, which stand for functions without a known address.
    pub fn code(
        &self,
        machine: Machine,
    ) -> impl Iterator<Item = (&Arc<InputFile>, Pid, SymbolOnlyCode<'static>)> {
        self.processes.iter().filter_map(move |(pid, process)| {
            let mut code = SymbolOnlyCode::new(pid.0, machine, FileKind::XrayTrace);
            let synthetic_symbols = &process.frame_addresses.synthetic_symbols;
            // Before its first record, the process may have run another program.
            synthetic_symbols.load(&mut code, RuntimeTime(process.since.0));
            (!code.is_empty()).then_some((process.file, *pid, code))
        })
    }

    /// Returns the summary of each trace.
    pub fn summaries(&self) -> Vec<TraceSummary> {
        let all = self.all.iter().zip(&self.counts);
        let summaries = all.map(|(trace, counts)| TraceSummary {
            path: trace.name(),
            version: trace.trace.header().version,
            threads: trace.threads.iter().flatten().count() as u64,
            calls: counts.calls,
            events: counts.events,
            clock: trace.clock.note.clone(),
        });
        summaries.collect()
    }
}

impl ReadTrace<'_> {
    /// Returns the trace's path for messages.
    pub fn name(&self) -> String {
        printable_path(self.file.path())
    }
}
