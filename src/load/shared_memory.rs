//! Memory that processes share, rather than get a copy of when they are forked.
//!
//! Quirk: PHP compiles into memory that the workers of a server (php-fpm, Apache) share with the process that forked them. Each
//! logs what it compiles to the jitdump of that process, with its own process ID, and all of them run it
//! (capture php82-workers).

use jitdump::{Address, ByteOrder, Time};

use crate::code::process::{Map, Processes, SpaceId};
use crate::code::profile_index::ProfileIndex;
use crate::collections::hash::HashMap;
use crate::collections::range_map::RangeMap;
use crate::perf::process_records::{FileId, Mmap};

/// Maximum number of ranges of shared memory in all address spaces together, with those that forked processes replace. A server
/// with a thousand workers has a few for each.
const MAX_RANGES: usize = 1 << 20;

/// Shared memory of processes, and the address spaces that have it.
#[derive(Debug, Default)]
pub struct SharedMemory {
    /// The memory at the addresses of each address space.
    of_spaces: HashMap<SpaceId, RangeMap<SharedMap>>,
    /// The sampled address spaces that have each memory, in ascending order.
    sharers: Vec<Vec<SpaceId>>,
    /// Whether address spaces were left out, because there are too many.
    pub is_incomplete: bool,
}

/// Shared memory that an address space has mapped.
#[derive(Clone, Copy, Debug)]
struct SharedMap {
    /// Since when it is mapped.
    since: Time,
    /// Index of the memory.
    memory: usize,
}

/// What identifies the memory of a map: its file without a name, and the address of the first byte of that file.
type MemoryId = (FileId, u64);

impl SharedMemory {
    /// Finds the shared memory of the processes of a profile.
    pub fn of(index: &ProfileIndex, endian: ByteOrder) -> Self {
        // Most of what a program forks executes another one at once.
        let is_sampled = |space| index.has_aux || index.has_samples(space);
        Self::new(&index.processes, MAX_RANGES, is_sampled, |map| {
            let record = index.kept.at(map.record, endian)?;
            let mmap = Mmap::parse(&record, endian)?;
            let file = mmap.file.filter(|file| file.inode != 0)?;
            Some((file, mmap.range.start.0.wrapping_sub(mmap.file_offset)))
        })
    }

    /// Finds the memory of shared maps, and the sampled address spaces that have each. `id_of` tells which memory a
    /// map is of; at most `max_ranges` ranges are kept.
    fn new(
        processes: &Processes,
        max_ranges: usize,
        is_sampled: impl Fn(SpaceId) -> bool,
        id_of: impl Fn(&Map) -> Option<MemoryId>,
    ) -> Self {
        let mut shared = Self::default();
        let mut known: HashMap<MemoryId, usize> = HashMap::default();
        let mut room = max_ranges;
        for (id, space) in processes.iter() {
            let parent = space.parent.and_then(|(parent, _)| shared.of_spaces.get(&parent));
            let copied = parent.map_or(0, RangeMap::piece_count);
            if copied > room {
                shared.is_incomplete = true;
                continue;
            }
            let inherited = space.parent.and_then(|parent| shared.inherited(parent));
            let mut mapped = inherited.unwrap_or_default();
            for map in &space.maps {
                if !map.is_shared || !map.backing.is_jit_memory() {
                    mapped.remove(map.range);
                    continue;
                }
                // Memory without an ID is another one each time.
                let next = shared.sharers.len();
                let memory = id_of(map).map_or(next, |id| *known.entry(id).or_insert(next));
                if memory == next {
                    shared.sharers.push(Vec::new());
                }
                // Memory whose rights change is mapped again.
                let mut since = map.time;
                mapped.remove_with(map.range, |_, before| {
                    if before.memory == memory {
                        since = since.min(before.since);
                    }
                });
                mapped.insert(map.range, SharedMap { since, memory });
            }
            // Copying takes time, even if the process maps something else there.
            let Some(left) = room.checked_sub(mapped.piece_count().max(copied)) else {
                shared.is_incomplete = true;
                continue;
            };
            room = left;
            if mapped.is_empty() {
                continue;
            }
            if is_sampled(id) {
                shared.add_sharer(id, &mapped);
            }
            shared.of_spaces.insert(id, mapped);
        }
        shared
    }

    /// Adds an address space to those with the memory that it has mapped, once each. It must be the last one so far.
    fn add_sharer(&mut self, space: SpaceId, mapped: &RangeMap<SharedMap>) {
        for (_, map) in mapped.iter() {
            let sharers = self.sharers.get_mut(map.memory);
            if let Some(sharers) = sharers.filter(|sharers| sharers.last() != Some(&space)) {
                sharers.push(space);
            }
        }
    }

    /// Returns the memory that a process has from the address space that it was forked from.
    fn inherited(&self, (parent, forked): (SpaceId, Time)) -> Option<RangeMap<SharedMap>> {
        let mut mapped = RangeMap::default();
        let before = self.of_spaces.get(&parent)?.iter();
        for (range, map) in before.filter(|(_, map)| map.since <= forked) {
            mapped.insert(range, map);
        }
        Some(mapped)
    }

    /// Whether no process has any.
    pub fn is_empty(&self) -> bool {
        self.of_spaces.is_empty()
    }

    /// Returns the sampled address spaces with the memory at an address of one of them, in ascending order; none if it is not
    /// shared.
    pub fn sharers(&self, space: SpaceId, address: Address) -> &[SpaceId] {
        let found = self.of_spaces.get(&space).and_then(|mapped| mapped.get(address));
        let sharers = found.and_then(|map| self.sharers.get(map.memory));
        sharers.map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::code::process::ProcessEvent;
    use crate::perf::process_records::Backing;
    use crate::units::Pid;
    use jitdump::AddressRange;

    fn map(pid: u32, time: u64, start: u64, is_shared: bool) -> ProcessEvent {
        let range = AddressRange::new(Address(start), 0x1000).unwrap();
        let map = Map {
            is_shared,
            record: start,
            ..Map::private(time, range, Backing::Anonymous)
        };
        ProcessEvent::Map(Pid(pid), map)
    }

    fn fork(parent: u32, child: u32, time: u64) -> ProcessEvent {
        ProcessEvent::Fork {
            child: Pid(child),
            parent: Pid(parent),
            time: Time(time),
        }
    }

    /// Returns the processes that share the memory at 0x1000 of a process.
    fn sharers(events: Vec<ProcessEvent>, pid: u32, max_ranges: usize) -> (Vec<u32>, bool) {
        let processes = Processes::new(events);
        let file = FileId {
            major: 0,
            minor: 1,
            inode: 7,
        };
        let shared = SharedMemory::new(
            &processes,
            max_ranges,
            |_| true,
            |map| Some((file, 0)).filter(|_| map.record == 0x1000),
        );
        let space = processes.space_at(Pid(pid), Time(100)).unwrap();
        let found = shared.sharers(space, Address(0x1800)).iter();
        let pids = found.map(|&space| processes.space(space).pid.0).collect();
        (pids, shared.is_incomplete)
    }

    #[test]
    fn shared_memory_is_that_of_processes_forked_since_it_was_mapped() {
        let events = || {
            vec![
                fork(1, 2, 5),
                map(1, 10, 0x1000, true),
                fork(1, 3, 20),
                // With other rights.
                map(1, 25, 0x1000, true),
                fork(3, 4, 30),
                fork(1, 5, 40),
                map(5, 50, 0x1000, false),
                fork(1, 6, 60),
                ProcessEvent::Exec(Pid(6), Time(70)),
                // It was forked before the profile began.
                map(7, 0, 0x1000, true),
            ]
        };
        // The address space of process 6 before the exec, too.
        for pid in [1, 3, 4, 7] {
            assert_eq!(sharers(events(), pid, 100).0, [7, 1, 3, 4, 6], "{pid}");
        }
        for pid in [2, 5, 6] {
            assert_eq!(sharers(events(), pid, 100).0.len(), 0, "{pid}");
        }
    }

    #[test]
    fn private_memory_is_not_shared() {
        let events = vec![map(1, 10, 0x1000, false), fork(1, 2, 20)];
        assert_eq!(sharers(events, 1, 100), (Vec::new(), false));
    }

    #[test]
    fn ranges_of_shared_memory_beyond_a_limit_are_left_out() {
        let events = || vec![map(1, 10, 0x1000, true), fork(1, 2, 20), fork(1, 3, 20)];
        assert_eq!(sharers(events(), 1, 3), (vec![1, 2, 3], false));
        assert_eq!(sharers(events(), 1, 2), (vec![1, 2], true));
        // A process that has none any more had a copy, too.
        let events = || {
            let mut events = events();
            events.push(map(2, 30, 0x1000, false));
            events
        };
        assert_eq!(sharers(events(), 1, 3), (vec![1, 3], false));
        assert_eq!(sharers(events(), 1, 2), (vec![1], true));
    }
}
