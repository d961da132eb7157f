//! Counts of faults by kind, with the lowest file offsets of each kind.
//!
//! A badly damaged file thus produces a few lines of diagnostics instead of one line for each record.

use std::collections::BTreeMap;

/// Maximum number of offsets kept for each kind.
pub const MAX_OFFSETS: usize = 5;

/// The number of faults of each kind, with the lowest offsets.
#[derive(Clone, Debug)]
pub struct Tally<K> {
    kinds: BTreeMap<K, Counter>,
}

#[derive(Clone, Debug, Default)]
struct Counter {
    count: u64,
    /// The lowest offsets, sorted, at most [`MAX_OFFSETS`].
    offsets: Vec<u64>,
}

/// An entry of a [`Tally`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultCount {
    /// Number of faults of this kind.
    pub count: u64,
    /// Lowest file offset of such a fault, in bytes; 0 if none has a place in the file.
    pub first_offset: u64,
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self {
            kinds: BTreeMap::new(),
        }
    }
}

// How readers fill it.
#[doc(hidden)]
impl<K: Ord + Copy> Tally<K> {
    /// Counts a fault at `offset` bytes into the file.
    #[doc(hidden)]
    pub fn add(&mut self, kind: K, offset: u64) {
        self.add_many(kind, 1, offset);
    }

    /// Counts `count` faults, the first of them at `offset` bytes into the file.
    #[doc(hidden)]
    pub fn add_many(&mut self, kind: K, count: u64, offset: u64) {
        if count == 0 {
            return;
        }
        let entry = self.kinds.entry(kind).or_default();
        entry.count = entry.count.saturating_add(count);
        entry.add_offset(offset);
    }

    /// Counts `count` faults that have no place in the file.
    #[doc(hidden)]
    pub fn add_unplaced(&mut self, kind: K, count: u64) {
        if count > 0 {
            let entry = self.kinds.entry(kind).or_default();
            entry.count = entry.count.saturating_add(count);
        }
    }

    /// Adds the counts and offsets of another tally.
    #[doc(hidden)]
    pub fn merge(&mut self, other: &Self) {
        for (&kind, others) in &other.kinds {
            self.kinds.entry(kind).or_default().merge(others);
        }
    }

    /// Returns the tally with kinds of another type. Counts of kinds that become the same one are added up.
    #[doc(hidden)]
    pub fn into_kinds<L: Ord + Copy + From<K>>(self) -> Tally<L> {
        let mut tally = Tally::<L>::default();
        for (kind, counter) in self.kinds {
            tally.kinds.entry(kind.into()).or_default().merge(&counter);
        }
        tally
    }

    /// Returns the tally with `distance` bytes added to every offset.
    #[doc(hidden)]
    pub fn offset_by(mut self, distance: u64) -> Self {
        for offset in self.kinds.values_mut().flat_map(|entry| &mut entry.offsets) {
            *offset = offset.saturating_add(distance);
        }
        self
    }
}

impl<K: Ord + Copy> Tally<K> {
    /// Returns the number of faults of one kind.
    pub fn count(&self, kind: K) -> u64 {
        self.kinds.get(&kind).map_or(0, |entry| entry.count)
    }

    /// Returns the lowest offsets of one kind, sorted and without duplicates; at most [`MAX_OFFSETS`].
    pub fn offsets(&self, kind: K) -> &[u64] {
        self.kinds.get(&kind).map_or(&[], |entry| &entry.offsets)
    }

    /// Returns whether no fault was counted.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns the kinds that occurred, in the order of `K`.
    pub fn iter(&self) -> impl Iterator<Item = (K, FaultCount)> + '_ {
        self.kinds.iter().map(|(&kind, entry)| {
            let count = FaultCount {
                count: entry.count,
                first_offset: entry.offsets.first().copied().unwrap_or_default(),
            };
            (kind, count)
        })
    }
}

impl Counter {
    /// Adds the count and the offsets of another counter.
    fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        other.offsets.iter().for_each(|&offset| self.add_offset(offset));
    }

    fn add_offset(&mut self, offset: u64) {
        let at = self.offsets.partition_point(|&before| before < offset);
        if at < MAX_OFFSETS && self.offsets.get(at) != Some(&offset) {
            self.offsets.insert(at, offset);
            self.offsets.truncate(MAX_OFFSETS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_offsets_are_kept_without_duplicates() {
        let mut tally = Tally::default();
        for offset in [90, 10, 20, 10, 70, 30, 80, 40] {
            tally.add('a', offset);
        }
        assert_eq!(tally.count('a'), 8);
        assert_eq!(tally.offsets('a'), [10, 20, 30, 40, 70]);
        assert!(tally.offsets('b').is_empty());
        let mut other = Tally::default();
        other.add('a', 5);
        other.add('a', 75);
        tally.merge(&other);
        assert_eq!(tally.count('a'), 10);
        assert_eq!(tally.offset_by(100).offsets('a'), [105, 110, 120, 130, 140]);
    }
}
