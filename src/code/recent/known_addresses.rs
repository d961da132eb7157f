//! Cache of what is known of single addresses.
//!
//! Stacks have most of their return addresses in common. Each is looked up once for many of them, as long as it stays in
//! the cache and its address space does not change there.

use std::ops::Range;

use jitdump::{Address, Time};

use crate::code::process::SpaceId;

/// Number of addresses in the cache: so few that it stays in the processor's.
const SLOTS: u32 = 1 << 12;

/// Cache of what is known of addresses, a `T` for each.
#[derive(Debug)]
pub struct KnownAddresses<T> {
    slots: Vec<Option<Slot<T>>>,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    space: SpaceId,
    address: Address,
    /// Times at which it is known.
    times: Range<Time>,
    known: T,
}

impl<T: Clone> Default for KnownAddresses<T> {
    /// Creates an empty cache.
    fn default() -> Self {
        Self {
            slots: vec![None; SLOTS as usize],
        }
    }
}

impl<T> KnownAddresses<T> {
    /// Returns what is known of an address at a time, and the times around it at which that is known.
    #[inline]
    pub fn get(&self, space: SpaceId, address: Address, time: Time) -> Option<(&T, &Range<Time>)> {
        let slot = self.slots.get(position(space, address))?.as_ref()?;
        let is_it = slot.address == address && slot.space == space && slot.times.contains(&time);
        is_it.then_some((&slot.known, &slot.times))
    }

    /// Adds an address, in place of another one.
    pub fn put(&mut self, space: SpaceId, address: Address, times: Range<Time>, known: T) {
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
        let mut places = KnownAddresses::default();
        let times = Time(10)..Time(20);
        places.put(SpaceId(1), Address(0x1000), times.clone(), 'a');
        let known = |space, address, time| {
            let found = places.get(SpaceId(space), Address(address), Time(time));
            found.map(|(&known, times)| (known, times.clone()))
        };
        assert_eq!(known(1, 0x1000, 10), Some(('a', times.clone())));
        assert_eq!(known(1, 0x1000, 19), Some(('a', times.clone())));
        let others = [(1, 0x1000, 9), (1, 0x1000, 20), (2, 0x1000, 10), (1, 0x1001, 10)];
        assert_eq!(
            others.map(|(space, address, time)| known(space, address, time)),
            [const { None }; 4]
        );
        // Another one at the same position.
        let first = position(SpaceId(1), Address(0x1000));
        let other = (0x1001..)
            .map(Address)
            .find(|&address| position(SpaceId(1), address) == first)
            .unwrap();
        places.put(SpaceId(1), other, times, 'b');
        assert!(places.get(SpaceId(1), other, Time(10)).is_some());
        assert!(places.get(SpaceId(1), Address(0x1000), Time(10)).is_none());
    }
}
