//! Which function holds an address of a process at a time.
//!
//! The rule: the newest LOAD or MOVE not later than that time, unless the code was moved away or a file was
//! mapped over it since. A process asks its parent, at the time of the FORK, about what it has not itself
//! overwritten. Anonymous maps overwrite nothing: JIT compilers map and protect the memory around their code
//! again and again. Where such memory holds no function, a symbol of a perf map may know what it holds.

mod placing;

use std::fmt;

use crate::code::history::{History, Interval};
use crate::code::perf_map_symbols::{PlacedSymbol, SymbolTable, Symbols};
use crate::code::process::{AddressSpace, MAX_GENERATIONS, Processes, SpaceId};
use crate::code::profile_index::EarlierMap;
use crate::code::timeline::placing::Placing;
use crate::perf::event::Backing;
use crate::runtime::{Change, CodeEvent};
use crate::tally::Tally;
use crate::units::{Address, AddressRange, Time};

/// A function of one of the runtimes' files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionId {
    /// Which file, by the order in which they were read.
    pub file: u32,
    /// Which function in it.
    pub function: u32,
}

/// What happened to a function's code, on the profile's clock and in one of its address spaces.
#[derive(Clone, Copy, Debug)]
pub struct PlacedEvent {
    /// When.
    pub time: Time,
    /// Where.
    pub space: SpaceId,
    /// To which function.
    pub function: FunctionId,
    /// Where its code is from now on; `None` if it is gone.
    pub range: Option<AddressRange>,
    /// Where it was until now, if it was moved or is gone.
    pub left: Option<AddressRange>,
}

impl PlacedEvent {
    /// The same of what a runtime's file tells, of a function whose code was at `loaded_at` when it was loaded. `None`
    /// if the place that it moves to can't be.
    pub fn new(
        event: &CodeEvent,
        function: FunctionId,
        loaded_at: AddressRange,
        space: SpaceId,
        time: Time,
    ) -> Option<Self> {
        let (range, left) = ranges(event, loaded_at)?;
        Some(Self {
            time,
            space,
            function,
            range,
            left,
        })
    }
}

/// Where the code of a function that was loaded at `loaded_at` is after an event, if it is anywhere, and where it was
/// until then, if it was moved or is gone. `None` if the place that it moves to can't be.
pub fn ranges(
    event: &CodeEvent,
    loaded_at: AddressRange,
) -> Option<(Option<AddressRange>, Option<AddressRange>)> {
    let size = loaded_at.size();
    Some(match event.change {
        Change::Load => (Some(loaded_at), None),
        Change::Move { from, to } => (Some(AddressRange::new(to, size)?), AddressRange::new(from, size)),
        Change::Unload => (None, Some(loaded_at)),
    })
}

/// A function's extent at one place: from its load, or from a move, on.
#[derive(Clone, Copy, Debug)]
pub struct CodeMapping {
    /// The function.
    pub function: FunctionId,
    /// In which address space.
    pub space: SpaceId,
    /// Where.
    pub range: AddressRange,
    /// From when on.
    pub since: Time,
    /// Its place among all mappings and freed ranges of the address space, which tells those of one time apart.
    pub sequence: u32,
}

/// Addresses that code was moved away from.
#[derive(Clone, Copy, Debug)]
pub struct FreedRange {
    /// In which address space.
    pub space: SpaceId,
    /// Which.
    pub range: AddressRange,
    /// From when on.
    pub since: Time,
    /// As [`CodeMapping::sequence`].
    pub sequence: u32,
}

/// What is at an address at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The code of a function: an index into [`Timeline::mappings`].
    Function(u32),
    /// Nothing since code was moved away: an index into [`Timeline::freed_ranges`].
    Freed(u32),
    /// Code that is known by its name only.
    Symbol(PlacedSymbol),
    /// Memory that JIT compilers use, but nothing that is known.
    Anonymous,
    /// A file.
    File,
    /// Nothing that the profile knows of.
    Unmapped,
}

impl Lookup {
    /// Whether that has a name.
    pub fn is_function(self) -> bool {
        matches!(self, Self::Function(_) | Self::Symbol(_))
    }
}

/// Addresses and a time at which the same is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The addresses.
    pub range: AddressRange,
    /// When it begins.
    pub from: Time,
    /// When it is over.
    pub until: Time,
}

impl Extent {
    /// Whether it holds an address at a time.
    pub fn holds(&self, address: Address, time: Time) -> bool {
        self.range.contains(address) && self.from <= time && time < self.until
    }
}

/// Memory that JIT compilers use, from when it became such on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JitRegion {
    /// The address space that mapped it; others may be copies of that one.
    pub space: SpaceId,
    /// Where.
    pub range: AddressRange,
    /// From when on.
    pub since: Time,
}

/// What an address space held, and when.
#[derive(Debug)]
struct Layers {
    code: History<Code>,
    maps: History<Memory>,
}

/// What memory was mapped for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Memory {
    /// A file.
    File,
    /// Memory that JIT compilers use.
    Anonymous,
    /// The same where a file was mapped before, in a process that was forked: nothing in it is inherited.
    New,
}

impl Memory {
    /// Whether nothing that a process inherited is visible there any more.
    fn hides_inherited(self) -> bool {
        self != Self::Anonymous
    }
}

/// What a dump says is at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// The code of a function: an index into [`Timeline::mappings`].
    Function(u32),
    /// Nothing since it was moved away: an index into [`Timeline::freed_ranges`].
    Freed(u32),
}

impl From<Code> for Lookup {
    fn from(code: Code) -> Self {
        match code {
            Code::Function(mapping) => Self::Function(mapping),
            Code::Freed(freed_range) => Self::Freed(freed_range),
        }
    }
}

impl Lookup {
    /// It, if a dump says that it is there.
    pub fn code(self) -> Option<Code> {
        match self {
            Self::Function(mapping) => Some(Code::Function(mapping)),
            Self::Freed(freed_range) => Some(Code::Freed(freed_range)),
            Self::Symbol(_) | Self::Anonymous | Self::File | Self::Unmapped => None,
        }
    }
}

/// What is given up where moves ask for more work than the size of a profile can justify. No real profile does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// A process moved inherited code over which there was so much else that all of its old place counts as left.
    TooManyPieces,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyPieces => {
                "moves of inherited code in too many pieces, whose old places have no names"
            }
        })
    }
}

/// The code of all processes over time.
#[derive(Debug, Default)]
pub struct Timeline {
    mappings: Vec<CodeMapping>,
    freed_ranges: Vec<FreedRange>,
    spaces: Vec<SpaceTimeline>,
    symbols: Symbols,
    faults: Tally<Fault>,
}

#[derive(Debug, Default)]
struct SpaceTimeline {
    /// What happened in it, unless nothing did.
    layers: Option<Layers>,
    /// Whom to ask about what it started with, and at what time: the nearest ancestor in which something
    /// happened.
    parent: Option<(SpaceId, Time)>,
    /// From the lowest address that code ever was at, here or in the ancestors, up to the highest.
    code_bounds: Option<AddressRange>,
    /// Whether any map of a file is known, here or in the ancestors.
    has_files: bool,
}

/// How far from code memory is likely that of JIT compilers, if no map says what it is: a page of V8's code space has
/// 256 KiB.
const NEAR: u64 = 256 << 10;

impl Timeline {
    /// Puts `events` (in any order; of those at the same time the later one wins) and the maps of `processes`
    /// onto one axis of time.
    pub fn new(processes: &Processes, mut events: Vec<PlacedEvent>) -> Self {
        events.sort_by_key(|event| (event.space, event.time));
        let mut timeline = Self::default();
        let mut pieces = placing::MAX_PIECES;
        let mut events = &events[..];
        for (id, space) in processes.iter() {
            let own = events.partition_point(|event| event.space <= id);
            let (own, rest) = events.split_at_checked(own).unwrap_or_default();
            events = rest;
            let parent = space.parent.and_then(|(parent, time)| {
                let ancestor = timeline.spaces.get(parent.index())?;
                match (&ancestor.layers, ancestor.parent) {
                    (Some(_), _) => Some((parent, time)),
                    (None, Some((further, earlier))) => Some((further, earlier.min(time))),
                    (None, None) => None,
                }
            });
            let is_idle = own.is_empty() && space.maps.is_empty();
            let layers = (!is_idle).then(|| {
                let placing = Placing::new(&mut timeline, id, parent, &mut pieces);
                placing.layers(&space.maps, own)
            });
            let inherited = parent.and_then(|(parent, _)| timeline.code_bounds(parent));
            let code_bounds = layers.as_ref().and_then(|layers| layers.code.code_bounds());
            timeline.spaces.push(SpaceTimeline {
                layers,
                parent,
                code_bounds: [code_bounds, inherited].into_iter().flatten().reduce(hull),
                has_files: has_files(&timeline, space),
            });
        }
        timeline
    }

    /// Adds names for what has none, neither here nor in the objects that were `injected` into the profile already.
    pub fn add_symbols(&mut self, processes: &Processes, injected: &[EarlierMap], tables: Vec<SymbolTable>) {
        self.symbols = Symbols::new(processes, &self.mappings, injected, &tables);
    }

    /// The mappings because of which no symbol is at an address of an address space.
    pub fn symbols_withheld_by(&self, space: SpaceId, address: Address) -> impl Iterator<Item = u32> {
        self.symbols.withheld_by(space, address)
    }

    /// All stays of all functions.
    pub fn mappings(&self) -> &[CodeMapping] {
        &self.mappings
    }

    /// All places that code was moved away from.
    pub fn freed_ranges(&self) -> &[FreedRange] {
        &self.freed_ranges
    }

    /// The stays that `marks` has a mark for, in their order: by address space, then by time.
    pub fn selected(&self, marks: &[bool]) -> Vec<CodeMapping> {
        marked(&self.mappings, marks)
    }

    /// The left places that `marks` has a mark for.
    pub fn selected_freed_ranges(&self, marks: &[bool]) -> Vec<FreedRange> {
        marked(&self.freed_ranges, marks)
    }

    /// What lay where and for how long in an address space itself, without what it inherited, in the order of time.
    pub fn code_of(&self, space: SpaceId) -> &[Interval<Code>] {
        self.layers_of(space)
            .map_or(&[][..], |layers| layers.code.intervals())
    }

    /// From the lowest address that code ever was at, in an address space or in those that it is a copy of,
    /// up to the highest.
    pub fn code_bounds(&self, space: SpaceId) -> Option<AddressRange> {
        self.spaces.get(space.index())?.code_bounds
    }

    /// Whether there are any symbols for an address space.
    pub fn has_symbols(&self, space: SpaceId) -> bool {
        self.symbols.are_there(space)
    }

    /// Whether a perf map has a symbol at an address of an address space, be it withheld or not, if the memory there allows for
    /// one.
    pub fn may_have_symbol(&self, space: SpaceId, address: Address) -> bool {
        self.symbols.has(space, address)
    }

    /// What is at an address of an address space at a time.
    pub fn at(&self, space: SpaceId, address: Address, time: Time) -> Lookup {
        self.lookup_with_extent(space, address, time).0
    }

    /// The same, and if it is code, where and when around there it is as well, as far as that is known at once.
    pub fn lookup_with_extent(
        &self,
        space: SpaceId,
        address: Address,
        time: Time,
    ) -> (Lookup, Option<Extent>) {
        let mut region = None;
        for (generation, (of, layers, time)) in self.lookups(space, time).enumerate() {
            if let Some(code) = layers.code.at(address, time) {
                // Over a part of what is inherited there may be something else.
                let extent = Extent {
                    range: code.range,
                    from: code.from,
                    until: code.until,
                };
                return (code.value.into(), (generation == 0).then_some(extent));
            }
            let Some(memory) = layers.maps.at(address, time) else {
                continue;
            };
            if memory.value != Memory::File {
                region = region.or(Some(memory.region(of)));
            } else if region.is_none() {
                return (Lookup::File, None);
            }
            // Memory that a child mapped over its parent's file is the child's.
            if memory.value.hides_inherited() {
                break;
            }
        }
        let Some(region) = region else {
            return (Lookup::Unmapped, None);
        };
        match self.symbols.at(space, address, region) {
            Some(symbol) => (Lookup::Symbol(symbol), None),
            None => (Lookup::Anonymous, None),
        }
    }

    /// All symbols in all memory that they can be in.
    pub fn all_symbols(&self, processes: &Processes) -> impl Iterator<Item = PlacedSymbol> {
        let spaces = processes.iter().map(|(id, _)| id).zip(&self.spaces);
        let regions = spaces.flat_map(|(id, space)| {
            let intervals = space.layers.iter().flat_map(|layers| layers.maps.intervals());
            let anonymous = intervals.filter(|interval| interval.value != Memory::File);
            anonymous.map(move |interval| interval.region(id))
        });
        regions.flat_map(|region| self.symbols.in_region(region))
    }

    /// Until when the memory of a symbol is such as JIT compilers use.
    pub fn end_of(&self, symbol: PlacedSymbol) -> Time {
        let layers = self.layers_of(symbol.space);
        let memory = layers.and_then(|layers| layers.maps.at(symbol.range.start, symbol.since));
        memory.map_or(Time::MAX, |interval| interval.until)
    }

    /// Whether memory that no map is known of may be that of a JIT compiler. Every page that is executed is mapped; where a
    /// profile lacks the map, only a dump shows that there is JIT code. But if it lacks those of the program and its
    /// libraries too, such memory is more likely theirs, unless there is JIT code close to it.
    pub fn may_be_jit(&self, space: SpaceId, address: Address) -> bool {
        let of_space = self.spaces.get(space.index());
        of_space.is_some_and(|space| space.has_files)
            || self
                .lookups(space, Time::MAX)
                .any(|(_, layers, _)| layers.code.is_near(address, NEAR))
    }

    /// Whether a function came to an address later than `time`.
    pub fn has_later_code(&self, space: SpaceId, address: Address, time: Time) -> bool {
        self.layers_of(space)
            .is_some_and(|layers| layers.code.has_later(address, time))
    }

    /// Whether code is ever at an address, in an address space or in those that it is a copy of.
    pub fn ever_has_code(&self, space: SpaceId, address: Address) -> bool {
        self.lookups(space, Time::MAX)
            .any(|(_, layers, _)| layers.code.all_at(address).next().is_some())
    }

    /// What could not be followed.
    pub fn faults(&self) -> &Tally<Fault> {
        &self.faults
    }

    fn layers_of(&self, space: SpaceId) -> Option<&Layers> {
        self.spaces.get(space.index())?.layers.as_ref()
    }

    /// The address space itself, and those that it is a copy of, each with the time to ask about.
    fn lookups(&self, space: SpaceId, time: Time) -> impl Iterator<Item = (SpaceId, &Layers, Time)> {
        let spaces = std::iter::successors(Some((space, time)), |&(space, time)| {
            let (parent, forked) = self.spaces.get(space.index())?.parent?;
            Some((parent, time.min(forked)))
        });
        spaces
            .take(MAX_GENERATIONS)
            .filter_map(|(space, time)| Some((space, self.layers_of(space)?, time)))
    }
}

impl Interval<Memory> {
    fn region(&self, space: SpaceId) -> JitRegion {
        JitRegion {
            space,
            range: self.range,
            since: self.from,
        }
    }
}

fn has_files(timeline: &Timeline, space: &AddressSpace) -> bool {
    let parent = space
        .parent
        .and_then(|(parent, _)| timeline.spaces.get(parent.index()));
    let mut maps = space.maps.iter();
    parent.is_some_and(|parent| parent.has_files) || maps.any(|map| map.backing == Backing::File)
}

fn marked<T: Copy>(all: &[T], marks: &[bool]) -> Vec<T> {
    let marked = all.iter().zip(marks).filter(|&(_, &mark)| mark);
    marked.map(|(one, _)| *one).collect()
}

fn hull(one: AddressRange, other: AddressRange) -> AddressRange {
    AddressRange {
        start: one.start.min(other.start),
        end: one.end.max(other.end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::process::{Map, ProcessEvent};
    use crate::units::Pid;

    fn range(start: u64, size: u64) -> AddressRange {
        AddressRange::new(Address(start), size).unwrap()
    }

    fn map(pid: u32, time: u64, start: u64, backing: Backing) -> ProcessEvent {
        let map = Map {
            time: Time(time),
            range: range(start, 0x1000),
            backing,
            record: 0,
        };
        ProcessEvent::Map(Pid(pid), map)
    }

    /// Loads function 1 at 0x1000, and function 2 over the end of it at time 30.
    fn two_loads(processes: &Processes) -> Vec<PlacedEvent> {
        let event = |time, function, start| PlacedEvent {
            time: Time(time),
            space: processes.space_at(Pid(1), Time(time)).unwrap(),
            function: FunctionId { file: 0, function },
            range: Some(range(start, 0x100)),
            left: None,
        };
        vec![event(10, 1, 0x1000), event(30, 2, 0x1080)]
    }

    fn function_at(
        timeline: &Timeline,
        processes: &Processes,
        pid: u32,
        address: u64,
        time: u64,
    ) -> Option<u32> {
        let space = processes.space_at(Pid(pid), Time(time))?;
        match timeline.at(space, Address(address), Time(time)) {
            Lookup::Function(at) => Some(timeline.mappings()[at as usize].function.function),
            _ => None,
        }
    }

    #[test]
    fn the_newest_load_holds_and_the_rest_of_the_older_one_stays() {
        let processes = Processes::new(vec![
            map(1, 5, 0x1000, Backing::Anonymous),
            map(1, 40, 0x1000, Backing::Anonymous),
        ]);
        let timeline = Timeline::new(&processes, two_loads(&processes));
        let at = |address, time| function_at(&timeline, &processes, 1, address, time);
        assert_eq!(at(0x1090, 9), None);
        assert_eq!(at(0x1090, 10), Some(1));
        assert_eq!(at(0x1090, 30), Some(2));
        assert_eq!(at(0x1090, 50), Some(2), "an anonymous map hides nothing");
        assert_eq!(at(0x107f, 50), Some(1));
        let space = processes.space_at(Pid(1), Time(0)).unwrap();
        assert_eq!(timeline.at(space, Address(0x1fff), Time(50)), Lookup::Anonymous);
        assert_eq!(timeline.at(space, Address(0x2000), Time(50)), Lookup::Unmapped);
        assert!(timeline.has_later_code(space, Address(0x1090), Time(9)));
    }

    #[test]
    fn a_file_mapped_over_code_ends_it() {
        let processes = Processes::new(vec![map(1, 20, 0x1000, Backing::File)]);
        let timeline = Timeline::new(&processes, two_loads(&processes));
        let at = |address, time| function_at(&timeline, &processes, 1, address, time);
        assert_eq!(at(0x1010, 19), Some(1));
        assert_eq!(at(0x1010, 20), None);
        assert_eq!(at(0x1090, 30), Some(2), "code may lie inside a file's map");
    }

    #[test]
    fn children_see_what_the_parent_had_when_they_were_forked() {
        let fork = |child, parent, time| ProcessEvent::Fork {
            child: Pid(child),
            parent: Pid(parent),
            time: Time(time),
        };
        let processes = Processes::new(vec![
            map(1, 5, 0x1000, Backing::Anonymous),
            fork(2, 1, 20),
            fork(3, 2, 25),
            map(3, 26, 0x1000, Backing::Anonymous),
            fork(4, 1, 35),
            ProcessEvent::Exec(Pid(4), Time(60)),
        ]);
        let timeline = Timeline::new(&processes, two_loads(&processes));
        let at = |pid, address, time| function_at(&timeline, &processes, pid, address, time);
        assert_eq!(at(2, 0x1090, 50), Some(1));
        assert_eq!(at(3, 0x1090, 50), Some(1));
        assert_eq!(at(4, 0x1090, 50), Some(2));
        assert_eq!(at(4, 0x1090, 60), None, "another program has other memory");
    }

    #[test]
    fn a_move_takes_the_code_away() {
        let processes = Processes::new(vec![map(1, 5, 0x1000, Backing::Anonymous)]);
        let mut events = two_loads(&processes);
        events.push(PlacedEvent {
            time: Time(40),
            range: Some(range(0x5000, 0x100)),
            left: AddressRange::new(Address(0x1000), 0x100),
            ..events[0]
        });
        let timeline = Timeline::new(&processes, events);
        let at = |address, time| function_at(&timeline, &processes, 1, address, time);
        assert_eq!(at(0x1000, 39), Some(1));
        assert_eq!(at(0x1000, 40), None);
        assert_eq!(at(0x5010, 40), Some(1));
        assert_eq!(
            at(0x1090, 40),
            Some(2),
            "what took its place before the move stays"
        );
        let freed_range = timeline.freed_ranges()[0];
        assert_eq!(
            (freed_range.range, freed_range.since),
            (range(0x1000, 0x80), Time(40))
        );
    }
}
