//! The records of traces in the order of time, on the profile's clock.
//!
//! A trace has buffers of one thread each, and a thread's follow each other; those of all threads of all traces are
//! merged. No more than one record of each thread is looked at ahead, and more only where short calls are left out.

use std::slice;

use crate::inject::events::{Ahead, Merge, Step};
use crate::inject::xray::ReadTrace;
use crate::inject::xray::clock::TraceClock;
use crate::inject::xray::long_calls::LongCalls;
use crate::perf::synthesis::Thread;
use crate::runtime::xray::{Buffer, Fault, Record, Records, Trace, What};
use crate::tally::Tally;
use crate::units::Time;

/// A record with its time.
#[derive(Clone, Copy, Debug)]
pub struct Timed<'a> {
    /// When, on the profile's clock. A record whose tick steps back is where the one before it was.
    pub time: Time,
    /// What happened.
    pub record: Record<'a>,
}

/// The records of a thread of one trace, one by one.
#[derive(Debug)]
pub struct ThreadWalk<'t, 'a> {
    trace: Trace<'a>,
    clock: TraceClock,
    buffers: slice::Iter<'t, Buffer>,
    records: Option<Records<'a>>,
    latest: Time,
    /// Whether the next record is the first one of its buffer. Others are counted by their buffer.
    is_first: bool,
    faults: Tally<Fault>,
}

impl<'a> Iterator for ThreadWalk<'_, 'a> {
    type Item = Timed<'a>;

    fn next(&mut self) -> Option<Timed<'a>> {
        loop {
            if let Some(records) = &mut self.records {
                if let Some(record) = records.next() {
                    let time = self.clock.time(record.tick);
                    if self.is_first && time < self.latest {
                        self.faults.add(Fault::TickBack, record.offset);
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
    /// What could not be used of what was walked so far.
    pub fn faults(&self) -> &Tally<Fault> {
        &self.faults
    }
}

/// What a record tells of calls.
pub fn step(what: &What<'_>) -> Option<Step<u32>> {
    match *what {
        What::Enter { function } | What::EnterWithArguments { function } => Some(Step::Enter(function)),
        What::Exit { function } | What::TailExit { function } => Some(Step::Exit(function)),
        _ => None,
    }
}

/// A thread with its next record ahead.
#[derive(Debug)]
pub struct Peeked<'t, 'a> {
    walk: LongCalls<ThreadWalk<'t, 'a>>,
    ahead: Option<Timed<'a>>,
    /// Its place among the threads of all traces.
    pub place: usize,
}

impl<'a> Peeked<'_, 'a> {
    /// The next record; the one behind it is then ahead.
    #[inline]
    pub fn advance(&mut self) -> Option<Timed<'a>> {
        std::mem::replace(&mut self.ahead, self.walk.next())
    }

    /// What could not be used of what was walked so far.
    pub fn faults(&self) -> &Tally<Fault> {
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

/// Walks the records of those threads of `traces` that are used and `wanted`, without calls shorter than `least`
/// nanoseconds.
pub fn replay<'t, 'a>(
    traces: &'t [ReadTrace<'a>],
    least: u64,
    wanted: impl Fn(Thread) -> bool,
) -> Merge<Peeked<'t, 'a>> {
    let mut threads = Vec::new();
    let mut place = 0usize;
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
                    place,
                });
            }
            place = place.saturating_add(1);
        }
    }
    Merge::new(threads)
}
