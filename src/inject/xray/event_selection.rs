//! What can be asked for, and the events of the profile that it becomes.

use crate::inject::Options;
use crate::inject::events::EventSet;
use crate::inject::xray::Traces;
use crate::perf::synthesis::{Definition, Measure};

/// What becomes an event of the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XrayEvent {
    /// Calls, and the time between them.
    Calls,
    /// What the program logged itself.
    Custom,
}

/// The events of the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// Time between entries and exits.
    SelfTime,
    /// Entries.
    Call,
    /// What the program logged.
    Custom,
}

/// The events of the profile, with what each is made for.
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

/// What is wanted of traces, be they beside a profile or not; `None` is all.
pub fn wanted(options: &Options, is_beside: bool) -> Option<&[XrayEvent]> {
    match &options.xray_events {
        Some(kinds) => Some(kinds),
        None => (is_beside && options.splice_stacks).then_some(&[]),
    }
}

/// The events that `traces` are asked for; if the user names none, all of them, but each call for itself only if time is
/// told as exactly. They come behind `first` others.
pub fn select_events(
    options: &Options,
    traces: &Traces<'_>,
    is_beside: bool,
    first: usize,
) -> EventSet<Made> {
    let wanted = wanted(options, is_beside);
    let is_asked = |kind, made| match wanted {
        None => made != Made::Call || options.shape.resample.is_none(),
        Some(kinds) => kinds.contains(&kind),
    };
    let made = MADE.iter().filter(|_| !traces.all.is_empty());
    let made = made.filter(|&&(kind, made, _)| is_asked(kind, made));
    EventSet::new(first, made.map(|&(_, made, definition)| (made, definition)))
}
