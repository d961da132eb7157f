//! Walk through the records of traces, thread by thread, on the profile's clock.

use std::slice;

use jitdump::{RuntimeTime, Tally, Time};

use crate::results::diagnostics::Issue;
use crate::traces::conversion::call_tree::CallStep;
use crate::traces::conversion::source::{EventContext, EventKind, TraceEvent};
use crate::traces::xray::clock::TraceClock;
use crate::traces::xray::format::{RecordKind, Trace, TraceBuffer, TraceRecords};
use crate::traces::xray::traces::{ReadTrace, TraceCounts};

/// A record with its time on the profile's clock.
pub type Event<'a> = TraceEvent<u32, RecordKind<'a>>;

/// Iterator over the records of one thread of a trace. A record whose tick steps back gets the time of the record
/// before.
#[derive(Debug)]
struct RecordWalk<'l, 'a> {
    trace: Trace<'a>,
    clock: TraceClock,
    buffers: slice::Iter<'l, TraceBuffer>,
    records: Option<TraceRecords<'a>>,
    /// Index among the threads of all traces.
    thread: usize,
    latest: Time,
    /// Whether the next record is the first of its buffer. [`TraceRecords`] counts ticks that step back inside a buffer.
    is_first: bool,
    faults: Tally<Issue>,
}

impl<'a> Iterator for RecordWalk<'_, 'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            if let Some(records) = &mut self.records {
                if let Some(record) = records.next() {
                    let time = self.clock.time(record.tick);
                    if self.is_first && time < self.latest {
                        self.faults.add(Issue::XrayTickBack, record.offset);
                    }
                    self.is_first = false;
                    self.latest = self.latest.max(time);
                    let context = EventContext {
                        thread: self.thread,
                        time: RuntimeTime(self.latest.0),
                        cpu: record.cpu.into(),
                        offset: record.offset,
                    };
                    let kind = kind(record.kind);
                    return Some(TraceEvent { context, kind });
                }
                self.faults.merge(records.faults());
            }
            self.records = Some(self.trace.records(self.buffers.next()?));
            self.is_first = true;
        }
    }
}

/// Returns what a record means for the stack of its thread.
fn kind(kind: RecordKind<'_>) -> EventKind<u32, RecordKind<'_>> {
    match kind {
        RecordKind::Enter { function } | RecordKind::EnterWithArguments { function } => {
            EventKind::Call(CallStep::Enter(function))
        }
        RecordKind::Exit { function } | RecordKind::TailExit { function } => {
            EventKind::Call(CallStep::Exit(function))
        }
        other => EventKind::Other(other),
    }
}

/// Iterator over the records of one thread of a trace that counts what it returns.
#[derive(Debug)]
pub struct ThreadWalk<'l, 'a> {
    walk: RecordWalk<'l, 'a>,
    /// Index of the trace.
    trace: usize,
    calls: u64,
    events: u64,
}

impl<'a> Iterator for ThreadWalk<'_, 'a> {
    type Item = Event<'a>;

    #[inline]
    fn next(&mut self) -> Option<Event<'a>> {
        let event = self.walk.next()?;
        match event.kind {
            EventKind::Call(CallStep::Enter(_)) => self.calls = self.calls.saturating_add(1),
            EventKind::Other(RecordKind::Custom { .. } | RecordKind::Typed { .. }) => {
                self.events = self.events.saturating_add(1);
            }
            _ => {}
        }
        Some(event)
    }
}

impl ThreadWalk<'_, '_> {
    /// Adds what was counted so far to the counts of the traces.
    pub fn add_to(&self, counts: &mut [TraceCounts]) {
        if let Some(counts) = counts.get_mut(self.trace) {
            counts.calls = counts.calls.saturating_add(self.calls);
            counts.events = counts.events.saturating_add(self.events);
            counts.faults.merge(&self.walk.faults);
        }
    }
}

/// Returns the records of each thread of `traces` that is in use.
pub fn walks<'l, 'a>(traces: &'l [ReadTrace<'a>]) -> impl Iterator<Item = ThreadWalk<'l, 'a>> {
    let threads = (0..).zip(traces).flat_map(|(index, trace)| {
        let threads = trace.index.threads().zip(&trace.threads);
        threads.map(move |(found, traced)| (index, trace, found, traced))
    });
    threads
        .enumerate()
        .filter_map(move |(thread, (index, trace, found, traced))| {
            traced.as_ref()?;
            let walk = RecordWalk {
                trace: trace.trace,
                clock: trace.clock.clock,
                buffers: found.buffers.iter(),
                records: None,
                thread,
                latest: Time::default(),
                is_first: false,
                faults: Tally::default(),
            };
            Some(ThreadWalk {
                walk,
                trace: index,
                calls: 0,
                events: 0,
            })
        })
}
