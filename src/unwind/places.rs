//! What is known of code addresses: where they are, and the rules for unwinding there.
//!
//! Stacks have most of their return addresses in common. Each is looked up once for many of them, as long as it stays in this
//! cache.

use std::ops::Range;

use crate::code::process::SpaceId;
use crate::code::timeline::MappingIndex;
use crate::elf::call_frames::Rules;
use crate::native::modules::MappedModule;
use crate::units::{Address, Time};

/// Where an address is.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// In a function of a runtime.
    Function(MappingIndex),
    /// In other memory that runtimes use for code.
    Memory,
    /// In a file.
    Module(MappedModule),
}

/// An address in memory that was mapped.
#[derive(Clone, Copy, Debug)]
pub struct KnownPlace<'w> {
    /// Where it is.
    pub place: Place,
    /// Rules for unwinding, if there are any.
    pub rules: Option<Rules<'w>>,
    /// Whether it is in a module that this machine does not have.
    pub lacks_file: bool,
}

/// Number of addresses in the cache: so few that it stays in the processor's.
const SLOTS: u32 = 1 << 11;

/// Cache of addresses.
#[derive(Debug)]
pub struct KnownPlaces<'w> {
    slots: Vec<Option<Slot<'w>>>,
}

#[derive(Clone, Debug)]
struct Slot<'w> {
    space: SpaceId,
    address: Address,
    /// Times at which it is known.
    times: Range<Time>,
    known: KnownPlace<'w>,
}

impl Default for KnownPlaces<'_> {
    fn default() -> Self {
        Self {
            slots: vec![None; SLOTS as usize],
        }
    }
}

impl<'w> KnownPlaces<'w> {
    /// Returns what is known of an address at a time.
    #[inline]
    pub fn get(&self, space: SpaceId, address: Address, time: Time) -> Option<KnownPlace<'w>> {
        let slot = self.slots.get(position(space, address))?.as_ref()?;
        let is_it = slot.address == address && slot.space == space && slot.times.contains(&time);
        is_it.then_some(slot.known)
    }

    /// Adds an address, in place of another one.
    pub fn put(&mut self, space: SpaceId, address: Address, times: Range<Time>, known: KnownPlace<'w>) {
        if let Some(slot) = self.slots.get_mut(position(space, address)) {
            *slot = Some(Slot {
                space,
                address,
                times,
                known,
            });
        }
    }
}

fn position(space: SpaceId, address: Address) -> usize {
    /// 2^64 divided by the golden ratio, which separates neighbours.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let key = address.0 ^ u64::from(space.0).rotate_right(20);
    (key.wrapping_mul(SPREAD) >> (u64::BITS - SLOTS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_known_in_their_space_and_times() {
        let mut places = KnownPlaces::default();
        let known = KnownPlace {
            place: Place::Memory,
            rules: None,
            lacks_file: false,
        };
        let times = Time(10)..Time(20);
        places.put(SpaceId(1), Address(0x1000), times.clone(), known);
        let is_known =
            |space, address, time| places.get(SpaceId(space), Address(address), Time(time)).is_some();
        assert!(is_known(1, 0x1000, 10) && is_known(1, 0x1000, 19));
        assert!(!is_known(1, 0x1000, 9) && !is_known(1, 0x1000, 20));
        assert!(!is_known(2, 0x1000, 10) && !is_known(1, 0x1001, 10));
        // Another one at the same position.
        let first = position(SpaceId(1), Address(0x1000));
        let mut others = (0x1001..).map(Address);
        let other = others
            .find(|&address| position(SpaceId(1), address) == first)
            .unwrap();
        places.put(SpaceId(1), other, times, known);
        assert!(places.get(SpaceId(1), other, Time(10)).is_some());
        assert!(places.get(SpaceId(1), Address(0x1000), Time(10)).is_none());
    }
}
