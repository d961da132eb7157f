//! Reading of traces, and their clocks, processes and threads.

use std::collections::BTreeSet;
use std::sync::Arc;

use jitdump::Time;

use crate::code::clock::ProfileClock;
use crate::code::process::Processes;
use crate::code::profile_index::IndexedProfile;
use crate::collections::hash::HashMap;
use crate::files::InputFile;
use crate::perf::synthetic::SyntheticThread;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::conversion::source::TracedThread;
use crate::traces::options::TraceOptions;
use crate::traces::xray::binary::{InstrumentedBinary, LoadBias};
use crate::traces::xray::clock;
use crate::traces::xray::format::Trace;
use crate::traces::xray::frame_addresses::FrameAddresses;
use crate::traces::xray::threads::{ProfileThreads, threads};
use crate::traces::xray::traces::{ReadTrace, TraceCounts, TracedProcess, Traces};
use crate::units::Pid;

/// Reads the traces that were opened, and the instrumented binary. `clock_offset` is the number of nanoseconds to add to
/// the times of traces, if the user gave it. `recorded` is the profile that they belong to, if there is one. Fails if a trace
/// has an invalid header.
pub fn read<'a>(
    options: &TraceOptions,
    clock_offset: Option<i64>,
    files: &'a [Arc<InputFile>],
    binary: Option<&'a InstrumentedBinary>,
    recorded: Option<&IndexedProfile<'_>>,
) -> Result<Traces<'a>, Diagnostic> {
    let mut traces = Traces {
        binary,
        ..Traces::default()
    };
    if files.is_empty() {
        return Ok(traces);
    }
    let clock = recorded.map(|recorded| ProfileClock::of(recorded, clock_offset));
    let known = recorded.map(ProfileThreads::of);
    for file in files {
        traces.add_trace(options, clock_offset, file, clock.as_ref(), known.as_ref())?;
    }
    traces.counts = vec![TraceCounts::default(); traces.all.len()];
    let bases = match (traces.binary, recorded) {
        (Some(binary), Some(recorded)) => binary.bases(recorded, &mut traces.diagnostics),
        _ => HashMap::default(),
    };
    if traces.binary.is_none() {
        traces.diagnostics.push(Diagnostic::new(Issue::XrayNoBinary));
    }
    let without_base = traces.add_processes(files, &bases, recorded);
    if let Some(binary) = binary.filter(|_| !bases.is_empty() && without_base > 0) {
        let without = Diagnostic::new(Issue::XrayProcessesWithoutBinary).in_file(binary.file.path());
        traces.diagnostics.push(without.times(without_base));
    }
    Ok(traces)
}

impl<'a> Traces<'a> {
    /// Adds the processes of the traces of `files`, which start with their first record. Returns the number of those in which the
    /// binary has no load bias.
    fn add_processes(
        &mut self,
        files: &'a [Arc<InputFile>],
        bases: &HashMap<Pid, LoadBias>,
        recorded: Option<&IndexedProfile<'_>>,
    ) -> u64 {
        let nobody = Processes::default();
        let processes = recorded.map_or(&nobody, |recorded| &recorded.index.processes);
        let binary = self.binary;
        let mut without_base = 0u64;
        for (file, trace) in files.iter().zip(&self.all) {
            for (thread, found) in trace.index.threads().zip(&trace.threads) {
                let Some(TracedThread {
                    thread: SyntheticThread { pid, .. },
                    ..
                }) = *found
                else {
                    continue;
                };
                let process = self.processes.entry(pid).or_insert_with(|| {
                    let base = match recorded {
                        Some(_) => base_of(pid, bases, processes),
                        None => binary.map(InstrumentedBinary::default_base),
                    };
                    without_base = without_base.saturating_add(base.is_none().into());
                    TracedProcess::new(file, pid, binary, base, processes)
                });
                let first = thread
                    .buffers
                    .iter()
                    .map(|buffer| trace.clock.clock.time(buffer.tick));
                let first = first.min().unwrap_or_default().0.saturating_sub(1);
                process.since = process.since.min(Time(first));
            }
        }
        without_base
    }

    /// Reads a trace and adds its threads. `known` are the threads of the profile, which decide on processes.
    fn add_trace(
        &mut self,
        options: &TraceOptions,
        clock_offset: Option<i64>,
        file: &'a Arc<InputFile>,
        profile_clock: Option<&ProfileClock>,
        known: Option<&ProfileThreads<'_>>,
    ) -> Result<(), Diagnostic> {
        let trace = Trace::parse(file).map_err(|error| error.in_file(file.path()))?;
        let index = trace.index();
        let clock = clock::determine(&trace, &index, profile_clock, clock_offset);
        let path = file.path();
        let mut report = |issue| self.diagnostics.push(Diagnostic::new(issue).in_file(path));
        if let Some(warning) = clock.warning {
            report(warning);
        }
        if self.all.first().is_some_and(|first| first.clock.id != clock.id) {
            report(Issue::XrayClockOfFirst);
        }
        let threads = threads(&index, known, options.pid);
        let strangers: BTreeSet<Pid> = threads.iter().filter_map(|thread| thread.err()).collect();
        if let Some(pid) = strangers.first() {
            let others = match strangers.len() {
                1 => String::new(),
                all => format!(" (and {} others)", all - 1),
            };
            let unknown = Diagnostic::new(Issue::XrayUnknownProcess).in_file(path);
            self.diagnostics
                .push(unknown.with("pid", pid).with("others", others));
        }
        self.all.push(ReadTrace {
            file,
            trace,
            index,
            clock,
            threads: threads.into_iter().map(Result::ok).collect(),
        });
        Ok(())
    }
}

/// Returns the load bias of the binary in a process. A child has its parent's until it executes another program.
fn base_of(pid: Pid, bases: &HashMap<Pid, LoadBias>, processes: &Processes) -> Option<LoadBias> {
    let first = processes.spaces_of(pid).next().map(|(space, _)| space);
    let ancestors = first.into_iter().flat_map(|space| processes.all_ancestors(space));
    let mut pids = std::iter::once(pid).chain(ancestors.map(|(_, space)| space.pid));
    pids.find_map(|pid| bases.get(&pid).copied())
}

impl<'a> TracedProcess<'a> {
    /// Prepares a process of a trace, before its first record.
    fn new(
        file: &'a Arc<InputFile>,
        pid: Pid,
        binary: Option<&'a InstrumentedBinary>,
        base: Option<LoadBias>,
        processes: &Processes,
    ) -> Self {
        let functions = binary.map(|binary| &binary.functions);
        let is_64 = functions.is_none_or(|functions| functions.pointer_size == 8);
        Self {
            file,
            frame_addresses: FrameAddresses::new(functions.zip(base), processes, pid, is_64),
            base,
            since: Time::LAST,
        }
    }
}
