//! Records of traces as events of a profile.

use std::collections::BTreeMap;
use std::io;

use crate::bytes::base_name;
use crate::code::call_tree::Stack;
use crate::hash::{HashMap, HashSet};
use crate::inject::events::synthesize::Out;
use crate::inject::events::{Ahead, Calls, Chain, EventSet, EventSource, Loss, Merge, Step};
use crate::inject::xray::binary::Binary;
use crate::inject::xray::event_selection::Made;
use crate::inject::xray::replay::{Peeked, Timed, replay, step};
use crate::inject::xray::threads::TracedThread;
use crate::inject::xray::{ReadTrace, Seen, TracedProcess, Traces};
use crate::perf::synthesis::{Comm, Sample, Task, Thread};
use crate::runtime::xray::What;
use crate::units::{Pid, Time};

/// How many samples more than a trace has records are made of long calls, one for each step of time. What is beyond
/// that gets one sample for all of its steps.
const MOST_STEPS: u64 = 1 << 22;

/// How events are made fewer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SamplingOptions {
    /// One sample of each thread for so many nanoseconds of its calls, if not for each time between two records.
    pub resample: Option<u64>,
    /// One sample for each stack of each thread, with all that was spent there.
    pub aggregate: bool,
    /// The shortest calls that are told, in nanoseconds. The time of others is that of their callers.
    pub min_duration: u64,
}

/// `traces` as events; none if there is no trace.
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

/// Walks all records of `traces` for what is to be told of them, and makes nothing.
pub fn count(traces: &mut Traces<'_>, event_set: &EventSet<Made>) {
    let mut events = TraceEvents::new(traces, event_set, SamplingOptions::default());
    while let Some(thread) = events.replay.next() {
        let place = thread.place;
        if let Some(timed) = thread.advance() {
            events.follow(place, &timed);
        }
    }
    events.finish();
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug)]
struct ThreadState {
    /// Which trace tells of it.
    trace: usize,
    thread: Thread,
    is_known: bool,
    stack: Stack,
    /// Since when nothing has been told of its calls.
    since: Time,
}

/// What is told of a stack of a thread as a whole.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    nanoseconds: u64,
    calls: u64,
}

/// What a sample is made of, beside its stack.
#[derive(Clone, Copy, Debug)]
struct Of {
    /// Which trace.
    trace: usize,
    /// Which of all threads.
    thread: usize,
    time: Time,
    cpu: u16,
    /// Where in the trace.
    offset: u64,
}

/// Turns the records of traces into samples.
#[derive(Debug)]
struct TraceEvents<'l, 'a> {
    replay: Merge<Peeked<'l, 'a>>,
    /// Of each thread of each trace; `None` of those that are not used.
    doing: Vec<Option<ThreadState>>,
    seen: &'l mut [Seen],
    processes: &'l mut BTreeMap<Pid, TracedProcess<'a>>,
    binary: Option<&'l Binary>,
    event_set: &'l EventSet<Made>,
    shape: SamplingOptions,
    calls: Calls<u32>,
    chain: Chain,
    /// By thread and stack, if they are to be told of as a whole.
    sums: HashMap<(usize, Stack), Sum>,
    /// The same in the end, those that are left.
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
            doing: threads(&traces.all),
            seen: &mut traces.seen,
            processes: &mut traces.processes,
            binary: traces.binary,
            event_set,
            shape,
            calls: Calls::default(),
            chain: Chain::default(),
            sums: HashMap::default(),
            left: Vec::new().into_iter(),
            steps_left: MOST_STEPS,
            latest: Time::default(),
            payload: Vec::new(),
        }
    }

    /// Follows what a record tells of its thread. Returns what is known of it, the step if it is one, and what the thread
    /// was doing before and since.
    fn follow(
        &mut self,
        place: usize,
        timed: &Timed<'a>,
    ) -> Option<(Of, Option<Step<u32>>, [ThreadState; 2])> {
        let &Timed { time, record } = timed;
        let doing = self.doing.get_mut(place)?.as_mut()?;
        let seen = self.seen.get_mut(doing.trace)?;
        self.latest = time;
        let before = *doing;
        let step = step(&record.what);
        match step {
            Some(step) => {
                let calls = &mut self.calls;
                doing.since = time;
                doing.stack = calls.follow(before.stack, step, record.offset, &mut seen.losses);
                let is_call = matches!(step, Step::Enter(_));
                seen.calls = seen.calls.saturating_add(is_call.into());
            }
            None => {
                let is_event = matches!(record.what, What::Custom { .. } | What::Typed { .. });
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
        Some((of, step, [before, *doing]))
    }

    fn write_record(&mut self, place: usize, timed: &Timed<'a>, out: &mut Out<'_>) -> io::Result<()> {
        let Some((of, step, [before, now])) = self.follow(place, timed) else {
            return Ok(());
        };
        let Some(step) = step else {
            return self.write_logged(of, before.stack, &timed.record.what, out);
        };
        if before.stack != Stack::EMPTY {
            self.write_time(of, before, out)?;
        }
        match step {
            Step::Enter(_) => self.write_call(of, now.stack, out),
            Step::Exit(_) => Ok(()),
        }
    }

    /// The time since the last entry or exit was spent in the calls that the thread was in.
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

    /// What the program logged, with where it was.
    fn write_logged(&mut self, of: Of, stack: Stack, what: &What<'_>, out: &mut Out<'_>) -> io::Result<()> {
        if self.event_set.number(Made::Custom).is_none() {
            return Ok(());
        }
        self.payload.clear();
        match *what {
            What::Custom { payload } => self.payload.extend_from_slice(payload),
            What::Typed { kind, payload } => {
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
        let thread = self.doing.get(of.thread).copied().flatten();
        let process = thread.and_then(|doing| self.processes.get_mut(&doing.thread.pid));
        let Some(TracedProcess { places, .. }) = process else {
            return;
        };
        let functions = self.calls.functions(stack);
        let is_whole = self.chain.add(functions.map(|function| places.address(function)));
        if !is_whole && let Some(seen) = self.seen.get_mut(of.trace) {
            seen.losses.add(Loss::Frames, of.offset);
        }
    }

    /// Adds a sample with the chain that was made.
    fn put(&self, made: Made, of: Of, period: u64, out: &mut Out<'_>) -> io::Result<()> {
        let doing = self.doing.get(of.thread).copied().flatten();
        let (Some(event), Some(doing)) = (self.event_set.number(made), doing) else {
            return Ok(());
        };
        out.sample(&Sample {
            event,
            thread: doing.thread,
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

    /// Tells what was spent in a stack as a whole.
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

    /// What a process is called: as its binary, or its trace if that is named as XRay's runtime does.
    fn process_name(&self, pid: Pid) -> Vec<u8> {
        if let Some(binary) = self.binary {
            return base_name(&binary.path).to_vec();
        }
        let file = self.processes.get(&pid).map(|process| process.found.file.path());
        let name = file.and_then(|path| path.file_name()).unwrap_or_default();
        let name = name.as_encoded_bytes();
        let parts: Vec<&[u8]> = name.split(|&byte| byte == b'.').collect();
        match parts[..] {
            [b"xray-log", ref inner @ .., _random] if !inner.is_empty() => inner.join(&b'.'),
            _ => b"xray".to_vec(),
        }
    }
}

/// The threads of all traces, in their order. A thread of several traces is several: what was open at the end of one is
/// closed there.
fn threads(traces: &[ReadTrace<'_>]) -> Vec<Option<ThreadState>> {
    let mut known: HashSet<Thread> = HashSet::default();
    let threads = traces
        .iter()
        .enumerate()
        .flat_map(|(trace, read)| read.threads.iter().map(move |traced| (trace, traced)));
    let doing = threads.map(|(trace, traced)| {
        let TracedThread { thread, is_known } = (*traced)?;
        Some(ThreadState {
            trace,
            thread,
            is_known: is_known || !known.insert(thread),
            stack: Stack::EMPTY,
            since: Time::default(),
        })
    });
    doing.collect()
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
        for doing in self.doing.iter().flatten() {
            let parent = Thread::first_of(doing.thread.pid);
            if !doing.is_known && doing.thread != parent {
                out.fork(&Task {
                    thread: doing.thread,
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
            let doing = self.doing.get(thread.place).copied().flatten();
            if let Some(seen) = doing.and_then(|doing| self.seen.get_mut(doing.trace)) {
                seen.faults.merge(thread.faults());
            }
        }
        let is_full = self
            .processes
            .values()
            .any(|process| process.places.synthetic_symbols().is_full());
        if let Some(seen) = self.seen.first_mut() {
            seen.losses.add_many(Loss::Names, is_full.into(), 0);
        }
    }
}
