//! Removes code that runtimes log although it is in the executable mapping of a file.
//!
//! Quirk: V8 logs its built-in functions at their addresses in the text of `node`. elfutils' libdw can't nest modules: with an
//! object in the text of a program, perf 7.0 and later can't unwind any stack through that program. The symbols of
//! the file name this code as well. Shown by `unwinding::no_object_is_inside_a_file_whose_stacks_are_unwound`.
//!
//! With objects for V8's built-in functions in the text of `node`, perf 7.3 got 3,142 frames from 240
//! stacks; without, 6,823. Samples in them count as native code. Profiles without copied stacks keep the
//! names of the jitdump.
//!
//! Quirk: By default (`--short-builtin-calls`), V8 maps that part of the file again, next to the JIT code, and calls the
//! functions at both places. A program that is no PIE is one module at one place for libdw: perf 7.3 asks it to add the
//! program again for a frame in the second place, which removes it from the first, and loses all stacks through the program
//! from then on (capture node20-dwarf-perf7). So the functions are placed where the file is mapped again, and have objects there.

use jitdump::history::{Builder, History};
use jitdump::{Address, AddressRange, ByteOrder, Time};

use crate::code::process::{AddressSpace, SpaceId};
use crate::code::profile_index::ProfileIndex;
use crate::code::timeline::PlacedEvent;
use crate::collections::hash::HashMap;
use crate::perf::process_records::Mmap;

/// File mappings of each address space over time, built on first use.
pub struct MappedFiles<'a> {
    index: &'a ProfileIndex,
    endian: ByteOrder,
    spaces: HashMap<SpaceId, SpaceFiles>,
    /// Number of loads and moves whose code was removed.
    pub removed: u64,
}

/// File mappings of an address space.
struct SpaceFiles {
    /// Whether a file is mapped.
    maps: History<bool>,
    /// Parts of files that are mapped again.
    again: Vec<Again>,
}

/// A part of a file that is mapped again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Again {
    /// Addresses at which it was mapped first.
    first: AddressRange,
    /// Distance of its new addresses; wraps around.
    distance: u64,
    /// Time of the new map.
    time: Time,
}

/// Number of executable parts that are remembered, of a file and of those mapped again. Linkers write one or two.
const MAX_PARTS: usize = 8;

impl<'a> MappedFiles<'a> {
    /// Creates the file mappings of the processes of a profile.
    pub fn new(index: &'a ProfileIndex, endian: ByteOrder) -> Self {
        Self {
            index,
            endian,
            spaces: HashMap::default(),
            removed: 0,
        }
    }

    /// Removes the code of an event if it is in a file mapping. Returns the event if anything is left of it. Memory that
    /// runtimes share with themselves through a file ([`Shared`](crate::perf::process_records::Backing::Shared)) does not count as a file.
    pub fn remove(&mut self, event: PlacedEvent) -> Option<PlacedEvent> {
        let is_in_file = |range: AddressRange| self.hold(event.space, range.start, event.time);
        if !event.range.is_some_and(is_in_file) {
            return Some(event);
        }
        self.removed += 1;
        // A move into a file still frees the old range.
        event
            .left
            .is_some()
            .then_some(PlacedEvent { range: None, ..event })
    }

    /// Whether an address is in a file mapping just before `time`; code precedes maps of the same time.
    fn hold(&mut self, space: SpaceId, address: Address, time: Time) -> bool {
        let processes = &self.index.processes;
        let own = std::iter::once((space, processes.space(space)));
        let mut until = Time(time.0.saturating_sub(1));
        for (id, space) in own.chain(processes.ancestors(space)) {
            if let Some(is_file) = self.at(id, space, address, until) {
                return is_file;
            }
            until = space.parent.map_or(until, |(_, forked)| forked.min(until));
        }
        false
    }

    /// Whether an address is in a file of the address space itself; `None` if it maps nothing there.
    fn at(&mut self, id: SpaceId, space: &AddressSpace, address: Address, time: Time) -> Option<bool> {
        let (index, endian) = (self.index, self.endian);
        let files = self.spaces.entry(id).or_insert_with(|| {
            let (mut maps, mut again) = (Builder::default(), Vec::new());
            let mut first = FirstPlaces::default();
            for map in &space.maps {
                let is_file = map.backing.is_file();
                maps.put(map.range, map.time, is_file);
                let record = index.kept.at(map.record, endian).filter(|_| is_file);
                let mmap = record.and_then(|record| Mmap::parse(&record, endian));
                let part = mmap.and_then(|mmap| first.again(&mmap, map.time));
                again.extend(part.filter(|_| again.len() < MAX_PARTS));
            }
            SpaceFiles {
                maps: maps.finish(),
                again,
            }
        });
        files.maps.at(address, time).map(|interval| interval.value)
    }

    /// Returns the code of a removed event at the addresses where its file is mapped again.
    pub fn again(&self, event: PlacedEvent) -> impl Iterator<Item = PlacedEvent> {
        let files = self.spaces.get(&event.space);
        let parts = files.map_or(&[][..], |files| &files.again);
        parts.iter().filter_map(move |part| {
            let range = event.range?;
            let is_in = range.start >= part.first.start && range.end <= part.first.end;
            let start = Address(range.start.0.wrapping_add(part.distance));
            let again = AddressRange::new(start, range.size()).filter(|_| is_in);
            Some(PlacedEvent {
                // Code precedes a map of the same time.
                time: event.time.max(Time(part.time.0.saturating_add(1))),
                range: Some(again?),
                left: None,
                ..event
            })
        })
    }
}

/// Where an address space has mapped the code of files first: addresses of parts of a file, each with their distance from the
/// offsets in the file.
#[derive(Default)]
struct FirstPlaces<'a> {
    of_files: HashMap<&'a [u8], Vec<(AddressRange, u64)>>,
}

impl<'a> FirstPlaces<'a> {
    /// Returns the part of a map that is already mapped at other addresses. If there is none, later maps are compared with this
    /// one.
    fn again(&mut self, map: &Mmap<'a>, time: Time) -> Option<Again> {
        if map.is_data {
            return None;
        }
        let to_offset = map.file_offset.wrapping_sub(map.range.start.0);
        let places = self.of_files.entry(map.name).or_default();
        let again = places.iter().find_map(|&(first, first_to_offset)| {
            let distance = first_to_offset.wrapping_sub(to_offset);
            // The same bytes of the file, where they were first.
            let start = Address(map.range.start.0.wrapping_sub(distance));
            let part = AddressRange::new(start, map.range.size())?;
            let is_again = distance != 0 && part.overlaps(first);
            is_again.then_some(Again {
                first: part,
                distance,
                time,
            })
        });
        if again.is_none() && places.len() < MAX_PARTS {
            places.push((map.range, to_offset));
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::process::{Map, ProcessEvent, Processes};
    use crate::code::timeline::{FileIndex, FunctionId};
    use crate::perf::process_records::Backing;
    use crate::perf::record::{self, Record};
    use crate::perf::testing;
    use crate::units::Pid;

    const FUNCTION: FunctionId = FunctionId {
        file: FileIndex(0),
        function: 0,
    };

    fn range(start: u64) -> AddressRange {
        AddressRange::new(Address(start), 0x100).unwrap()
    }

    fn map(pid: u32, time: u64, start: u64, backing: Backing) -> ProcessEvent {
        ProcessEvent::Map(
            Pid(pid),
            Map::private(time, AddressRange::new(Address(start), 0x1000).unwrap(), backing),
        )
    }

    fn of_processes(events: Vec<ProcessEvent>) -> ProfileIndex {
        let mut index = ProfileIndex::default();
        index.processes = Processes::new(events);
        index
    }

    /// Returns a map of 0x1000 bytes of a program's code.
    fn program_map(start: u64, file_offset: u64) -> Mmap<'static> {
        Mmap {
            pid: Pid(1),
            tid: 1,
            range: AddressRange::new(Address(start), 0x1000).unwrap(),
            file_offset,
            file: None,
            build_id: None,
            is_data: false,
            is_shared: false,
            name: b"/bin/node",
        }
    }

    #[test]
    fn a_file_is_mapped_again_if_the_same_part_is_at_other_addresses() {
        let mut first = FirstPlaces::default();
        let mut again = |name: &'static str, start, file_offset, is_data| {
            let map = Mmap {
                is_data,
                name: name.as_bytes(),
                ..program_map(start, file_offset)
            };
            let again = first.again(&map, Time(0))?;
            Some((again.first.start.0, again.distance))
        };
        assert_eq!(again("/bin/node", 0x1000, 0, true), None, "no code");
        assert_eq!(again("/bin/node", 0x3000, 0x1000, false), None);
        assert_eq!(again("/bin/node", 0x6000, 0x2000, false), None, "another part");
        assert_eq!(again("/bin/node", 0x3000, 0x1000, false), None, "the same map");
        assert_eq!(again("/bin/other", 0x8000, 0x1000, false), None);
        assert_eq!(again("/bin/node", 0x8000, 0x1000, false), Some((0x3000, 0x5000)));
        assert_eq!(
            again("/bin/node", 0x1000, 0x2000, false),
            Some((0x6000, 0x5000u64.wrapping_neg()))
        );
    }

    #[test]
    fn code_in_a_file_is_also_where_the_file_is_mapped_again() {
        let mut files = MappedFiles::new(&ProfileIndex::default(), ByteOrder::Little).spaces;
        let space = SpaceId::from(0);
        let part = Again {
            first: AddressRange::new(Address(0x1000), 0x1000).unwrap(),
            distance: 0x7000,
            time: Time(30),
        };
        files.insert(
            space,
            SpaceFiles {
                maps: Builder::default().finish(),
                again: vec![part],
            },
        );
        let index = ProfileIndex::default();
        let files = MappedFiles {
            spaces: files,
            ..MappedFiles::new(&index, ByteOrder::Little)
        };
        let placed = |time, start| {
            let event = PlacedEvent {
                time: Time(time),
                space,
                function: FUNCTION,
                range: Some(range(start)),
                left: None,
            };
            files
                .again(event)
                .map(|again| (again.time, again.range))
                .collect::<Vec<_>>()
        };
        assert_eq!(placed(20, 0x1100), [(Time(31), Some(range(0x8100)))]);
        assert_eq!(placed(40, 0x1100), [(Time(40), Some(range(0x8100)))]);
        assert_eq!(placed(40, 0x1f80), []);
    }

    #[test]
    fn code_in_files_is_removed_wherever_they_were_mapped() {
        let index = of_processes(vec![
            map(1, 10, 0x1000, Backing::File),
            map(1, 10, 0x3000, Backing::Shared),
            map(1, 40, 0x1000, Backing::Anonymous),
            ProcessEvent::Fork {
                child: Pid(2),
                parent: Pid(1),
                time: Time(30),
            },
        ]);
        let space = |pid| index.processes.space_at(Pid(pid), Time(100)).unwrap();
        let is_kept = |pid, time, start| {
            let mut files = MappedFiles::new(&index, ByteOrder::Little);
            let left = files.remove(PlacedEvent {
                time: Time(time),
                space: space(pid),
                function: FUNCTION,
                range: Some(range(start)),
                left: None,
            });
            assert_eq!(files.removed == 0, left.is_some());
            left.is_some()
        };
        assert!(is_kept(1, 5, 0x1100), "the file comes later");
        assert!(is_kept(1, 10, 0x1100), "code precedes a map of the same time");
        assert!(!is_kept(1, 20, 0x1100));
        assert!(is_kept(1, 20, 0x2000), "next to the file");
        assert!(is_kept(1, 20, 0x3100), "memory that is shared");
        assert!(is_kept(1, 50, 0x1100), "memory in the place of the file");
        assert!(!is_kept(2, 50, 0x1100), "the child still has the file");
    }

    #[test]
    fn code_that_moves_into_a_file_leaves_its_place() {
        let index = of_processes(vec![map(1, 10, 0x1000, Backing::File)]);
        let mut files = MappedFiles::new(&index, ByteOrder::Little);
        let moved = files.remove(PlacedEvent {
            time: Time(20),
            space: index.processes.space_at(Pid(1), Time(20)).unwrap(),
            function: FUNCTION,
            range: Some(range(0x1000)),
            left: Some(range(0x5000)),
        });
        assert_eq!(files.removed, 1);
        let moved = moved.map(|event| (event.range, event.left));
        assert_eq!(moved, Some((None, Some(range(0x5000)))));
    }

    #[test]
    fn eight_parts_of_a_file_are_remembered() {
        let mut first = FirstPlaces::default();
        let mut is_again = |start, offset| first.again(&program_map(start, offset), Time(0)).is_some();
        for part in 0..9 {
            assert!(!is_again(0x10_0000 + 0x2000 * part, 0x1000 * part));
        }
        assert!(is_again(0x20_0000, 0x7000));
        assert!(!is_again(0x30_0000, 0x8000));
    }

    #[test]
    fn code_is_where_its_file_is_mapped_the_next_eight_times() {
        let mut index = ProfileIndex::default();
        let mut maps = Vec::new();
        for at in 0..10 {
            let start = 0x1000 + 0x1000 * at;
            let name = u64::from_le_bytes(*b"/bin/exe");
            let fields = [1 | 1 << 32, start, 0x1000, 0, name, 0];
            let bytes = testing::record(record::MMAP, record::MISC_USER, &fields);
            let offset = 100 * at;
            let record = Record::parse(&bytes, offset, u64::MAX, testing::ORDER).unwrap();
            index.kept.push(&record);
            let map = Map {
                record: offset,
                ..Map::private(
                    10 + at,
                    AddressRange::new(Address(start), 0x1000).unwrap(),
                    Backing::File,
                )
            };
            maps.push(ProcessEvent::Map(Pid(1), map));
        }
        index.processes = Processes::new(maps);
        let mut files = MappedFiles::new(&index, testing::ORDER);
        let event = PlacedEvent {
            time: Time(50),
            space: index.processes.space_at(Pid(1), Time(50)).unwrap(),
            function: FUNCTION,
            range: Some(range(0x1100)),
            left: None,
        };
        assert!(files.remove(event).is_none());
        let starts: Vec<u64> = files
            .again(event)
            .map(|again| again.range.unwrap().start.0)
            .collect();
        assert_eq!(
            starts,
            [0x2100, 0x3100, 0x4100, 0x5100, 0x6100, 0x7100, 0x8100, 0x9100]
        );
    }
}
