//! The events of a log in the order of time.
//!
//! In the file, each buffer has events of one thread, and a thread's buffers follow each other; those of all threads
//! are merged. No more than one event of each thread is looked at ahead.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use crate::runtime::RuntimeTime;
use crate::runtime::mono::event::Kind;
use crate::runtime::mono::log::{Buffer, Events};
use crate::runtime::mono::{Event, Log, ThreadId};

/// A walk over the events that happened to threads, in the order of time; those of one time in the order in which
/// their threads appear in the file. What the log tells of itself (names, code) is left out, and only that steps
/// back in time.
#[derive(Debug)]
pub struct Replay<'a> {
    threads: Vec<Cursor<'a>>,
    next: BinaryHeap<Reverse<(RuntimeTime, usize)>>,
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
        let mut places: FxHashMap<ThreadId, usize> = FxHashMap::default();
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
        let mut next = BinaryHeap::new();
        for (place, cursor) in threads.iter_mut().enumerate() {
            cursor.buffers.reverse();
            cursor.advance();
            next.extend(cursor.ahead.map(|event| Reverse((event.time, place))));
        }
        Self { threads, next }
    }
}

impl<'a> Iterator for Replay<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        let Reverse((_, place)) = self.next.pop()?;
        let cursor = self.threads.get_mut(place)?;
        let event = cursor.ahead.take();
        cursor.advance();
        self.next
            .extend(cursor.ahead.map(|event| Reverse((event.time, place))));
        event
    }
}
