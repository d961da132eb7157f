//! Code in address spaces: functions, their events and mappings, and the memory around them.

use jitdump::{AddressRange, Change, CodeEvent, Time};

use crate::code::process::SpaceId;
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::table_index;
use crate::collections::range_map::RangeSet;

table_index! {
    /// Index of a runtime's file, in the order in which the files were read.
    FileIndex
}

table_index! {
    /// Index of a function mapping in a timeline.
    MappingIndex
}

table_index! {
    /// Index of a freed range in a timeline.
    FreedRangeIndex
}

/// ID of a function in one of the runtimes' files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionId {
    /// The file.
    pub file: FileIndex,
    /// Index of the function in that file.
    pub function: u32,
}

/// A load or move of a function's code, on the profile's clock.
#[derive(Clone, Copy, Debug)]
pub struct PlacedEvent {
    /// Time on the profile's clock.
    pub time: Time,
    /// Address space in which it happened.
    pub space: SpaceId,
    /// Function that it happened to.
    pub function: FunctionId,
    /// Addresses of the code from now on; `None` if it is nowhere, or in a mapped executable, whose own symbols name it.
    pub range: Option<AddressRange>,
    /// Addresses of the code until now, if it was moved.
    pub left: Option<AddressRange>,
}

impl PlacedEvent {
    /// Places an event of a runtime's file in an address space. `loaded_at` is the range at which the function was
    /// loaded. Returns `None` if the destination of a move is not a valid range.
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
            range: Some(range),
            left,
        })
    }
}

/// Returns the range of a function after an event, and the range that it leaves, if it was moved. `loaded_at` is the
/// range at which it was loaded. Returns `None` if the destination of a move is not a valid range.
pub fn ranges(event: &CodeEvent, loaded_at: AddressRange) -> Option<(AddressRange, Option<AddressRange>)> {
    let size = loaded_at.size();
    Some(match event.change {
        Change::Load => (loaded_at, None),
        Change::Move { from, to } => (AddressRange::new(to, size)?, AddressRange::new(from, size)),
    })
}

/// Distance from known code, in bytes, within which unmapped memory is taken for JIT memory: the size of a page of
/// V8's code space (256 KiB).
pub(super) const NEAR: u64 = 256 << 10;

/// Code events on the profile's clock, in any order.
#[derive(Clone, Debug, Default)]
pub struct PlacedCode {
    pub(super) events: Vec<PlacedEvent>,
    /// All addresses that ever held code. Gaps up to twice [`NEAR`] are filled, since all of their addresses are near
    /// code.
    pub(super) code: HashMap<SpaceId, RangeSet>,
}

impl PlacedCode {
    /// Makes room for so many events, and not for more.
    pub fn reserve_exact(&mut self, events: usize) {
        self.events.reserve_exact(events);
    }

    /// Adds an event.
    pub fn add(&mut self, event: PlacedEvent) {
        self.add_addresses(&event);
        self.events.push(event);
    }

    /// Adds an event only as a place where there was code. What is at its addresses must never be looked up.
    pub fn add_addresses(&mut self, event: &PlacedEvent) {
        if let Some(range) = event.range {
            let code = self.code.entry(event.space);
            code.or_insert_with(|| RangeSet::with_gap(2 * NEAR)).insert(range);
        }
    }
}

impl FromIterator<PlacedEvent> for PlacedCode {
    fn from_iter<A: IntoIterator<Item = PlacedEvent>>(events: A) -> Self {
        let mut code = Self::default();
        events.into_iter().for_each(|event| code.add(event));
        code
    }
}

/// A function mapped at one address range, from a load or a move on.
#[derive(Clone, Copy, Debug)]
pub struct CodeMapping {
    /// Function that is mapped.
    pub function: FunctionId,
    /// Address space that it is mapped in.
    pub space: SpaceId,
    /// Addresses of its code.
    pub range: AddressRange,
    /// Time of the load or move.
    pub since: Time,
    /// Position among all mappings and freed ranges of the address space; orders those with the same time.
    pub sequence: u32,
}

/// Addresses that code has left by a move.
#[derive(Clone, Copy, Debug)]
pub struct FreedRange {
    /// Address space of the range.
    pub space: SpaceId,
    /// Addresses that were freed.
    pub range: AddressRange,
    /// Time at which the code left them.
    pub since: Time,
    /// Position among all mappings and freed ranges, as in [`CodeMapping::sequence`].
    pub sequence: u32,
}

/// Memory that JIT compilers use, from the time at which it was mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JitRegion {
    /// Address space that mapped it. Other address spaces may be copies of it.
    pub space: SpaceId,
    /// Addresses of the region.
    pub range: AddressRange,
    /// Time at which it was mapped.
    pub since: Time,
}
