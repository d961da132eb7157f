//! A map from address ranges to values, in which later values replace earlier ones.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;

use crate::units::{Address, AddressRange};

/// A map from address ranges that do not overlap to values.
#[derive(Clone, Debug)]
pub struct RangeMap<V> {
    /// End and value of each range, keyed by its start.
    pieces: BTreeMap<Address, (Address, V)>,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        Self {
            pieces: BTreeMap::new(),
        }
    }
}

impl<V: Copy> RangeMap<V> {
    /// Inserts a value for a range. Values that are replaced are passed to `on_removed`, each with the range that
    /// it lost.
    pub fn insert(&mut self, range: AddressRange, value: V, on_removed: impl FnMut(AddressRange, V)) {
        self.remove(range, on_removed);
        self.pieces.insert(range.start, (range.end, value));
    }

    /// Returns whether the map has no values.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the value at an address.
    pub fn get(&self, address: Address) -> Option<V> {
        let (_, &(end, value)) = self.pieces.range(..=address).next_back()?;
        (address < end).then_some(value)
    }

    /// Removes the values in a range and passes them to `on_removed`, each with the range that it lost.
    pub fn remove(&mut self, range: AddressRange, mut on_removed: impl FnMut(AddressRange, V)) {
        while let Some((&start, &(end, value))) = self.pieces.range(..range.end).next_back()
            && end > range.start
        {
            let piece = AddressRange { start, end };
            self.pieces.remove(&piece.start);
            if piece.end > range.end {
                self.pieces.insert(range.end, (piece.end, value));
            }
            if piece.start < range.start {
                self.pieces.insert(piece.start, (range.start, value));
            }
            if let Some(removed) = piece.intersection(range) {
                on_removed(removed, value);
            }
        }
    }

    /// Iterates over the pieces that overlap a range, clipped to it, from the highest address down.
    pub fn overlapping(&self, range: AddressRange) -> impl Iterator<Item = (AddressRange, V)> + '_ {
        self.pieces
            .range(..range.end)
            .rev()
            .map(|(&start, &(end, value))| (AddressRange { start, end }, value))
            .take_while(move |(piece, _)| piece.end > range.start)
            .filter_map(move |(piece, value)| Some((piece.intersection(range)?, value)))
    }

    /// Returns the parts of a range without a value that `covers` accepts, from the highest address down.
    pub fn gaps(&self, range: AddressRange, covers: impl Fn(V) -> bool) -> Vec<AddressRange> {
        let mut gaps = Vec::new();
        let mut end = range.end;
        for (piece, value) in self.overlapping(range) {
            if !covers(value) {
                continue;
            }
            if piece.end < end {
                gaps.push(AddressRange {
                    start: piece.end,
                    end,
                });
            }
            end = piece.start;
        }
        if range.start < end {
            gaps.push(AddressRange {
                start: range.start,
                end,
            });
        }
        gaps
    }

    /// Returns the number of pieces.
    pub fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// Iterates over all pieces, from the lowest address up.
    pub fn iter(&self) -> impl Iterator<Item = (AddressRange, V)> + '_ {
        self.pieces
            .iter()
            .map(|(&start, &(end, value))| (AddressRange { start, end }, value))
    }
}

impl<V> IntoIterator for RangeMap<V> {
    type Item = (AddressRange, V);
    type IntoIter = std::iter::Map<
        std::collections::btree_map::IntoIter<Address, (Address, V)>,
        fn((Address, (Address, V))) -> (AddressRange, V),
    >;

    /// Iterates over all pieces, from the lowest address up, and frees their memory on the way.
    fn into_iter(self) -> Self::IntoIter {
        let pieces = self.pieces.into_iter();
        pieces.map(|(start, (end, value))| (AddressRange { start, end }, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange::new(Address(start), end - start).unwrap()
    }

    #[test]
    fn later_values_win_and_removed_ones_are_reported() {
        let mut map = RangeMap::default();
        let mut gone = Vec::new();
        map.insert(range(0, 100), 'a', |_, _| unreachable!());
        map.insert(range(40, 50), 'b', |piece, value| gone.push((piece, value)));
        map.remove(range(45, 60), |piece, value| gone.push((piece, value)));
        assert_eq!(
            map.iter().collect::<Vec<_>>(),
            [(range(0, 40), 'a'), (range(40, 45), 'b'), (range(60, 100), 'a')]
        );
        assert_eq!(
            gone,
            [(range(40, 50), 'a'), (range(50, 60), 'a'), (range(45, 50), 'b')]
        );
        assert_eq!(
            map.gaps(range(30, 120), |_| true),
            [range(100, 120), range(45, 60)]
        );
        assert_eq!(
            map.gaps(range(30, 70), |value| value == 'b'),
            [range(45, 70), range(30, 40)]
        );
        assert_eq!(map.overlapping(range(44, 61)).count(), 2);
    }
}
