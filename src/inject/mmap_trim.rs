//! Trims the profile's maps that would hide injected code.
//!
//! Readers let each map replace earlier maps at the same addresses. JIT compilers map, protect and merge the memory
//! around their code after they have logged it, and each time the profile gets a map that would hide the functions.
//! Such a map must not be dropped completely: a perf map (`/tmp/perf-PID.map`) needs it to name code that the dump
//! lacks. So it is trimmed to the parts that have no function and that the reader does not have yet.
//!
//! V8 logs functions that are in the text of a file. Some readers (samply) drop the whole map of a file when a part of it
//! is mapped again. So the file's map is divided into a part for each function and the parts between them.
//!
//! Copies at forks and remaining parts of mappings are limited. No profile can make output or memory grow
//! with the product of its mappings, forks and functions.
//!
//! A part of a file's map for a function starts one byte before it: samply's unwinder requires maps to
//! start at different addresses.

use std::collections::BTreeMap;

use jitdump::{Address, AddressRange, Tally, Time};

use crate::code::process::{Map, Processes, SpaceId};
use crate::code::timeline::FreedRange;
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::IndexedTable;
use crate::collections::range_map::RangeMap;
use crate::inject::objects::PlacedObject;
use crate::perf::process_records::Backing;
use crate::results::diagnostics::Issue;

/// What a map is inserted for.
#[derive(Clone, Copy, Debug)]
pub enum InsertedMap<'a> {
    /// An object with functions.
    Object(&'a PlacedObject),
    /// Memory that code was moved from.
    FreedRange(&'a FreedRange),
}

impl InsertedMap<'_> {
    /// Address space that gets the map, and addresses that are mapped.
    fn place(&self) -> (SpaceId, AddressRange) {
        match self {
            Self::Object(object) => (object.space, object.range),
            Self::FreedRange(freed) => (freed.space, freed.range),
        }
    }

    /// Time of the map, and its position among those of the same time.
    pub fn order(&self) -> (Time, u32) {
        match self {
            Self::Object(object) => (object.time, object.sequence),
            Self::FreedRange(freed) => (freed.since, freed.sequence),
        }
    }
}

/// A map of the profile that is replaced by parts of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replaced {
    /// Offset of its record from the first record, in bytes.
    pub record: u64,
    /// Parts to keep, in any order; may be empty.
    pub parts: Vec<AddressRange>,
}

/// Result of trimming.
#[derive(Clone, Debug, Default)]
pub struct TrimmedMaps {
    /// Maps to trim, in the order of time, then maps of files to divide.
    pub replaced: Vec<Replaced>,
    /// Limits that were hit.
    pub faults: Tally<Issue>,
}

/// Maximum number of parts in all trimmed maps, in addition to those per injected map and per map of the profile.
/// Real maps leave fewer than two parts each.
const MAX_PARTS: usize = 1 << 14;
const PARTS_PER_INJECTED_MAP: usize = 4;
const PARTS_PER_MAP: usize = 2;

/// Returns the limit of parts for so many injected maps, and maps of the profile.
fn parts_limit(injected: usize, maps: usize) -> usize {
    let injected = injected.saturating_mul(PARTS_PER_INJECTED_MAP);
    let maps = maps.saturating_mul(PARTS_PER_MAP);
    injected.saturating_add(maps).saturating_add(MAX_PARTS)
}

/// Maximum number of ranges that all forked processes together may inherit. A server with 200 processes and 10,000
/// functions needs half of that.
const MAX_COPIES: usize = 1 << 22;

/// Finds and trims the maps that would hide any of `own`.
pub fn trimmed_maps(processes: &Processes, own: &[InsertedMap<'_>]) -> TrimmedMaps {
    Cover::new(processes, own).trim(processes, own)
}

#[derive(Clone, Copy)]
enum MappingChange<'a> {
    Fork(SpaceId, SpaceId, Time),
    Map(SpaceId, &'a Map),
    Own(InsertedMap<'a>),
}

impl MappingChange<'_> {
    /// Sort key: by time, injected maps first, as in the output.
    fn order(&self) -> (Time, bool, u32) {
        match self {
            Self::Own(own) => {
                let (time, sequence) = own.order();
                (time, false, sequence)
            }
            Self::Fork(_, _, time) => (*time, true, 0),
            Self::Map(_, map) => (map.time, true, 0),
        }
    }
}

/// Memory of each address space as a reader sees it at one time.
struct Cover {
    /// Those with anything in them.
    spaces: HashMap<SpaceId, SpaceCover>,
    /// Whether an address space can have functions, and it or a descendant has maps.
    is_watched: IndexedTable<SpaceId, bool>,
    /// Number of parts that may still be kept.
    parts: usize,
    /// Number of ranges that may still be inherited.
    copies: usize,
    /// Maps of files with functions, by their records.
    divided: BTreeMap<u64, DividedMap>,
    trimmed: TrimmedMaps,
}

#[derive(Clone, Default)]
struct SpaceCover {
    functions: RangeMap<()>,
    /// Memory without a file that the reader has maps of, by kind.
    memory: RangeMap<Backing>,
    /// Maps of files.
    files: RangeMap<FileMap>,
}

/// A map of a file.
#[derive(Clone, Copy)]
struct FileMap {
    /// Offset of its record from the first record, in bytes.
    record: u64,
    /// Addresses that it maps.
    range: AddressRange,
}

/// A map of a file, and the functions in it.
struct DividedMap {
    map: FileMap,
    functions: Vec<AddressRange>,
}

impl DividedMap {
    /// Divides the map.
    ///
    /// Quirk: samply 0.13 takes two maps with the same start for an error, and its unwinder may use the wrong one. So the
    /// part for a function starts one byte before it, which is padding or the end of a function that never returns.
    fn replaced(mut self) -> Replaced {
        self.functions.sort_unstable();
        let mut parts = Vec::new();
        let mut start = self.map.range.start;
        let mut functions = self.functions.into_iter().peekable();
        while let Some(mut function) = functions.next() {
            // Functions without a byte between them share a part.
            while let Some(next) = functions.next_if(|next| next.start <= function.end) {
                function.end = function.end.max(next.end);
            }
            let before = Address(function.start.0.saturating_sub(1));
            for end in [before, function.end] {
                let end = end.min(self.map.range.end);
                if start < end {
                    parts.push(AddressRange { start, end });
                    start = end;
                }
            }
        }
        let end = self.map.range.end;
        if start < end {
            parts.push(AddressRange { start, end });
        }
        Replaced {
            record: self.map.record,
            parts,
        }
    }
}

/// Returns which address spaces are watched: those that have functions, of their own or inherited, if they or copies of them
/// have maps.
fn watched(processes: &Processes, own: &[InsertedMap<'_>]) -> IndexedTable<SpaceId, bool> {
    let spaces = &processes.spaces;
    let mut has_functions = spaces.map(|_| false);
    for inserted in own {
        let (space, _) = inserted.place();
        has_functions[space] = true;
    }
    let mut has_maps = spaces.map(|space| !space.maps.is_empty());
    // A parent comes before its copies.
    for (id, space) in processes.iter() {
        if let Some((parent, _)) = space.parent {
            has_functions[id] |= has_functions[parent];
        }
    }
    for (id, space) in spaces.enumerate().rev() {
        if let Some((parent, _)) = space.parent {
            has_maps[parent] |= has_maps[id];
        }
    }
    let both = has_functions.iter().zip(&has_maps);
    both.map(|(&functions, &maps)| functions && maps).collect()
}

impl Cover {
    /// Starts before all changes. Only address spaces that can have functions and maps are watched.
    fn new(processes: &Processes, own: &[InsertedMap<'_>]) -> Self {
        let spaces = processes.spaces.iter();
        let maps: usize = spaces.map(|space| space.maps.len()).sum();
        Self {
            spaces: HashMap::default(),
            is_watched: watched(processes, own),
            parts: parts_limit(own.len(), maps),
            copies: MAX_COPIES,
            divided: BTreeMap::new(),
            trimmed: TrimmedMaps::default(),
        }
    }

    /// Follows all changes in their order, and returns the maps to replace.
    fn trim(mut self, processes: &Processes, own: &[InsertedMap<'_>]) -> TrimmedMaps {
        let mut events = self.events(processes, own);
        events.sort_by_key(MappingChange::order);
        for event in events {
            self.apply_change(event);
        }
        let divided = self.divided.into_values();
        self.trimmed.replaced.extend(divided.map(DividedMap::replaced));
        self.trimmed
    }

    /// Returns the changes to the watched address spaces, in no order.
    fn events<'a>(&self, processes: &'a Processes, own: &[InsertedMap<'a>]) -> Vec<MappingChange<'a>> {
        let mut events = Vec::new();
        for (id, space) in processes.iter().filter(|&(id, _)| self.is_watched[id]) {
            events.extend(
                space
                    .parent
                    .map(|(parent, time)| MappingChange::Fork(id, parent, time)),
            );
            events.extend(space.maps.iter().map(|map| MappingChange::Map(id, map)));
        }
        let own = own.iter().filter(|own| self.is_watched[own.place().0]);
        events.extend(own.copied().map(MappingChange::Own));
        events
    }

    /// Does what a reader of the new profile does at a change.
    fn apply_change(&mut self, event: MappingChange<'_>) {
        match event {
            MappingChange::Fork(child, parent, _) => self.apply_fork(child, parent),
            MappingChange::Own(own) => {
                let (space, range) = own.place();
                let space = self.spaces.entry(space).or_default();
                match own {
                    InsertedMap::Object(_) => space.functions.insert(range, ()),
                    InsertedMap::FreedRange(_) => space.functions.remove(range),
                }
                for map in space.remove_from_files(range) {
                    let divided = self.divided.entry(map.record).or_insert(DividedMap {
                        map,
                        functions: Vec::new(),
                    });
                    divided.functions.push(range);
                }
            }
            MappingChange::Map(space, map) => self.apply_map(space, map),
        }
    }

    /// Copies what a reader has of a parent's memory, unless all copies would be too large.
    fn apply_fork(&mut self, child: SpaceId, parent: SpaceId) {
        let Some(parent) = self.spaces.get(&parent) else {
            self.spaces.remove(&child);
            return;
        };
        let copies = parent
            .functions
            .piece_count()
            .saturating_add(parent.memory.piece_count())
            .saturating_add(parent.files.piece_count());
        if copies > self.copies {
            self.trimmed.faults.add(Issue::InheritedCodeHidden, 0);
            return;
        }
        self.copies -= copies;
        let copy = parent.clone();
        self.spaces.insert(child, copy);
    }

    /// Maps memory as a reader does. A map of anonymous memory that would hide functions is replaced by its parts without
    /// one; at the limit by nothing, because names of functions are worth more than those of a perf map.
    fn apply_map(&mut self, space: SpaceId, map: &Map) {
        let space = self.spaces.entry(space).or_default();
        if map.backing.is_file() {
            space.map_file(map);
            return;
        }
        if space.functions.overlapping(map.range).next().is_some() {
            let parts = space.unknown_parts(map, &mut self.parts);
            if parts.is_none() {
                self.trimmed.faults.add(Issue::MappingsNotTrimmed, map.record);
            }
            self.trimmed.replaced.push(Replaced {
                record: map.record,
                parts: parts.unwrap_or_default(),
            });
        }
        space.map_memory(map);
    }
}

impl SpaceCover {
    /// Maps a file, which hides all that was there.
    fn map_file(&mut self, map: &Map) {
        self.functions.remove(map.range);
        self.memory.remove(map.range);
        let file = FileMap {
            record: map.record,
            range: map.range,
        };
        self.files.insert(map.range, file);
    }

    /// Maps memory without a file, beside the functions that are there.
    fn map_memory(&mut self, map: &Map) {
        self.files.remove(map.range);
        self.memory.insert(map.range, map.backing);
    }

    /// Removes a range from the maps of files; returns the maps that it starts or ends in.
    fn remove_from_files(&mut self, range: AddressRange) -> Vec<FileMap> {
        let last = Address(range.end.0.saturating_sub(1));
        let mut maps: Vec<FileMap> = [range.start, last]
            .into_iter()
            .filter_map(|address| self.files.get(address))
            .collect();
        maps.dedup_by_key(|map| map.record);
        self.files.remove(range);
        maps
    }

    /// Returns the parts of a map that have no function and that the reader does not have as the same kind of memory.
    /// Subtracts the number of checked parts from `limit`; returns `None` if that is not enough.
    fn unknown_parts(&self, map: &Map, limit: &mut usize) -> Option<Vec<AddressRange>> {
        let mut parts = Vec::new();
        for unknown in self.memory.gaps(map.range, |backing| backing == map.backing) {
            let functions = self.functions.overlapping(unknown).take(*limit).count();
            *limit = limit.saturating_sub(functions.saturating_add(1));
            if *limit == 0 {
                return None;
            }
            parts.extend(self.functions.gaps(unknown, |()| true));
        }
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::process::ProcessEvent;
    use crate::inject::objects::tests::object_at;
    use crate::units::Pid;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange::new(Address(start), end - start).unwrap()
    }

    fn map(pid: u32, time: u64, range: AddressRange, backing: Backing) -> ProcessEvent {
        let map = Map {
            record: time,
            ..Map::private(time, range, backing)
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

    fn function(processes: &Processes, pid: u32, time: u64, range: AddressRange) -> PlacedObject {
        PlacedObject {
            space: processes.space_at(Pid(pid), Time(time)).unwrap(),
            time: Time(time),
            range,
            ..object_at(b"")
        }
    }

    fn inserted(own: &[PlacedObject]) -> Vec<InsertedMap<'_>> {
        own.iter().map(InsertedMap::Object).collect()
    }

    #[test]
    fn only_what_holds_no_function_and_is_new_is_left() {
        let processes = Processes::new(vec![
            map(1, 10, range(0, 100), Backing::Anonymous),
            map(1, 30, range(0, 200), Backing::Anonymous),
            map(1, 40, range(0, 200), Backing::Anonymous),
            map(1, 50, range(0, 100), Backing::File),
            map(1, 60, range(0, 200), Backing::Anonymous),
        ]);
        let own = [
            function(&processes, 1, 20, range(50, 60)),
            function(&processes, 1, 20, range(150, 160)),
        ];
        let replaced = trimmed_maps(&processes, &inserted(&own)).replaced;
        let found: Vec<_> = replaced.iter().map(|it| (it.record, it.parts.clone())).collect();
        assert_eq!(
            found,
            [
                (30, vec![range(160, 200), range(100, 150)]),
                (40, vec![]),
                (60, vec![range(0, 100)]),
            ]
        );
    }

    #[test]
    fn maps_of_files_are_divided_at_functions_in_them() {
        let processes = Processes::new(vec![
            map(1, 10, range(0, 100), Backing::File),
            map(1, 20, range(100, 200), Backing::File),
            fork(1, 2, 30),
            map(2, 45, range(400, 500), Backing::Anonymous),
            map(1, 60, range(0, 100), Backing::Anonymous),
        ]);
        let places = [
            (1, 40, range(20, 30)),
            (1, 50, range(50, 60)),
            (2, 50, range(100, 110)),
            (2, 50, range(90, 100)),
            (1, 70, range(70, 80)),
            (1, 70, range(300, 310)),
        ];
        let own = places.map(|(pid, time, place)| function(&processes, pid, time, place));
        let mut found = trimmed_maps(&processes, &inserted(&own)).replaced;
        // The anonymous memory at 60 is trimmed.
        found.retain(|replaced| replaced.record != 60);
        let cut = |record, cuts: &[u64]| Replaced {
            record,
            parts: cuts.windows(2).map(|cut| range(cut[0], cut[1])).collect(),
        };
        // Each part for a function starts one byte before it, unless the map starts with it.
        let expected = [cut(10, &[0, 19, 30, 49, 60, 89, 100]), cut(20, &[100, 110, 200])];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_child_keeps_what_it_inherited_in_view() {
        let processes = Processes::new(vec![
            map(1, 10, range(0, 100), Backing::Anonymous),
            fork(1, 2, 30),
            map(2, 40, range(0, 200), Backing::Anonymous),
        ]);
        let own = [function(&processes, 1, 20, range(50, 60))];
        let replaced = trimmed_maps(&processes, &inserted(&own)).replaced;
        assert_eq!(replaced.len(), 1);
        assert_eq!(replaced[0].parts, [range(100, 200)]);
    }

    #[test]
    fn names_of_memory_that_change_again_and_again_are_given_up_on() {
        let backings = [Backing::Anonymous, Backing::Shared].into_iter().cycle();
        let maps = backings.take(5000).zip(10..);
        let maps = maps.map(|(backing, time)| map(1, time, range(0, 8000), backing));
        let processes = Processes::new(maps.collect());
        let places = (0..2000).map(|at| range(at * 4, at * 4 + 2));
        let own: Vec<_> = places.map(|range| function(&processes, 1, 5, range)).collect();
        let trimmed = trimmed_maps(&processes, &inserted(&own));
        let parts: usize = trimmed.replaced.iter().map(|replaced| replaced.parts.len()).sum();
        assert!(parts <= (1 << 14) + 4 * own.len() + 2 * 5000, "{parts}");
        assert!(trimmed.faults.count(Issue::MappingsNotTrimmed) > 4000);
    }

    #[test]
    fn memory_of_63_functions_that_changes_268_times_is_trimmed_each_time() {
        let faults = |count: u64| {
            let backings = [Backing::Anonymous, Backing::Shared].into_iter().cycle();
            let maps = (0..count).zip(backings);
            let maps = maps.map(|(at, backing)| map(1, 10 + at, range(0, 252), backing));
            let processes = Processes::new(maps.collect());
            let places = (0..63).map(|at| range(at * 4, at * 4 + 2));
            let own: Vec<_> = places.map(|range| function(&processes, 1, 5, range)).collect();
            let trimmed = trimmed_maps(&processes, &inserted(&own));
            assert_eq!(trimmed.replaced.len() as u64, count);
            trimmed.faults.count(Issue::MappingsNotTrimmed)
        };
        // 268 * 64 parts of 16,384 + 63 * 4 + 268 * 2
        assert_eq!(faults(268), 0);
        assert_eq!(faults(269), 1);
    }

    #[test]
    fn forked_processes_inherit_4_194_304_ranges_in_all() {
        // Each child inherits a function and the memory around it.
        let processes = Processes::new(vec![
            map(1, 10, range(0, 100), Backing::Anonymous),
            fork(1, 2, 30),
            fork(1, 3, 31),
            map(2, 40, range(0, 200), Backing::Anonymous),
            map(3, 41, range(0, 200), Backing::Anonymous),
        ]);
        let own = [function(&processes, 1, 20, range(50, 60))];
        let after = |inherited: usize| {
            let mut cover = Cover::new(&processes, &inserted(&own));
            cover.copies -= inherited;
            let trimmed = cover.trim(&processes, &inserted(&own));
            let hidden = trimmed.faults.count(Issue::InheritedCodeHidden);
            (trimmed.replaced.len(), hidden)
        };
        assert_eq!(after(4_194_300), (2, 0));
        assert_eq!(after(4_194_301), (1, 1));
    }
}
