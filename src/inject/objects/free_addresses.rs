//! Free addresses near code for unwinding tables.

use std::collections::BTreeMap;

use jitdump::{Address, AddressRange};

use crate::code::process::{Processes, SpaceId};
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::IndexedTable;
use crate::collections::range_map::merged;

/// Allocator of addresses near code where no process with that code maps anything.
pub struct FreeAddresses {
    /// For each address space, the common ancestor of its family. Families share code.
    families: IndexedTable<SpaceId, SpaceId>,
    /// Address ranges that a family maps at any time.
    used: HashMap<SpaceId, Obstacles>,
    /// Reserved range to allocate from, and its family.
    stretch: Option<(SpaceId, AddressRange)>,
}

impl FreeAddresses {
    /// Maximum distance of a table from its function in bytes: offsets in the table have 31 bits.
    const REACH: u64 = 0x7fff_0000;
    /// Size of reserved ranges in bytes, or a multiple of it.
    const STRETCH: u64 = 0x10_0000;

    /// Creates an allocator of addresses for the tables of `code`.
    pub fn new(processes: &Processes, code: impl Iterator<Item = (SpaceId, AddressRange)>) -> Self {
        let mut used: HashMap<SpaceId, Vec<AddressRange>> = HashMap::default();
        let mut free = Self {
            families: processes.families(),
            used: HashMap::default(),
            stretch: None,
        };
        for (space, range) in code {
            used.entry(free.family(space)).or_default().push(range);
        }
        for (id, space) in processes.iter() {
            if let Some(family) = used.get_mut(&free.family(id)) {
                family.extend(space.maps.iter().map(|map| map.range));
            }
        }
        let used = used.into_iter();
        free.used = used
            .map(|(family, ranges)| (family, Obstacles::new(ranges)))
            .collect();
        free
    }

    /// Returns the common ancestor of an address space's family.
    pub fn family(&self, space: SpaceId) -> SpaceId {
        self.families[space]
    }

    /// Returns `size` free addresses after some code, or `None` if there are none within reach. Calls in the
    /// order of families and addresses get adjacent ones.
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
            None => self.reserve(family, code, size, is_32)?,
        };
        let rest = AddressRange::new(Address(stretch.start.0 + size), stretch.size() - size);
        self.stretch = rest.map(|rest| (family, rest));
        Some(stretch.start)
    }

    /// Distance of the first address from the code, so that a growing code region does not reach it. In a
    /// 32-bit process, there may be only room for the stack after the code.
    fn distance(is_32: bool) -> u64 {
        if is_32 { 0x10_0000 } else { 0x1000_0000 }
    }

    /// Reserves addresses after some code for this call of [`Self::take`] and later ones: `least` bytes or more that no
    /// member of the family uses. `None` if there are none within reach.
    fn reserve(
        &mut self,
        family: SpaceId,
        code: AddressRange,
        least: u64,
        is_32: bool,
    ) -> Option<AddressRange> {
        let used = self
            .used
            .entry(family)
            .or_insert_with(|| Obstacles::new(Vec::new()));
        let size = least.max(Self::STRETCH).next_multiple_of(Self::STRETCH);
        let end_of_space = if is_32 { 1 << 32 } else { u64::MAX };
        let limit = code.start.0.saturating_add(Self::REACH).min(end_of_space);
        let after_code = code.end.0.checked_add(Self::distance(is_32))?;
        let mut start = after_code.checked_next_multiple_of(PAGE)?;
        loop {
            let range = AddressRange::new(Address(start), size)?;
            if range.end.0 > limit {
                return None;
            }
            let Some(end) = used.end_of_last_in(range) else {
                used.add(range);
                return Some(range);
            };
            start = end.0.checked_next_multiple_of(PAGE)?;
        }
    }
}

/// Alignment of reserved ranges in bytes.
const PAGE: u64 = 0x1000;

/// Address ranges in use. Ranges that never leave room between them are merged, which limits the length of a
/// search.
struct Obstacles {
    /// End of each range, by its start.
    ends: BTreeMap<Address, Address>,
}

impl Obstacles {
    fn new(ranges: Vec<AddressRange>) -> Self {
        let ranges = merged(ranges, is_joined).into_iter();
        Self {
            ends: ranges.map(|range| (range.start, range.end)).collect(),
        }
    }

    /// End of the last range that overlaps with `range`.
    fn end_of_last_in(&self, range: AddressRange) -> Option<Address> {
        let (_, &end) = self.ends.range(..range.end).next_back()?;
        (end > range.start).then_some(end)
    }

    /// Adds a range that overlaps with no other.
    fn add(&mut self, mut range: AddressRange) {
        let behind = self
            .ends
            .range(range.end..)
            .next()
            .map(|(&start, &end)| (start, end));
        if let Some((start, end)) = behind.filter(|&(start, _)| is_joined(range.end, start)) {
            self.ends.remove(&start);
            range.end = end;
        }
        let before = self.ends.range_mut(..range.start).next_back();
        match before.filter(|(_, end)| is_joined(**end, range.start)) {
            Some((_, end)) => *end = range.end,
            None => drop(self.ends.insert(range.start, range.end)),
        }
    }
}

/// Whether a reserved range never fits between the end of one range and the start of the next.
fn is_joined(end: Address, start: Address) -> bool {
    let first = end.0.checked_next_multiple_of(PAGE);
    let behind = first.and_then(|first| first.checked_add(FreeAddresses::STRETCH));
    behind.is_none_or(|behind| behind > start.0)
}

#[cfg(test)]
mod tests {
    use jitdump::Time;

    use super::*;
    use crate::code::process::{Map, ProcessEvent};
    use crate::perf::process_records::Backing;
    use crate::units::Pid;

    const STRETCH: u64 = FreeAddresses::STRETCH;

    fn range(start: u64, size: u64) -> AddressRange {
        AddressRange::new(Address(start), size).unwrap()
    }

    #[test]
    fn what_nothing_fits_between_is_one_obstacle() {
        let mut obstacles = Obstacles::new(vec![
            range(4 * STRETCH, PAGE),
            range(0, PAGE),
            range(2 * PAGE, PAGE),
            range(STRETCH, PAGE),
        ]);
        assert_eq!(obstacles.ends.len(), 2);
        assert_eq!(
            obstacles.end_of_last_in(range(PAGE, PAGE)),
            Some(Address(STRETCH + PAGE))
        );
        obstacles.add(range(STRETCH + PAGE, STRETCH));
        assert_eq!(obstacles.ends.len(), 2);
        obstacles.add(range(3 * STRETCH, STRETCH - PAGE));
        assert_eq!(obstacles.ends.len(), 1);
        assert_eq!(
            obstacles.end_of_last_in(range(0, 5 * STRETCH)),
            Some(Address(4 * STRETCH + PAGE))
        );
        assert_eq!(obstacles.end_of_last_in(range(5 * STRETCH, PAGE)), None);
    }

    /// Makes an allocator for code of one process, with a file mapped from 4 GiB on.
    fn allocator(file_size: u64, code: &[AddressRange]) -> (FreeAddresses, SpaceId) {
        let file = Map::private(1, range(1 << 32, file_size), Backing::File);
        let processes = Processes::new(vec![ProcessEvent::Map(Pid(1), file)]);
        let space = processes.space_at(Pid(1), Time(2)).unwrap();
        let code = code.iter().map(|&range| (space, range));
        (FreeAddresses::new(&processes, code), space)
    }

    #[test]
    fn tables_end_up_to_0x7fff0000_bytes_after_the_start_of_their_code() {
        let code = range(1 << 32, 0x10);
        let first_free = |file_size: u64| {
            let (mut free, space) = allocator(file_size, &[code]);
            free.take(space, code, 16, false)
        };
        // A megabyte is reserved.
        assert_eq!(first_free(0x7fef_0000), Some(Address(0x1_7fef_0000)));
        assert_eq!(first_free(0x7fef_1000), None);
    }

    #[test]
    fn reserved_addresses_are_used_for_code_within_0x7fff0000_bytes() {
        let near = range(0x1_8000_0000, 0x1000);
        let second = |start: u64| {
            let code = range(start, 0x10);
            let (mut free, space) = allocator(0x1000, &[near, code]);
            assert_eq!(free.take(space, near, 16, false), Some(Address(0x1_9000_1000)));
            free.take(space, code, 16, false)
        };
        let far = 0x1_9000_1020 - 0x7fff_0000;
        assert_eq!(second(far), Some(Address(0x1_9000_1010)));
        assert_eq!(second(far - 1), Some(Address(0x1_2001_2000)));
    }
}
