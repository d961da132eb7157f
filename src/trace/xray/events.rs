//! Conversion of traces' records into samples of a profile.

use std::collections::BTreeMap;
use std::io;

use crate::bytes::base_name;
use crate::diagnostics::Issue;
use crate::hash::{HashMap, HashSet};
use crate::perf::synthesis::{Comm, Sample, Thread, ThreadStart};
use crate::runtime::xray::RecordKind;
use crate::trace::call_tree::{CallTree, Stack, Step};
use crate::trace::chain::Chain;
use crate::trace::event_set::EventSet;
use crate::trace::merge::{Ahead, Merge};
use crate::trace::options::SamplingOptions;
use crate::trace::synthesize::{EventSource, Out};
use crate::trace::xray::binary::Binary;
use crate::trace::xray::event_selection::ProfileEvent;
use crate::trace::xray::replay::{Peeked, Timed, replay, step};
use crate::trace::xray::threads::TracedThread;
use crate::trace::xray::traces::{ReadTrace, TraceCounts, TracedProcess, Traces};
use crate::units::{Pid, Time};

/// Maximum number of samples that resampling makes of long calls, beyond one per record. After that, the time between
/// two records becomes one sample, whose period is all of its steps.
const MAX_EXTRA_SAMPLES: u64 = 1 << 22;

/// Returns an event source for all traces; nothing without traces.
pub fn event_sources<'l>(
    traces: &'l mut Traces<'_>,
    event_set: &'l EventSet<ProfileEvent>,
    sampling: SamplingOptions,
) -> Vec<Box<dyn EventSource + 'l>> {
    if traces.all.is_empty() {
        return Vec::new();
    }
    vec![Box::new(TraceEvents::new(traces, event_set, sampling))]
}

/// Counts the records of all traces, where they are not converted into events.
pub fn count_records(traces: &mut Traces<'_>) {
    let event_set = EventSet::new(0, std::iter::empty());
    let mut events = TraceEvents::new(traces, &event_set, SamplingOptions::default());
    while let Some(thread) = events.replay.next() {
        let index = thread.index;
        if let Some(timed) = thread.advance() {
            events.follow(index, &timed);
        }
    }
    events.finish();
}

/// State of a thread during the replay.
#[derive(Clone, Copy, Debug)]
struct ThreadState {
    /// Index of the trace.
    trace: usize,
    thread: Thread,
    is_known: bool,
    stack: Stack,
    /// Time of the thread's last call or return.
    since: Time,
}

/// Totals of a stack of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    nanoseconds: u64,
    calls: u64,
}

/// Properties of a sample besides its stack.
#[derive(Clone, Copy, Debug)]
struct SampleContext {
    /// Index of the trace.
    trace: usize,
    /// Index among the threads of all traces.
    thread: usize,
    time: Time,
    cpu: u16,
    /// Offset of the record in the trace, in bytes.
    offset: u64,
}

/// Converts the records of traces into samples.
#[derive(Debug)]
struct TraceEvents<'l, 'a> {
    replay: Merge<Peeked<'l, 'a>>,
    /// State of each thread of each trace; `None` for threads that are not used.
    threads: Vec<Option<ThreadState>>,
    counts: &'l mut [TraceCounts],
    processes: &'l mut BTreeMap<Pid, TracedProcess<'a>>,
    binary: Option<&'l Binary>,
    event_set: &'l EventSet<ProfileEvent>,
    sampling: SamplingOptions,
    calls: CallTree<u32>,
    chain: Chain,
    /// Totals by thread and stack, if samples are aggregated.
    sums: HashMap<(usize, Stack), Sum>,
    /// Totals that remain to be written at the end.
    left: std::vec::IntoIter<((usize, Stack), Sum)>,
    steps_left: u64,
    latest: Time,
    payload: Vec<u8>,
}

impl<'l, 'a> TraceEvents<'l, 'a> {
    fn new(
        traces: &'l mut Traces<'a>,
        event_set: &'l EventSet<ProfileEvent>,
        sampling: SamplingOptions,
    ) -> Self {
        traces.counts.fill(TraceCounts::default());
        Self {
            replay: replay(&traces.all, sampling.min_duration, |_| true),
            threads: thread_states(&traces.all),
            counts: &mut traces.counts,
            processes: &mut traces.processes,
            binary: traces.binary,
            event_set,
            sampling,
            calls: CallTree::default(),
            chain: Chain::default(),
            sums: HashMap::default(),
            left: Vec::new().into_iter(),
            steps_left: MAX_EXTRA_SAMPLES,
            latest: Time::default(),
            payload: Vec::new(),
        }
    }

    /// Applies a record to its thread. Returns the sample's properties, the call or return if it is one, and the
    /// thread's state before and after.
    fn follow(
        &mut self,
        index: usize,
        timed: &Timed<'a>,
    ) -> Option<(SampleContext, Option<Step<u32>>, [ThreadState; 2])> {
        let &Timed { time, record } = timed;
        let state = self.threads.get_mut(index)?.as_mut()?;
        let counts = self.counts.get_mut(state.trace)?;
        self.latest = time;
        let before = *state;
        let step = step(&record.kind);
        match step {
            Some(step) => {
                let calls = &mut self.calls;
                state.since = time;
                state.stack = calls.follow(before.stack, step, record.offset, &mut counts.losses);
                let is_call = matches!(step, Step::Enter(_));
                counts.calls = counts.calls.saturating_add(is_call.into());
            }
            None => {
                let is_event = matches!(record.kind, RecordKind::Custom { .. } | RecordKind::Typed { .. });
                counts.events = counts.events.saturating_add(is_event.into());
            }
        }
        let context = SampleContext {
            trace: before.trace,
            thread: index,
            time,
            cpu: record.cpu,
            offset: record.offset,
        };
        Some((context, step, [before, *state]))
    }

    fn write_record(&mut self, index: usize, timed: &Timed<'a>, out: &mut Out<'_>) -> io::Result<()> {
        let Some((context, step, [before, now])) = self.follow(index, timed) else {
            return Ok(());
        };
        let Some(step) = step else {
            return self.write_logged(context, before.stack, &timed.record.kind, out);
        };
        if before.stack != Stack::EMPTY {
            self.write_time(context, before, out)?;
        }
        match step {
            Step::Enter(_) => self.write_call(context, now.stack, out),
            Step::Exit(_) => Ok(()),
        }
    }

    /// Attributes the time since the last entry or exit to the thread's stack.
    fn write_time(
        &mut self,
        context: SampleContext,
        before: ThreadState,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        let spent = context.time.0.saturating_sub(before.since.0);
        if spent == 0 || self.event_set.index_of(ProfileEvent::SelfTime).is_none() {
            return Ok(());
        }
        if self.sampling.aggregate {
            let sum = self.sums.entry((context.thread, before.stack)).or_default();
            sum.nanoseconds = sum.nanoseconds.saturating_add(spent);
            return Ok(());
        }
        let (count, period) = match self.sampling.resample {
            None => (1, spent),
            Some(step) => {
                let step = step.max(1);
                let steps = (context.time.0 / step).saturating_sub(before.since.0 / step);
                match self.steps_left.checked_sub(steps) {
                    Some(left) => {
                        self.steps_left = left;
                        (steps, step)
                    }
                    None => (1, steps.saturating_mul(step)),
                }
            }
        };
        if count == 0 {
            return Ok(());
        }
        self.make_chain(context, before.stack);
        for _ in 0..count {
            self.write_sample(ProfileEvent::SelfTime, context, period, out)?;
        }
        Ok(())
    }

    fn write_call(&mut self, context: SampleContext, stack: Stack, out: &mut Out<'_>) -> io::Result<()> {
        if self.event_set.index_of(ProfileEvent::Call).is_none() {
            return Ok(());
        }
        if self.sampling.aggregate {
            let sum = self.sums.entry((context.thread, stack)).or_default();
            sum.calls = sum.calls.saturating_add(1);
            return Ok(());
        }
        self.make_chain(context, stack);
        self.write_sample(ProfileEvent::Call, context, 1, out)
    }

    /// Adds a sample of an event that the program logged, with the thread's stack.
    fn write_logged(
        &mut self,
        context: SampleContext,
        stack: Stack,
        kind: &RecordKind<'_>,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        if self.event_set.index_of(ProfileEvent::Custom).is_none() {
            return Ok(());
        }
        self.payload.clear();
        match *kind {
            RecordKind::Custom { payload } => self.payload.extend_from_slice(payload),
            RecordKind::Typed { kind, payload } => {
                self.payload.extend_from_slice(&kind.to_le_bytes());
                self.payload.extend_from_slice(payload);
            }
            _ => return Ok(()),
        }
        self.make_chain(context, stack);
        self.write_sample(ProfileEvent::Custom, context, 1, out)
    }

    fn make_chain(&mut self, context: SampleContext, stack: Stack) {
        self.chain.restart(None);
        let thread = self.threads.get(context.thread).copied().flatten();
        let process = thread.and_then(|state| self.processes.get_mut(&state.thread.pid));
        let Some(TracedProcess { frame_addresses, .. }) = process else {
            return;
        };
        let functions = self.calls.functions(stack);
        let is_whole = self
            .chain
            .add(functions.map(|function| frame_addresses.address(function)));
        if !is_whole && let Some(counts) = self.counts.get_mut(context.trace) {
            counts.losses.add(Issue::ChainTooLong, context.offset);
        }
    }

    /// Adds a sample with the current chain.
    fn write_sample(
        &self,
        profile_event: ProfileEvent,
        context: SampleContext,
        period: u64,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        let state = self.threads.get(context.thread).copied().flatten();
        let (Some(event), Some(state)) = (self.event_set.index_of(profile_event), state) else {
            return Ok(());
        };
        out.sample(&Sample {
            event,
            thread: state.thread,
            time: context.time,
            cpu: context.cpu.into(),
            period,
            chain: self.chain.frames(),
            raw: match profile_event {
                ProfileEvent::Custom => &self.payload,
                ProfileEvent::SelfTime | ProfileEvent::Call => b"",
            },
        })
    }

    /// Adds the samples for the totals of the next stack.
    fn write_sum(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        let Some(((thread, stack), sum)) = self.left.next() else {
            return Ok(());
        };
        let context = SampleContext {
            trace: 0,
            thread,
            time: self.latest,
            cpu: 0,
            offset: 0,
        };
        self.make_chain(context, stack);
        for (profile_event, period) in [
            (ProfileEvent::SelfTime, sum.nanoseconds),
            (ProfileEvent::Call, sum.calls),
        ] {
            if period > 0 {
                self.write_sample(profile_event, context, period, out)?;
            }
        }
        Ok(())
    }

    /// Returns the name of a process: its binary's, or that in the name of a trace which XRay's runtime has named.
    fn process_name(&self, pid: Pid) -> Vec<u8> {
        if let Some(binary) = self.binary {
            return base_name(&binary.path).to_vec();
        }
        let file = self.processes.get(&pid).map(|process| process.file.path());
        let name = file.and_then(|path| path.file_name()).unwrap_or_default();
        let name = name.as_encoded_bytes();
        let parts: Vec<&[u8]> = name.split(|&byte| byte == b'.').collect();
        match parts[..] {
            [b"xray-log", ref inner @ .., _random] if !inner.is_empty() => inner.join(&b'.'),
            _ => b"xray".to_vec(),
        }
    }
}

/// Returns the threads of all traces, in order. A thread with several traces has a state for each: calls that are open
/// at the end of one trace end there.
fn thread_states(traces: &[ReadTrace<'_>]) -> Vec<Option<ThreadState>> {
    let mut known: HashSet<Thread> = HashSet::default();
    let threads = traces
        .iter()
        .enumerate()
        .flat_map(|(trace, read)| read.threads.iter().map(move |traced| (trace, traced)));
    let state = threads.map(|(trace, traced)| {
        let TracedThread { thread, is_known } = (*traced)?;
        Some(ThreadState {
            trace,
            thread,
            is_known: is_known || !known.insert(thread),
            stack: Stack::EMPTY,
            since: Time::default(),
        })
    });
    state.collect()
}

impl EventSource for TraceEvents<'_, '_> {
    fn next_time(&mut self) -> Option<Time> {
        if let Some(time) = self.replay.next().and_then(Ahead::time) {
            return Some(time);
        }
        if !self.sums.is_empty() {
            let mut sums: Vec<_> = std::mem::take(&mut self.sums).into_iter().collect();
            sums.sort_unstable_by_key(|&(key, _)| key);
            self.left = sums.into_iter();
        }
        (self.left.len() > 0).then_some(self.latest)
    }

    fn write_start(&self, out: &mut Out<'_>, start: Time, is_alone: bool) -> io::Result<()> {
        for (&pid, process) in self.processes.iter().filter(|_| is_alone) {
            let thread = Thread::first_of(pid);
            out.comm(&Comm {
                thread,
                time: start,
                name: &self.process_name(pid),
                is_exec: true,
            })?;
            if let Some((binary, base)) = self.binary.zip(process.base) {
                for mapping in binary.mappings(pid, base, start) {
                    out.map(&mapping)?;
                }
            }
        }
        for state in self.threads.iter().flatten() {
            let parent = Thread::first_of(state.thread.pid);
            if !state.is_known && state.thread != parent {
                out.fork(&ThreadStart {
                    thread: state.thread,
                    parent,
                    time: start,
                })?;
            }
        }
        Ok(())
    }

    fn write_next(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        let Some(thread) = self.replay.next() else {
            return self.write_sum(out);
        };
        let index = thread.index;
        match thread.advance() {
            Some(timed) => self.write_record(index, &timed, out),
            None => Ok(()),
        }
    }

    fn finish(&mut self) {
        for thread in self.replay.sources() {
            let state = self.threads.get(thread.index).copied().flatten();
            if let Some(counts) = state.and_then(|state| self.counts.get_mut(state.trace)) {
                counts.faults.merge(thread.faults());
            }
        }
        let is_full = self
            .processes
            .values()
            .any(|process| process.frame_addresses.synthetic_symbols().is_full());
        if let Some(counts) = self.counts.first_mut() {
            counts.losses.add_many(Issue::TooManyNames, is_full.into(), 0);
        }
    }
}
