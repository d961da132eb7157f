//! What has to be known of a whole log before its events mean something: its code and its names.

use crate::runtime::RuntimeTime;
use crate::runtime::mono::code::{Code, Collector};
use crate::runtime::mono::log::{Fault, Log};
use crate::runtime::mono::names::Names;
use crate::tally::Tally;

/// What a first walk finds. It grows with code and names, not with events.
#[derive(Clone, Debug, Default)]
pub struct Index<'a> {
    /// The code.
    pub code: Code<'a>,
    /// The names.
    pub names: Names<'a>,
    /// What of the log could not be used, by this walk or any other.
    pub faults: Tally<Fault>,
    /// How many events there are.
    pub events: u64,
    /// The first moment of which something is told, and the last one.
    pub times: Option<(RuntimeTime, RuntimeTime)>,
}

impl<'a> Index<'a> {
    /// Walks a log.
    pub fn of(log: &Log<'a>) -> Self {
        let mut code = Collector::default();
        let mut index = Self::default();
        let mut events = log.events();
        for event in &mut events {
            index.events = index.events.saturating_add(1);
            let (first, last) = index.times.unwrap_or((event.time, event.time));
            index.times = Some((first.min(event.time), last.max(event.time)));
            index.names.add(event.time, &event.kind);
            code.add(&event);
        }
        index.faults.merge(events.faults());
        index.names.finish();
        index.code = code.finish(log.header().pid, &index.names);
        index
    }
}
