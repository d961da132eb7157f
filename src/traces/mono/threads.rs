//! Matches a log's threads with the profile's.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use jitdump::RuntimeTime;

use crate::code::clock::Alignment;
use crate::collections::hash::{HashMap, HashSet};
use crate::perf::synthetic;
use crate::traces::conversion::source::TracedThread;
use crate::traces::mono::format::event::{LogEventKind, Metadata, Stage};
use crate::traces::mono::format::{Log, LogEvent, ThreadId};
use crate::traces::mono::heap_shots::{HeapShotFinder, HeapShots};
use crate::traces::mono::thread_matching::{LoggedThread, Match, ProfileThread, matches};
use crate::traces::options::MonoEvent;
use crate::units::{Pid, Tid};

/// Returns the threads of a log, in the order in which they appear, the kinds of its events that can be converted, and its heap
/// shots.
pub fn threads_and_events<'a>(log: &Log<'a>) -> (Vec<LoggedThread<'a>>, BTreeSet<MonoEvent>, HeapShots) {
    let mut heap_shots = HeapShotFinder::default();
    let mut kinds = BTreeSet::new();
    let mut last_kind = None;
    let mut finder = ThreadFinder::default();
    for buffer in log.buffers() {
        for event in buffer.events() {
            heap_shots.add(buffer.thread, &event);
            finder.add(buffer.thread, &event);
            // Most events are of the kind of the last one, which is in the set.
            let kind = kind_of(&event.kind);
            if last_kind != kind {
                kinds.extend(kind);
                last_kind = kind;
            }
        }
    }
    (finder.threads, kinds, heap_shots.finish())
}

/// The threads of the events so far.
#[derive(Default)]
struct ThreadFinder<'a> {
    threads: Vec<LoggedThread<'a>>,
    /// Index of the last thread with each ID.
    current: HashMap<ThreadId, usize>,
    /// IDs whose last thread has ended.
    ended: HashSet<ThreadId>,
    /// IDs of several threads, one after the other.
    reused: HashSet<ThreadId>,
}

impl<'a> ThreadFinder<'a> {
    /// Adds an event in a buffer of a thread to the thread that it is about.
    fn add(&mut self, writer: ThreadId, event: &LogEvent<'a>) {
        let (id, subject) = match event.kind {
            // The writer thread logs the methods that all other threads compiled.
            LogEventKind::Jit { .. } => return,
            LogEventKind::SampleHit { thread, .. } => (thread, None),
            LogEventKind::Metadata {
                stage,
                subject: Metadata::Thread { thread, name },
            } => (thread, Some((stage, name))),
            _ => (writer, None),
        };
        // Events of a thread may follow its end in the log; a load event starts another thread with the same ID.
        let begins = matches!(subject, Some((Stage::LoadStart | Stage::LoadEnd, _)));
        if begins && self.ended.remove(&id) {
            self.current.remove(&id);
            self.reused.insert(id);
        }
        let next = self.threads.len();
        let index = *self.current.entry(id).or_insert(next);
        if index == next {
            self.threads.push(LoggedThread {
                id: id.0,
                name: None,
                span: (event.time, event.time),
            });
        }
        if let Some(thread) = self.threads.get_mut(index) {
            let (first, last) = thread.span;
            // Samples are in the buffers of another thread, so one of an earlier thread with the ID may follow.
            let is_later = self.reused.contains(&id) && matches!(event.kind, LogEventKind::SampleHit { .. });
            let first = if is_later { first } else { first.min(event.time) };
            thread.span = (first, last.max(event.time));
            if let Some((Stage::Name, name)) = subject {
                thread.name = Some((event.time, name));
            }
        }
        if let Some((Stage::UnloadEnd, _)) = subject {
            self.ended.insert(id);
        }
    }
}

/// Returns the kind of an event; `None` if it is not converted.
fn kind_of(kind: &LogEventKind<'_>) -> Option<MonoEvent> {
    match kind {
        LogEventKind::Allocation { .. } => Some(MonoEvent::Allocations),
        LogEventKind::Throw { .. } => Some(MonoEvent::Exceptions),
        LogEventKind::Monitor { .. } => Some(MonoEvent::Contention),
        LogEventKind::Collection { .. } => Some(MonoEvent::Collections),
        LogEventKind::HeapObject { .. } => Some(MonoEvent::Heap),
        LogEventKind::SampleHit { .. } => Some(MonoEvent::Samples),
        LogEventKind::Enter(_) | LogEventKind::Leave(_) | LogEventKind::ExceptionLeave(_) => {
            Some(MonoEvent::Calls)
        }
        _ => None,
    }
}

/// The threads of a log, with the profile's thread IDs.
#[derive(Clone, Debug)]
pub struct Threads<'a> {
    /// The threads, in the order in which they appear in the log.
    pub all: Vec<TracedThread<'a>>,
    /// Number of them that match several threads of the profile.
    pub ambiguous: u64,
    /// Start times of the threads with an ID of the log, with their indexes in `all`.
    by_id: HashMap<u64, Vec<(RuntimeTime, usize)>>,
}

impl<'a> Threads<'a> {
    /// Matches the threads of a log with `threads`, all those of process `pid` in the profile. Threads without a match
    /// get an ID from `synthetic_tids`, of which no other log gets any: readers identify a thread by its ID alone.
    pub fn new(
        logged: &[LoggedThread<'a>],
        threads: &[ProfileThread],
        pid: Pid,
        alignment: &Alignment,
        synthetic_tids: &mut RangeInclusive<u32>,
    ) -> Self {
        let found = matches(logged, alignment, threads, pid);
        let ambiguous = found.iter().filter(|&&found| found == Match::Ambiguous).count() as u64;
        let mut by_id: HashMap<u64, Vec<(RuntimeTime, usize)>> = HashMap::default();
        for (index, thread) in logged.iter().enumerate() {
            by_id.entry(thread.id).or_default().push((thread.span.0, index));
        }
        by_id.values_mut().for_each(|threads| threads.sort_unstable());
        let all = logged.iter().zip(found).zip(synthetic_tids);
        let all = all.map(|((thread, found), synthetic)| {
            let known = match found {
                Match::Thread(tid) => Some(tid),
                Match::Ambiguous | Match::Missing => None,
            };
            TracedThread {
                thread: synthetic::SyntheticThread {
                    pid,
                    tid: Tid(known.unwrap_or(synthetic)),
                },
                is_introduced: known.is_some(),
                name: thread.name.map(|(_, name)| name),
            }
        });
        Self {
            all: all.collect(),
            ambiguous,
            by_id,
        }
    }

    /// Returns the index of the thread of an event.
    pub fn index_of(&self, event: &LogEvent<'_>) -> Option<usize> {
        let id = match event.kind {
            LogEventKind::SampleHit { thread, .. } => thread,
            _ => event.thread,
        };
        let threads = self.by_id.get(&id.0)?;
        let after = threads.partition_point(|&(since, _)| since <= event.time);
        let (_, index) = threads.get(after.saturating_sub(1))?;
        Some(*index)
    }
}
