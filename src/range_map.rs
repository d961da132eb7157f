//! Values at ranges of addresses, of which the one put last holds.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;

use crate::units::{Address, AddressRange};

/// Values at ranges that don't overlap.
#[derive(Clone, Debug)]
pub struct RangeMap<V> {
    /// The end and the value of each range, by its start.
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
    /// Puts a value at a range, in the place of all that is there; what goes is handed to `gone`.
    pub fn insert(&mut self, range: AddressRange, value: V, gone: impl FnMut(AddressRange, V)) {
        self.remove(range, gone);
        self.pieces.insert(range.start, (range.end, value));
    }

    /// Whether there is no value anywhere.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The value at an address.
    pub fn get(&self, address: Address) -> Option<V> {
        let (_, &(end, value)) = self.pieces.range(..=address).next_back()?;
        (address < end).then_some(value)
    }

    /// Empties a range; what goes is handed to `gone`.
    pub fn remove(&mut self, range: AddressRange, mut gone: impl FnMut(AddressRange, V)) {
        while let Some((piece, value)) = self.last_overlapping(range) {
            self.pieces.remove(&piece.start);
            if piece.end > range.end {
                self.pieces.insert(range.end, (piece.end, value));
            }
            if piece.start < range.start {
                self.pieces.insert(piece.start, (range.start, value));
            }
            if let Some(removed) = piece.intersection(range) {
                gone(removed, value);
            }
        }
    }

    fn last_overlapping(&self, range: AddressRange) -> Option<(AddressRange, V)> {
        let (&start, &(end, value)) = self.pieces.range(..range.end).next_back()?;
        (end > range.start).then_some((AddressRange { start, end }, value))
    }

    /// The pieces that overlap a range, clipped to it, from the highest down.
    pub fn overlapping(&self, range: AddressRange) -> impl Iterator<Item = (AddressRange, V)> + '_ {
        self.pieces
            .range(..range.end)
            .rev()
            .map(|(&start, &(end, value))| (AddressRange { start, end }, value))
            .take_while(move |(piece, _)| piece.end > range.start)
            .filter_map(move |(piece, value)| Some((piece.intersection(range)?, value)))
    }

    /// The parts of a range that no piece for which `covers` holds lies over, from the highest down.
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

    /// How many pieces there are.
    pub fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// All pieces, from the lowest up.
    pub fn iter(&self) -> impl Iterator<Item = (AddressRange, V)> + '_ {
        self.pieces
            .iter()
            .map(|(&start, &(end, value))| (AddressRange { start, end }, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange::new(Address(start), end - start).unwrap()
    }

    #[test]
    fn what_is_put_last_holds_and_what_goes_is_told() {
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
