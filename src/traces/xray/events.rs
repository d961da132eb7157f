//! Records of traces, replayed for the samples made from them, and for the call chains of a profile's own samples.

use std::collections::BTreeMap;
use std::io;

use jitdump::{Address, RuntimeTime, Tally, Time};

use crate::bytes::base_name;
use crate::code::clock::Alignment;
use crate::collections::hash::HashSet;
use crate::perf::synthetic::SyntheticThread;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::conversion::chain::CallChain;
use crate::traces::conversion::event_selection::{EventSet, ProfileEvent};
use crate::traces::conversion::source::{EventContext, EventSample, ReplaySource, TracedThread};
use crate::traces::conversion::synthesis::Comm;
use crate::traces::conversion::synthesize::Out;
use crate::traces::xray::binary::InstrumentedBinary;
use crate::traces::xray::format::RecordKind;
use crate::traces::xray::traces::{ReadTrace, TraceCounts, TracedProcess, Traces};
use crate::traces::xray::walk::{ThreadWalk, walks};
use crate::units::Pid;

/// Returns the traces for the call chains of their processes; `None` if there are none, or no binary, which is reported.
pub fn call_source<'l, 'a>(traces: &'l mut Traces<'a>) -> Option<TraceSource<'l, 'a>> {
    if traces.all.is_empty() {
        return None;
    }
    if traces.binary.is_none() {
        traces
            .diagnostics
            .push(Diagnostic::new(Issue::XrayChainsNeedBinary));
        return None;
    }
    Some(TraceSource::new(traces, None))
}

/// All traces to replay.
#[derive(Debug)]
pub struct TraceSource<'l, 'a> {
    traces: &'l [ReadTrace<'a>],
    counts: &'l mut [TraceCounts],
    processes: &'l mut BTreeMap<Pid, TracedProcess<'a>>,
    binary: Option<&'l InstrumentedBinary>,
    /// Index of the trace of each thread.
    traces_of_threads: Vec<usize>,
    /// Process of each thread; `None` for threads that are not used.
    pids: Vec<Option<Pid>>,
    /// Events that become samples; `None` if none do.
    event_set: Option<&'l EventSet>,
}

impl<'l, 'a> TraceSource<'l, 'a> {
    /// Clears the counts of earlier replays.
    pub fn new(traces: &'l mut Traces<'a>, event_set: Option<&'l EventSet>) -> Self {
        traces.counts.fill(TraceCounts::default());
        let indexes = traces.all.iter().enumerate();
        let indexes = indexes.flat_map(|(index, trace)| trace.threads.iter().map(move |_| index));
        let threads = traces.all.iter().flat_map(|trace| &trace.threads);
        Self {
            traces_of_threads: indexes.collect(),
            pids: threads
                .map(|traced| traced.map(|traced| traced.thread.pid))
                .collect(),
            traces: &traces.all,
            counts: &mut traces.counts,
            processes: &mut traces.processes,
            binary: traces.binary,
            event_set,
        }
    }

    /// Returns the binary, and the address in it of an address in a process.
    fn linked(&self, pid: Pid, loaded: Address) -> Option<(&'l InstrumentedBinary, Address)> {
        let base = self.processes.get(&pid)?.base?;
        Some((self.binary?, base.linked(loaded)))
    }

    /// Returns the name of a process: that of its binary, or the one in the name that XRay's runtime gives a trace,
    /// `xray-log.NAME.RANDOM`, or `xray`.
    fn process_name(&self, process: &TracedProcess<'_>) -> Vec<u8> {
        if let Some(binary) = self.binary {
            return base_name(&binary.path).to_vec();
        }
        let trace = process.file.path().file_name().unwrap_or_default();
        let parts: Vec<&[u8]> = trace.as_encoded_bytes().split(|&byte| byte == b'.').collect();
        match parts[..] {
            [b"xray-log", ref inner @ .., _random] if !inner.is_empty() => inner.join(&b'.'),
            _ => b"xray".to_vec(),
        }
    }
}

impl<'l, 'a> ReplaySource for TraceSource<'l, 'a> {
    const SELF_TIME: ProfileEvent = ProfileEvent::XraySelfTime;
    const CALL: ProfileEvent = ProfileEvent::XrayCall;
    const CALL_TIME: Option<ProfileEvent> = Some(ProfileEvent::XrayCallTime);

    type Function = u32;
    type Other = RecordKind<'a>;
    type Events = ThreadWalk<'l, 'a>;

    /// Returns the threads of all traces. A thread with several traces is one thread for each: calls that are open at
    /// the end of one trace end there. Only the first of these starts in the profile.
    fn threads(&self) -> Vec<Option<TracedThread<'_>>> {
        let mut started: HashSet<SyntheticThread> = HashSet::default();
        let threads = self.traces.iter().flat_map(|trace| &trace.threads);
        let threads = threads.map(|&traced| {
            let mut traced = traced?;
            if !traced.is_introduced {
                let is_first = started.insert(traced.thread);
                traced.is_introduced = !is_first;
            }
            Some(traced)
        });
        threads.collect()
    }

    fn alignment(&self) -> Alignment {
        Alignment::Same
    }

    fn events(&self) -> impl Iterator<Item = ThreadWalk<'l, 'a>> {
        walks(self.traces)
    }

    fn add_frames(
        &mut self,
        chain: &mut CallChain,
        pid: Pid,
        functions: impl Iterator<Item = u32>,
        _time: RuntimeTime,
    ) -> bool {
        let process = self.processes.get_mut(&pid);
        process.is_none_or(|process| process.frame_addresses.add_to(chain, functions))
    }

    fn faults(&mut self, thread: usize) -> Option<&mut Tally<Issue>> {
        let counts = self.counts.get_mut(*self.traces_of_threads.get(thread)?)?;
        Some(&mut counts.conversion_faults)
    }

    fn sample(
        &mut self,
        context: &EventContext,
        record: RecordKind<'a>,
        chain: &mut CallChain,
        raw: &mut Vec<u8>,
    ) -> Option<EventSample> {
        let event = match record {
            RecordKind::Argument(_) => ProfileEvent::XrayArgument,
            _ => ProfileEvent::XrayCustom,
        };
        self.event_set?.index_of(event)?;
        match record {
            RecordKind::Argument(argument) => {
                let trace = self.traces.get(*self.traces_of_threads.get(context.thread)?)?;
                trace.trace.header().endian.write_u64(raw, argument);
            }
            RecordKind::Custom { payload } => raw.extend_from_slice(payload),
            RecordKind::Typed { kind, payload } => {
                raw.extend_from_slice(payload);
                let pid = self.pids.get(context.thread).copied().flatten()?;
                let process = self.processes.get_mut(&pid)?;
                let symbols = &mut process.frame_addresses.synthetic_symbols;
                chain.restart(Some(symbols.address(format!("[type {kind}]").as_bytes())));
            }
            _ => return None,
        }
        Some(EventSample {
            event,
            period: 1,
            is_in_calls: true,
        })
    }

    fn write_processes(&self, out: &mut Out<'_>, start: Time) -> io::Result<()> {
        for (&pid, process) in self.processes.iter() {
            out.comm(&Comm {
                thread: SyntheticThread::first_of(pid),
                time: start,
                name: &self.process_name(process),
                is_exec: true,
            })?;
            if let Some((binary, base)) = self.binary.zip(process.base) {
                for mapping in binary.mappings(pid, base, start) {
                    out.map(&mapping)?;
                }
            }
        }
        Ok(())
    }

    fn finish(self, threads: impl Iterator<Item = Self::Events>) {
        threads.for_each(|thread| thread.add_to(self.counts));
        // A process may have several traces: the first one reports what all lack.
        let Some(first) = self.counts.first_mut() else {
            return;
        };
        let mut has_too_many_names = false;
        for process in self.processes.values() {
            let addresses = &process.frame_addresses;
            has_too_many_names |= addresses.synthetic_symbols.is_full;
            first
                .conversion_faults
                .add_unplaced(Issue::XrayMissingFunctions, addresses.missing);
        }
        if has_too_many_names {
            first.conversion_faults.add_unplaced(Issue::TooManyNames, 1);
        }
    }

    fn processes(&self) -> Vec<(Pid, String)> {
        let with_base = self
            .processes
            .iter()
            .filter(|(_, process)| process.base.is_some());
        with_base
            .map(|(&pid, _)| (pid, format!("process {pid}")))
            .collect()
    }

    fn covers(&self, pid: Pid, leaf: Address) -> bool {
        self.linked(pid, leaf).is_some_and(|(binary, linked)| {
            let mut segments = binary.code.segments.0.iter();
            segments.any(|segment| segment.range.contains(linked))
        })
    }

    fn is_inside(&mut self, pid: Pid, function: u32, leaf: Address) -> bool {
        let sampled = self
            .linked(pid, leaf)
            .and_then(|(binary, linked)| binary.function_at(linked));
        let Some(process) = self.processes.get_mut(&pid) else {
            return false;
        };
        let function = process.frame_addresses.address(function);
        let sampled = process.base.zip(sampled).map(|(base, start)| base.loaded(start));
        sampled == Some(function)
    }
}
