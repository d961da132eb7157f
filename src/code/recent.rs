//! Caches of what was found recently: code, [addresses](known_addresses) and [call chains](last_chains).
//!
//! Most samples are in few functions. Their data stays in the processor's caches here, while the data of all
//! functions would not fit.

pub mod known_addresses;
pub mod last_chains;

use crate::code::process::SpaceId;
use crate::code::timeline::{Code, Lookup, Timeline};
use jitdump::history::Interval;
use jitdump::{Address, Time};

/// Number of entries for addresses with the same hash.
const WAYS: usize = 2;

/// Number of bits of a hash in an empty cache.
const MIN_BITS: u32 = 6;

/// Number of bits of a hash in a full cache.
const MAX_BITS: u32 = 13;

/// Number of neighbouring addresses with the same hash; functions are rarely shorter.
const NEIGHBOURS: u64 = 128;

/// A cache entry, in one line of the processor's cache: code, and its address space.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Slot(Option<(SpaceId, Interval<Code>)>);

/// Cache of recently found code. It starts small: a full one is a megabyte, which takes longer to fill than a small profile
/// takes to read.
#[derive(Debug)]
pub struct Recent {
    /// Entries by hash of the address, the most recent first.
    places: Vec<[Slot; WAYS]>,
    /// Number of bits of a hash.
    bits: u32,
    /// Number of entries added since the cache has this size.
    added: usize,
}

impl Default for Recent {
    /// Creates an empty cache.
    fn default() -> Self {
        Self::with_bits(MIN_BITS)
    }
}

impl Recent {
    fn with_bits(bits: u32) -> Self {
        Self {
            places: vec![[Slot(None); WAYS]; 1 << bits],
            bits,
            added: 0,
        }
    }

    /// Returns the cached code at an address and time.
    #[inline]
    pub fn get(&mut self, space: SpaceId, address: Address, time: Time) -> Option<&Interval<Code>> {
        let places = self.places(space, address)?;
        let is_it =
            |Slot(found): &Slot| found.is_some_and(|(of, code)| of == space && code.holds(address, time));
        let at = places.iter().position(is_it)?;
        if at > 0 {
            places.get_mut(..=at)?.rotate_right(1);
        }
        let (_, code) = places.first()?.0.as_ref()?;
        Some(code)
    }

    /// Returns the content of an address as [`Timeline::lookup_with_extent`] does, from the cache if it is there.
    pub fn lookup(
        &mut self,
        timeline: &Timeline,
        space: SpaceId,
        address: Address,
        time: Time,
    ) -> (Lookup, Option<Interval<Code>>) {
        if let Some(&found) = self.get(space, address, time) {
            return (found.value.into(), Some(found));
        }
        let (lookup, extent) = timeline.lookup_with_extent(space, address, time);
        if let Some(extent) = extent {
            self.put(address, space, extent);
        }
        (lookup, extent)
    }

    /// Adds the code at an address.
    fn put(&mut self, address: Address, space: SpaceId, found: Interval<Code>) {
        if self.added >= self.places.len() && self.bits < MAX_BITS {
            // What it had is soon found again.
            *self = Self::with_bits((self.bits + 2).min(MAX_BITS));
        }
        self.added += 1;
        if let Some(places) = self.places(space, address) {
            places.rotate_right(1);
            if let Some(first) = places.first_mut() {
                *first = Slot(Some((space, found)));
            }
        }
    }

    /// Returns the entries for the hash of an address.
    fn places(&mut self, space: SpaceId, address: Address) -> Option<&mut [Slot; WAYS]> {
        /// 2^64 divided by the golden ratio, which separates neighbours and functions at equal distances.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let key = (address.0 / NEIGHBOURS) ^ u64::from(space.0).rotate_right(20);
        let hash = key.wrapping_mul(SPREAD) >> (u64::BITS - self.bits);
        self.places.get_mut(usize::try_from(hash).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::timeline::MappingIndex;
    use jitdump::AddressRange;

    fn found(start: u64, code: u32) -> Interval<Code> {
        Interval {
            range: AddressRange::new(Address(start), 16).unwrap(),
            from: Time(10),
            until: Time(20),
            value: Code::Function(MappingIndex(code)),
        }
    }

    #[test]
    fn what_was_found_counts_for_its_space_addresses_and_time() {
        let mut recent = Recent::default();
        let one = found(0x1000, 7);
        recent.put(Address(0x1004), SpaceId(1), one);
        let mut get = |space, address, time| {
            let found = recent.get(SpaceId(space), Address(address), Time(time));
            found.copied()
        };
        assert_eq!(get(1, 0x100f, 10), Some(one));
        assert_eq!(get(1, 0x1010, 10), None);
        assert_eq!(get(1, 0x1000, 20), None);
        assert_eq!(get(2, 0x1000, 10), None);
    }

    #[test]
    fn the_latest_of_those_with_one_hash_stay() {
        let mut recent = Recent::default();
        let all: Vec<Interval<Code>> = (0..WAYS as u32 + 1)
            .map(|at| found(0x1000 + 16 * u64::from(at), at))
            .collect();
        let mut get_or_put = |found: Interval<Code>| {
            let is_known = recent.get(SpaceId(0), found.range.start, Time(15)).is_some();
            if !is_known {
                recent.put(found.range.start, SpaceId(0), found);
            }
            is_known
        };
        // The first one was used again, so the second makes room for the last.
        let asked = [0, 1, 0, 2, 0, 2, 1].map(|at| get_or_put(all[at]));
        let expected = [0, 0, 1, 0, 1, 1, 0].map(|known| known == 1);
        assert_eq!(asked, expected);
    }

    #[test]
    fn the_cache_grows_with_what_is_found_and_not_without_limit() {
        let mut recent = Recent::default();
        let mut sizes = Vec::new();
        for at in 0..40_000 {
            let one = found(0x1000 * u64::from(at), at);
            recent.put(one.range.start, SpaceId(0), one);
            assert_eq!(recent.get(SpaceId(0), one.range.start, Time(15)), Some(&one));
            sizes.push(recent.places.len());
        }
        sizes.dedup();
        assert_eq!(sizes, [64, 256, 1024, 4096, 8192]);
    }
}
