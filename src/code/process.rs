//! Processes and their address spaces over time.
//!
//! A process number stands for one address space after another: it starts as a copy of its parent's at a
//! FORK, and as an empty one when it executes a program. What an address space inherits is asked of the
//! parent, at the time of the FORK.

use rustc_hash::FxHashMap;

use crate::perf::event::Backing;
use crate::units::{AddressRange, Pid, Time};

/// One address space, as an index into [`Processes::spaces`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpaceId(u32);

impl SpaceId {
    /// The index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The memory of a process from its start, or from the start of a program in it, on.
#[derive(Clone, Debug)]
pub struct Space {
    /// The process.
    pub pid: Pid,
    /// When it came to be; 0 if it was there before the profile.
    pub since: Time,
    /// When another took its place, or its process ended; [`Time::MAX`] if neither is known.
    pub until: Time,
    /// Which address space it started as a copy of, and when.
    pub parent: Option<(SpaceId, Time)>,
    /// Its own maps, in the order of time.
    pub maps: Vec<Map>,
}

/// Memory that became mapped.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// When.
    pub time: Time,
    /// Where.
    pub range: AddressRange,
    /// What lies behind it.
    pub backing: Backing,
    /// The offset of its record, from the first record.
    pub record: u64,
}

/// What the records say happened to a process.
#[derive(Clone, Copy, Debug)]
pub enum ProcessEvent {
    /// Memory was mapped.
    Map(Pid, Map),
    /// It was started as a copy of another.
    Fork {
        /// The new process.
        child: Pid,
        /// The one that it is a copy of.
        parent: Pid,
        /// When.
        time: Time,
    },
    /// It executed another program.
    Exec(Pid, Time),
    /// It ended.
    Exit(Pid, Time),
}

impl ProcessEvent {
    /// When it happened.
    pub fn time(&self) -> Time {
        match *self {
            Self::Map(_, map) => map.time,
            Self::Fork { time, .. } | Self::Exec(_, time) | Self::Exit(_, time) => time,
        }
    }
}

/// How many generations of processes that executed nothing since they were forked are asked about what they
/// inherited. Only hostile profiles have more.
pub const MAX_GENERATIONS: usize = 100;

/// All address spaces of a profile.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    spaces: Vec<Space>,
    /// The address spaces of each process, in the order of time.
    by_pid: FxHashMap<Pid, Vec<(Time, SpaceId)>>,
}

impl Processes {
    /// Puts together what happened; `events` in any order, those of the same time in the order in which they
    /// happened.
    pub fn new(mut events: Vec<ProcessEvent>) -> Self {
        events.sort_by_key(ProcessEvent::time);
        let mut processes = Self::default();
        for event in events {
            match event {
                ProcessEvent::Map(pid, map) => {
                    let space = processes.current(pid);
                    if let Some(space) = processes.spaces.get_mut(space.index()) {
                        space.maps.push(map);
                        // Other threads go on where only the first one ended.
                        space.until = Time::MAX;
                    }
                }
                ProcessEvent::Fork { child, parent, time } => {
                    let parent = processes.current(parent);
                    processes.start(child, time, Some((parent, time)));
                }
                ProcessEvent::Exec(pid, time) => {
                    processes.start(pid, time, None);
                }
                ProcessEvent::Exit(pid, time) => processes.end(pid, time),
            }
        }
        processes
    }

    /// The address space that a process has now, made if it is new.
    fn current(&mut self, pid: Pid) -> SpaceId {
        match self.by_pid.get(&pid).and_then(|spaces| spaces.last()) {
            Some(&(_, space)) => space,
            None => self.start(pid, Time(0), None),
        }
    }

    /// Ends the address space that a process has now, if it has any.
    fn end(&mut self, pid: Pid, time: Time) {
        let last = self.by_pid.get(&pid).and_then(|spaces| spaces.last());
        if let Some(space) = last.and_then(|(_, space)| self.spaces.get_mut(space.index())) {
            space.until = space.until.min(time);
        }
    }

    fn start(&mut self, pid: Pid, since: Time, parent: Option<(SpaceId, Time)>) -> SpaceId {
        self.end(pid, since);
        let id = SpaceId(u32::try_from(self.spaces.len()).unwrap_or(u32::MAX));
        self.spaces.push(Space {
            pid,
            since,
            until: Time::MAX,
            parent,
            maps: Vec::new(),
        });
        self.by_pid.entry(pid).or_default().push((since, id));
        id
    }

    /// All address spaces. A parent stands before its children.
    pub fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// One address space.
    pub fn space(&self, id: SpaceId) -> Option<&Space> {
        self.spaces.get(id.index())
    }

    /// The address spaces with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (SpaceId, &Space)> {
        (0u32..).map(SpaceId).zip(&self.spaces)
    }

    /// The address spaces of one process, in the order of time.
    pub fn spaces_of(&self, pid: Pid) -> impl Iterator<Item = (SpaceId, &Space)> {
        let ids = self.by_pid.get(&pid).into_iter().flatten();
        ids.filter_map(|&(_, id)| Some((id, self.space(id)?)))
    }

    /// For each address space, the first one that it and its relatives descend from.
    pub fn families(&self) -> Vec<SpaceId> {
        let mut families: Vec<SpaceId> = Vec::with_capacity(self.spaces.len());
        for (id, space) in self.iter() {
            let parent = space.parent.and_then(|(parent, _)| families.get(parent.index()));
            families.push(parent.copied().unwrap_or(id));
        }
        families
    }

    /// Whether the profile knows a process of this number.
    pub fn knows(&self, pid: Pid) -> bool {
        self.by_pid.contains_key(&pid)
    }

    /// The address space that a process has at `time`: its first one if that is earlier than all of them.
    pub fn space_at(&self, pid: Pid, time: Time) -> Option<SpaceId> {
        let spaces = self.by_pid.get(&pid)?;
        let after = spaces.partition_point(|&(since, _)| since <= time);
        let (_, space) = spaces.get(after.saturating_sub(1))?;
        Some(*space)
    }

    /// Whether `pid` was started by `ancestor`, or by a process that was, and so on.
    pub fn descends(&self, pid: Pid, ancestor: Pid) -> bool {
        let Some(&(_, space)) = self.by_pid.get(&pid).and_then(|spaces| spaces.first()) else {
            return false;
        };
        self.ancestors(space)
            .any(|(_, space)| space.pid == ancestor && pid != ancestor)
    }

    /// The address spaces that this one is a copy of, from the nearest up.
    pub fn ancestors(&self, space: SpaceId) -> impl Iterator<Item = (SpaceId, &Space)> {
        let parent = |space: &Space| {
            let (parent, _) = space.parent?;
            Some((parent, self.space(parent)?))
        };
        let first = self.space(space).and_then(parent);
        std::iter::successors(first, move |&(_, space)| parent(space)).take(MAX_GENERATIONS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_for_one_address_space_after_another() {
        let processes = Processes::new(vec![
            ProcessEvent::Exec(Pid(1), Time(10)),
            ProcessEvent::Fork {
                child: Pid(2),
                parent: Pid(1),
                time: Time(20),
            },
            ProcessEvent::Exec(Pid(2), Time(30)),
            ProcessEvent::Fork {
                child: Pid(2),
                parent: Pid(3),
                time: Time(40),
            },
        ]);
        let at = |pid, time| processes.space(processes.space_at(Pid(pid), Time(time))?);
        assert_eq!(at(1, 5).unwrap().since, Time(10));
        assert_eq!(at(2, 25).unwrap().parent.unwrap().1, Time(20));
        assert!(at(2, 35).unwrap().parent.is_none());
        let parent = at(2, 45).unwrap().parent.unwrap().0;
        assert_eq!(processes.space(parent).unwrap().pid, Pid(3));
        assert!(at(9, 1).is_none());
        assert!(processes.descends(Pid(2), Pid(1)));
        assert!(!processes.descends(Pid(1), Pid(2)));
    }

    #[test]
    fn an_address_space_is_there_until_another_is_or_its_process_ends() {
        let map = |time| Map {
            time: Time(time),
            range: AddressRange::new(crate::units::Address(0x1000), 1).unwrap(),
            backing: Backing::Anonymous,
            record: 0,
        };
        let processes = Processes::new(vec![
            ProcessEvent::Map(Pid(1), map(5)),
            ProcessEvent::Exec(Pid(1), Time(10)),
            ProcessEvent::Exit(Pid(1), Time(20)),
            ProcessEvent::Exit(Pid(2), Time(20)),
            ProcessEvent::Map(Pid(3), map(5)),
            ProcessEvent::Exit(Pid(3), Time(6)),
            ProcessEvent::Map(Pid(3), map(7)),
        ]);
        let ends = |pid| -> Vec<Time> {
            let spaces = processes.spaces_of(Pid(pid));
            spaces.map(|(_, space)| space.until).collect()
        };
        assert_eq!(ends(1), [Time(10), Time(20)]);
        assert!(!processes.knows(Pid(2)), "an end is no start");
        assert_eq!(ends(3), [Time::MAX], "its other threads went on");
    }
}
