//! Applies maps and code events to one address space, in the order of time.
//!
//! The address space decides which function a MOVE refers to. Processes that write to one jitdump may each
//! have another function at the source address, and only the forks show which one a child has inherited.

use jitdump::history::Builder;
use jitdump::{Address, AddressRange, Time};

use crate::code::process::{Map, SpaceId};
use crate::code::timeline::{
    Code, CodeMapping, FreedRange, FunctionId, Generation, Layers, MappingIndex, MemoryKind, PlacedEvent,
    Timeline,
};
use crate::collections::hash::HashMap;
use crate::results::diagnostics::Issue;

/// Maximum number of ranges of inherited code to check, in all processes together, for what is left of moved code.
const MAX_PIECES: usize = 1 << 22;

/// Number of ranges of inherited code that may still be checked.
pub(super) struct PiecesLeft(usize);

impl Default for PiecesLeft {
    fn default() -> Self {
        Self(MAX_PIECES)
    }
}

impl PiecesLeft {
    /// Takes one of them; `None` if there are none.
    fn take(&mut self) -> Option<()> {
        self.0 = self.0.checked_sub(1)?;
        Some(())
    }
}

/// An address space under construction.
pub(super) struct Placing<'a> {
    /// Finished address spaces, including all ancestors of this one.
    timeline: &'a mut Timeline,
    space: SpaceId,
    /// Address space that this one was forked from, and the time of the fork.
    parent: Option<(SpaceId, Time)>,
    code: Builder<Code>,
    memory: Builder<MemoryKind>,
    /// Whether any code is moved.
    has_moves: bool,
    /// Latest mapping of each function, if code is moved.
    latest: HashMap<FunctionId, MappingIndex>,
    /// Number of its mappings and freed ranges so far.
    sequence: u32,
    pieces: &'a mut PiecesLeft,
}

impl<'a> Placing<'a> {
    /// Creates an empty address space, or a copy of its parent.
    pub(super) fn new(
        timeline: &'a mut Timeline,
        space: SpaceId,
        parent: Option<(SpaceId, Time)>,
        pieces: &'a mut PiecesLeft,
    ) -> Self {
        Self {
            timeline,
            space,
            parent,
            code: Builder::default(),
            memory: Builder::default(),
            has_moves: false,
            latest: HashMap::default(),
            sequence: 0,
            pieces,
        }
    }

    /// Builds the history from maps and code events, each in the order of time.
    pub(super) fn layers(mut self, maps: &[Map], events: Vec<PlacedEvent>) -> Layers {
        self.has_moves = events.iter().any(|event| event.left.is_some());
        let mut left = events.iter().peekable();
        for map in maps {
            // Code precedes maps of the same time, as the injected records do in the output.
            while let Some(event) = left.next_if(|event| event.time <= map.time) {
                self.place(event);
            }
            self.add_map(map);
        }
        for event in left {
            self.place(event);
        }
        // The histories take as much memory again.
        drop((events, self.latest));
        Layers {
            code: self.code.finish(),
            maps: self.memory.finish(),
        }
    }

    /// Maps memory. A file ends the code that was there; other memory ends what the parent had mapped of files. Memory that
    /// was executable stays JIT memory: compilers make it writable for a moment.
    fn add_map(&mut self, map: &Map) {
        if map.backing.is_file() {
            self.code.clear(map.range, map.time);
            self.memory.put(map.range, map.time, MemoryKind::File);
            return;
        }
        let is_data = map.is_data;
        if self.parent.is_some() {
            let pieces = self.memory.pieces(map.range);
            let replaced = pieces.filter(|&(_, memory)| match memory {
                MemoryKind::File => true,
                MemoryKind::New { is_data: was_data } => was_data && !is_data,
                MemoryKind::Anonymous { .. } => false,
            });
            let replaced: Vec<AddressRange> = replaced.map(|(piece, _)| piece).collect();
            for piece in replaced {
                self.memory.put(piece, map.time, MemoryKind::New { is_data });
            }
        }
        // Memory that is already mapped keeps its start time, unless it can be executed only now.
        let is_kept = |memory: MemoryKind| memory != MemoryKind::File && (is_data || !memory.is_data());
        for gap in self.memory.gaps(map.range, is_kept) {
            self.memory.put(gap, map.time, MemoryKind::Anonymous { is_data });
        }
    }

    /// Places the code of an event, and ends it where it was before.
    fn place(&mut self, event: &PlacedEvent) {
        let event = &self.of_this_space(event).unwrap_or(*event);
        if let Some(left) = event.left {
            self.vacate(event, left);
        }
        let Some(range) = event.range else { return };
        let sequence = self.next();
        let mapping = self.timeline.mappings.push(CodeMapping {
            function: event.function,
            space: self.space,
            range,
            since: event.time,
            sequence,
        });
        if self.has_moves {
            self.latest.insert(event.function, mapping);
        }
        self.code.put(range, event.time, Code::Function(mapping));
    }

    fn next(&mut self) -> u32 {
        let next = self.sequence;
        self.sequence = next.saturating_add(1);
        next
    }

    /// Replaces the function of a move by the one at the source address here. Processes that write to one dump may
    /// each have another function there, and the dump does not have which process inherited which.
    fn of_this_space(&self, event: &PlacedEvent) -> Option<PlacedEvent> {
        let (to, from) = (event.range?, event.left?);
        let Code::Function(at) = self.code_at(from.start)? else {
            return None;
        };
        let there = &self.timeline.mappings[at];
        if there.range.start != from.start || there.function.file != event.function.file {
            return None;
        }
        Some(PlacedEvent {
            function: there.function,
            range: Some(AddressRange::new(to.start, there.range.size())?),
            left: Some(there.range),
            ..*event
        })
    }

    /// Returns the current content of an address according to a dump, including inherited code.
    fn code_at(&self, address: Address) -> Option<Code> {
        let is_hidden = || self.memory.at(address).is_some_and(MemoryKind::hides_inherited);
        match (self.code.at(address), self.parent) {
            (Some(code), _) => Some(code),
            (None, Some((parent, time))) if !is_hidden() => self.timeline.code_at(parent, address, time),
            _ => None,
        }
    }

    /// Frees the parts of `range` where a function is still current.
    fn vacate(&mut self, event: &PlacedEvent, range: AddressRange) {
        let left = match self.latest.get(&event.function) {
            Some(&mapping) if self.timeline.mappings[mapping].range == range => {
                let pieces = self.code.pieces(range);
                let own = pieces.filter(|&(_, code)| code == Code::Function(mapping));
                own.map(|(piece, _)| piece).collect()
            }
            None => self.inherited_pieces(event.function, range),
            _ => Vec::new(),
        };
        for piece in left {
            let sequence = self.next();
            let freed_range = self.timeline.freed_ranges.push(FreedRange {
                space: self.space,
                range: piece,
                since: event.time,
                sequence,
            });
            self.code.put(piece, event.time, Code::Freed(freed_range));
        }
    }

    /// Returns the parts of `range` that still have an inherited function, or may have it if there are too many ranges to
    /// check.
    fn inherited_pieces(&mut self, function: FunctionId, range: AddressRange) -> Vec<AddressRange> {
        let Some((parent, time)) = self.parent else {
            return Vec::new();
        };
        let gaps = self.code.gaps(range, |_| true).into_iter();
        let unhidden = gaps.flat_map(|gap| self.memory.gaps(gap, MemoryKind::hides_inherited));
        let visible: Vec<AddressRange> = unhidden.collect();
        let timeline = &mut *self.timeline;
        match timeline.pieces_of(function, parent, time, visible.clone(), self.pieces) {
            Some(pieces) => pieces,
            None => {
                timeline.faults.add(Issue::MovesNotFollowed, 0);
                visible
            }
        }
    }
}

impl Timeline {
    /// Returns the content of an address according to a dump, including inherited code.
    fn code_at(&self, space: SpaceId, address: Address, time: Time) -> Option<Code> {
        for Generation { layers, time, .. } in self.generations(space, time) {
            if let Some(code) = layers.code.at(address, time) {
                return Some(code.value);
            }
            let memory = layers.maps.at(address, time);
            if memory.is_some_and(|memory| memory.value.hides_inherited()) {
                return None;
            }
        }
        None
    }

    /// Returns the parts of `ranges` that have a function. Takes each checked range from `left`; returns `None`
    /// if there are too many.
    fn pieces_of(
        &self,
        function: FunctionId,
        space: SpaceId,
        time: Time,
        mut ranges: Vec<AddressRange>,
        left: &mut PiecesLeft,
    ) -> Option<Vec<AddressRange>> {
        let mut found = Vec::new();
        for Generation { layers, time, .. } in self.generations(space, time) {
            let mut unknown = Vec::new();
            for range in ranges {
                for (piece, code) in layers.code.pieces_at(range, time) {
                    left.take()?;
                    match code {
                        Some(Code::Function(at)) => {
                            if self.mappings[at].function == function {
                                add(&mut found, piece);
                            }
                        }
                        Some(Code::Freed(_)) => {}
                        None => unknown.push(piece),
                    }
                }
            }
            ranges = Vec::new();
            for range in unknown {
                for (piece, memory) in layers.maps.pieces_at(range, time) {
                    left.take()?;
                    if !memory.is_some_and(MemoryKind::hides_inherited) {
                        ranges.push(piece);
                    }
                }
            }
        }
        Some(found)
    }
}

/// Adds a range, merged with the last one if that ends where it starts.
fn add(ranges: &mut Vec<AddressRange>, range: AddressRange) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::process::{ProcessEvent, Processes};
    use crate::code::timeline::FileIndex;
    use crate::units::Pid;

    #[test]
    fn inherited_ranges_are_checked_4_194_304_times_and_then_moves_free_all_of_them() {
        let processes = Processes::new(vec![ProcessEvent::Fork {
            child: Pid(2),
            parent: Pid(1),
            time: Time(20),
        }]);
        let space = |pid| processes.space_at(Pid(pid), Time(30)).unwrap();
        let range = |start, size| AddressRange::new(Address(start), size);
        let event = |pid, time, function| PlacedEvent {
            time: Time(time),
            space: space(pid),
            function: FunctionId {
                file: FileIndex(0),
                function,
            },
            range: None,
            left: None,
        };
        let loads = [(1, 0x1000), (2, 0x1010)].map(|(function, start)| PlacedEvent {
            range: range(start, 0x10),
            ..event(1, 10, function)
        });
        let mut timeline = Timeline::new(&processes, loads.into_iter().collect());
        let mut left = PiecesLeft::default();
        for _ in 0..4_194_302 {
            left.take().unwrap();
        }
        // Each move of a function that is not there checks the ranges of both.
        let moves = [40, 50].map(|time| PlacedEvent {
            left: range(0x1000, 0x20),
            ..event(2, time, 3)
        });
        let parent = Some((space(1), Time(20)));
        let placing = Placing::new(&mut timeline, space(2), parent, &mut left);
        let code = placing.layers(&[], moves.into()).code;
        let is_freed = |time| code.at(Address(0x1000), Time(time)).is_some();
        assert!(!is_freed(40));
        assert!(is_freed(50));
        assert_eq!(timeline.faults.count(Issue::MovesNotFollowed), 1);
    }
}
