//! Selection of the log events to convert, and the perf events that they become.

use crate::diagnostics::{Diagnostic, Issue};
use crate::perf::synthesis::{Definition, Measure};
use crate::runtime::mono::event::Kind;
use crate::trace::event_set::EventSet;
use crate::trace::mono::logs::{Logs, ReadLog};
use crate::trace::options::{MonoEvent, TraceOptions};

impl MonoEvent {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Allocations,
        Self::Exceptions,
        Self::Contention,
        Self::Collections,
        Self::Heap,
        Self::Samples,
        Self::Calls,
    ];

    /// Returns the kind of an event; `None` if it is not converted.
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

    /// Returns the option of Mono's profiler that enables these events.
    pub fn profiler_option(self) -> &'static str {
        match self {
            Self::Contention => "monitor",
            Self::Heap => "heapshot",
            _ => self.name(),
        }
    }

    /// Returns the name used on the command line.
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

/// An event of the profile that is made from log events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProfileEvent {
    /// Size of an allocated object, in bytes.
    Allocation,
    /// Number of exceptions.
    Exception,
    /// Time spent waiting for a lock, in nanoseconds.
    Contention,
    /// Duration of a garbage collection, in nanoseconds.
    Collection,
    /// Time for which a collection stopped the program, in nanoseconds.
    Pause,
    /// Size of an object in a heap snapshot, in bytes.
    Heap,
    /// Samples that Mono's profiler took.
    Sample,
    /// Time between calls and returns, in nanoseconds.
    SelfTime,
    /// Number of calls.
    Call,
}

/// Events of the profile, each with the kind of log events that it is made from, its name and its measure.
const PROFILE_EVENTS: [(MonoEvent, ProfileEvent, &[u8], Measure); 9] = [
    (
        MonoEvent::Allocations,
        ProfileEvent::Allocation,
        b"mono/alloc-bytes/",
        Measure::Count,
    ),
    (
        MonoEvent::Exceptions,
        ProfileEvent::Exception,
        b"mono/exception/",
        Measure::Count,
    ),
    (
        MonoEvent::Contention,
        ProfileEvent::Contention,
        b"mono/contention-ns/",
        Measure::Nanoseconds,
    ),
    (
        MonoEvent::Collections,
        ProfileEvent::Collection,
        b"mono/gc-ns/",
        Measure::Nanoseconds,
    ),
    (
        MonoEvent::Collections,
        ProfileEvent::Pause,
        b"mono/gc-pause-ns/",
        Measure::Nanoseconds,
    ),
    (
        MonoEvent::Heap,
        ProfileEvent::Heap,
        b"mono/heap-bytes/",
        Measure::Count,
    ),
    (
        MonoEvent::Samples,
        ProfileEvent::Sample,
        b"mono/sample/",
        Measure::Count,
    ),
    (
        MonoEvent::Calls,
        ProfileEvent::SelfTime,
        b"mono/self-ns/",
        Measure::Nanoseconds,
    ),
    (
        MonoEvent::Calls,
        ProfileEvent::Call,
        b"mono/calls/",
        Measure::Count,
    ),
];

/// Returns the kinds that the user selected; `None` means all that the logs have. By default, logs beside a
/// profile (`is_beside`) are not converted, and logs alone are converted in full.
pub fn wanted(options: &TraceOptions, is_beside: bool) -> Option<&[MonoEvent]> {
    match &options.mono_events {
        Some(kinds) => Some(kinds),
        None => is_beside.then_some(&[]),
    }
}

/// Returns the events to make from `logs`, which must be prepared. They follow `first` other events in the profile.
pub fn select_events(
    options: &TraceOptions,
    logs: &mut Logs<'_>,
    is_beside: bool,
    first: usize,
) -> EventSet<ProfileEvent> {
    let kinds = available_kinds(wanted(options, is_beside), &logs.all, &mut logs.diagnostics);
    let events = PROFILE_EVENTS.iter().filter(|(kind, ..)| kinds.contains(kind));
    EventSet::new(
        first,
        events.map(|&(_, event, name, measure)| (event, Definition { name, measure })),
    )
}

/// Returns the selected kinds that the logs have, and adds a diagnostic for each kind that is missing.
fn available_kinds(
    wanted: Option<&[MonoEvent]>,
    logs: &[ReadLog<'_>],
    diagnostics: &mut Vec<Diagnostic>,
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
            diagnostics.push(Diagnostic::new(Issue::MonoNoEvents).with("options", options));
        }
        return all;
    };
    for kind in wanted.iter().filter(|kind| !has(kind)) {
        let (name, option) = (kind.name(), kind.profiler_option());
        let missing = Diagnostic::new(Issue::MonoNoSuchEvents).with("event", name);
        diagnostics.push(missing.with("option", option));
    }
    wanted.iter().copied().filter(has).collect()
}
