//! Matching of a log's threads with those of the profile.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::code::clock::Alignment;
use crate::hash::{HashMap, HashSet};
use crate::perf::synthesis::Thread;
use crate::runtime::RuntimeTime;
use crate::runtime::mono::event::{Kind, Metadata, Stage};
use crate::runtime::mono::{Event, Log, ThreadId};
use crate::trace::options::MonoEvent;
use crate::trace::threads::{LoggedThread, Match, Thread as ProfileThread, matches};
use crate::units::{Pid, Tid};

/// First invented thread ID. The kernel's IDs are all below it (`PID_MAX_LIMIT`).
const FIRST_SYNTHETIC_TID: u32 = 1 << 22;

/// Returns the IDs for threads that are not in the profile. Readers identify a thread by its ID alone, so logs must not
/// share one.
pub fn synthetic_tids() -> RangeInclusive<u32> {
    FIRST_SYNTHETIC_TID..=u32::MAX
}

/// A thread of a log. Other threads may have the same ID before and after its lifetime.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadLifetime<'a> {
    /// ID of the thread in the log.
    pub id: ThreadId,
    /// Last name of the thread, with the time at which it was set.
    pub name: Option<(RuntimeTime, &'a [u8])>,
    /// Times of the first and last event of the thread.
    pub span: (RuntimeTime, RuntimeTime),
}

/// Returns the threads of a log, in the order in which they appear, and the kinds of its events that can be converted.
pub fn threads_and_events<'a>(log: &Log<'a>) -> (Vec<ThreadLifetime<'a>>, BTreeSet<MonoEvent>) {
    let mut kinds = BTreeSet::new();
    let mut lifetimes: Vec<ThreadLifetime<'a>> = Vec::new();
    let mut last_made = None;
    let mut current: HashMap<ThreadId, usize> = HashMap::default();
    let mut ended: HashSet<ThreadId> = HashSet::default();
    for buffer in log.buffers() {
        for event in buffer.events() {
            let (id, subject) = match event.kind {
                // The writer thread logs the methods that all other threads compiled.
                Kind::Jit { .. } => continue,
                Kind::SampleHit { thread, .. } => (thread, None),
                Kind::Metadata {
                    stage,
                    subject: Metadata::Thread { thread, name },
                } => (thread, Some((stage, name))),
                _ => (buffer.thread, None),
            };
            let made = MonoEvent::of(&event.kind);
            if last_made != made {
                kinds.extend(made);
                last_made = made;
            }
            // Events of a thread may follow its end in the log; a load event starts another thread with the same ID.
            let begins = matches!(subject, Some((Stage::LoadStart | Stage::LoadEnd, _)));
            if begins && ended.remove(&id) {
                current.remove(&id);
            }
            let index = *current.entry(id).or_insert(lifetimes.len());
            if index == lifetimes.len() {
                lifetimes.push(ThreadLifetime {
                    id,
                    name: None,
                    span: (event.time, event.time),
                });
            }
            if let Some(life) = lifetimes.get_mut(index) {
                let (first, last) = life.span;
                life.span = (first.min(event.time), last.max(event.time));
                if let Some((Stage::Name, name)) = subject {
                    life.name = Some((event.time, name));
                }
            }
            if let Some((Stage::UnloadEnd, _)) = subject {
                ended.insert(id);
            }
        }
    }
    (lifetimes, kinds)
}

/// The threads of a log, with the profile's thread IDs.
#[derive(Clone, Debug)]
pub struct Threads<'a> {
    pid: Pid,
    lifetimes: Vec<ThreadLifetime<'a>>,
    /// Thread ID of each of `lifetimes`.
    tids: Vec<AssignedTid>,
    /// Start times of the threads with an ID of the log, with their indexes in `lifetimes`.
    by_id: HashMap<ThreadId, Vec<(RuntimeTime, usize)>>,
}

/// The ID that a thread of the log has in the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AssignedTid {
    /// ID of a thread of the profile.
    Known(Tid),
    /// Invented ID: no thread of the profile matches.
    Invented(Tid),
    /// Invented ID: several threads of the profile match.
    Ambiguous(Tid),
}

impl AssignedTid {
    /// Returns the thread ID.
    pub fn tid(self) -> Tid {
        match self {
            Self::Known(tid) | Self::Invented(tid) | Self::Ambiguous(tid) => tid,
        }
    }
}

impl<'a> Threads<'a> {
    /// Matches the threads of a log with `threads`, all those of process `pid` in the profile. Threads without a match
    /// get an ID from `invented`.
    pub fn new(
        lifetimes: Vec<ThreadLifetime<'a>>,
        threads: &[ProfileThread],
        pid: Pid,
        alignment: &Alignment,
        invented: &mut RangeInclusive<u32>,
    ) -> Self {
        let logged = lifetimes.iter().map(|life| LoggedThread {
            id: life.id.0,
            name: life
                .name
                .map(|(time, name)| (alignment.time(time), name.to_vec())),
            span: (alignment.time(life.span.0), alignment.time(life.span.1)),
        });
        let logged: Vec<LoggedThread> = logged.collect();
        let found = matches(&logged, threads, pid);
        let tids = found
            .into_iter()
            .zip(invented)
            .map(|(found, invented)| match found {
                Match::Thread(tid) => AssignedTid::Known(Tid(tid)),
                Match::Ambiguous => AssignedTid::Ambiguous(Tid(invented)),
                Match::Missing => AssignedTid::Invented(Tid(invented)),
            });
        let mut by_id: HashMap<ThreadId, Vec<(RuntimeTime, usize)>> = HashMap::default();
        for (index, life) in lifetimes.iter().enumerate() {
            by_id.entry(life.id).or_default().push((life.span.0, index));
        }
        by_id.values_mut().for_each(|lifetimes| lifetimes.sort_unstable());
        Self {
            pid,
            tids: tids.collect(),
            lifetimes,
            by_id,
        }
    }

    fn index(&self, id: ThreadId, time: RuntimeTime) -> Option<usize> {
        let lifetimes = self.by_id.get(&id)?;
        let after = lifetimes.partition_point(|&(since, _)| since <= time);
        let (_, index) = lifetimes.get(after.saturating_sub(1))?;
        Some(*index)
    }

    /// Returns the thread that has an ID of the log at a time.
    pub fn assigned_tid(&self, id: ThreadId, time: RuntimeTime) -> Option<AssignedTid> {
        self.tids.get(self.index(id, time)?).copied()
    }

    /// Returns the thread of an event.
    pub fn of(&self, event: &Event<'_>) -> Thread {
        let id = match event.kind {
            Kind::SampleHit { thread, .. } => thread,
            _ => event.thread,
        };
        let assigned = self.assigned_tid(id, event.time);
        Thread {
            pid: self.pid,
            tid: assigned.map_or(Tid(self.pid.0), AssignedTid::tid),
        }
    }

    /// Returns the IDs of the threads that are in the profile.
    pub fn known(&self) -> impl Iterator<Item = Tid> {
        self.tids.iter().filter_map(|&assigned| match assigned {
            AssignedTid::Known(tid) => Some(tid),
            AssignedTid::Invented(_) | AssignedTid::Ambiguous(_) => None,
        })
    }

    /// Returns all threads with their IDs.
    pub fn iter(&self) -> impl Iterator<Item = (&ThreadLifetime<'a>, AssignedTid)> {
        self.lifetimes.iter().zip(self.tids.iter().copied())
    }
}
