//! Maps that would hide code.
//!
//! A reader lets each map take the place of what was mapped there before. JIT compilers map, protect and
//! merge the memory around their code after they have announced it, and every time the profile has a map of
//! that memory, which would hide the functions in it. Such a map must not go altogether either: a perf map
//! (`/tmp/perf-PID.map`) names code through it that the dump lacks. So it is reduced to those parts that hold
//! no function and that the reader does not know yet.

use crate::code::process::{Map, Processes, SpaceId};
use crate::code::range_map::RangeMap;
use crate::perf::event::Backing;
use crate::units::{AddressRange, Time};

/// A map of ours: code of a function, or of nothing, where a function has left.
#[derive(Clone, Copy, Debug)]
pub struct OwnMap {
    /// In which address space.
    pub space: SpaceId,
    /// Where.
    pub range: AddressRange,
    /// From when on.
    pub since: Time,
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

/// The maps that would hide any of `own`.
pub fn reduced_maps(processes: &Processes, own: &[OwnMap]) -> Vec<Reduced> {
    let mut cover = Cover::new(processes, own);
    let mut events = cover.events(processes, own);
    events.sort_by_key(Event::order);
    for event in events {
        cover.apply(event);
    }
    cover.reduced
}

#[derive(Clone, Copy)]
enum Event<'a> {
    Fork(SpaceId, SpaceId, Time),
    Map(SpaceId, &'a Map),
    Own(&'a OwnMap),
}

impl Event<'_> {
    /// By time; our own records come before all others of the same time, since that is where they are placed.
    fn order(&self) -> (Time, bool) {
        match self {
            Self::Own(own) => (own.since, false),
            Self::Fork(_, _, time) => (*time, true),
            Self::Map(_, map) => (map.time, true),
        }
    }
}

/// What a reader knows of each address space at one time.
struct Cover {
    spaces: Vec<SpaceCover>,
    /// Whether an address space can hold functions and has maps, itself or in what is forked from it.
    is_watched: Vec<bool>,
    reduced: Vec<Reduced>,
}

#[derive(Clone, Default)]
struct SpaceCover {
    functions: RangeMap<()>,
    /// Anonymous maps, by their identity.
    anonymous: RangeMap<u64>,
}

impl Cover {
    fn new(processes: &Processes, own: &[OwnMap]) -> Self {
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
        let both = has_functions.iter().zip(&has_maps);
        Self {
            spaces: vec![SpaceCover::default(); spaces.len()],
            is_watched: both.map(|(&functions, &maps)| functions && maps).collect(),
            reduced: Vec::new(),
        }
    }

    fn is_watched(&self, space: SpaceId) -> bool {
        self.is_watched.get(space.index()) == Some(&true)
    }

    fn events<'a>(&self, processes: &'a Processes, own: &'a [OwnMap]) -> Vec<Event<'a>> {
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
            Event::Fork(child, parent, _) => {
                let inherited = self.spaces.get(parent.index()).cloned().unwrap_or_default();
                if let Some(space) = self.spaces.get_mut(child.index()) {
                    *space = inherited;
                }
            }
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
            Event::Map(space, map) => {
                if let Some(space) = self.spaces.get_mut(space.index()) {
                    self.reduced.extend(space.map(map));
                }
            }
        }
    }
}

impl SpaceCover {
    fn map(&mut self, map: &Map) -> Option<Reduced> {
        if map.backing == Backing::File {
            self.functions.remove(map.range, |_, ()| {});
            self.anonymous.remove(map.range, |_, _| {});
            return None;
        }
        let hides = self.functions.overlapping(map.range).next().is_some();
        let reduced = hides.then(|| {
            let new = self
                .anonymous
                .gaps(map.range, |identity| identity == map.identity);
            let parts = new.iter().flat_map(|&part| self.functions.gaps(part, |()| true));
            Reduced {
                record: map.record,
                range: map.range,
                parts: parts.collect(),
            }
        });
        self.anonymous.insert(map.range, map.identity, |_, _| {});
        reduced
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
            identity: 1,
            record: time,
        };
        ProcessEvent::Map(Pid(pid), map)
    }

    fn function(processes: &Processes, pid: u32, time: u64, range: AddressRange) -> OwnMap {
        let space = processes.space_at(Pid(pid), Time(time)).unwrap();
        OwnMap {
            space,
            range,
            since: Time(time),
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
        let reduced = reduced_maps(&processes, &own);
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
        let reduced = reduced_maps(&processes, &own);
        assert_eq!(reduced.len(), 1);
        assert_eq!(reduced[0].parts, [range(100, 200)]);
    }
}
