//! Replay of a log's events in time order.
//!
//! Each buffer in the file holds the events of one thread. A thread's buffers are read one after the other, and all
//! threads are merged, with one event of each held in memory.

use crate::hash::HashMap;
use crate::runtime::RuntimeTime;
use crate::runtime::mono::event::Kind;
use crate::runtime::mono::log::{Buffer, Events};
use crate::runtime::mono::{Event, Log, Method, ThreadId};
use crate::trace::call_tree::Step;
use crate::trace::merge::{Ahead, Merge};

/// Iterator over the events of threads, in time order; events with the same time are in the order in which their
/// threads appear in the file. Events about code and names are left out: only their times step backwards.
#[derive(Debug)]
pub struct Replay<'a> {
    threads: Merge<Cursor<'a>>,
}

/// Position in the buffers of one thread.
#[derive(Debug)]
struct Cursor<'a> {
    /// Remaining buffers, in reverse order.
    buffers: Vec<Buffer<'a>>,
    events: Option<Events<'a>>,
    ahead: Option<Event<'a>>,
    latest: RuntimeTime,
}

impl<'a> Cursor<'a> {
    /// Reads the next event. If damage moved its time backwards, the event gets the time of the one before.
    fn advance(&mut self) {
        loop {
            let Some(events) = &mut self.events else {
                let Some(buffer) = self.buffers.pop() else {
                    self.ahead = None;
                    return;
                };
                self.events = Some(buffer.events());
                continue;
            };
            match events.find(|event| happened(&event.kind)) {
                Some(mut event) => {
                    event.time = event.time.max(self.latest);
                    self.latest = event.time;
                    self.ahead = Some(event);
                    return;
                }
                None => self.events = None,
            }
        }
    }
}

impl Ahead for Cursor<'_> {
    type Time = RuntimeTime;

    fn time(&mut self) -> Option<RuntimeTime> {
        self.ahead.map(|event| event.time)
    }
}

/// Returns the call or return that an event logs.
pub fn step(kind: &Kind<'_>) -> Option<Step<Method>> {
    match *kind {
        Kind::Enter(method) => Some(Step::Enter(method)),
        Kind::Leave(method) | Kind::ExceptionLeave(method) => Some(Step::Exit(method)),
        _ => None,
    }
}

/// Returns whether an event is an action of a thread, and not data about code or names.
fn happened(kind: &Kind<'_>) -> bool {
    !matches!(
        kind,
        Kind::Jit { .. } | Kind::CodeBuffer { .. } | Kind::Metadata { .. } | Kind::NativeSymbol { .. }
    )
}

impl<'a> Replay<'a> {
    /// Starts a replay of a log.
    pub fn of(log: &Log<'a>) -> Self {
        let mut threads: Vec<Cursor<'a>> = Vec::new();
        let mut indices: HashMap<ThreadId, usize> = HashMap::default();
        for buffer in log.buffers() {
            let index = *indices.entry(buffer.thread).or_insert(threads.len());
            match threads.get_mut(index) {
                Some(cursor) => cursor.buffers.push(buffer),
                None => threads.push(Cursor {
                    buffers: vec![buffer],
                    events: None,
                    ahead: None,
                    latest: RuntimeTime::default(),
                }),
            }
        }
        for cursor in &mut threads {
            cursor.buffers.reverse();
            cursor.advance();
        }
        Self {
            threads: Merge::new(threads),
        }
    }
}

impl<'a> Iterator for Replay<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        let cursor = self.threads.next()?;
        let event = cursor.ahead;
        cursor.advance();
        event
    }
}
