//! Heap shots of a log, which are snapshots: the objects of one are also in the next.

use std::collections::BTreeSet;

use jitdump::RuntimeTime;

use crate::collections::hash::HashMap;
use crate::traces::mono::format::event::LogEventKind;
use crate::traces::mono::format::{LogEvent, ThreadId};

/// Finds the heap shots of a log, event by event.
#[derive(Debug, Default)]
pub struct HeapShotFinder {
    /// Start of the shot that each thread is writing.
    current: HashMap<ThreadId, RuntimeTime>,
    starts: BTreeSet<RuntimeTime>,
}

/// The heap shots with objects.
#[derive(Clone, Debug, Default)]
pub struct HeapShots {
    /// When each started, in order.
    starts: Vec<RuntimeTime>,
}

impl HeapShotFinder {
    /// Adds an event from a buffer of a thread.
    pub fn add(&mut self, thread: ThreadId, event: &LogEvent<'_>) {
        match event.kind {
            LogEventKind::HeapStart => {
                self.current.insert(thread, event.time);
            }
            LogEventKind::HeapObject { .. } => {
                // Objects before the first start have lost theirs.
                self.starts
                    .insert(self.current.get(&thread).copied().unwrap_or_default());
            }
            _ => {}
        }
    }

    /// Returns the shots that were found.
    pub fn finish(self) -> HeapShots {
        HeapShots {
            starts: self.starts.into_iter().collect(),
        }
    }
}

impl HeapShots {
    /// Returns the number of shots.
    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// Returns the number, from 1, of the shot that started at a time.
    pub fn number(&self, start: RuntimeTime) -> usize {
        self.starts.partition_point(|&other| other <= start).max(1)
    }
}
