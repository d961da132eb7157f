//! Counting what went wrong, by kind, with the place of the first of each kind: a damaged file tells its
//! story in a few lines, not in one line a record.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;

/// How often each kind of fault was met, and where first.
#[derive(Clone, Debug)]
pub struct Tally<K> {
    seen: BTreeMap<K, Seen>,
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
        Self {
            seen: BTreeMap::new(),
        }
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
        let seen = self.seen.entry(kind).or_insert(Seen {
            count: 0,
            first_offset: offset,
        });
        seen.count = seen.count.saturating_add(count);
        seen.first_offset = seen.first_offset.min(offset);
    }

    /// Notes all that another tally has.
    pub fn merge(&mut self, other: &Self) {
        for (kind, seen) in other.iter() {
            self.add_many(kind, seen.count, seen.first_offset);
        }
    }

    /// The same, `distance` bytes further on in the file.
    pub fn moved(mut self, distance: u64) -> Self {
        for seen in self.seen.values_mut() {
            seen.first_offset = seen.first_offset.saturating_add(distance);
        }
        self
    }

    /// How many of one kind were noted.
    pub fn count(&self, kind: K) -> u64 {
        self.seen.get(&kind).map_or(0, |seen| seen.count)
    }

    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// All kinds that were met, in the order of the kinds.
    pub fn iter(&self) -> impl Iterator<Item = (K, Seen)> + '_ {
        self.seen.iter().map(|(&kind, &seen)| (kind, seen))
    }
}
