//! Selection of the records to convert, and the perf events that they become.

use crate::perf::synthesis::{Definition, Measure};
use crate::trace::event_set::EventSet;
use crate::trace::options::{TraceOptions, XrayEvent};
use crate::trace::xray::traces::Traces;

/// An event of the profile that is made from records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProfileEvent {
    /// Time between entries and exits, in nanoseconds.
    SelfTime,
    /// Number of calls.
    Call,
    /// Events that the program logged.
    Custom,
}

/// Events of the profile, each with the kind of records that it is made from, its name and its measure.
const PROFILE_EVENTS: [(XrayEvent, ProfileEvent, &[u8], Measure); 3] = [
    (
        XrayEvent::Calls,
        ProfileEvent::SelfTime,
        b"xray/self-ns/",
        Measure::Nanoseconds,
    ),
    (
        XrayEvent::Calls,
        ProfileEvent::Call,
        b"xray/calls/",
        Measure::Count,
    ),
    (
        XrayEvent::Custom,
        ProfileEvent::Custom,
        b"xray/custom/",
        Measure::Bytes,
    ),
];

/// Returns the kinds that the user selected; `None` means all. By default, traces beside a profile (`is_beside`)
/// are not converted if their calls replace its call chains.
pub fn wanted(options: &TraceOptions, is_beside: bool) -> Option<&[XrayEvent]> {
    match &options.xray_events {
        Some(kinds) => Some(kinds),
        None => (is_beside && options.splice_stacks).then_some(&[]),
    }
}

/// Returns the events to make from `traces`. By default these are all, except that single calls are left out if time is
/// resampled. They follow `first` other events in the profile.
pub fn select_events(
    options: &TraceOptions,
    traces: &Traces<'_>,
    is_beside: bool,
    first: usize,
) -> EventSet<ProfileEvent> {
    let wanted = wanted(options, is_beside);
    let is_selected = |kind, event| match wanted {
        None => event != ProfileEvent::Call || options.sampling.resample.is_none(),
        Some(kinds) => kinds.contains(&kind),
    };
    let events = PROFILE_EVENTS.iter().filter(|_| !traces.all.is_empty());
    let events = events.filter(|&&(kind, event, ..)| is_selected(kind, event));
    EventSet::new(
        first,
        events.map(|&(_, event, name, measure)| (event, Definition { name, measure })),
    )
}
