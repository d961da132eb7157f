//! Addresses for tables that the process itself never mapped.

use rustc_hash::FxHashMap;

use crate::code::process::{Processes, SpaceId};
use crate::range_map::RangeMap;
use crate::units::{Address, AddressRange};

/// Addresses near code that no process with that code maps anything at.
pub struct FreeAddresses {
    /// For each address space, the one that all of its family descend from: they share code.
    families: Vec<SpaceId>,
    /// What each family maps, ever.
    used: FxHashMap<SpaceId, RangeMap<()>>,
    /// The stretch that addresses are given out from, and to whom.
    stretch: Option<(SpaceId, AddressRange)>,
}

impl FreeAddresses {
    /// How far behind its function a table may lie: the distances in it have 31 bits.
    const REACH: u64 = 0x7fff_0000;
    /// How many addresses are set aside at a time.
    const STRETCH: u64 = 0x10_0000;

    /// Prepares to give out addresses for the tables of `code`.
    pub fn new(processes: &Processes, code: impl Iterator<Item = (SpaceId, AddressRange)>) -> Self {
        let mut families: Vec<SpaceId> = Vec::new();
        for (id, space) in processes.iter() {
            let parent = space.parent.and_then(|(parent, _)| families.get(parent.index()));
            families.push(parent.copied().unwrap_or(id));
        }
        let mut used: FxHashMap<SpaceId, RangeMap<()>> = FxHashMap::default();
        let mut free = Self {
            families,
            used: FxHashMap::default(),
            stretch: None,
        };
        for (space, range) in code {
            let family = used.entry(free.family(space)).or_default();
            family.insert(range, (), |_, ()| {});
        }
        for (id, space) in processes.iter() {
            if let Some(family) = used.get_mut(&free.family(id)) {
                for map in &space.maps {
                    family.insert(map.range, (), |_, ()| {});
                }
            }
        }
        free.used = used;
        free
    }

    /// The address space that all of the family of one descend from.
    pub fn family(&self, space: SpaceId) -> SpaceId {
        self.families.get(space.index()).copied().unwrap_or(space)
    }

    /// `size` addresses behind some code. Asked in the order of families and addresses, it gives out
    /// neighbouring ones.
    pub fn take(&mut self, space: SpaceId, code: AddressRange, size: u64, is_32: bool) -> Option<Address> {
        let family = self.family(space);
        let distance = Self::distance(is_32);
        let is_near = |range: AddressRange| {
            let low = code.end.0.saturating_add(distance / 2);
            let end = range.start.0.saturating_add(size);
            range.start.0 >= low && end.saturating_sub(code.start.0) <= Self::REACH
        };
        let usable = self
            .stretch
            .filter(|&(of, range)| of == family && range.size() >= size && is_near(range));
        let stretch = match usable {
            Some((_, stretch)) => stretch,
            None => self.set_aside(family, code, size, is_32)?,
        };
        let rest = AddressRange::new(Address(stretch.start.0 + size), stretch.size() - size);
        self.stretch = rest.map(|rest| (family, rest));
        Some(stretch.start)
    }

    /// How far behind the code the first address is, so that a region of code which is still growing does not
    /// reach it. In 32 bits there may be no more room behind the code than for the stack.
    fn distance(is_32: bool) -> u64 {
        if is_32 { 0x10_0000 } else { 0x1000_0000 }
    }

    fn set_aside(
        &mut self,
        family: SpaceId,
        code: AddressRange,
        size: u64,
        is_32: bool,
    ) -> Option<AddressRange> {
        let used = self.used.entry(family).or_default();
        let size = size.max(Self::STRETCH).next_multiple_of(Self::STRETCH);
        let limit = code.start.0.saturating_add(Self::REACH);
        let limit = if is_32 { limit.min(1 << 32) } else { limit };
        let mut start = code
            .end
            .0
            .checked_add(Self::distance(is_32))?
            .checked_next_multiple_of(0x1000)?;
        loop {
            let range = AddressRange::new(Address(start), size)?;
            if range.end.0 > limit {
                return None;
            }
            let Some((obstacle, ())) = used.overlapping(range).next() else {
                used.insert(range, (), |_, ()| {});
                return Some(range);
            };
            start = obstacle.end.0.checked_next_multiple_of(0x1000)?;
        }
    }
}
