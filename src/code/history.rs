//! Values by address and time.
//!
//! A [`Builder`] collects values in the order of time; each ends what was at its addresses before. The result is a
//! set of rectangles of addresses by time that don't overlap, at most three per call whatever the ranges. A
//! [`History`] finds the rectangle of a point among n in O(log² n): a segment tree over the addresses where
//! rectangles start or end, each node with the rectangles that span it, in the order of time. If functions don't
//! overlap, as most don't, only the leaves have rectangles, and empty nodes are skipped.

use crate::range_map::RangeMap;
use crate::units::{Address, AddressRange, Time};

/// A value at a range of addresses during an interval of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval<T> {
    /// Addresses that have the value.
    pub range: AddressRange,
    /// Start of the interval, inclusive.
    pub from: Time,
    /// End of the interval, exclusive; [`Time::MAX`] if nothing replaced the value.
    pub until: Time,
    /// Value during the interval.
    pub value: T,
}

/// Collects values in the order of time.
#[derive(Clone, Debug)]
pub struct Builder<T> {
    /// Current value at each address, with its start.
    live: RangeMap<(Time, T)>,
    ended: Vec<Interval<T>>,
}

impl<T: Copy> Default for Builder<T> {
    fn default() -> Self {
        Self {
            live: RangeMap::default(),
            ended: Vec::new(),
        }
    }
}

impl<T: Copy> Builder<T> {
    /// Sets the value at `range` from `time` on.
    pub fn put(&mut self, range: AddressRange, time: Time, value: T) {
        let ended = &mut self.ended;
        self.live.insert(range, (time, value), |piece, (from, value)| {
            end(ended, piece, from, time, value);
        });
    }

    /// Ends all values at `range`.
    pub fn clear(&mut self, range: AddressRange, time: Time) {
        let ended = &mut self.ended;
        self.live.remove(range, |piece, (from, value)| {
            end(ended, piece, from, time, value);
        });
    }

    /// Returns the current values in `range`, clipped to it.
    pub fn pieces(&self, range: AddressRange) -> impl Iterator<Item = (AddressRange, T)> + '_ {
        let pieces = self.live.overlapping(range);
        pieces.map(|(piece, (_, value))| (piece, value))
    }

    /// Returns the current value at an address.
    pub fn at(&self, address: Address) -> Option<T> {
        self.live.get(address).map(|(_, value)| value)
    }

    /// Returns the parts of `range` without a current value that `covers` accepts, the highest first.
    pub fn gaps(&self, range: AddressRange, covers: impl Fn(T) -> bool) -> Vec<AddressRange> {
        self.live.gaps(range, |(_, value)| covers(value))
    }

    /// Builds the index for lookups.
    pub fn finish(mut self) -> History<T> {
        for (piece, (from, value)) in self.live.iter() {
            end(&mut self.ended, piece, from, Time::MAX, value);
        }
        History::new(self.ended)
    }
}

fn end<T>(ended: &mut Vec<Interval<T>>, range: AddressRange, from: Time, until: Time, value: T) {
    // A value replaced at its own start time is never visible.
    if from < until {
        ended.push(Interval {
            range,
            from,
            until,
            value,
        });
    }
}

/// Number of bounds per landmark.
const STRIDE: usize = 32;

/// An address where an interval starts or ends.
#[derive(Clone, Copy, Debug)]
struct Bound {
    address: Address,
    /// Content from this address up to the next bound.
    content: Content,
}

/// Content of a range of addresses over all time.
#[derive(Clone, Copy, Debug)]
enum Content {
    Nothing,
    /// One interval. If functions don't replace each other, there are never more, and lookups don't need the tree.
    One(u32),
    /// Several intervals, found through the tree.
    Several,
}

/// Index of values by address and time.
#[derive(Clone, Debug)]
pub struct History<T> {
    /// All intervals, by start time.
    intervals: Vec<Interval<T>>,
    /// Addresses where intervals start or end, sorted. All addresses between two neighbours have the same history.
    bounds: Vec<Bound>,
    /// Every [`STRIDE`]th bound: few enough to stay in the processor's caches during most of a search.
    landmarks: Vec<Address>,
    /// Start of the list of each node of the segment tree in `lists`; it ends where the next one starts. The leaf of
    /// the addresses from `bounds[i]` on is node `bounds.len() + i`, and the parent of node n is n / 2.
    starts: Vec<u32>,
    /// Indices of intervals.
    lists: Vec<u32>,
    /// Nearest ancestor of each node with a list that is not empty; 0 without one.
    above: Vec<u32>,
}

impl<T: Copy> History<T> {
    fn new(mut intervals: Vec<Interval<T>>) -> Self {
        intervals.sort_by_key(|interval| (interval.from, interval.range.start));
        let ranges = intervals.iter().map(|interval| interval.range);
        let mut bounds: Vec<Address> = ranges.flat_map(|range| [range.start, range.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut history = Self {
            starts: vec![0; bounds.len() * 2 + 1],
            lists: Vec::new(),
            above: vec![0; bounds.len() * 2],
            landmarks: bounds.iter().copied().step_by(STRIDE).collect(),
            intervals,
            bounds: bounds.into_iter().map(Bound::new).collect(),
        };
        history.fill_lists();
        history.link_nodes();
        history.note_contents();
        history
    }

    fn link_nodes(&mut self) {
        for node in 2..self.above.len() {
            let parent = node / 2;
            let link = match self.list(parent) {
                Some(_) => u32::try_from(parent).unwrap_or(0),
                None => self.above.get(parent).copied().unwrap_or(0),
            };
            if let Some(above) = self.above.get_mut(node) {
                *above = link;
            }
        }
    }

    fn note_contents(&mut self) {
        let contents: Vec<Content> = (0..self.bounds.len())
            .map(|slot| {
                let mut lists = self.nodes_of(slot);
                match (lists.next().map(|intervals| intervals.list), lists.next()) {
                    (None, _) => Content::Nothing,
                    (Some(&[one]), None) => Content::One(one),
                    _ => Content::Several,
                }
            })
            .collect();
        for (bound, content) in self.bounds.iter_mut().zip(contents) {
            bound.content = content;
        }
    }

    /// Returns the list of a node, unless it is empty.
    fn list(&self, node: usize) -> Option<&[u32]> {
        let start = *self.starts.get(node)? as usize;
        let end = *self.starts.get(node + 1)? as usize;
        self.lists.get(start..end).filter(|list| !list.is_empty())
    }

    fn fill_lists(&mut self) {
        let mut counts = vec![0u32; self.bounds.len() * 2 + 1];
        self.for_each_node(|node, _| {
            if let Some(count) = counts.get_mut(node) {
                *count += 1;
            }
        });
        let mut total = 0;
        for (start, count) in self.starts.iter_mut().zip(&counts) {
            *start = total;
            total += count;
        }
        let mut next = self.starts.clone();
        let mut lists = vec![0; total as usize];
        self.for_each_node(|node, interval| {
            if let Some(at) = next.get_mut(node)
                && let Some(place) = lists.get_mut(*at as usize)
            {
                *place = interval;
                *at += 1;
            }
        });
        self.lists = lists;
    }

    /// Calls `visit` with the nodes of each interval, the largest ones that it covers, and the index of the interval.
    fn for_each_node(&self, mut visit: impl FnMut(usize, u32)) {
        for (index, interval) in (0u32..).zip(&self.intervals) {
            let mut low = self.slot(interval.range.start) + self.bounds.len();
            let mut high = self.slot(interval.range.end) + self.bounds.len();
            while low < high {
                if low % 2 == 1 {
                    visit(low, index);
                    low += 1;
                }
                if high % 2 == 1 {
                    high -= 1;
                    visit(high, index);
                }
                low /= 2;
                high /= 2;
            }
        }
    }

    /// Returns the index of the first bound at or above `address`.
    fn slot(&self, address: Address) -> usize {
        self.bounds.partition_point(|bound| bound.address < address)
    }

    /// Returns the index of the last bound at or below `address`.
    fn slot_of(&self, address: Address) -> Option<usize> {
        let landmark = self.landmarks.partition_point(|&bound| bound <= address);
        let start = landmark.checked_sub(1)? * STRIDE;
        let near = self.bounds.get(start..)?;
        let near = near.get(..STRIDE).unwrap_or(near);
        let behind = start + near.partition_point(|bound| bound.address <= address);
        behind.checked_sub(1)
    }

    /// Returns the range from the lowest to the highest address that ever had a value.
    pub fn code_bounds(&self) -> Option<AddressRange> {
        Some(AddressRange {
            start: self.bounds.first()?.address,
            end: self.bounds.last()?.address,
        })
    }

    /// Whether an interval starts or ends within `distance` bytes of `address`.
    pub fn is_near(&self, address: Address, distance: u64) -> bool {
        let after = self.bounds.partition_point(|bound| bound.address <= address);
        let neighbours = [after.checked_sub(1), Some(after)].into_iter().flatten();
        let mut bounds = neighbours.filter_map(|slot| self.bounds.get(slot));
        bounds.any(|bound| bound.address.0.abs_diff(address.0) <= distance)
    }

    /// All intervals, by start time.
    pub fn intervals(&self) -> &[Interval<T>] {
        &self.intervals
    }

    /// Returns all intervals that contain `address`.
    pub fn all_at(&self, address: Address) -> impl Iterator<Item = &Interval<T>> {
        let lists = self.lists_at(address);
        lists.flat_map(|list| {
            let intervals = list.list.iter();
            intervals.filter_map(move |&index| list.history.intervals.get(index as usize))
        })
    }

    /// Returns the interval at `address` and `time`.
    pub fn at(&self, address: Address, time: Time) -> Option<&Interval<T>> {
        let slot = self.slot_of(address)?;
        match self.bounds.get(slot)?.content {
            Content::Nothing => None,
            Content::One(index) => {
                let interval = self.intervals.get(index as usize)?;
                (interval.from <= time && time < interval.until).then_some(interval)
            }
            Content::Several => self.nodes_of(slot).find_map(|list| {
                let after = list.partition_point(|interval| interval.from <= time);
                let interval = list.get(after.checked_sub(1)?)?;
                (time < interval.until).then_some(interval)
            }),
        }
    }

    /// Returns the values in `range` at `time`, clipped to it, from the lowest address up, with `None` for parts
    /// without a value. Takes one step per bound in `range`.
    pub fn pieces_at(
        &self,
        range: AddressRange,
        time: Time,
    ) -> impl Iterator<Item = (AddressRange, Option<T>)> {
        let first = self.bounds.partition_point(|bound| bound.address <= range.start);
        let inside = self.bounds.get(first..).unwrap_or_default().iter();
        let inside = inside
            .map(|bound| bound.address)
            .take_while(move |&address| address < range.end);
        let starts = std::iter::once(range.start).chain(inside.clone());
        let ends = inside.chain(std::iter::once(range.end));
        starts.zip(ends).map(move |(start, end)| {
            let value = self.at(start, time).map(|interval| interval.value);
            (AddressRange { start, end }, value)
        })
    }

    /// Whether an interval at `address` starts after `time`.
    pub fn has_later(&self, address: Address, time: Time) -> bool {
        self.lists_at(address)
            .any(|list| list.last().is_some_and(|interval| interval.from > time))
    }

    /// Returns the lists of intervals that contain `address` at any time.
    fn lists_at(&self, address: Address) -> impl Iterator<Item = Intervals<'_, T>> {
        let slot = self.slot_of(address);
        slot.into_iter().flat_map(|slot| self.nodes_of(slot))
    }

    /// Returns the lists of intervals that contain the addresses from a bound up to the next one.
    fn nodes_of(&self, slot: usize) -> impl Iterator<Item = Intervals<'_, T>> {
        let leaf = slot + self.bounds.len();
        std::iter::successors(Some(leaf), |&node| Some(*self.above.get(node)? as usize))
            .take_while(|&node| node > 0)
            .filter_map(|node| {
                Some(Intervals {
                    history: self,
                    list: self.list(node)?,
                })
            })
    }
}

impl Bound {
    fn new(address: Address) -> Self {
        Self {
            address,
            content: Content::Nothing,
        }
    }
}

/// List of one node: intervals that don't overlap in time, in the order of time.
struct Intervals<'a, T> {
    history: &'a History<T>,
    list: &'a [u32],
}

impl<'a, T> Intervals<'a, T> {
    fn get(&self, at: usize) -> Option<&'a Interval<T>> {
        self.history.intervals.get(*self.list.get(at)? as usize)
    }

    fn last(&self) -> Option<&'a Interval<T>> {
        self.get(self.list.len().checked_sub(1)?)
    }

    /// Returns the number of leading intervals for which `is_before` is true.
    fn partition_point(&self, is_before: impl Fn(&Interval<T>) -> bool) -> usize {
        self.list.partition_point(|&index| {
            let interval = self.history.intervals.get(index as usize);
            interval.is_some_and(&is_before)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange::new(Address(start), end - start).unwrap()
    }

    #[test]
    fn newer_values_take_the_place_of_older_ones_from_their_time_on() {
        let mut builder = Builder::default();
        builder.put(range(100, 200), Time(10), 'a');
        builder.put(range(150, 160), Time(20), 'b');
        builder.clear(range(100, 110), Time(30));
        builder.put(range(90, 300), Time(40), 'c');
        let history = builder.finish();
        let at = |address, time| history.at(Address(address), Time(time)).map(|e| e.value);
        assert_eq!(at(155, 9), None);
        assert_eq!(at(155, 10), Some('a'));
        assert_eq!(at(155, 20), Some('b'));
        assert_eq!(at(149, 25), Some('a'));
        assert_eq!(at(160, 25), Some('a'));
        assert_eq!(at(105, 29), Some('a'));
        assert_eq!(at(105, 30), None);
        assert_eq!(at(105, 40), Some('c'));
        assert_eq!(at(299, u64::MAX), None);
        assert_eq!(at(299, u64::MAX - 1), Some('c'));
        assert_eq!(at(300, 50), None);
        assert_eq!(at(89, 50), None);
        assert!(history.has_later(Address(299), Time(39)));
        assert!(!history.has_later(Address(299), Time(40)));
        assert!(history.is_near(Address(80), 10));
        assert!(!history.is_near(Address(79), 10));
        assert!(history.is_near(Address(310), 10));
        assert!(!history.is_near(Address(311), 10));
        assert_eq!(history.code_bounds(), Some(range(90, 300)));
        assert!(
            Builder::<char>::default()
                .finish()
                .at(Address(1), Time(1))
                .is_none()
        );
    }

    /// Compares with a linear search for the last value set and not cleared since.
    #[test]
    fn agrees_with_a_search_through_everything() {
        let mut state = 1u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut builder = Builder::default();
        let mut all = Vec::new();
        for time in 0..2000u64 {
            let start = random(1000);
            let put = range(start, start + 1 + random(60));
            if random(5) == 0 {
                builder.clear(put, Time(time));
                all.push((put, time, None));
            } else {
                builder.put(put, Time(time), time);
                all.push((put, time, Some(time)));
            }
        }
        let history = builder.finish();
        for _ in 0..20_000 {
            let (address, time) = (Address(random(1100)), random(2100));
            let newest = all
                .iter()
                .rev()
                .find(|(put, from, _)| *from <= time && put.contains(address));
            let expected = newest.and_then(|(_, _, value)| *value);
            let found = history.at(address, Time(time)).map(|interval| interval.value);
            assert_eq!(found, expected, "{address} at {time}");
            let later = all
                .iter()
                .any(|(put, from, value)| *from > time && value.is_some() && put.contains(address));
            assert_eq!(history.has_later(address, Time(time)), later);
            let ever = all
                .iter()
                .filter(|(put, _, value)| value.is_some() && put.contains(address));
            let mut ever: Vec<u64> = ever.map(|&(_, from, _)| from).collect();
            ever.reverse();
            let mut listed: Vec<u64> = history.all_at(address).map(|interval| interval.value).collect();
            listed.sort_unstable_by_key(|&value| std::cmp::Reverse(value));
            // A value is split where a later one covers a part of it, and each address is in at most one of the
            // parts.
            assert_eq!(listed, ever, "{address}");
        }
        for _ in 0..200 {
            let (start, time) = (random(1000), random(2100));
            let asked = range(start, start + 1 + random(60));
            let mut end = asked.start;
            for (piece, value) in history.pieces_at(asked, Time(time)) {
                assert_eq!(piece.start, end);
                end = piece.end;
                for address in piece.start.0..piece.end.0 {
                    let found = history.at(Address(address), Time(time));
                    assert_eq!(found.map(|interval| interval.value), value);
                }
            }
            assert_eq!(end, asked.end);
        }
    }
}
