//! Processes and their address spaces over time.
//!
//! A process has one address space after another: it starts with a copy of its parent's (FORK record) and gets an
//! empty one when it executes a program. Inherited memory is looked up in the parent as of the FORK.
//!
//! For a process that is older than the profile, perf records only its parent, not whether it has executed another
//! program since. Readers copy nothing to it. It is taken for a copy of its parent if both have the same program at
//! the same addresses and memory without a file that starts at the same address: the kernel randomizes both each time
//! a program is executed.
//!
//! A process without mappings, as in the last file of `perf record --overwrite`, is identified by its name
//! and its samples. If not even the program is mapped, samples that are not near code of the jitdump count
//! as samples of the program.

use std::ops::Range;

use jitdump::{AddressRange, Time};

use crate::collections::hash::HashMap;
use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::perf::process_records::Backing;
use crate::units::Pid;

table_index! {
    /// ID of an address space: an index into [`Processes::spaces`].
    SpaceId
}

/// Memory of a process, from its start or from its last exec.
#[derive(Clone, Debug)]
pub struct AddressSpace {
    /// ID of the process.
    pub pid: Pid,
    /// Start time; 0 if it is older than the profile.
    pub since: Time,
    /// Time at which it was replaced or its process ended; [`Time::MAX`] if neither was recorded.
    pub until: Time,
    /// Address space that it was forked from, and the time of the fork.
    pub parent: Option<(SpaceId, Time)>,
    /// Address space of the process that started this one before the profile began.
    pub origin: Option<ProcessOrigin>,
    /// Its own maps, in the order of time, without inherited ones.
    pub maps: Vec<Map>,
}

/// Origin of a process that is older than the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessOrigin {
    /// Address space that the parent process had when the profile began.
    pub space: SpaceId,
    /// Whether the maps of both show that this address space is a copy of it.
    pub is_copy: bool,
}

/// A memory map of a process.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// Time of its record.
    pub time: Time,
    /// Addresses that were mapped.
    pub range: AddressRange,
    /// What backs the memory, such as a file.
    pub backing: Backing,
    /// Whether forked processes share the memory, rather than get a copy of it.
    pub is_shared: bool,
    /// Whether it was recorded as memory that cannot be executed, which `perf record --data` records, too.
    pub is_data: bool,
    /// Offset of its record from the first record, in bytes.
    pub record: u64,
}

#[cfg(test)]
impl Map {
    /// Returns a map of memory that no other process shares, as the first record.
    pub fn private(time: u64, range: AddressRange, backing: Backing) -> Self {
        Self {
            time: Time(time),
            range,
            backing,
            is_shared: false,
            is_data: false,
            record: 0,
        }
    }
}

/// A change to a process, from one record.
#[derive(Clone, Copy, Debug)]
pub enum ProcessEvent {
    /// The process mapped memory.
    Map(Pid, Map),
    /// The process was forked.
    Fork {
        /// ID of the new process.
        child: Pid,
        /// ID of the process that it is a copy of.
        parent: Pid,
        /// Time of the fork.
        time: Time,
    },
    /// The process was started before the profile began.
    Earlier {
        /// ID of the process.
        pid: Pid,
        /// ID of the process that started it.
        parent: Pid,
        /// Time of the record.
        time: Time,
    },
    /// The process executed another program.
    Exec(Pid, Time),
    /// The process ended.
    Exit(Pid, Time),
}

impl ProcessEvent {
    /// Time of the event.
    pub fn time(&self) -> Time {
        match *self {
            Self::Map(_, map) => map.time,
            Self::Fork { time, .. }
            | Self::Earlier { time, .. }
            | Self::Exec(_, time)
            | Self::Exit(_, time) => time,
        }
    }
}

impl AddressSpace {
    /// Maps that existed when the profile began, as perf lists them: by address, the program first.
    fn first_maps(&self) -> &[Map] {
        let count = self.maps.partition_point(|map| map.time == Time(0));
        self.maps.get(..count).unwrap_or_default()
    }

    /// Returns the address space that this one is a copy of, whether or not the profile recorded the fork.
    pub fn copied_from(&self) -> Option<SpaceId> {
        self.parent
            .map(|(parent, _)| parent)
            .or_else(|| self.copied_earlier_from())
    }

    fn copied_earlier_from(&self) -> Option<SpaceId> {
        Some(self.origin.filter(|origin| origin.is_copy)?.space)
    }

    /// Returns the address space of the process that started this one, unless this process executed a program since
    /// the profile began.
    fn started_by(&self) -> Option<SpaceId> {
        let parent = self.parent.map(|(parent, _)| parent);
        parent.or(self.origin.map(|origin| origin.space))
    }
}

/// Whether two lists of maps show the same execution of one program. `theirs` must be sorted by address.
fn is_copy(own: &[Map], theirs: &[Map], is_same_file: impl Fn(&Map, &Map) -> bool) -> bool {
    let at = |map: &Map| {
        let first = theirs.partition_point(|other| other.range.start < map.range.start);
        theirs
            .get(first)
            .filter(|other| other.range.start == map.range.start)
    };
    let program = own.iter().find(|map| map.backing.is_file());
    let has_program = program.is_some_and(|program| {
        at(program).is_some_and(|other| other.range == program.range && is_same_file(program, other))
    });
    let mut memory = own.iter().filter(|map| map.backing.is_jit_memory());
    has_program && memory.any(|map| at(map).is_some_and(|other| other.backing == map.backing))
}

/// Maximum number of forks without an exec through which inherited memory is looked up. Only crafted profiles have
/// more.
pub const MAX_GENERATIONS: usize = 100;

/// The same limit for processes that are older than the profile: servers fork workers, which rarely fork further.
const EARLIER_GENERATIONS: usize = 8;

/// All address spaces of a profile.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// All address spaces; parents precede their children.
    pub spaces: IndexedTable<SpaceId, AddressSpace>,
    /// Address spaces of each process, in the order of time.
    by_pid: HashMap<Pid, Vec<(Time, SpaceId)>>,
}

impl Processes {
    /// Builds the address spaces from `events`, in any order, except that those with the same time must be in the
    /// order in which they happened.
    pub fn new(mut events: Vec<ProcessEvent>) -> Self {
        // They usually are, and sorting takes memory.
        if !events.is_sorted_by_key(ProcessEvent::time) {
            events.sort_by_key(ProcessEvent::time);
        }
        let mut processes = Self::default();
        for event in events {
            match event {
                ProcessEvent::Map(pid, map) => {
                    let id = processes.current(pid);
                    let space = &mut processes.spaces[id];
                    if space.maps.is_empty() {
                        // Programs that execute others have few.
                        space.maps.reserve_exact(1);
                    }
                    space.maps.push(map);
                    // Other threads can continue after the first thread has exited.
                    space.until = Time::MAX;
                }
                ProcessEvent::Fork { child, parent, time } => {
                    let parent = processes.current(parent);
                    processes.start(child, time, Some((parent, time)));
                }
                ProcessEvent::Earlier { pid, parent, .. } => {
                    let origin = processes.current(parent);
                    let id = processes.current(pid);
                    let known = &mut processes.spaces[id].origin;
                    *known = known.or(Some(ProcessOrigin {
                        space: origin,
                        is_copy: false,
                    }));
                }
                ProcessEvent::Exec(pid, time) => {
                    processes.start(pid, time, None);
                }
                ProcessEvent::Exit(pid, time) => processes.end(pid, time),
            }
        }
        processes
    }

    /// Adds processes without maps or other events.
    pub fn add(&mut self, pids: impl IntoIterator<Item = Pid>) {
        for pid in pids {
            self.current(pid);
        }
    }

    /// Finds the address spaces that are copies of their origin by comparing the maps that existed when the profile
    /// began. `is_same_file` compares the files of two maps.
    pub fn find_copies(&mut self, is_same_file: impl Fn(&Map, &Map) -> bool) {
        let mut of_origins: HashMap<SpaceId, Vec<Map>> = HashMap::default();
        for origin in self.spaces.iter().filter_map(|space| space.origin) {
            of_origins.entry(origin.space).or_insert_with(|| {
                let mut maps = self.space(origin.space).first_maps().to_vec();
                maps.sort_by_key(|map| map.range);
                maps
            });
        }
        for space in &mut self.spaces {
            let own = space.first_maps();
            let is_copy = space.origin.is_some_and(|origin| {
                let theirs = of_origins.get(&origin.space);
                theirs.is_some_and(|theirs| is_copy(own, theirs, &is_same_file))
            });
            if let Some(origin) = &mut space.origin {
                origin.is_copy = is_copy;
            }
        }
    }

    /// Returns the current address space of a process, and creates one for a new process.
    fn current(&mut self, pid: Pid) -> SpaceId {
        match self.by_pid.get(&pid).and_then(|spaces| spaces.last()) {
            Some(&(_, space)) => space,
            None => self.start(pid, Time(0), None),
        }
    }

    /// Ends the current address space of a process, if it has one.
    fn end(&mut self, pid: Pid, time: Time) {
        let last = self.by_pid.get(&pid).and_then(|spaces| spaces.last());
        if let Some(&(_, id)) = last {
            let space = &mut self.spaces[id];
            space.until = space.until.min(time);
        }
    }

    /// Starts an address space of a process, and ends its previous one.
    fn start(&mut self, pid: Pid, since: Time, parent: Option<(SpaceId, Time)>) -> SpaceId {
        self.end(pid, since);
        let id = self.spaces.push(AddressSpace {
            pid,
            since,
            until: Time::MAX,
            parent,
            origin: None,
            maps: Vec::new(),
        });
        self.by_pid.entry(pid).or_default().push((since, id));
        id
    }

    /// Returns one address space.
    pub fn space(&self, id: SpaceId) -> &AddressSpace {
        &self.spaces[id]
    }

    /// Returns all address spaces with their IDs.
    pub fn iter(&self) -> impl Iterator<Item = (SpaceId, &AddressSpace)> {
        self.spaces.enumerate()
    }

    /// Returns the address spaces of one process, in the order of time.
    pub fn spaces_of(&self, pid: Pid) -> impl Iterator<Item = (SpaceId, &AddressSpace)> {
        let ids = self.by_pid.get(&pid).into_iter().flatten();
        ids.map(|&(_, id)| (id, self.space(id)))
    }

    /// Returns for each address space the first one of its family, which all its relatives descend from.
    pub fn families(&self) -> IndexedTable<SpaceId, SpaceId> {
        let mut families = IndexedTable::default();
        for (id, space) in self.iter() {
            families.push(space.parent.map_or(id, |(parent, _)| families[parent]));
        }
        families
    }

    /// Whether the profile has a process with this ID.
    pub fn knows(&self, pid: Pid) -> bool {
        self.by_pid.contains_key(&pid)
    }

    /// Returns the address space of a process at `time`, or its first one if that starts later.
    pub fn space_at(&self, pid: Pid, time: Time) -> Option<SpaceId> {
        Some(self.space_with_times(pid, time)?.0)
    }

    /// Like [`Self::space_at`], and also returns times around `time` at which it is the same.
    pub fn space_with_times(&self, pid: Pid, time: Time) -> Option<(SpaceId, Range<Time>)> {
        let spaces = self.by_pid.get(&pid)?;
        let after = spaces.partition_point(|&(since, _)| since <= time);
        let &(since, space) = spaces.get(after.saturating_sub(1))?;
        let until = spaces.get(after.max(1)).map_or(Time::MAX, |&(next, _)| next);
        Some((space, since.min(time)..until))
    }

    /// Whether `pid` was started by `ancestor`, directly or through other processes.
    pub fn descends(&self, pid: Pid, ancestor: Pid) -> bool {
        pid != ancestor && self.starters(pid).any(|starter| starter == ancestor)
    }

    /// Returns the chain of processes that started `pid`, the direct parent first.
    pub fn starters(&self, pid: Pid) -> impl Iterator<Item = Pid> {
        let first = self.spaces_of(pid).next();
        let starters = first.map(|(space, _)| self.upwards(space, AddressSpace::started_by));
        starters.into_iter().flatten().map(|(_, space)| space.pid)
    }

    /// Returns the address spaces that this one was forked from while the profile was recorded, the nearest first.
    /// Readers copy the maps that these have at the time of the fork.
    pub fn ancestors(&self, space: SpaceId) -> impl Iterator<Item = (SpaceId, &AddressSpace)> {
        self.upwards(space, |space| space.parent.map(|(parent, _)| parent))
    }

    /// Like [`Self::ancestors`], including address spaces that this one was a copy of before the profile began.
    pub fn all_ancestors(&self, space: SpaceId) -> impl Iterator<Item = (SpaceId, &AddressSpace)> {
        self.upwards(space, AddressSpace::copied_from)
    }

    /// Returns for each process those that were copies of it before the profile began, for a few generations.
    pub fn earlier_copies(&self) -> HashMap<Pid, Vec<Pid>> {
        let mut copies: HashMap<Pid, Vec<Pid>> = HashMap::default();
        for (id, space) in self.iter() {
            let ancestors = self.upwards(id, AddressSpace::copied_earlier_from);
            for (_, ancestor) in ancestors.take(EARLIER_GENERATIONS) {
                copies.entry(ancestor.pid).or_default().push(space.pid);
            }
        }
        copies
    }

    /// Returns the address spaces that follow one by `next`, the nearest first, up to a limit.
    fn upwards(
        &self,
        space: SpaceId,
        next: impl Fn(&AddressSpace) -> Option<SpaceId>,
    ) -> impl Iterator<Item = (SpaceId, &AddressSpace)> {
        let next = move |space: &AddressSpace| {
            let id = next(space)?;
            Some((id, self.space(id)))
        };
        let first = next(self.space(space));
        std::iter::successors(first, move |&(_, space)| next(space)).take(MAX_GENERATIONS)
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
        let at = |pid, time| Some(processes.space(processes.space_at(Pid(pid), Time(time))?));
        assert_eq!(at(1, 5).unwrap().since, Time(10));
        assert_eq!(at(2, 25).unwrap().parent.unwrap().1, Time(20));
        assert!(at(2, 35).unwrap().parent.is_none());
        let parent = at(2, 45).unwrap().parent.unwrap().0;
        assert_eq!(processes.space(parent).pid, Pid(3));
        assert!(at(9, 1).is_none());
        assert!(processes.descends(Pid(2), Pid(1)));
        assert!(!processes.descends(Pid(1), Pid(2)));
    }

    fn first_map(pid: u32, start: u64, backing: Backing) -> ProcessEvent {
        let map = Map {
            record: start,
            ..Map::private(
                0,
                AddressRange::new(jitdump::Address(start), 0x1000).unwrap(),
                backing,
            )
        };
        ProcessEvent::Map(Pid(pid), map)
    }

    #[test]
    fn who_was_there_before_is_a_copy_if_program_and_memory_are_the_same() {
        let earlier = |pid, parent| ProcessEvent::Earlier {
            pid: Pid(pid),
            parent: Pid(parent),
            time: Time(0),
        };
        // Each process is a pair of the addresses of its program and its memory.
        let is_copy = |own: (u64, u64), theirs: (u64, u64), has_same_file| {
            let mut events = vec![earlier(2, 1)];
            for (pid, (program, memory)) in [(1, theirs), (2, own)] {
                events.push(first_map(pid, program, Backing::File));
                events.push(first_map(pid, memory, Backing::Anonymous));
            }
            let mut processes = Processes::new(events);
            processes.find_copies(|_, _| has_same_file);
            assert!(processes.descends(Pid(2), Pid(1)), "whatever it is");
            let (id, space) = processes.spaces_of(Pid(2)).next().unwrap();
            assert_eq!(processes.spaces_of(Pid(2)).count(), 1);
            assert!(processes.ancestors(id).next().is_none(), "readers copy nothing");
            assert_eq!(
                processes.all_ancestors(id).count(),
                usize::from(space.copied_from().is_some())
            );
            space.copied_from().is_some()
        };
        assert!(is_copy((0x40_0000, 0x7000_0000), (0x40_0000, 0x7000_0000), true));
        assert!(!is_copy(
            (0x40_0000, 0x7000_0000),
            (0x40_0000, 0x7000_0000),
            false
        ));
        assert!(!is_copy((0x40_0000, 0x7000_0000), (0x41_0000, 0x7000_0000), true));
        assert!(!is_copy((0x40_0000, 0x7000_0000), (0x40_0000, 0x7100_0000), true));
    }

    #[test]
    fn inherited_memory_is_looked_up_through_a_hundred_generations() {
        let forks = (1..150).map(|parent| ProcessEvent::Fork {
            child: Pid(parent + 1),
            parent: Pid(parent),
            time: Time(u64::from(parent)),
        });
        let processes = Processes::new(forks.collect());
        let ancestors = |pid| {
            let space = processes.space_at(Pid(pid), Time(1000)).unwrap();
            processes.ancestors(space).count()
        };
        assert_eq!(ancestors(101), 100);
        assert_eq!(ancestors(102), 100);
    }

    #[test]
    fn an_address_space_is_there_until_another_is_or_its_process_ends() {
        let map = |time| {
            Map::private(
                time,
                AddressRange::new(jitdump::Address(0x1000), 1).unwrap(),
                Backing::Anonymous,
            )
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
        assert!(!processes.knows(Pid(2)), "EXIT does not start a process");
        assert_eq!(ends(3), [Time::MAX], "its other threads went on");
    }

    #[test]
    fn eight_generations_are_copies_of_a_process_from_before_the_profile() {
        let mut events = Vec::new();
        for pid in 1..=10 {
            events.push(first_map(pid, 0x40_0000, Backing::File));
            events.push(first_map(pid, 0x7000_0000, Backing::Anonymous));
        }
        events.extend((1..10).map(|parent| ProcessEvent::Earlier {
            pid: Pid(parent + 1),
            parent: Pid(parent),
            time: Time(0),
        }));
        let mut processes = Processes::new(events);
        processes.find_copies(|_, _| true);
        let copies = processes.earlier_copies();
        let copies_of = |pid| {
            let mut copies: Vec<u32> = copies[&Pid(pid)].iter().map(|pid| pid.0).collect();
            copies.sort_unstable();
            copies
        };
        assert_eq!(copies_of(1), [2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(copies_of(2), [3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(copies_of(3), [4, 5, 6, 7, 8, 9, 10]);
    }
}
