//! Selection of the events to convert, and the perf events that they become.

use std::collections::BTreeSet;

use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::conversion::synthesis::{Definition, SampleContent};
use crate::traces::options::{MonoEvent, TraceOptions, XrayEvent};

/// An event of the profile that is made from logs or traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProfileEvent {
    /// Size of an object that a Mono program allocated, in bytes.
    MonoAllocation,
    /// Number of exceptions.
    MonoException,
    /// Time spent waiting for a lock, in nanoseconds.
    MonoContention,
    /// Duration of a garbage collection, in nanoseconds.
    MonoCollection,
    /// Time for which a collection stopped the program, in nanoseconds.
    MonoPause,
    /// Size of an object in a heap snapshot, in bytes.
    MonoHeap,
    /// Samples that Mono's profiler took.
    MonoSample,
    /// Time between calls and returns, in nanoseconds.
    MonoSelfTime,
    /// Number of calls.
    MonoCall,
    /// Time between entries and exits, in nanoseconds.
    XraySelfTime,
    /// Number of calls.
    XrayCall,
    /// Events that the program logged itself.
    XrayCustom,
    /// Logged arguments of calls.
    XrayArgument,
    /// Durations of calls from entry to exit, in nanoseconds.
    XrayCallTime,
}

impl ProfileEvent {
    /// Returns its name in profiles, and what its samples measure.
    fn definition(self) -> Definition<'static> {
        let (name, measure): (&[u8], SampleContent) = match self {
            Self::MonoAllocation => (b"mono/alloc-bytes/", SampleContent::Count),
            Self::MonoException => (b"mono/exception/", SampleContent::Count),
            Self::MonoContention => (b"mono/contention-ns/", SampleContent::Nanoseconds),
            Self::MonoCollection => (b"mono/gc-ns/", SampleContent::Nanoseconds),
            Self::MonoPause => (b"mono/gc-pause-ns/", SampleContent::Nanoseconds),
            Self::MonoHeap => (b"mono/heap-bytes/", SampleContent::Count),
            Self::MonoSample => (b"mono/sample/", SampleContent::Count),
            Self::MonoSelfTime => (b"mono/self-ns/", SampleContent::Nanoseconds),
            Self::MonoCall => (b"mono/calls/", SampleContent::Count),
            Self::XraySelfTime => (b"xray/self-ns/", SampleContent::Nanoseconds),
            Self::XrayCall => (b"xray/calls/", SampleContent::Count),
            Self::XrayCustom => (b"xray/custom/", SampleContent::Bytes),
            Self::XrayArgument => (b"xray/arguments/", SampleContent::Bytes),
            Self::XrayCallTime => (b"xray/call-ns/", SampleContent::Nanoseconds),
        };
        Definition { name, measure }
    }
}

#[doc(hidden)]
impl MonoEvent {
    /// All kinds that logs have.
    pub const ALL: [Self; 7] = [
        Self::Allocations,
        Self::Exceptions,
        Self::Contention,
        Self::Collections,
        Self::Heap,
        Self::Samples,
        Self::Calls,
    ];

    /// Returns the option of Mono's profiler that enables these events.
    pub(crate) fn profiler_option(self) -> &'static str {
        match self {
            Self::Contention => "monitor",
            Self::Heap | Self::HeapShots => "heapshot",
            Self::Allocations | Self::Exceptions | Self::Collections | Self::Samples | Self::Calls => {
                self.name()
            }
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
            Self::HeapShots => "heap-shots",
            Self::Samples => "sample",
            Self::Calls => "calls",
        }
    }

    /// Returns the kind of events that logs have, from which these are made.
    fn logged(self) -> Self {
        match self {
            Self::HeapShots => Self::Heap,
            other => other,
        }
    }

    /// Returns the events of the profile that are made of these.
    fn profile_events(self) -> &'static [ProfileEvent] {
        match self {
            Self::Allocations => &[ProfileEvent::MonoAllocation],
            Self::Exceptions => &[ProfileEvent::MonoException],
            Self::Contention => &[ProfileEvent::MonoContention],
            Self::Collections => &[ProfileEvent::MonoCollection, ProfileEvent::MonoPause],
            Self::Heap | Self::HeapShots => &[ProfileEvent::MonoHeap],
            Self::Samples => &[ProfileEvent::MonoSample],
            Self::Calls => &[ProfileEvent::MonoSelfTime, ProfileEvent::MonoCall],
        }
    }
}

/// The selected events.
#[derive(Clone, Debug, Default)]
pub struct EventSet(Vec<ProfileEvent>);

impl EventSet {
    /// Returns the definitions of the events, in order.
    pub fn definitions(&self) -> Vec<Definition<'static>> {
        self.0.iter().map(|event| event.definition()).collect()
    }

    /// Returns the index of an event among the definitions, or `None` if it is not selected.
    #[inline]
    pub fn index_of(&self, event: ProfileEvent) -> Option<usize> {
        self.0.iter().position(|&other| other == event)
    }

    /// Adds the selected events of the kinds in `logged`, those that the logs have, and a diagnostic for each selected
    /// kind that is missing. `is_beside` is whether there is a profile.
    pub fn add_mono(
        &mut self,
        options: &TraceOptions,
        is_beside: bool,
        logged: &BTreeSet<MonoEvent>,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let wanted = wanted_of_mono(options, is_beside);
        match wanted {
            Some(wanted) => {
                for kind in wanted.iter().filter(|kind| !logged.contains(&kind.logged())) {
                    let (missing, option) = (missing(MONO_LOG, kind.name()), kind.profiler_option());
                    diagnostics
                        .push(missing.with("how", format_args!("start Mono with --profile=log:{option}")));
                }
            }
            None if logged.is_empty() => {
                let options = MonoEvent::ALL.map(MonoEvent::profiler_option).join(", ");
                diagnostics.push(Diagnostic::new(Issue::MonoNoEvents).with("options", options));
            }
            None => {}
        }
        let is_wanted = |kind: &&MonoEvent| {
            wanted.is_none_or(|wanted| wanted.iter().any(|wanted| wanted.logged() == **kind))
        };
        let kinds = logged.iter().filter(is_wanted);
        self.0.extend(kinds.flat_map(|kind| kind.profile_events()));
    }

    /// Adds the selected events of traces. By default these are calls and custom events, except that single calls are left out
    /// if time is resampled.
    pub fn add_xray(&mut self, options: &TraceOptions, is_beside: bool) {
        let wanted = wanted_of_xray(options, is_beside);
        let is_wanted = |kind| wanted.is_none_or(|kinds| kinds.contains(&kind));
        if is_wanted(XrayEvent::Calls) {
            self.0.push(ProfileEvent::XraySelfTime);
            if wanted.is_some() || options.sampling.resample.is_none() {
                self.0.push(ProfileEvent::XrayCall);
            }
        }
        if is_wanted(XrayEvent::Custom) {
            self.0.push(ProfileEvent::XrayCustom);
        }
        for (kind, event) in [
            (XrayEvent::Arguments, ProfileEvent::XrayArgument),
            (XrayEvent::Durations, ProfileEvent::XrayCallTime),
        ] {
            if wanted.is_some_and(|kinds| kinds.contains(&kind)) {
                self.0.push(event);
            }
        }
    }
}

/// A Mono log, for messages.
const MONO_LOG: &str = "Mono log";

/// Returns the diagnostic that selected events are in no log.
fn missing(log: &str, event: &str) -> Diagnostic {
    let missing = Diagnostic::new(Issue::MonoNoSuchEvents).with("log", log);
    missing.with("event", event)
}

/// Returns a diagnostic for each selected kind that only Mono logs have, if there are none.
pub fn missing_without_mono_logs(options: &TraceOptions) -> impl Iterator<Item = Diagnostic> {
    let kinds = options.mono_events.iter().flatten();
    let kinds = kinds.filter(|kind| **kind != MonoEvent::Calls);
    kinds.map(|kind| missing(MONO_LOG, kind.name()).with("how", "name one with --mono-log"))
}

/// Returns a diagnostic for each selected kind that only XRay traces have, if there are none.
pub fn missing_without_xray_traces(options: &TraceOptions) -> impl Iterator<Item = Diagnostic> {
    let kinds = options.xray_events.iter().flatten();
    let names = kinds.filter_map(|kind| match kind {
        XrayEvent::Calls => None,
        XrayEvent::Custom => Some("custom"),
        XrayEvent::Arguments => Some("arguments"),
        XrayEvent::Durations => Some("durations"),
    });
    names.map(|name| missing("XRay trace", name).with("how", "name one with --xray-log"))
}

/// Whether objects of all heap shots are converted, and not only those of the last one.
pub fn has_all_heap_shots(options: &TraceOptions) -> bool {
    let events = options.mono_events.as_deref().unwrap_or_default();
    events.contains(&MonoEvent::HeapShots)
}

/// Returns the kinds of log events that the user selected; `None` means all that the logs have. By default, logs beside
/// a profile (`is_beside`) are not converted, and logs alone are converted in full.
pub fn wanted_of_mono(options: &TraceOptions, is_beside: bool) -> Option<&[MonoEvent]> {
    match &options.mono_events {
        Some(kinds) => Some(kinds),
        None => is_beside.then_some(&[]),
    }
}

/// Returns the kinds of records that the user selected; `None` means the default. By default, traces beside a profile
/// (`is_beside`) are not converted if their calls replace its call chains.
pub fn wanted_of_xray(options: &TraceOptions, is_beside: bool) -> Option<&[XrayEvent]> {
    match &options.xray_events {
        Some(kinds) => Some(kinds),
        None => (is_beside && options.splice_stacks).then_some(&[]),
    }
}
