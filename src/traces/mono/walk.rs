//! Walk through the events of a log, thread by thread.

use std::vec;

use jitdump::RuntimeTime;

use crate::collections::hash::HashMap;
use crate::traces::conversion::call_tree::CallStep;
use crate::traces::conversion::source::{EventContext, EventKind, TraceEvent};
use crate::traces::conversion::synthesis::UNKNOWN_CPU;
use crate::traces::mono::format::event::LogEventKind;
use crate::traces::mono::format::log::{BufferEvents, LogBuffer};
use crate::traces::mono::format::{Log, Method, ThreadId};
use crate::traces::mono::threads::Threads;

/// Iterator over the events of one thread. Events about code and names are left out: only their times step backwards.
#[derive(Debug)]
pub struct ThreadWalk<'l, 'a> {
    threads: &'l Threads<'a>,
    buffers: vec::IntoIter<LogBuffer<'a>>,
    events: Option<BufferEvents<'a>>,
    latest: RuntimeTime,
}

impl<'a> Iterator for ThreadWalk<'_, 'a> {
    type Item = TraceEvent<Method, LogEventKind<'a>>;

    /// Returns the next event. If its time is before that of the event before, it gets that time: its buffer was written while
    /// a later one was.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let events = self.events.iter_mut().flatten();
            let mut actions = events.filter_map(|event| Some((event, action_of(event.kind)?)));
            if let Some((mut event, kind)) = actions.next() {
                event.time = event.time.max(self.latest);
                self.latest = event.time;
                let context = EventContext {
                    // All threads with events have an index.
                    thread: self.threads.index_of(&event).unwrap_or_default(),
                    time: event.time,
                    cpu: UNKNOWN_CPU,
                    offset: event.offset,
                };
                return Some(TraceEvent { context, kind });
            }
            self.events = Some(self.buffers.next()?.events());
        }
    }
}

/// Returns what a thread did; `None` if an event has data about code or names.
fn action_of(kind: LogEventKind<'_>) -> Option<EventKind<Method, LogEventKind<'_>>> {
    Some(match kind {
        LogEventKind::Jit { .. }
        | LogEventKind::CodeBuffer { .. }
        | LogEventKind::Metadata { .. }
        | LogEventKind::NativeSymbol { .. } => {
            return None;
        }
        LogEventKind::Enter(method) => EventKind::Call(CallStep::Enter(method)),
        LogEventKind::Leave(method) | LogEventKind::ExceptionLeave(method) => {
            EventKind::Call(CallStep::Exit(method))
        }
        kind => EventKind::Other(kind),
    })
}

/// Returns the events of each thread of a log.
pub fn walks<'l, 'a>(
    log: &Log<'a>,
    threads: &'l Threads<'a>,
) -> impl Iterator<Item = ThreadWalk<'l, 'a>> + use<'l, 'a> {
    let mut buffers: Vec<Vec<LogBuffer<'a>>> = Vec::new();
    let mut indexes: HashMap<ThreadId, usize> = HashMap::default();
    for buffer in log.buffers() {
        let index = *indexes.entry(buffer.thread).or_insert(buffers.len());
        match buffers.get_mut(index) {
            Some(buffers) => buffers.push(buffer),
            None => buffers.push(vec![buffer]),
        }
    }
    // Buffers of a thread are in the order of time, unless Mono wrote several at once.
    for buffers in &mut buffers {
        buffers.sort_by_key(|buffer| buffer.time_base);
    }
    buffers.into_iter().map(move |buffers| ThreadWalk {
        threads,
        buffers: buffers.into_iter(),
        events: None,
        latest: RuntimeTime::default(),
    })
}
