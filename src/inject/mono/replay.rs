//! The events of a log in the order of time.
//!
//! In the file, each buffer has events of one thread, and a thread's buffers follow each other; those of all threads
//! are merged. No more than one event of each thread is looked at ahead.

use crate::hash::HashMap;
use crate::inject::events::{Ahead, Merge, Step};
use crate::runtime::RuntimeTime;
use crate::runtime::mono::event::Kind;
use crate::runtime::mono::log::{Buffer, Events};
use crate::runtime::mono::{Event, Log, Method, ThreadId};

/// A walk over the events that happened to threads, in the order of time; those of one time in the order in which
/// their threads appear in the file. What the log tells of itself (names, code) is left out, and only that steps
/// back in time.
#[derive(Debug)]
pub struct Replay<'a> {
    threads: Merge<Cursor<'a>>,
}

/// Where in a thread's buffers the walk has come to.
#[derive(Debug)]
struct Cursor<'a> {
    /// The buffers that are left, the next one last.
    buffers: Vec<Buffer<'a>>,
    events: Option<Events<'a>>,
    ahead: Option<Event<'a>>,
    latest: RuntimeTime,
}

impl<'a> Cursor<'a> {
    /// Takes the next event out of the buffers. Damage may have put it into the past, where it can't be told any more.
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

/// What an event tells of calls.
pub fn step(kind: &Kind<'_>) -> Option<Step<Method>> {
    match *kind {
        Kind::Enter(method) => Some(Step::Enter(method)),
        Kind::Leave(method) | Kind::ExceptionLeave(method) => Some(Step::Exit(method)),
        _ => None,
    }
}

/// Whether it is something that a thread did or that was done to it.
fn happened(kind: &Kind<'_>) -> bool {
    !matches!(
        kind,
        Kind::Jit { .. } | Kind::CodeBuffer { .. } | Kind::Metadata { .. } | Kind::NativeSymbol { .. }
    )
}

impl<'a> Replay<'a> {
    /// Walks a log.
    pub fn of(log: &Log<'a>) -> Self {
        let mut threads: Vec<Cursor<'a>> = Vec::new();
        let mut places: HashMap<ThreadId, usize> = HashMap::default();
        for buffer in log.buffers() {
            let place = *places.entry(buffer.thread).or_insert(threads.len());
            match threads.get_mut(place) {
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
