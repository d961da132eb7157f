//! Garbage collections of a log.

use jitdump::RuntimeTime;

use crate::collections::hash::HashMap;
use crate::traces::mono::format::ThreadId;
use crate::traces::mono::format::event::{CollectionPhase, LogEventKind};
use crate::traces::mono::logs::ReadLog;
use crate::traces::used_logs::GarbageCollection;

impl ReadLog<'_> {
    /// Returns the garbage collections, and the number of starts and ends without their counterpart.
    pub fn garbage_collections(&self) -> (Vec<GarbageCollection>, u64) {
        let mut started: HashMap<(ThreadId, u64), RuntimeTime> = HashMap::default();
        let mut found = Vec::new();
        let mut unpaired: u64 = 0;
        for event in self.log.events() {
            let LogEventKind::Collection { phase, generation } = event.kind else {
                continue;
            };
            // A thread starts and ends the collections that it needs.
            let key = (event.thread, generation);
            match phase {
                CollectionPhase::Start => {
                    let lost = started.insert(key, event.time);
                    unpaired = unpaired.saturating_add(lost.is_some().into());
                }
                CollectionPhase::End => match started.remove(&key) {
                    Some(start) => {
                        let threads = self.prepared.as_ref().map(|prepared| &prepared.threads);
                        let thread = threads.and_then(|threads| {
                            let index = threads.index_of(&event)?;
                            threads.all.get(index)
                        });
                        found.push(GarbageCollection {
                            generation,
                            start,
                            end: event.time,
                            tid: thread.map(|thread| thread.thread.tid),
                        });
                    }
                    None => unpaired = unpaired.saturating_add(1),
                },
                _ => {}
            }
        }
        (found, unpaired.saturating_add(started.len() as u64))
    }
}
