//! Trims the profile's maps that would hide injected code.
//!
//! Readers let each map replace earlier maps at the same addresses. JIT compilers map, protect and merge the memory
//! around their code after they have logged it, and each time the profile gets a map that would hide the functions.
//! Such a map must not be dropped completely: a perf map (`/tmp/perf-PID.map`) needs it to name code that the dump
//! lacks. So it is trimmed to the parts that have no function and that the reader does not have yet.
//!
//! V8 logs functions that are in the text of a file. Some readers (samply) drop the whole map of a file when a part of it
//! is mapped again, so the parts around injected maps must be mapped again, too.

use std::collections::BTreeMap;

use crate::code::process::{Map, Processes, SpaceId};
use crate::collections::indexed_table::IndexedTable;
use crate::collections::range_map::RangeMap;
use crate::collections::tally::Tally;
use crate::diagnostics::Issue;
use crate::perf::event::Backing;
use crate::units::{Address, AddressRange, Time};

/// An injected map, of a function or of a range freed by one.
#[derive(Clone, Copy, Debug)]
pub struct InjectedMap {
    /// Address space that gets the map.
    pub space: SpaceId,
    /// Addresses that are mapped.
    pub range: AddressRange,
    /// Time of the map.
    pub since: Time,
    /// Position among the injected maps of the same time.
    pub sequence: u32,
    /// Whether it has a function, rather than freed memory.
    pub is_function: bool,
}

/// A map of the profile that must be trimmed.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// Offset of its record from the first record, in bytes.
    pub record: u64,
    /// Parts to keep, the highest first; may be empty.
    pub parts: Vec<AddressRange>,
}

/// A part of a file's map beside an injected map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilePart {
    /// Offset of the record of the file's map from the first record, in bytes.
    pub record: u64,
    /// Addresses of the part.
    pub range: AddressRange,
}

/// Result of trimming.
#[derive(Clone, Debug, Default)]
pub struct TrimmedMaps {
    /// Maps to trim, in the order of time.
    pub reduced: Vec<Reduced>,
    /// What an injected map, by its index, leaves of the file's map around it. Children without maps of their own are left
    /// out.
    pub file_parts: BTreeMap<usize, Vec<FilePart>>,
    /// Limits that were hit.
    pub faults: Tally<Issue>,
}

/// Maximum number of parts in all trimmed maps, in addition to four per injected map and two per map of the profile.
/// Real maps leave fewer than two parts each.
const MAX_PARTS: usize = 1 << 14;

/// Maximum number of ranges that all forked processes together may inherit. A server with 200 processes and 10,000
/// functions needs half of that.
const MAX_COPIES: usize = 1 << 22;

/// Finds and trims the maps that would hide any of `own`.
pub fn trimmed_maps(processes: &Processes, own: &[InjectedMap]) -> TrimmedMaps {
    let mut cover = Cover::new(processes, own);
    let mut events = cover.events(processes, own);
    events.sort_by_key(Event::order);
    for event in events {
        cover.apply(event);
    }
    cover.covering
}

#[derive(Clone, Copy)]
enum Event<'a> {
    Fork(SpaceId, SpaceId, Time),
    Map(SpaceId, &'a Map),
    /// An injected map and its index.
    Own(usize, &'a InjectedMap),
}

impl Event<'_> {
    /// Sort key: by time, injected maps first, as in the output.
    fn order(&self) -> (Time, bool, u32) {
        match self {
            Self::Own(_, own) => (own.since, false, own.sequence),
            Self::Fork(_, _, time) => (*time, true, 0),
            Self::Map(_, map) => (map.time, true, 0),
        }
    }
}

/// Memory of each address space as a reader sees it at one time.
struct Cover {
    spaces: IndexedTable<SpaceId, SpaceCover>,
    /// Whether an address space can have functions, and it or a descendant has maps.
    is_watched: IndexedTable<SpaceId, bool>,
    /// Number of parts that may still be kept.
    parts: usize,
    /// Number of ranges that may still be inherited.
    copies: usize,
    covering: TrimmedMaps,
}

#[derive(Clone, Default)]
struct SpaceCover {
    functions: RangeMap<()>,
    /// Memory without a file that the reader has maps of, by kind.
    memory: RangeMap<Backing>,
    /// Offsets of the records of files' maps.
    files: RangeMap<u64>,
}

impl Cover {
    fn new(processes: &Processes, own: &[InjectedMap]) -> Self {
        let spaces = processes.spaces();
        let mut has_functions = spaces.map(|_| false);
        for own in own {
            has_functions[own.space] = true;
        }
        let mut has_maps = spaces.map(|space| !space.maps.is_empty());
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
        let maps: usize = spaces.iter().map(|space| space.maps.len()).sum();
        let parts = own.len().saturating_mul(4).saturating_add(maps.saturating_mul(2));
        let both = has_functions.iter().zip(&has_maps);
        Self {
            spaces: spaces.map(|_| SpaceCover::default()),
            is_watched: both.map(|(&functions, &maps)| functions && maps).collect(),
            parts: parts.saturating_add(MAX_PARTS),
            copies: MAX_COPIES,
            covering: TrimmedMaps::default(),
        }
    }

    fn is_watched(&self, space: SpaceId) -> bool {
        self.is_watched[space]
    }

    fn events<'a>(&self, processes: &'a Processes, own: &'a [InjectedMap]) -> Vec<Event<'a>> {
        let mut events = Vec::new();
        for (id, space) in processes.iter().filter(|&(id, _)| self.is_watched(id)) {
            events.extend(space.parent.map(|(parent, time)| Event::Fork(id, parent, time)));
            events.extend(space.maps.iter().map(|map| Event::Map(id, map)));
        }
        let own = own.iter().enumerate();
        let own = own.filter(|(_, own)| self.is_watched(own.space));
        events.extend(own.map(|(index, own)| Event::Own(index, own)));
        events
    }

    fn apply(&mut self, event: Event<'_>) {
        match event {
            Event::Fork(child, parent, _) => self.fork(child, parent),
            Event::Own(index, own) => {
                let space = &mut self.spaces[own.space];
                if own.is_function {
                    space.functions.insert(own.range, (), |_, ()| {});
                } else {
                    space.functions.remove(own.range, |_, ()| {});
                }
                let file_parts = space.remove_from_files(own.range);
                if own.is_function && !file_parts.is_empty() {
                    self.covering.file_parts.insert(index, file_parts);
                }
            }
            Event::Map(space, map) => self.map(space, map),
        }
    }

    fn fork(&mut self, child: SpaceId, parent: SpaceId) {
        let parent = &self.spaces[parent];
        let copies = parent
            .functions
            .piece_count()
            .saturating_add(parent.memory.piece_count())
            .saturating_add(parent.files.piece_count());
        if copies > self.copies {
            self.covering.faults.add(Issue::InheritedCodeHidden, 0);
            return;
        }
        self.copies -= copies;
        self.spaces[child] = parent.clone();
    }

    fn map(&mut self, space: SpaceId, map: &Map) {
        let space = &mut self.spaces[space];
        if map.backing == Backing::File {
            space.functions.remove(map.range, |_, ()| {});
            space.memory.remove(map.range, |_, _| {});
            space.files.insert(map.range, map.record, |_, _| {});
            return;
        }
        space.files.remove(map.range, |_, _| {});
        if space.functions.overlapping(map.range).next().is_some() {
            let parts = space.unknown_parts(map, &mut self.parts);
            if parts.is_none() {
                self.covering.faults.add(Issue::MappingsNotTrimmed, map.record);
            }
            self.covering.reduced.push(Reduced {
                record: map.record,
                parts: parts.unwrap_or_default(),
            });
        }
        space.memory.insert(map.range, map.backing, |_, _| {});
    }
}

impl SpaceCover {
    /// Removes a range from the maps of files; returns what is left of those before and after it.
    fn remove_from_files(&mut self, range: AddressRange) -> Vec<FilePart> {
        let before = self.files.piece_at(range.start);
        let before = before.map(|(piece, record)| (piece.start, range.start, record));
        let after = self.files.piece_at(Address(range.end.0.saturating_sub(1)));
        let after = after.map(|(piece, record)| (range.end, piece.end, record));
        self.files.remove(range, |_, _| {});
        let parts = before.into_iter().chain(after);
        let parts = parts.filter(|(start, end, _)| start < end);
        parts
            .map(|(start, end, record)| FilePart {
                record,
                range: AddressRange { start, end },
            })
            .collect()
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
    use crate::units::Pid;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange::new(Address(start), end - start).unwrap()
    }

    fn map(pid: u32, time: u64, range: AddressRange, backing: Backing) -> ProcessEvent {
        let map = Map {
            time: Time(time),
            range,
            backing,
            record: time,
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

    fn function(processes: &Processes, pid: u32, time: u64, range: AddressRange) -> InjectedMap {
        let space = processes.space_at(Pid(pid), Time(time)).unwrap();
        InjectedMap {
            space,
            range,
            since: Time(time),
            sequence: 0,
            is_function: true,
        }
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
        let reduced = trimmed_maps(&processes, &own).reduced;
        let found: Vec<_> = reduced.iter().map(|it| (it.record, it.parts.clone())).collect();
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
    fn files_are_mapped_again_around_functions_in_them() {
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
        let found = trimmed_maps(&processes, &own).file_parts;
        let part = |record, range| FilePart { record, range };
        let expected = [
            (0, vec![part(10, range(0, 20)), part(10, range(30, 100))]),
            (1, vec![part(10, range(30, 50)), part(10, range(60, 100))]),
            (2, vec![part(20, range(110, 200))]),
            (3, vec![part(10, range(0, 90))]),
        ];
        assert_eq!(found, BTreeMap::from(expected));
    }

    #[test]
    fn a_child_keeps_what_it_inherited_in_view() {
        let processes = Processes::new(vec![
            map(1, 10, range(0, 100), Backing::Anonymous),
            fork(1, 2, 30),
            map(2, 40, range(0, 200), Backing::Anonymous),
        ]);
        let own = [function(&processes, 1, 20, range(50, 60))];
        let reduced = trimmed_maps(&processes, &own).reduced;
        assert_eq!(reduced.len(), 1);
        assert_eq!(reduced[0].parts, [range(100, 200)]);
    }

    #[test]
    fn names_of_memory_that_change_again_and_again_are_given_up_on() {
        let backings = [Backing::Anonymous, Backing::Shared].into_iter().cycle();
        let maps = backings.take(5000).zip(10..);
        let maps = maps.map(|(backing, time)| map(1, time, range(0, 8000), backing));
        let processes = Processes::new(maps.collect());
        let places = (0..2000).map(|at| range(at * 4, at * 4 + 2));
        let own: Vec<_> = places.map(|range| function(&processes, 1, 5, range)).collect();
        let covering = trimmed_maps(&processes, &own);
        let parts: usize = covering.reduced.iter().map(|reduced| reduced.parts.len()).sum();
        assert!(parts <= MAX_PARTS + 4 * own.len() + 2 * 5000, "{parts}");
        assert!(covering.faults.count(Issue::MappingsNotTrimmed) > 4000);
    }
}
