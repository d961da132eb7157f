//! Replay of the records of traces in time order, on the profile's clock.
//!
//! Each buffer of a trace holds the records of one thread. A thread's buffers are read one after the other, and all
//! threads of all traces are merged. One record of each thread is held in memory, or more if short calls are left out.

use std::slice;

use crate::diagnostics::Issue;
use crate::perf::synthesis::Thread;
use crate::runtime::xray::{Buffer, Record, RecordKind, Records, Trace};
use crate::tally::Tally;
use crate::trace::call_tree::Step;
use crate::trace::merge::{Ahead, Merge};
use crate::trace::xray::clock::TraceClock;
use crate::trace::xray::long_calls::LongCalls;
use crate::trace::xray::traces::ReadTrace;
use crate::units::Time;

/// A record with its time.
#[derive(Clone, Copy, Debug)]
pub struct Timed<'a> {
    /// Time on the profile's clock. A record whose tick steps back gets the time of the record before.
    pub time: Time,
    /// The record.
    pub record: Record<'a>,
}

/// Iterator over the records of one thread of a trace.
#[derive(Debug)]
pub struct ThreadWalk<'t, 'a> {
    trace: Trace<'a>,
    clock: TraceClock,
    buffers: slice::Iter<'t, Buffer>,
    records: Option<Records<'a>>,
    latest: Time,
    /// Whether the next record is the first of its buffer. [`Records`] counts ticks that step back inside a buffer.
    is_first: bool,
    faults: Tally<Issue>,
}

impl<'a> Iterator for ThreadWalk<'_, 'a> {
    type Item = Timed<'a>;

    fn next(&mut self) -> Option<Timed<'a>> {
        loop {
            if let Some(records) = &mut self.records {
                if let Some(record) = records.next() {
                    let time = self.clock.time(record.tick);
                    if self.is_first && time < self.latest {
                        self.faults.add(Issue::XrayTickBack, record.offset);
                    }
                    self.is_first = false;
                    self.latest = self.latest.max(time);
                    return Some(Timed {
                        time: self.latest,
                        record,
                    });
                }
                self.faults.merge(records.faults());
            }
            self.records = Some(self.trace.records(self.buffers.next()?));
            self.is_first = true;
        }
    }
}

impl ThreadWalk<'_, '_> {
    /// Returns the faults of the records read so far.
    pub fn faults(&self) -> &Tally<Issue> {
        &self.faults
    }
}

/// Returns the call or return that a record logs.
pub fn step(kind: &RecordKind<'_>) -> Option<Step<u32>> {
    match *kind {
        RecordKind::Enter { function } | RecordKind::EnterWithArguments { function } => {
            Some(Step::Enter(function))
        }
        RecordKind::Exit { function } | RecordKind::TailExit { function } => Some(Step::Exit(function)),
        _ => None,
    }
}

/// A thread with its next record.
#[derive(Debug)]
pub struct Peeked<'t, 'a> {
    walk: LongCalls<ThreadWalk<'t, 'a>>,
    ahead: Option<Timed<'a>>,
    /// Index among the threads of all traces.
    pub index: usize,
}

impl<'a> Peeked<'_, 'a> {
    /// Returns the next record, and reads the one after it.
    #[inline]
    pub fn advance(&mut self) -> Option<Timed<'a>> {
        std::mem::replace(&mut self.ahead, self.walk.next())
    }

    /// Returns the faults of the records read so far.
    pub fn faults(&self) -> &Tally<Issue> {
        self.walk.records().faults()
    }
}

impl Ahead for Peeked<'_, '_> {
    type Time = Time;

    #[inline]
    fn time(&mut self) -> Option<Time> {
        self.ahead.map(|ahead| ahead.time)
    }
}

/// Replays the records of the threads of `traces` that are in use and `wanted`. Calls shorter than `least` nanoseconds
/// are left out.
pub fn replay<'t, 'a>(
    traces: &'t [ReadTrace<'a>],
    least: u64,
    wanted: impl Fn(Thread) -> bool,
) -> Merge<Peeked<'t, 'a>> {
    let mut threads = Vec::new();
    let mut index = 0usize;
    for trace in traces {
        for (thread, traced) in trace.index.threads().zip(&trace.threads) {
            if traced.is_some_and(|traced| wanted(traced.thread)) {
                let walk = ThreadWalk {
                    trace: trace.trace,
                    clock: trace.clock.clock,
                    buffers: thread.buffers.iter(),
                    records: None,
                    latest: Time::default(),
                    is_first: false,
                    faults: Tally::default(),
                };
                let mut walk = LongCalls::new(walk, least);
                threads.push(Peeked {
                    ahead: walk.next(),
                    walk,
                    index,
                });
            }
            index = index.saturating_add(1);
        }
    }
    Merge::new(threads)
}
