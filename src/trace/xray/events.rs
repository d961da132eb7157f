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
use crate::trace::xray::event_selection::Made;
use crate::trace::xray::replay::{Peeked, Timed, replay, step};
use crate::trace::xray::threads::TracedThread;
use crate::trace::xray::traces::{ReadTrace, Seen, TracedProcess, Traces};
use crate::units::{Pid, Time};

/// Maximum number of samples that resampling makes of long calls, beyond one per record. After that, the time between
/// two records becomes one sample, whose period is all of its steps.
const MAX_EXTRA_SAMPLES: u64 = 1 << 22;

/// Returns an event source for all traces; nothing without traces.
pub fn event_sources<'l>(
    traces: &'l mut Traces<'_>,
    event_set: &'l EventSet<Made>,
    shape: SamplingOptions,
) -> Vec<Box<dyn EventSource + 'l>> {
    if traces.all.is_empty() {
        return Vec::new();
    }
    vec![Box::new(TraceEvents::new(traces, event_set, shape))]
}

/// Counts the records of all traces, where they are not converted into events.
pub fn count_records(traces: &mut Traces<'_>) {
    let event_set = EventSet::new(0, std::iter::empty());
    let mut events = TraceEvents::new(traces, &event_set, SamplingOptions::default());
    while let Some(thread) = events.replay.next() {
        let place = thread.place;
        if let Some(timed) = thread.advance() {
            events.follow(place, &timed);
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
struct Of {
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
    threads_state: Vec<Option<ThreadState>>,
    seen: &'l mut [Seen],
    processes: &'l mut BTreeMap<Pid, TracedProcess<'a>>,
    binary: Option<&'l Binary>,
    event_set: &'l EventSet<Made>,
    shape: SamplingOptions,
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
    fn new(traces: &'l mut Traces<'a>, event_set: &'l EventSet<Made>, shape: SamplingOptions) -> Self {
        traces.seen.fill(Seen::default());
        Self {
            replay: replay(&traces.all, shape.min_duration, |_| true),
            threads_state: threads(&traces.all),
            seen: &mut traces.seen,
            processes: &mut traces.processes,
            binary: traces.binary,
            event_set,
            shape,
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
        place: usize,
        timed: &Timed<'a>,
    ) -> Option<(Of, Option<Step<u32>>, [ThreadState; 2])> {
        let &Timed { time, record } = timed;
        let threads_state = self.threads_state.get_mut(place)?.as_mut()?;
        let seen = self.seen.get_mut(threads_state.trace)?;
        self.latest = time;
        let before = *threads_state;
        let step = step(&record.kind);
        match step {
            Some(step) => {
                let calls = &mut self.calls;
                threads_state.since = time;
                threads_state.stack = calls.follow(before.stack, step, record.offset, &mut seen.losses);
                let is_call = matches!(step, Step::Enter(_));
                seen.calls = seen.calls.saturating_add(is_call.into());
            }
            None => {
                let is_event = matches!(record.kind, RecordKind::Custom { .. } | RecordKind::Typed { .. });
                seen.events = seen.events.saturating_add(is_event.into());
            }
        }
        let of = Of {
            trace: before.trace,
            thread: place,
            time,
            cpu: record.cpu,
            offset: record.offset,
        };
        Some((of, step, [before, *threads_state]))
    }

    fn write_record(&mut self, place: usize, timed: &Timed<'a>, out: &mut Out<'_>) -> io::Result<()> {
        let Some((of, step, [before, now])) = self.follow(place, timed) else {
            return Ok(());
        };
        let Some(step) = step else {
            return self.write_logged(of, before.stack, &timed.record.kind, out);
        };
        if before.stack != Stack::EMPTY {
            self.write_time(of, before, out)?;
        }
        match step {
            Step::Enter(_) => self.write_call(of, now.stack, out),
            Step::Exit(_) => Ok(()),
        }
    }

    /// Attributes the time since the last entry or exit to the thread's stack.
    fn write_time(&mut self, of: Of, before: ThreadState, out: &mut Out<'_>) -> io::Result<()> {
        let spent = of.time.0.saturating_sub(before.since.0);
        if spent == 0 || self.event_set.number(Made::SelfTime).is_none() {
            return Ok(());
        }
        if self.shape.aggregate {
            let sum = self.sums.entry((of.thread, before.stack)).or_default();
            sum.nanoseconds = sum.nanoseconds.saturating_add(spent);
            return Ok(());
        }
        let (count, period) = match self.shape.resample {
            None => (1, spent),
            Some(step) => {
                let step = step.max(1);
                let steps = (of.time.0 / step).saturating_sub(before.since.0 / step);
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
        self.make_chain(of, before.stack);
        for _ in 0..count {
            self.put(Made::SelfTime, of, period, out)?;
        }
        Ok(())
    }

    fn write_call(&mut self, of: Of, stack: Stack, out: &mut Out<'_>) -> io::Result<()> {
        if self.event_set.number(Made::Call).is_none() {
            return Ok(());
        }
        if self.shape.aggregate {
            let sum = self.sums.entry((of.thread, stack)).or_default();
            sum.calls = sum.calls.saturating_add(1);
            return Ok(());
        }
        self.make_chain(of, stack);
        self.put(Made::Call, of, 1, out)
    }

    /// Adds a sample of an event that the program logged, with the thread's stack.
    fn write_logged(
        &mut self,
        of: Of,
        stack: Stack,
        kind: &RecordKind<'_>,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        if self.event_set.number(Made::Custom).is_none() {
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
        self.make_chain(of, stack);
        self.put(Made::Custom, of, 1, out)
    }

    fn make_chain(&mut self, of: Of, stack: Stack) {
        self.chain.restart(None);
        let thread = self.threads_state.get(of.thread).copied().flatten();
        let process = thread.and_then(|threads_state| self.processes.get_mut(&threads_state.thread.pid));
        let Some(TracedProcess { places, .. }) = process else {
            return;
        };
        let functions = self.calls.functions(stack);
        let is_whole = self.chain.add(functions.map(|function| places.address(function)));
        if !is_whole && let Some(seen) = self.seen.get_mut(of.trace) {
            seen.losses.add(Issue::ChainTooLong, of.offset);
        }
    }

    /// Adds a sample with the current chain.
    fn put(&self, made: Made, of: Of, period: u64, out: &mut Out<'_>) -> io::Result<()> {
        let threads_state = self.threads_state.get(of.thread).copied().flatten();
        let (Some(event), Some(threads_state)) = (self.event_set.number(made), threads_state) else {
            return Ok(());
        };
        out.sample(&Sample {
            event,
            thread: threads_state.thread,
            time: of.time,
            cpu: of.cpu.into(),
            period,
            chain: self.chain.frames(),
            raw: match made {
                Made::Custom => &self.payload,
                Made::SelfTime | Made::Call => b"",
            },
        })
    }

    /// Adds the samples for the totals of the next stack.
    fn write_sum(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        let Some(((thread, stack), sum)) = self.left.next() else {
            return Ok(());
        };
        let of = Of {
            trace: 0,
            thread,
            time: self.latest,
            cpu: 0,
            offset: 0,
        };
        self.make_chain(of, stack);
        for (made, period) in [(Made::SelfTime, sum.nanoseconds), (Made::Call, sum.calls)] {
            if period > 0 {
                self.put(made, of, period, out)?;
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
fn threads(traces: &[ReadTrace<'_>]) -> Vec<Option<ThreadState>> {
    let mut known: HashSet<Thread> = HashSet::default();
    let threads = traces
        .iter()
        .enumerate()
        .flat_map(|(trace, read)| read.threads.iter().map(move |traced| (trace, traced)));
    let threads_state = threads.map(|(trace, traced)| {
        let TracedThread { thread, is_known } = (*traced)?;
        Some(ThreadState {
            trace,
            thread,
            is_known: is_known || !known.insert(thread),
            stack: Stack::EMPTY,
            since: Time::default(),
        })
    });
    threads_state.collect()
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
        for threads_state in self.threads_state.iter().flatten() {
            let parent = Thread::first_of(threads_state.thread.pid);
            if !threads_state.is_known && threads_state.thread != parent {
                out.fork(&ThreadStart {
                    thread: threads_state.thread,
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
        let place = thread.place;
        match thread.advance() {
            Some(timed) => self.write_record(place, &timed, out),
            None => Ok(()),
        }
    }

    fn finish(&mut self) {
        for thread in self.replay.sources() {
            let threads_state = self.threads_state.get(thread.place).copied().flatten();
            if let Some(seen) = threads_state.and_then(|threads_state| self.seen.get_mut(threads_state.trace))
            {
                seen.faults.merge(thread.faults());
            }
        }
        let is_full = self
            .processes
            .values()
            .any(|process| process.places.synthetic_symbols().is_full());
        if let Some(seen) = self.seen.first_mut() {
            seen.losses.add_many(Issue::TooManyNames, is_full.into(), 0);
        }
    }
}
