//! Replay of the events of all threads in time order.
//!
//! The buffers of a file hold the events of one thread each. The iterator over a thread's events reads them one after the
//! other, and all threads are merged. One event of each thread is held in memory.

use jitdump::RuntimeTime;

use crate::traces::conversion::merge::{Ahead, Merge};
use crate::traces::conversion::source::{EventOf, ReplaySource};

/// Iterator over the events of a source in time order. Events with the same time are in the order of the threads.
#[derive(Debug)]
pub struct Replay<S: ReplaySource> {
    threads: Merge<Peeked<S>>,
}

/// A thread with its next event.
#[derive(Debug)]
struct Peeked<S: ReplaySource> {
    events: S::Events,
    ahead: Option<EventOf<S>>,
}

impl<S: ReplaySource> Ahead for Peeked<S> {
    type Time = RuntimeTime;

    #[inline]
    fn time(&mut self) -> Option<RuntimeTime> {
        self.ahead.as_ref().map(|event| event.context.time)
    }
}

impl<S: ReplaySource> Replay<S> {
    /// Starts a replay.
    pub fn of(source: &S) -> Self {
        let threads = source.events().map(|mut events| Peeked {
            ahead: events.next(),
            events,
        });
        Self {
            threads: Merge::new(threads.collect()),
        }
    }

    /// Returns the time of the next event, or `None` if there are no more.
    #[inline]
    pub fn next_time(&mut self) -> Option<RuntimeTime> {
        self.threads.next()?.time()
    }

    /// Returns the iterators over the threads' events.
    pub fn into_threads(self) -> impl Iterator<Item = S::Events> {
        self.threads.sources.into_iter().map(|thread| thread.events)
    }
}

impl<S: ReplaySource> Iterator for Replay<S> {
    type Item = EventOf<S>;

    #[inline]
    fn next(&mut self) -> Option<EventOf<S>> {
        let thread = self.threads.next()?;
        std::mem::replace(&mut thread.ahead, thread.events.next())
    }
}
