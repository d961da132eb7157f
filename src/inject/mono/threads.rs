//! Which thread of the profile each thread of a log is.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::code::clock::Alignment;
use crate::code::threads::{LoggedThread, Match, Thread as ProfileThread, matches};
use crate::hash::{HashMap, HashSet};
use crate::inject::mono::event_selection::MonoEvent;
use crate::perf::synthesis::Thread;
use crate::runtime::RuntimeTime;
use crate::runtime::mono::event::{Kind, Metadata, Stage};
use crate::runtime::mono::{Event, Log, ThreadId};
use crate::units::{Pid, Tid};

/// The first number of those for threads whose own is not known: above all that a kernel gives (`PID_MAX_LIMIT`).
const FIRST_INVENTED: u32 = 1 << 22;

/// The numbers for threads whose own is not known. Readers know a thread by its number alone, so that no two logs
/// may have one in common.
pub fn invented_numbers() -> RangeInclusive<u32> {
    FIRST_INVENTED..=u32::MAX
}

/// A thread of a log. Its number may be another's before and behind its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadLifetime<'a> {
    /// The log's number of it.
    pub id: ThreadId,
    /// What it was called at last, and since when.
    pub name: Option<(RuntimeTime, &'a [u8])>,
    /// When the log tells of it first, and at last.
    pub span: (RuntimeTime, RuntimeTime),
}

/// What a log tells of.
#[derive(Clone, Debug)]
pub struct Contents<'a> {
    /// The threads, in the order in which they appear.
    pub lives: Vec<ThreadLifetime<'a>>,
    /// What can become events of a profile.
    pub events: BTreeSet<MonoEvent>,
}

/// ScanBudget through a log for what it tells of.
pub fn contents<'a>(log: &Log<'a>) -> Contents<'a> {
    let mut kinds = BTreeSet::new();
    let mut lives: Vec<ThreadLifetime<'a>> = Vec::new();
    let mut last_made = None;
    let mut current: HashMap<ThreadId, usize> = HashMap::default();
    let mut ended: HashSet<ThreadId> = HashSet::default();
    for buffer in log.buffers() {
        for event in buffer.events() {
            let (id, subject) = match event.kind {
                // The writer thread tells it of all others.
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
            // What a thread did before its end may be told behind it; another one begins with its load.
            let begins = matches!(subject, Some((Stage::LoadStart | Stage::LoadEnd, _)));
            if begins && ended.remove(&id) {
                current.remove(&id);
            }
            let place = *current.entry(id).or_insert(lives.len());
            if place == lives.len() {
                lives.push(ThreadLifetime {
                    id,
                    name: None,
                    span: (event.time, event.time),
                });
            }
            if let Some(life) = lives.get_mut(place) {
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
    Contents { lives, events: kinds }
}

/// The threads of a log by the profile's numbers.
#[derive(Clone, Debug)]
pub struct Threads<'a> {
    pid: Pid,
    lives: Vec<ThreadLifetime<'a>>,
    /// For each of them, which one it is.
    numbers: Vec<Number>,
    /// By the log's number, when each life of it began.
    by_id: HashMap<ThreadId, Vec<(RuntimeTime, usize)>>,
}

/// The number of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    /// That of a thread of the profile.
    Known(Tid),
    /// Made up, since nothing says which thread it is.
    Invented(Tid),
    /// Made up, since it can be one of several.
    Ambiguous(Tid),
}

impl Number {
    /// It.
    pub fn tid(self) -> Tid {
        match self {
            Self::Known(tid) | Self::Invented(tid) | Self::Ambiguous(tid) => tid,
        }
    }
}

impl<'a> Threads<'a> {
    /// Finds the threads of a log among `threads`, all those of process `pid` in the profile.
    /// Takes numbers for the others from `invented`.
    pub fn new(
        lives: Vec<ThreadLifetime<'a>>,
        threads: &[ProfileThread],
        pid: Pid,
        alignment: &Alignment,
        invented: &mut RangeInclusive<u32>,
    ) -> Self {
        let logged = lives.iter().map(|life| LoggedThread {
            id: life.id.0,
            name: life
                .name
                .map(|(time, name)| (alignment.time(time), name.to_vec())),
            span: (alignment.time(life.span.0), alignment.time(life.span.1)),
        });
        let logged: Vec<LoggedThread> = logged.collect();
        let found = matches(&logged, threads, pid);
        let numbers = found
            .into_iter()
            .zip(invented)
            .map(|(found, invented)| match found {
                Match::Thread(tid) => Number::Known(Tid(tid)),
                Match::Ambiguous => Number::Ambiguous(Tid(invented)),
                Match::Missing => Number::Invented(Tid(invented)),
            });
        let mut by_id: HashMap<ThreadId, Vec<(RuntimeTime, usize)>> = HashMap::default();
        for (place, life) in lives.iter().enumerate() {
            by_id.entry(life.id).or_default().push((life.span.0, place));
        }
        by_id.values_mut().for_each(|lives| lives.sort_unstable());
        Self {
            pid,
            numbers: numbers.collect(),
            lives,
            by_id,
        }
    }

    fn place(&self, id: ThreadId, time: RuntimeTime) -> Option<usize> {
        let lives = self.by_id.get(&id)?;
        let after = lives.partition_point(|&(since, _)| since <= time);
        let (_, place) = lives.get(after.saturating_sub(1))?;
        Some(*place)
    }

    /// Which thread a number of the log means at a time.
    pub fn number(&self, id: ThreadId, time: RuntimeTime) -> Option<Number> {
        self.numbers.get(self.place(id, time)?).copied()
    }

    /// The thread that an event happened to.
    pub fn of(&self, event: &Event<'_>) -> Thread {
        let id = match event.kind {
            Kind::SampleHit { thread, .. } => thread,
            _ => event.thread,
        };
        let number = self.number(id, event.time);
        Thread {
            pid: self.pid,
            tid: number.map_or(Tid(self.pid.0), Number::tid),
        }
    }

    /// Those that are in the profile.
    pub fn known(&self) -> impl Iterator<Item = Tid> {
        self.numbers.iter().filter_map(|&number| match number {
            Number::Known(tid) => Some(tid),
            Number::Invented(_) | Number::Ambiguous(_) => None,
        })
    }

    /// All of them with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&ThreadLifetime<'a>, Number)> {
        self.lives.iter().zip(self.numbers.iter().copied())
    }
}
