//! Counting what went wrong, by kind, with the places of the first of each kind: a damaged file tells its
//! story in a few lines, not in one line a record.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;

/// How many places of each kind are kept: enough to go and look, whatever the file holds.
pub const MAX_PLACES: usize = 5;

/// How often each kind of fault was met, and where first.
#[derive(Clone, Debug)]
pub struct Tally<K> {
    met: BTreeMap<K, Met>,
}

/// What is known of one kind.
#[derive(Clone, Debug, Default)]
struct Met {
    count: u64,
    /// The lowest offsets, in order, up to [`MAX_PLACES`].
    places: Vec<u64>,
}

/// One line of a [`Tally`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// How many there were.
    pub count: u64,
    /// The lowest offset in the file at which one was met.
    pub first_offset: u64,
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self { met: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> Tally<K> {
    /// Notes one fault at `offset` bytes into the file.
    pub fn add(&mut self, kind: K, offset: u64) {
        self.add_many(kind, 1, offset);
    }

    /// Notes `count` faults, the first of them at `offset` bytes into the file.
    pub fn add_many(&mut self, kind: K, count: u64, offset: u64) {
        if count == 0 {
            return;
        }
        let met = self.met.entry(kind).or_default();
        met.count = met.count.saturating_add(count);
        met.keep(offset);
    }

    /// Notes all that another tally has.
    pub fn merge(&mut self, other: &Self) {
        for (&kind, others) in &other.met {
            let met = self.met.entry(kind).or_default();
            met.count = met.count.saturating_add(others.count);
            others.places.iter().for_each(|&offset| met.keep(offset));
        }
    }

    /// The same, `distance` bytes further on in the file.
    pub fn moved(mut self, distance: u64) -> Self {
        for offset in self.met.values_mut().flat_map(|met| &mut met.places) {
            *offset = offset.saturating_add(distance);
        }
        self
    }

    /// How many of one kind were noted.
    pub fn count(&self, kind: K) -> u64 {
        self.met.get(&kind).map_or(0, |met| met.count)
    }

    /// The lowest offsets at which one kind was met, each once, in order; no more than [`MAX_PLACES`].
    pub fn places(&self, kind: K) -> &[u64] {
        self.met.get(&kind).map_or(&[], |met| &met.places)
    }

    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.met.is_empty()
    }

    /// All kinds that were met, in the order of the kinds.
    pub fn iter(&self) -> impl Iterator<Item = (K, Seen)> + '_ {
        self.met.iter().map(|(&kind, met)| {
            let seen = Seen {
                count: met.count,
                first_offset: met.places.first().copied().unwrap_or_default(),
            };
            (kind, seen)
        })
    }
}

impl Met {
    fn keep(&mut self, offset: u64) {
        let at = self.places.partition_point(|&before| before < offset);
        if at < MAX_PLACES && self.places.get(at) != Some(&offset) {
            self.places.insert(at, offset);
            self.places.truncate(MAX_PLACES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_places_are_kept_each_once() {
        let mut tally = Tally::default();
        for offset in [90, 10, 20, 10, 70, 30, 80, 40] {
            tally.add('a', offset);
        }
        assert_eq!(tally.count('a'), 8);
        assert_eq!(tally.places('a'), [10, 20, 30, 40, 70]);
        assert!(tally.places('b').is_empty());
        let mut other = Tally::default();
        other.add('a', 5);
        other.add('a', 75);
        tally.merge(&other);
        assert_eq!(tally.count('a'), 10);
        assert_eq!(tally.moved(100).places('a'), [105, 110, 120, 130, 140]);
    }
}
