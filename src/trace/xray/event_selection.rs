//! Selection of the records to convert, and the perf events that they become.

use crate::perf::synthesis::{Definition, Measure};
use crate::trace::event_set::EventSet;
use crate::trace::options::{TraceOptions, XrayEvent};
use crate::trace::xray::traces::Traces;

/// An event of the profile that is made from records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// Time between entries and exits, in nanoseconds.
    SelfTime,
    /// Number of calls.
    Call,
    /// Events that the program logged.
    Custom,
}

/// Events of the profile, each with the kind of records that it is made from.
const MADE: [(XrayEvent, Made, Definition<'static>); 3] = [
    (
        XrayEvent::Calls,
        Made::SelfTime,
        Definition {
            name: b"xray/self-ns/",
            measure: Measure::Nanoseconds,
        },
    ),
    (
        XrayEvent::Calls,
        Made::Call,
        Definition {
            name: b"xray/calls/",
            measure: Measure::Count,
        },
    ),
    (
        XrayEvent::Custom,
        Made::Custom,
        Definition {
            name: b"xray/custom/",
            measure: Measure::Bytes,
        },
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
) -> EventSet<Made> {
    let wanted = wanted(options, is_beside);
    let is_selected = |kind, made| match wanted {
        None => made != Made::Call || options.sampling.resample.is_none(),
        Some(kinds) => kinds.contains(&kind),
    };
    let made = MADE.iter().filter(|_| !traces.all.is_empty());
    let made = made.filter(|&&(kind, made, _)| is_selected(kind, made));
    EventSet::new(first, made.map(|&(_, made, definition)| (made, definition)))
}
