//! What can be asked for, and the events of the profile that it becomes.

use crate::inject::Options;
use crate::inject::events::EventSet;
use crate::inject::mono::{Logs, ReadLog};
use crate::perf::synthesis::{Definition, Measure};
use crate::runtime::mono::event::Kind;

/// What becomes an event of the profile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MonoEvent {
    /// Objects that were allocated.
    Allocations,
    /// Exceptions that were thrown.
    Exceptions,
    /// Waiting for locks.
    Contention,
    /// Garbage collections.
    Collections,
    /// Objects in shots of the heap.
    Heap,
    /// The profiler's own samples.
    Samples,
    /// Calls, and the time between them.
    Calls,
}

impl MonoEvent {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Allocations,
        Self::Exceptions,
        Self::Contention,
        Self::Collections,
        Self::Heap,
        Self::Samples,
        Self::Calls,
    ];

    /// What an event of a log becomes.
    pub fn of(kind: &Kind<'_>) -> Option<Self> {
        match kind {
            Kind::Allocation { .. } => Some(Self::Allocations),
            Kind::Throw { .. } => Some(Self::Exceptions),
            Kind::Monitor { .. } => Some(Self::Contention),
            Kind::Collection { .. } => Some(Self::Collections),
            Kind::HeapObject { .. } => Some(Self::Heap),
            Kind::SampleHit { .. } => Some(Self::Samples),
            Kind::Enter(_) | Kind::Leave(_) | Kind::ExceptionLeave(_) => Some(Self::Calls),
            _ => None,
        }
    }

    /// The option of Mono's profiler that makes it write them.
    pub fn profiler_option(self) -> &'static str {
        match self {
            Self::Contention => "monitor",
            Self::Heap => "heapshot",
            _ => self.name(),
        }
    }

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocations => "alloc",
            Self::Exceptions => "exception",
            Self::Contention => "contention",
            Self::Collections => "gc",
            Self::Heap => "heap",
            Self::Samples => "sample",
            Self::Calls => "calls",
        }
    }
}

/// The events of the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// Bytes of objects that were allocated.
    Allocation,
    /// Exceptions that were thrown.
    Exception,
    /// Time that was spent waiting for locks.
    Contention,
    /// Time that a collection took.
    Collection,
    /// Time for which the program stood.
    Pause,
    /// Bytes of objects in a shot of the heap.
    Heap,
    /// The profiler's own samples.
    Sample,
    /// Time between calls and returns.
    SelfTime,
    /// Calls.
    Call,
}

/// The events of the profile, with what each is made for.
const MADE: [(MonoEvent, Made, Definition<'static>); 9] = [
    made(
        MonoEvent::Allocations,
        Made::Allocation,
        b"mono/alloc-bytes/",
        Measure::Count,
    ),
    made(
        MonoEvent::Exceptions,
        Made::Exception,
        b"mono/exception/",
        Measure::Count,
    ),
    made(
        MonoEvent::Contention,
        Made::Contention,
        b"mono/contention-ns/",
        Measure::Nanoseconds,
    ),
    made(
        MonoEvent::Collections,
        Made::Collection,
        b"mono/gc-ns/",
        Measure::Nanoseconds,
    ),
    made(
        MonoEvent::Collections,
        Made::Pause,
        b"mono/gc-pause-ns/",
        Measure::Nanoseconds,
    ),
    made(MonoEvent::Heap, Made::Heap, b"mono/heap-bytes/", Measure::Count),
    made(MonoEvent::Samples, Made::Sample, b"mono/sample/", Measure::Count),
    made(
        MonoEvent::Calls,
        Made::SelfTime,
        b"mono/self-ns/",
        Measure::Nanoseconds,
    ),
    made(MonoEvent::Calls, Made::Call, b"mono/calls/", Measure::Count),
];

const fn made(
    asked: MonoEvent,
    made: Made,
    name: &'static [u8],
    measure: Measure,
) -> (MonoEvent, Made, Definition<'static>) {
    (asked, made, Definition { name, measure })
}

/// What is wanted of logs, be they beside a profile or not; `None` is all that there is.
pub fn wanted(options: &Options, is_beside: bool) -> Option<&[MonoEvent]> {
    match &options.mono_events {
        Some(kinds) => Some(kinds),
        None => is_beside.then_some(&[]),
    }
}

/// The events that `logs`, which are prepared, are asked for. They come behind `first` others.
pub fn select_events(
    options: &Options,
    logs: &mut Logs<'_>,
    is_beside: bool,
    first: usize,
) -> EventSet<Made> {
    let kinds = asked_kinds(wanted(options, is_beside), &logs.all, &mut logs.notes);
    let made = MADE.iter().filter(|(asked, ..)| kinds.contains(asked));
    EventSet::new(first, made.map(|&(_, made, definition)| (made, definition)))
}

/// What there is of what is wanted; notes what there is not.
fn asked_kinds(
    wanted: Option<&[MonoEvent]>,
    logs: &[ReadLog<'_>],
    notes: &mut Vec<String>,
) -> Vec<MonoEvent> {
    let prepared = || logs.iter().filter_map(|log| log.prepared.as_ref());
    let has = |kind: &MonoEvent| prepared().any(|log| log.events.contains(kind));
    if logs.is_empty() {
        return Vec::new();
    }
    let Some(wanted) = wanted else {
        let all: Vec<MonoEvent> = MonoEvent::ALL.into_iter().filter(has).collect();
        if all.is_empty() {
            let options = MonoEvent::ALL.map(MonoEvent::profiler_option).join(", ");
            notes.push(format!(
                "no log has events that can become samples; start Mono with --profile=log: and some of {options}"
            ));
        }
        return all;
    };
    for kind in wanted.iter().filter(|kind| !has(kind)) {
        let (name, option) = (kind.name(), kind.profiler_option());
        notes.push(format!(
            "no log has events for {name}; start Mono with --profile=log:{option}"
        ));
    }
    wanted.iter().copied().filter(has).collect()
}
