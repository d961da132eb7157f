//! Finds the inherited code that samples of a forked process hit, and its lifetime in that process.

use std::collections::BTreeMap;

use jitdump::history::Builder;
use jitdump::{AddressRange, Time};

use crate::code::process::{AddressSpace, SpaceId};
use crate::code::timeline::{Code, Lookup, MappingIndex, Timeline};
use crate::collections::hash::HashMap;
use crate::load::Recording;
use crate::tools::timeline::code_box::{CodeBox, NamedCode};
use crate::tools::timeline::samples::BinnedSamples;

/// Maximum number of ranges of inherited code to use. Code may be overwritten at many addresses and inherited by many
/// processes.
const MAX_PIECES: usize = 1 << 20;

/// Inherited code with samples.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Addresses and lifetimes of the code.
    pub code_boxes: Vec<CodeBox>,
    /// Whether the limit was exceeded.
    pub has_more: bool,
    /// Number of ranges that are used.
    pieces: usize,
}

impl Inherited {
    /// Finds the inherited code of a recording.
    pub fn of(recording: &Recording<'_>, counts: &BinnedSamples) -> Self {
        let (processes, timeline) = (&recording.profile.index.processes, &recording.timeline);
        let mut by_space: BTreeMap<SpaceId, Vec<(NamedCode, u32)>> = BTreeMap::new();
        for (&(leaf, space), &count) in &counts.code {
            if leaf.home(timeline) != space {
                by_space.entry(space).or_default().push((leaf, count));
            }
        }
        let pieces = pieces(recording, &by_space);
        let mut inherited = Self::default();
        for (id, mut touched) in by_space {
            touched.sort_unstable();
            let space = processes.space(id);
            let mut code = Builder::default();
            for &(leaf, count) in &touched {
                for range in places(space, timeline, leaf, &pieces) {
                    if !inherited.add_piece() {
                        break;
                    }
                    code.put(range, space.since, (leaf, count));
                }
            }
            for (time, range) in changes(timeline, id, space) {
                code.clear(range, time);
            }
            let code = code.finish();
            inherited
                .code_boxes
                .extend(code.intervals().iter().map(|interval| {
                    let (leaf, samples) = interval.value;
                    CodeBox {
                        code: leaf.id(timeline),
                        pid: space.pid,
                        range: interval.range,
                        from: interval.from,
                        until: interval.until.min(space.until),
                        samples,
                    }
                }));
        }
        inherited
    }

    /// Counts a range, unless that would be one too many. Returns whether it is to be used.
    fn add_piece(&mut self) -> bool {
        let has_room = self.pieces < MAX_PIECES;
        self.pieces += usize::from(has_room);
        self.has_more |= !has_room;
        has_room
    }
}

/// Returns the ranges of the inherited functions, split where they were partly overwritten at any time.
fn pieces(
    recording: &Recording<'_>,
    inherited: &BTreeMap<SpaceId, Vec<(NamedCode, u32)>>,
) -> HashMap<MappingIndex, Vec<AddressRange>> {
    let mut pieces: HashMap<MappingIndex, Vec<AddressRange>> = HashMap::default();
    for &(leaf, _) in inherited.values().flatten() {
        if let NamedCode::Function(at) = leaf {
            pieces.entry(at).or_default();
        }
    }
    if pieces.is_empty() {
        return pieces;
    }
    for (id, _) in recording.profile.index.processes.iter() {
        for interval in recording.timeline.code_of(id) {
            if let Code::Function(at) = interval.value
                && let Some(pieces) = pieces.get_mut(&at)
            {
                pieces.push(interval.range);
            }
        }
    }
    pieces
}

/// Returns the ranges of a function or symbol that the parent still had when an address space was forked from it.
fn places<'a>(
    space: &'a AddressSpace,
    timeline: &'a Timeline,
    leaf: NamedCode,
    pieces: &'a HashMap<MappingIndex, Vec<AddressRange>>,
) -> impl Iterator<Item = AddressRange> + 'a {
    let (of_function, of_symbol) = match leaf {
        NamedCode::Function(at) => (pieces.get(&at).map_or(&[][..], Vec::as_slice), None),
        NamedCode::Symbol(symbol) => (&[][..], Some(symbol.range)),
    };
    let is_there = move |range: &&AddressRange| {
        space.parent.is_some_and(|(parent, forked)| {
            let lookup = timeline.at(parent, range.start, forked);
            matches!(lookup, Lookup::Function(at) if leaf == NamedCode::Function(at))
        })
    };
    of_function.iter().filter(is_there).copied().chain(of_symbol)
}

/// Returns the ranges that an address space overwrites, in the order of time.
fn changes(timeline: &Timeline, id: SpaceId, space: &AddressSpace) -> Vec<(Time, AddressRange)> {
    let code = timeline.code_of(id).iter();
    let mut changes: Vec<_> = code.map(|interval| (interval.from, interval.range)).collect();
    let files = space.maps.iter().filter(|map| map.backing.is_file());
    changes.extend(files.map(|map| (map.time, map.range)));
    changes.sort_unstable();
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_over_a_million_are_not_used_and_that_is_noted() {
        let mut inherited = Inherited {
            pieces: (1 << 20) - 1,
            ..Inherited::default()
        };
        assert!(inherited.add_piece());
        assert!(!inherited.has_more);
        assert!(!inherited.add_piece());
        assert!(inherited.has_more);
    }
}
