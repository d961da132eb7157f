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
        let mut buffers = log.buffers();
        for buffer in &mut buffers {
            let mut events = buffer.events();
            loop {
                // Of a log that has calls, they are nearly all there is, and the index takes next to nothing of them.
                while let Some(call) = events.next_call() {
                    index.count(call.time);
                    code.add_call(buffer.thread, call);
                }
                let Some(event) = events.next() else {
                    break;
                };
                index.count(event.time);
                index.names.add(event.time, &event.kind);
                code.add(&event);
            }
            if let Some((fault, offset)) = events.fault() {
                index.faults.add(fault, offset);
            }
        }
        index.faults.merge(buffers.faults());
        index.names.finish();
        index.code = code.finish(log.header().pid, &index.names);
        index
    }

    /// Counts an event.
    #[inline]
    fn count(&mut self, time: RuntimeTime) {
        self.events = self.events.saturating_add(1);
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
    }
}
