//! Resolves an address of a process at a given time to a function.
//!
//! The newest LOAD or MOVE at or before that time wins, unless the code was moved away since, or a file was
//! mapped over it. A forked process has its parent's code as of the FORK, wherever it has not overwritten it.
//! Anonymous maps overwrite nothing, because JIT compilers repeatedly map and protect the memory around their code.
//! Anonymous memory without a known function is looked up in the perf maps.
//!
//! `perf record --data` also records memory that is not executable: heaps, stacks, and what is only reserved. It is JIT
//! memory only if a dump or a perf map ever has code in it. Whoever makes it executable later maps it again: the kernel
//! records `mprotect`, too (V8: `---p`, then `rwxp`).
//!
//! If a child has mapped a file, and later maps anonymous memory over it, that memory has none of the
//! parent's code. Partially overlapping ranges are split.
//!
//! An object with several functions exists from the first function on. It also names samples taken before
//! their own function was loaded. This is correct, because nothing else is ever at those addresses. These
//! samples count as named.

mod placing;
mod plain_files;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::code::mappings::NEAR;
pub use crate::code::mappings::{
    CodeMapping, FileIndex, FreedRange, FreedRangeIndex, FunctionId, JitRegion, MappingIndex, PlacedCode,
    PlacedEvent, ranges,
};
use crate::code::perf_map_symbols::{PerfMapSymbols, PlacedSymbol, SymbolTable, SymbolTableIndex};
use crate::code::process::{AddressSpace, MAX_GENERATIONS, Processes, SpaceId};
use crate::code::profile_index::EarlierMap;
use crate::code::timeline::placing::{PiecesLeft, Placing};
use crate::code::timeline::plain_files::PlainFiles;
use crate::collections::indexed_table::IndexedTable;
use crate::collections::range_map::RangeSet;
use crate::results::diagnostics::Issue;
use jitdump::Tally;
use jitdump::history::{History, Interval, as_inherited, intersection};
use jitdump::{Address, AddressRange, Time};

/// Content of an address at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// Code of a function: an index into [`Timeline::mappings`].
    Function(MappingIndex),
    /// Unused since code was moved away: an index into [`Timeline::freed_ranges`].
    Freed(FreedRangeIndex),
    /// Code of a perf map symbol, for which there is only a name.
    Symbol(PlacedSymbol),
    /// JIT memory without known code.
    Anonymous,
    /// A mapped file.
    File,
    /// Memory without a map in the profile, or with data alone.
    Unmapped,
}

impl Lookup {
    /// Whether it has a name, as a function or a symbol.
    pub fn has_name(self) -> bool {
        matches!(self, Self::Function(_) | Self::Symbol(_))
    }

    /// Returns whether a frame of a call chain here has a name; `None` if it is not in JIT code. Memory without a map is
    /// none here: unwinding by frame pointers takes any word for a return address.
    pub fn frame_has_name(self) -> Option<bool> {
        match self {
            Self::Function(_) | Self::Symbol(_) => Some(true),
            Self::Anonymous | Self::Freed(_) => Some(false),
            Self::File | Self::Unmapped => None,
        }
    }
}

/// Code and memory of one address space over time.
#[derive(Debug)]
struct Layers {
    code: History<Code>,
    maps: History<MemoryKind>,
}

/// Kind of mapped memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MemoryKind {
    /// A file.
    File,
    /// Memory that JIT compilers use, or that was never executable.
    Anonymous { is_data: bool },
    /// The same, mapped over a file in a forked process, so nothing in it is inherited.
    New { is_data: bool },
}

impl MemoryKind {
    /// Whether it hides what the process inherited at the same address.
    fn hides_inherited(self) -> bool {
        !matches!(self, Self::Anonymous { .. })
    }

    /// Whether it was never executable.
    fn is_data(self) -> bool {
        matches!(
            self,
            Self::Anonymous { is_data: true } | Self::New { is_data: true }
        )
    }
}

/// Content of an address according to a dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// Code of a function: an index into [`Timeline::mappings`].
    Function(MappingIndex),
    /// Unused since code was moved away: an index into [`Timeline::freed_ranges`].
    Freed(FreedRangeIndex),
}

impl From<Code> for Lookup {
    fn from(code: Code) -> Self {
        match code {
            Code::Function(mapping) => Self::Function(mapping),
            Code::Freed(freed_range) => Self::Freed(freed_range),
        }
    }
}

/// Code of all processes over time.
#[derive(Debug, Default)]
pub struct Timeline {
    /// All function mappings, by address space and time.
    pub mappings: IndexedTable<MappingIndex, CodeMapping>,
    /// All ranges that code was moved from.
    pub freed_ranges: IndexedTable<FreedRangeIndex, FreedRange>,
    spaces: IndexedTable<SpaceId, SpaceTimeline>,
    /// Symbols of perf maps.
    pub symbols: PerfMapSymbols,
    /// Limits that were hit while the timeline was built.
    pub faults: Tally<Issue>,
}

/// What is kept of an address space. A profile may have a million of them, nearly all of programs without JIT code.
#[derive(Debug, Default)]
struct SpaceTimeline {
    /// Its code and memory; `None` if there is nothing but `files`.
    content: Option<Box<SpaceContent>>,
    /// Mapped files, if there is nothing else and no other address space inherits them.
    files: Option<PlainFiles>,
    /// Whether the profile has any file map of it or its ancestors.
    has_files: bool,
}

#[derive(Debug, Default)]
struct SpaceContent {
    /// Its own code and memory; `None` if it has neither.
    layers: Option<Layers>,
    /// All addresses of its own code, with those of functions that were left out.
    code: RangeSet,
    /// Nearest ancestor with code or memory of its own, and the time up to which it was inherited.
    parent: Option<(SpaceId, Time)>,
    /// Range from the lowest to the highest address that ever held code, including the ancestors.
    code_bounds: Option<AddressRange>,
    /// Range from the lowest to the highest address of JIT memory, including that of the ancestors.
    jit_bounds: Option<AddressRange>,
}

impl Timeline {
    /// Builds the timeline from code and the maps of `processes`. Of events with the same time, the later one wins.
    pub fn new(processes: &Processes, code: PlacedCode) -> Self {
        let PlacedCode { mut events, mut code } = code;
        events.sort_by_key(|event| (event.space, event.time));
        let mut timeline = Self::default();
        let mut pieces = PiecesLeft::default();
        let with_code = events.iter().filter(|event| event.range.is_some());
        timeline.mappings.reserve_exact(with_code.count());
        let mut are_inherited = processes.spaces.map(|_| false);
        for (parent, _) in processes.iter().filter_map(|(_, space)| space.parent) {
            are_inherited[parent] = true;
        }
        let mut events = events.into_iter().peekable();
        for (id, space) in processes.iter() {
            let parent = space
                .parent
                .and_then(|(parent, time)| timeline.nearest_with_layers(parent, time));
            let has_files = has_files(&timeline, space);
            let code = code.remove(&id).unwrap_or_default();
            let own = events_of(&mut events, id);
            let is_plain = own.is_empty() && code.hull().is_none() && !are_inherited[id];
            let files = (is_plain && space.parent.is_none()).then(|| PlainFiles::of(&space.maps));
            if let Some(files) = files.flatten() {
                timeline.spaces.push(SpaceTimeline {
                    content: None,
                    files: Some(files),
                    has_files,
                });
                continue;
            }
            let is_idle = own.is_empty() && code.hull().is_none() && space.maps.is_empty();
            let layers = (!is_idle).then(|| {
                let placing = Placing::new(&mut timeline, id, parent, &mut pieces);
                placing.layers(&space.maps, own)
            });
            let content = timeline.content(layers, code, parent);
            timeline.spaces.push(SpaceTimeline {
                content: Some(Box::new(content)),
                files: None,
                has_files,
            });
        }
        timeline
    }

    /// Returns the nearest of an address space and its ancestors with code or memory of its own, and the time up to which all of
    /// those in between were inherited. `time` is when `space` was forked.
    fn nearest_with_layers(&self, space: SpaceId, time: Time) -> Option<(SpaceId, Time)> {
        let content = self.content_of(space)?;
        match (&content.layers, content.parent) {
            (Some(_), _) => Some((space, time)),
            (None, Some((further, earlier))) => Some((further, earlier.min(time))),
            (None, None) => None,
        }
    }

    /// Describes an address space with these layers. `code` are all addresses of its own code, `parent` is its nearest ancestor
    /// with layers, whose bounds are in those of the address space.
    fn content(
        &self,
        layers: Option<Layers>,
        code: RangeSet,
        parent: Option<(SpaceId, Time)>,
    ) -> SpaceContent {
        let inherited = parent.and_then(|(parent, _)| self.code_bounds(parent));
        let own_bounds = layers.as_ref().and_then(|layers| layers.code.code_bounds());
        let code_bounds = [own_bounds, code.hull(), inherited];
        let inherited_jit = parent.and_then(|(parent, _)| self.jit_bounds(parent));
        let jit = layers.iter().flat_map(|layers| layers.maps.intervals());
        let jit = jit
            .filter(|interval| interval.value != MemoryKind::File)
            .map(|interval| interval.range);
        let jit_bounds = jit.chain(inherited_jit).reduce(hull);
        SpaceContent {
            layers,
            code,
            parent,
            code_bounds: code_bounds.into_iter().flatten().reduce(hull),
            jit_bounds,
        }
    }

    /// Adds perf map symbols, for addresses without code from a dump or from objects already `injected` into the
    /// profile.
    pub fn add_symbols(
        &mut self,
        processes: &Processes,
        injected: &[EarlierMap],
        tables: &IndexedTable<SymbolTableIndex, SymbolTable>,
    ) {
        self.symbols = PerfMapSymbols::new(processes, &self.mappings, injected, tables);
    }

    /// Returns the mappings that have a mark in `marks`, by address space and time.
    pub fn selected(&self, marks: &IndexedTable<MappingIndex, bool>) -> Vec<CodeMapping> {
        marked(&self.mappings, marks)
    }

    /// Returns the freed ranges that have a mark in `marks`.
    pub fn selected_freed_ranges(&self, marks: &IndexedTable<FreedRangeIndex, bool>) -> Vec<FreedRange> {
        marked(&self.freed_ranges, marks)
    }

    /// Code of an address space itself, without inherited code, in the order of time.
    pub fn code_of(&self, space: SpaceId) -> &[Interval<Code>] {
        self.layers_of(space)
            .map_or(&[][..], |layers| layers.code.intervals())
    }

    /// Returns the range from the lowest to the highest address that ever held code in an address space or its
    /// ancestors.
    pub fn code_bounds(&self, space: SpaceId) -> Option<AddressRange> {
        self.content_of(space)?.code_bounds
    }

    /// Returns the range from the lowest to the highest address that ever was JIT memory of an address space or its
    /// ancestors.
    pub fn jit_bounds(&self, space: SpaceId) -> Option<AddressRange> {
        self.content_of(space)?.jit_bounds
    }

    /// Returns the content of an address of an address space at a time.
    pub fn at(&self, space: SpaceId, address: Address, time: Time) -> Lookup {
        self.lookup_with_extent(space, address, time).0
    }

    /// Like [`Self::at`], and for code of the address space itself also returns all addresses and times around with this
    /// code.
    pub fn lookup_with_extent(
        &self,
        space: SpaceId,
        address: Address,
        time: Time,
    ) -> (Lookup, Option<Interval<Code>>) {
        if let Some(files) = &self.spaces[space].files {
            return (files.at(address, time), None);
        }
        let mut region = None;
        let mut was_executable = false;
        for (depth, generation) in self.generations(space, time).enumerate() {
            let Generation {
                space: of,
                layers,
                time,
            } = generation;
            if let Some(code) = layers.code.at(address, time) {
                // Parts of inherited code may have been overwritten, so only own code has an extent.
                return (code.value.into(), (depth == 0).then_some(*code));
            }
            let Some(memory) = layers.maps.at(address, time) else {
                continue;
            };
            if memory.value != MemoryKind::File {
                region = region.or(Some(JitRegion::of(memory, of)));
                was_executable |= !memory.value.is_data();
            } else if region.is_none() {
                return (Lookup::File, None);
            }
            // JIT memory that a child maps over its parent's file belongs to the child.
            if memory.value.hides_inherited() {
                break;
            }
        }
        let Some(region) = region else {
            return (Lookup::Unmapped, None);
        };
        match self.symbols.at(space, address, region) {
            Some(symbol) => (Lookup::Symbol(symbol), None),
            None if was_executable || self.has_code_in(space, region) => (Lookup::Anonymous, None),
            None => (Lookup::Unmapped, None),
        }
    }

    /// Whether a dump or a perf map ever has code in a region that an address space has or inherits.
    fn has_code_in(&self, space: SpaceId, region: JitRegion) -> bool {
        let mut contents = self
            .generations(space, Time::MAX)
            .filter_map(|generation| self.content_of(generation.space));
        contents.any(|content| content.code.overlaps(region.range))
            || self
                .symbols
                .in_region(JitRegion { space, ..region })
                .next()
                .is_some()
    }

    /// Returns all perf map symbols, once for each JIT memory region that contains them.
    pub fn all_symbols(&self) -> impl Iterator<Item = PlacedSymbol> {
        let regions = self.spaces.enumerate().flat_map(|(id, space)| {
            let layers = space.content.iter().flat_map(|content| &content.layers);
            let memory = layers.flat_map(Layers::jit_memory);
            memory.map(move |interval| JitRegion::of(interval, id))
        });
        regions.flat_map(|region| self.symbols.in_region(region))
    }

    /// Returns the time at which the memory of a symbol stops being JIT memory.
    pub fn end_of(&self, symbol: PlacedSymbol) -> Time {
        let layers = self.layers_of(symbol.space);
        let memory = layers.and_then(|layers| layers.maps.at(symbol.range.start, symbol.since));
        memory.map_or(Time::MAX, |interval| interval.until)
    }

    /// Whether memory without a map can be JIT memory. All executed pages are mapped; if the profile lacks the map,
    /// only a dump shows that there is JIT code. If it also lacks the maps of the program and its libraries, such
    /// memory more likely belongs to them, unless JIT code is close by.
    pub fn may_be_jit(&self, space: SpaceId, address: Address) -> bool {
        self.spaces[space].has_files
            || self
                .generations(space, Time::MAX)
                .filter_map(|generation| self.content_of(generation.space))
                .any(|content| content.code.is_near(address, NEAR))
    }

    /// Whether a function was loaded at an address after `time`.
    pub fn has_later_code(&self, space: SpaceId, address: Address, time: Time) -> bool {
        self.layers_of(space)
            .is_some_and(|layers| layers.code.has_later(address, time))
    }

    /// Whether an address ever holds code in an address space or its ancestors.
    pub fn ever_has_code(&self, space: SpaceId, address: Address) -> bool {
        self.generations(space, Time::MAX)
            .any(|generation| generation.layers.code.is_ever_at(address))
    }

    fn layers_of(&self, space: SpaceId) -> Option<&Layers> {
        self.content_of(space)?.layers.as_ref()
    }

    fn content_of(&self, space: SpaceId) -> Option<&SpaceContent> {
        self.spaces[space].content.as_deref()
    }

    /// Returns an interval around `time` during which all lookups of an address have the same result, with that of
    /// [`Self::has_later_code`]. It may stay so for longer.
    pub fn times_at(&self, space: SpaceId, address: Address, time: Time) -> Range<Time> {
        if let Some(files) = &self.spaces[space].files {
            return files.times_at(address, time);
        }
        let generations = self.generations(space, time);
        generations.fold(Time(0)..Time::MAX, |times, generation| {
            let Generation {
                layers, time: seen, ..
            } = generation;
            let own = intersection(
                layers.code.times_at(address, seen),
                layers.maps.times_at(address, seen),
            );
            intersection(times, as_inherited(own, seen < time))
        })
    }

    /// Returns the address space and its ancestors that have content, as they are looked at for `time`.
    fn generations(&self, space: SpaceId, time: Time) -> impl Iterator<Item = Generation<'_>> {
        let spaces = std::iter::successors(Some((space, time)), |&(space, time)| {
            let (parent, forked) = self.content_of(space)?.parent?;
            Some((parent, time.min(forked)))
        });
        spaces.take(MAX_GENERATIONS).filter_map(|(space, time)| {
            let layers = self.layers_of(space)?;
            Some(Generation { space, layers, time })
        })
    }
}

/// An address space, or one that it inherits from.
struct Generation<'t> {
    space: SpaceId,
    layers: &'t Layers,
    /// When to look there: a child inherits what there was when it was forked.
    time: Time,
}

impl Layers {
    /// Returns the memory that may have JIT code, without the times before it could be executed: it is the same memory.
    fn jit_memory(&self) -> impl Iterator<Item = &Interval<MemoryKind>> {
        let is_executable = |memory: MemoryKind| memory != MemoryKind::File && !memory.is_data();
        let becomes_executable = move |interval: &Interval<MemoryKind>| {
            let next = self.maps.at(interval.range.start, interval.until);
            next.is_some_and(|next| is_executable(next.value))
        };
        let intervals = self.maps.intervals().iter();
        intervals.filter(move |&interval| match interval.value {
            MemoryKind::File => false,
            memory => is_executable(memory) || !becomes_executable(interval),
        })
    }
}

impl JitRegion {
    fn of(memory: &Interval<MemoryKind>, space: SpaceId) -> Self {
        Self {
            space,
            range: memory.range,
            since: memory.from,
        }
    }
}

/// Takes the events of an address space, which must be those of the first one that has any.
fn events_of(
    events: &mut std::iter::Peekable<std::vec::IntoIter<PlacedEvent>>,
    space: SpaceId,
) -> Vec<PlacedEvent> {
    std::iter::from_fn(|| events.next_if(|event| event.space == space)).collect()
}

fn has_files(timeline: &Timeline, space: &AddressSpace) -> bool {
    let mut maps = space.maps.iter();
    let is_inherited = |(parent, _): (SpaceId, Time)| timeline.spaces[parent].has_files;
    space.parent.is_some_and(is_inherited) || maps.any(|map| map.backing.is_file())
}

fn marked<I, T: Copy>(all: &IndexedTable<I, T>, marks: &IndexedTable<I, bool>) -> Vec<T> {
    let marked = all.iter().zip(marks).filter(|&(_, &mark)| mark);
    marked.map(|(one, _)| *one).collect()
}

fn hull(one: AddressRange, other: AddressRange) -> AddressRange {
    AddressRange {
        start: one.start.min(other.start),
        end: one.end.max(other.end),
    }
}
