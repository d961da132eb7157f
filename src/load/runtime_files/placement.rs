//! Code events of runtime files in the address spaces of a profile.

use jitdump::{Change, CodeEvent, Time};

use crate::code::process::{AddressSpace, Processes, SpaceId};
use crate::code::profile_index::ProfileIndex;
use crate::code::timeline::{FileIndex, FunctionId, PlacedEvent, ranges};
use crate::collections::hash::{HashMap, HashSet};
use crate::collections::range_map::RangeMap;
use crate::load::pid_resolver::PidResolver;
use crate::load::runtime_files::{CodeEventCounts, RuntimeFiles, UsedFile};
use crate::load::shared_memory::SharedMemory;
use crate::units::Pid;

/// Maximum number of loads to copy to processes that had a dump mapped before the profile began. A server
/// with 200 processes and 10,000 functions needs that many.
const MAX_COPIES: usize = 1 << 21;

impl RuntimeFiles<'_> {
    /// Calls `place` with the code events of all files, with the address spaces and times of the profile, and counts
    /// them. What is loaded into `shared` memory is in all address spaces that have it.
    pub fn place_events(
        &mut self,
        index: &ProfileIndex,
        shared: &SharedMemory,
        mut place: impl FnMut(PlacedEvent),
    ) {
        let processes = &index.processes;
        let (start, _) = index.times.unwrap_or_default();
        let owners = PidResolver::new(self.used.iter().map(|used| &used.found), processes);
        let earlier_copies = processes.earlier_copies();
        let mut copies_left = MAX_COPIES;
        for (file, used) in self.used.enumerate_mut() {
            let header_pid = used.code.pid();
            let creator = owners.process_of(&used.found, header_pid, header_pid, processes);
            let copies = creator.and_then(|pid| earlier_copies.get(&pid));
            let placement = FilePlacement {
                file,
                used: &*used,
                processes,
                owners: &owners,
                shared,
                start,
                creator,
                earlier: EarlierProcesses::of(used, copies.map_or(&[][..], Vec::as_slice)),
                ambiguous: if used.is_without_order() {
                    used.at_shared_addresses()
                } else {
                    HashSet::default()
                },
                known_owners: HashMap::default(),
                counts: CodeEventCounts::default(),
            };
            used.counts = placement.place_all(&mut copies_left, &mut place);
        }
    }
}

/// The processes that have the code of a file that is older than the profile: those that had the file mapped then, and those whose
/// maps show that they were copies of its creator.
struct EarlierProcesses {
    /// The processes, each once.
    all: Vec<Pid>,
    /// Number of copies that an event of the creator counts for, at least as many.
    copies: usize,
}

impl EarlierProcesses {
    fn of(used: &UsedFile<'_>, copies_of_creator: &[Pid]) -> Self {
        let with_file: HashSet<Pid> = used.found.pids_before.iter().copied().collect();
        let others = copies_of_creator
            .iter()
            .filter(|other| !with_file.contains(other));
        Self {
            all: used.found.pids_before.iter().chain(others).copied().collect(),
            copies: with_file.len().saturating_add(copies_of_creator.len()),
        }
    }
}

/// The placing of the events of a file.
struct FilePlacement<'p, 'a> {
    file: FileIndex,
    used: &'p UsedFile<'a>,
    processes: &'p Processes,
    owners: &'p PidResolver,
    shared: &'p SharedMemory,
    /// When the profile begins.
    start: Time,
    /// The process that made the file; `None` if it is ambiguous.
    creator: Option<Pid>,
    earlier: EarlierProcesses,
    /// Functions that are left out, because nothing shows when they were at their addresses.
    ambiguous: HashSet<u32>,
    /// The processes of PIDs in the file.
    known_owners: HashMap<u32, Option<Pid>>,
    counts: CodeEventCounts,
}

impl FilePlacement<'_, '_> {
    /// Places all events, and returns their numbers. Takes the copies of events from `copies_left`.
    fn place_all(mut self, copies_left: &mut usize, place: &mut impl FnMut(PlacedEvent)) -> CodeEventCounts {
        let used = self.used;
        for event in used.code.events() {
            self.place_event(&event, copies_left, place);
        }
        self.counts
    }

    /// Places an event in the address space of its process, and in others that have the same code.
    fn place_event(
        &mut self,
        event: &CodeEvent,
        copies_left: &mut usize,
        place: &mut impl FnMut(PlacedEvent),
    ) {
        match event.change {
            Change::Load => self.counts.loads += 1,
            Change::Move { .. } => self.counts.moves += 1,
        }
        self.counts.uncopied += u64::from(self.shared.is_incomplete);
        let (file, used, processes) = (self.file, self.used, self.processes);
        let owner = self.owner(event.pid);
        let sharers = used.sharers(event, owner.or(self.creator), processes, self.shared);
        let Some(pid) = owner.or(self.creator.filter(|_| !sharers.is_empty())) else {
            self.counts.ownerless += 1;
            return;
        };
        if self.ambiguous.contains(&event.function) {
            return;
        }
        if let Some(placed) = used.place(file, event, pid, processes) {
            place(placed);
        }
        if !sharers.is_empty() {
            if self.take_copies(sharers.len(), copies_left) {
                used.copies(file, event, pid, sharers, processes).for_each(place);
            }
            return;
        }
        // Processes that were forked before the profile began have the code that existed then.
        let is_earlier = owner == self.creator && used.alignment.time(event.time) <= self.start;
        if is_earlier && self.take_copies(self.earlier.copies, copies_left) {
            let others = self.earlier.all.iter().filter(|&&other| other != pid);
            others
                .filter_map(|&other| used.place(file, event, other, processes))
                .for_each(place);
        }
    }

    /// Returns the process of the profile that a PID in the file means; `None` if it is ambiguous.
    fn owner(&mut self, pid: u32) -> Option<Pid> {
        let (used, owners, processes) = (self.used, self.owners, self.processes);
        let find = || owners.process_of(&used.found, used.code.pid(), pid, processes);
        *self.known_owners.entry(pid).or_insert_with(find)
    }

    /// Takes copies of an event from those that are left. If there are too few, returns `false`, and counts the event.
    fn take_copies(&mut self, copies: usize, left: &mut usize) -> bool {
        match left.checked_sub(copies) {
            Some(less) => {
                *left = less;
                true
            }
            None => {
                self.counts.uncopied += 1;
                false
            }
        }
    }
}

impl UsedFile<'_> {
    /// Returns the functions that were moved, or at addresses that another function of the file had as well.
    fn at_shared_addresses(&self) -> HashSet<u32> {
        let mut shared = HashSet::default();
        let mut code = RangeMap::default();
        for event in self.code.events() {
            let own = self.code.range(event.function);
            let Some((range, _)) = own.and_then(|own| ranges(&event, own)) else {
                continue;
            };
            let mut is_shared = match event.change {
                Change::Load => false,
                Change::Move { .. } => true,
            };
            code.insert_with(range, event.function, |_, other| {
                is_shared |= other != event.function;
                if other != event.function {
                    shared.insert(other);
                }
            });
            if is_shared {
                shared.insert(event.function);
            }
        }
        shared
    }

    /// Returns the sampled address spaces that share the memory of a process which an event loads code into; none if no other
    /// one does.
    fn sharers<'s>(
        &self,
        event: &CodeEvent,
        pid: Option<Pid>,
        processes: &Processes,
        shared: &'s SharedMemory,
    ) -> &'s [SpaceId] {
        let sharers = || {
            let pid = pid.filter(|_| !shared.is_empty())?;
            let space = processes.space_at(pid, self.alignment.time(event.time))?;
            let (range, _) = ranges(event, self.code.range(event.function)?)?;
            Some(shared.sharers(space, range.start)).filter(|sharers| *sharers != [space])
        };
        sharers().unwrap_or_default()
    }

    /// Places an event of a process in the address spaces that share its memory, except for its own and those that inherit it.
    fn copies(
        &self,
        file: FileIndex,
        event: &CodeEvent,
        pid: Pid,
        sharers: &[SpaceId],
        processes: &Processes,
    ) -> impl Iterator<Item = PlacedEvent> {
        let time = self.alignment.time(event.time);
        let own = processes.space_at(pid, time);
        let has = move |space| Some(space) == own || sharers.binary_search(&space).is_ok();
        let is_new = move |&&space: &&SpaceId| {
            let AddressSpace { until, parent, .. } = processes.space(space);
            let is_inherited = parent.is_some_and(|(parent, forked)| time <= forked && has(parent));
            Some(space) != own && time < *until && !is_inherited
        };
        let spaces = sharers.iter().filter(is_new);
        spaces.filter_map(move |&space| self.place_in(file, event, space, processes))
    }

    /// Places an event in the address space that a process has at its time; `None` if it has none.
    fn place(
        &self,
        file: FileIndex,
        event: &CodeEvent,
        pid: Pid,
        processes: &Processes,
    ) -> Option<PlacedEvent> {
        let space = processes.space_at(pid, self.alignment.time(event.time))?;
        self.place_in(file, event, space, processes)
    }

    /// Places an event of `file` in an address space, not before its beginning. `None` if its function or destination
    /// is invalid.
    fn place_in(
        &self,
        file: FileIndex,
        event: &CodeEvent,
        space: SpaceId,
        processes: &Processes,
    ) -> Option<PlacedEvent> {
        let time = self.alignment.time(event.time);
        let loaded_range = self.code.range(event.function)?;
        // A FORK or exec record starts an address space. A reader drops earlier maps there, so code comes
        // after it.
        let since = processes.space(space).since;
        let earliest = Time(since.0.saturating_add(1));
        let time = time.clamp(earliest, Time::LAST.max(earliest));
        let function = FunctionId {
            file,
            function: event.function,
        };
        PlacedEvent::new(event, function, loaded_range, space, time)
    }
}
