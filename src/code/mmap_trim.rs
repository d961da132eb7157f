//! Maps that would hide code.
//!
//! A reader lets each map take the place of what was mapped there before. JIT compilers map, protect and
//! merge the memory around their code after they have announced it, and every time the profile has a map of
//! that memory, which would hide the functions in it. Such a map must not go altogether either: a perf map
//! (`/tmp/perf-PID.map`) names code through it that the dump lacks. So it is reduced to those parts that hold
//! no function and that the reader does not know yet.

use std::fmt;

use crate::code::process::{Map, Processes, SpaceId};
use crate::perf::event::Backing;
use crate::range_map::RangeMap;
use crate::tally::Tally;
use crate::units::{AddressRange, Time};

/// A map of ours: code of a function, or of nothing, where a function has left.
#[derive(Clone, Copy, Debug)]
pub struct InjectedMap {
    /// In which address space.
    pub space: SpaceId,
    /// Where.
    pub range: AddressRange,
    /// From when on.
    pub since: Time,
    /// Its place among those of the same time.
    pub sequence: u32,
    /// Whether it is a function.
    pub is_function: bool,
}

/// A map of the profile's that must shrink.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// The offset of its record.
    pub record: u64,
    /// Where it is.
    pub range: AddressRange,
    /// What is to be left of it, from the highest address down; may be nothing.
    pub parts: Vec<AddressRange>,
}

/// What is to be done about the maps that would hide code.
#[derive(Clone, Debug, Default)]
pub struct TrimmedMaps {
    /// The maps that must shrink, in the order of time.
    pub reduced: Vec<Reduced>,
    /// What was too much to follow.
    pub faults: Tally<Fault>,
}

/// What is given up where a profile asks for more work and output than its size can justify. No real one
/// does: they are made so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// A map has so many functions in it, again and again, that it was left out.
    TooManyParts,
    /// A process inherited so much from processes that were forked so often that its maps may hide code.
    TooManyCopies,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyParts => "maps that lie over too many functions too often, left out",
            Self::TooManyCopies => {
                "forked processes whose maps may hide the code that they inherited: too many of them"
            }
        })
    }
}

/// How many parts may be left of maps altogether, beside four for each map of ours and two for each of the profile's.
/// Real maps leave fewer than two for each.
const MAX_PARTS: usize = 1 << 14;

/// How many ranges all forked processes together may inherit. A server with 200 processes and 10,000
/// functions needs half of that.
const MAX_COPIES: usize = 1 << 22;

/// The maps that would hide any of `own`.
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
    Own(&'a InjectedMap),
}

impl Event<'_> {
    /// By time; our own records come before all others of the same time, since that is where they are placed.
    fn order(&self) -> (Time, bool, u32) {
        match self {
            Self::Own(own) => (own.since, false, own.sequence),
            Self::Fork(_, _, time) => (*time, true, 0),
            Self::Map(_, map) => (map.time, true, 0),
        }
    }
}

/// What a reader knows of each address space at one time.
struct Cover {
    spaces: Vec<SpaceCover>,
    /// Whether an address space can hold functions and has maps, itself or in what is forked from it.
    is_watched: Vec<bool>,
    /// How many more parts may be left of maps.
    parts: usize,
    /// How many more ranges may be inherited.
    copies: usize,
    covering: TrimmedMaps,
}

#[derive(Clone, Default)]
struct SpaceCover {
    functions: RangeMap<()>,
    /// The memory that the reader knows of, and as what.
    memory: RangeMap<Backing>,
}

impl Cover {
    fn new(processes: &Processes, own: &[InjectedMap]) -> Self {
        let spaces = processes.spaces();
        let mut has_functions = vec![false; spaces.len()];
        for own in own {
            if let Some(has) = has_functions.get_mut(own.space.index()) {
                *has = true;
            }
        }
        let mut has_maps: Vec<bool> = spaces.iter().map(|space| !space.maps.is_empty()).collect();
        for (id, space) in processes.iter() {
            if let Some((parent, _)) = space.parent
                && has_functions.get(parent.index()) == Some(&true)
                && let Some(has) = has_functions.get_mut(id.index())
            {
                *has = true;
            }
        }
        for (at, space) in spaces.iter().enumerate().rev() {
            if let Some((parent, _)) = space.parent
                && has_maps.get(at) == Some(&true)
                && let Some(has) = has_maps.get_mut(parent.index())
            {
                *has = true;
            }
        }
        let maps: usize = spaces.iter().map(|space| space.maps.len()).sum();
        let parts = own.len().saturating_mul(4).saturating_add(maps.saturating_mul(2));
        let both = has_functions.iter().zip(&has_maps);
        Self {
            spaces: vec![SpaceCover::default(); spaces.len()],
            is_watched: both.map(|(&functions, &maps)| functions && maps).collect(),
            parts: parts.saturating_add(MAX_PARTS),
            copies: MAX_COPIES,
            covering: TrimmedMaps::default(),
        }
    }

    fn is_watched(&self, space: SpaceId) -> bool {
        self.is_watched.get(space.index()) == Some(&true)
    }

    fn events<'a>(&self, processes: &'a Processes, own: &'a [InjectedMap]) -> Vec<Event<'a>> {
        let mut events = Vec::new();
        for (id, space) in processes.iter().filter(|&(id, _)| self.is_watched(id)) {
            events.extend(space.parent.map(|(parent, time)| Event::Fork(id, parent, time)));
            events.extend(space.maps.iter().map(|map| Event::Map(id, map)));
        }
        let own = own.iter().filter(|own| self.is_watched(own.space));
        events.extend(own.map(Event::Own));
        events
    }

    fn apply(&mut self, event: Event<'_>) {
        match event {
            Event::Fork(child, parent, _) => self.fork(child, parent),
            Event::Own(own) => {
                let Some(space) = self.spaces.get_mut(own.space.index()) else {
                    return;
                };
                if own.is_function {
                    space.functions.insert(own.range, (), |_, ()| {});
                } else {
                    space.functions.remove(own.range, |_, ()| {});
                }
            }
            Event::Map(space, map) => self.map(space, map),
        }
    }

    fn fork(&mut self, child: SpaceId, parent: SpaceId) {
        let Some(parent) = self.spaces.get(parent.index()) else {
            return;
        };
        let copies = parent
            .functions
            .piece_count()
            .saturating_add(parent.memory.piece_count());
        if copies > self.copies {
            self.covering.faults.add(Fault::TooManyCopies, 0);
            return;
        }
        self.copies -= copies;
        let inherited = parent.clone();
        if let Some(space) = self.spaces.get_mut(child.index()) {
            *space = inherited;
        }
    }

    fn map(&mut self, space: SpaceId, map: &Map) {
        let Some(space) = self.spaces.get_mut(space.index()) else {
            return;
        };
        if map.backing == Backing::File {
            space.functions.remove(map.range, |_, ()| {});
            space.memory.remove(map.range, |_, _| {});
            return;
        }
        if space.functions.overlapping(map.range).next().is_some() {
            let parts = space.unknown_parts(map, &mut self.parts);
            if parts.is_none() {
                self.covering.faults.add(Fault::TooManyParts, map.record);
            }
            self.covering.reduced.push(Reduced {
                record: map.record,
                range: map.range,
                parts: parts.unwrap_or_default(),
            });
        }
        space.memory.insert(map.range, map.backing, |_, _| {});
    }
}

impl SpaceCover {
    /// The parts of a map that hold no function and that the reader does not know as such memory; `None` if
    /// there may be more than `limit`, which becomes less by what was looked at.
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
    use crate::units::{Address, Pid};

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
    fn a_child_keeps_what_it_inherited_in_view() {
        let processes = Processes::new(vec![
            map(1, 10, range(0, 100), Backing::Anonymous),
            ProcessEvent::Fork {
                child: Pid(2),
                parent: Pid(1),
                time: Time(30),
            },
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
        assert!(covering.faults.count(Fault::TooManyParts) > 4000);
    }
}
