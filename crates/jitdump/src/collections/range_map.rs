//! Maps and sets of address ranges.

use std::collections::BTreeMap;

use crate::units::{Address, AddressRange};

/// Sorts ranges, and merges each with those before it if the end of these and its start are joined.
pub fn merged(
    mut ranges: Vec<AddressRange>,
    is_joined: impl Fn(Address, Address) -> bool,
) -> Vec<AddressRange> {
    ranges.sort_unstable();
    ranges.dedup_by(|range, before| {
        let is_joined = is_joined(before.end, range.start);
        if is_joined {
            before.end = before.end.max(range.end);
        }
        is_joined
    });
    ranges
}

/// A map from address ranges that do not overlap to values. Later values replace earlier ones.
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
    /// Inserts a value for a range, in place of those that are there.
    pub fn insert(&mut self, range: AddressRange, value: V) {
        self.insert_with(range, value, |_, _| {});
    }

    /// Inserts a value for a range. Values that are replaced are passed to `on_removed`, each with the range that
    /// it lost.
    pub fn insert_with(&mut self, range: AddressRange, value: V, on_removed: impl FnMut(AddressRange, V)) {
        self.remove_with(range, on_removed);
        self.pieces.insert(range.start, (range.end, value));
    }

    /// Returns whether the map has no values.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the value at an address.
    pub fn get(&self, address: Address) -> Option<V> {
        self.piece_at(address).map(|(_, value)| value)
    }

    /// Returns the piece that has an address, and its value.
    pub fn piece_at(&self, address: Address) -> Option<(AddressRange, V)> {
        let (&start, &(end, value)) = self.pieces.range(..=address).next_back()?;
        (address < end).then_some((AddressRange { start, end }, value))
    }

    /// Removes the values in a range.
    pub fn remove(&mut self, range: AddressRange) {
        self.remove_with(range, |_, _| {});
    }

    /// Removes the values in a range and passes them to `on_removed`, each with the range that it lost.
    pub fn remove_with(&mut self, range: AddressRange, mut on_removed: impl FnMut(AddressRange, V)) {
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

/// A set of address ranges. Those with at most `gap` bytes between them are merged, with these bytes.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    /// End of each range, keyed by its start.
    ranges: BTreeMap<Address, Address>,
    gap: u64,
}

impl RangeSet {
    /// Creates an empty set.
    pub fn with_gap(gap: u64) -> Self {
        Self {
            ranges: BTreeMap::new(),
            gap,
        }
    }

    /// Adds a range.
    pub fn insert(&mut self, mut range: AddressRange) {
        while let Some((&start, &end)) = self.last_near(range.end, self.gap)
            && end.0.saturating_add(self.gap) >= range.start.0
        {
            if start <= range.start && range.end <= end {
                return;
            }
            self.ranges.remove(&start);
            range.start = range.start.min(start);
            range.end = range.end.max(end);
        }
        self.ranges.insert(range.start, range.end);
    }

    /// Returns the range from the lowest to the highest address.
    pub fn hull(&self) -> Option<AddressRange> {
        let (&start, _) = self.ranges.first_key_value()?;
        let (_, &end) = self.ranges.last_key_value()?;
        Some(AddressRange { start, end })
    }

    /// Whether any address of a range is in the set.
    pub fn overlaps(&self, range: AddressRange) -> bool {
        let last = self.ranges.range(..range.end).next_back();
        last.is_some_and(|(_, &end)| end > range.start)
    }

    /// Whether a range of the set starts or ends at most `distance` bytes from an address, or contains it.
    pub fn is_near(&self, address: Address, distance: u64) -> bool {
        let last = self.last_near(address, distance);
        last.is_some_and(|(_, &end)| end.0.saturating_add(distance) >= address.0)
    }

    /// Returns the last range that starts at most `distance` bytes above an address.
    fn last_near(&self, address: Address, distance: u64) -> Option<(&Address, &Address)> {
        let highest = Address(address.0.saturating_add(distance));
        self.ranges.range(..=highest).next_back()
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
        map.insert_with(range(0, 100), 'a', |_, _| unreachable!());
        map.insert_with(range(40, 50), 'b', |piece, value| gone.push((piece, value)));
        map.remove_with(range(45, 60), |piece, value| gone.push((piece, value)));
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

    #[test]
    fn ranges_of_a_set_are_merged_across_small_gaps() {
        let mut set = RangeSet::with_gap(5);
        for (start, end) in [(100, 110), (130, 140), (116, 120), (102, 104)] {
            set.insert(range(start, end));
        }
        let ranges = |set: &RangeSet| set.ranges.iter().map(|(a, b)| (a.0, b.0)).collect::<Vec<_>>();
        assert_eq!(ranges(&set), [(100, 110), (116, 120), (130, 140)]);
        assert!(set.overlaps(range(90, 101)) && set.overlaps(range(139, 150)));
        assert!(!set.overlaps(range(90, 100)) && !set.overlaps(range(110, 116)));
        let near = [94, 95, 113, 125, 127, 145, 146].map(|at| set.is_near(Address(at), 5));
        assert_eq!(near, [false, true, true, true, true, true, false]);
        set.insert(range(115, 125));
        assert_eq!(ranges(&set), [(100, 140)]);
        assert_eq!(set.hull(), Some(range(100, 140)));
        assert_eq!(RangeSet::default().hull(), None);
    }
}
