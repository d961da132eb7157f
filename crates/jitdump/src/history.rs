//! Values by address and time.
//!
//! A [`Builder`] collects values in the order of time; each ends the values before it at its addresses. The result is a
//! set of rectangles of addresses by time that don't overlap, at most three per call whatever the ranges. A
//! [`History`] finds the rectangle of a point in two steps. The addresses where rectangles start or end divide all
//! addresses into slots. Most slots have no more than one rectangle, because most code is never replaced. Rectangles
//! that share a slot with others are also in a segment tree (`overlaps`), which finds one among n in O(log² n).

mod overlaps;

use std::ops::Range;

use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::collections::range_map::RangeMap;
use crate::history::overlaps::{NodeIndex, Overlaps};
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

impl<T> Interval<T> {
    /// Whether an address has the value at a time.
    #[doc(hidden)]
    pub fn holds(&self, address: Address, time: Time) -> bool {
        self.range.contains(address) && self.from <= time && time < self.until
    }
}

/// Returns the times at which a process has what another one has at `times`. One that was copied at such a time keeps it.
#[doc(hidden)]
pub fn as_inherited(times: Range<Time>, is_inherited: bool) -> Range<Time> {
    times.start..if is_inherited { Time::MAX } else { times.end }
}

/// Returns the times in both intervals.
#[doc(hidden)]
pub fn intersection(one: Range<Time>, other: Range<Time>) -> Range<Time> {
    one.start.max(other.start)..one.end.min(other.end)
}

/// Collects values in the order of time.
#[derive(Clone, Debug)]
pub struct Builder<T> {
    /// Current value at each address, with its start.
    pub(crate) live: RangeMap<(Time, T)>,
    pub(crate) ended: Vec<Interval<T>>,
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
        if !has_addresses(range) {
            return;
        }
        let ended = &mut self.ended;
        self.live
            .insert_with(range, (time, value), |piece, (from, value)| {
                end(ended, piece, from, time, value);
            });
    }

    /// Ends all values at `range` at `time`.
    #[doc(hidden)]
    pub fn clear(&mut self, range: AddressRange, time: Time) {
        if !has_addresses(range) {
            return;
        }
        let ended = &mut self.ended;
        self.live.remove_with(range, |piece, (from, value)| {
            end(ended, piece, from, time, value);
        });
    }

    /// Returns the current values in `range`, clipped to it.
    #[doc(hidden)]
    pub fn pieces(&self, range: AddressRange) -> impl Iterator<Item = (AddressRange, T)> + '_ {
        let pieces = self.live.overlapping(range);
        pieces.map(|(piece, (_, value))| (piece, value))
    }

    /// Returns the current value at an address.
    pub fn at(&self, address: Address) -> Option<T> {
        self.live.get(address).map(|(_, value)| value)
    }

    /// Returns the parts of `range` without a current value that `covers` accepts, the highest first.
    #[doc(hidden)]
    pub fn gaps(&self, range: AddressRange, covers: impl Fn(T) -> bool) -> Vec<AddressRange> {
        self.live.gaps(range, |(_, value)| covers(value))
    }

    /// Builds the index for lookups.
    pub fn finish(self) -> History<T> {
        let Self { live, mut ended } = self;
        for (piece, (from, value)) in live {
            end(&mut ended, piece, from, Time::MAX, value);
        }
        History::new(ended)
    }
}

/// Whether a range has addresses, as all that its constructor makes.
fn has_addresses(range: AddressRange) -> bool {
    range.start < range.end
}

/// Adds an interval that has ended.
pub(crate) fn end<T>(ended: &mut Vec<Interval<T>>, range: AddressRange, from: Time, until: Time, value: T) {
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

table_index! {
    /// Index of an interval of a history.
    IntervalIndex
}

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
    One(IntervalIndex),
    Several(NodeIndex),
}

/// Index of values by address and time.
#[derive(Clone, Debug)]
pub struct History<T> {
    /// All intervals, by start time.
    intervals: IndexedTable<IntervalIndex, Interval<T>>,
    /// Addresses where intervals start or end, sorted. All addresses between two neighbours have the same history.
    bounds: Vec<Bound>,
    /// Every [`STRIDE`]th bound: few enough to stay in the processor's caches during most of a search.
    landmarks: Vec<Address>,
    /// Intervals that share addresses with others.
    overlaps: Overlaps,
}

/// Start or end of an interval.
#[derive(Clone, Copy)]
struct Endpoint {
    address: Address,
    is_start: bool,
    interval: IntervalIndex,
}

/// Intervals at the current address, while a sweep passes all endpoints by address.
#[derive(Default)]
struct Sweep {
    /// Number of intervals.
    count: u32,
    /// Sum of their indices, modulo 2^32: of a single interval, the index itself.
    sum: u32,
    /// Intervals that share addresses with others, each at least once.
    overlapping: Vec<IntervalIndex>,
}

impl Sweep {
    /// Goes on to an endpoint. Notes intervals that share addresses.
    fn pass(&mut self, endpoint: Endpoint) {
        let IntervalIndex(index) = endpoint.interval;
        if !endpoint.is_start {
            self.count -= 1;
            self.sum = self.sum.wrapping_sub(index);
            return;
        }
        if self.count == 1 {
            self.overlapping.push(IntervalIndex(self.sum));
        }
        if self.count > 0 {
            self.overlapping.push(endpoint.interval);
        }
        self.count += 1;
        self.sum = self.sum.wrapping_add(index);
    }

    /// Content up to the next endpoint. The leaves of several intervals are found when all are known.
    fn content(&self) -> Content {
        match self.count {
            0 => Content::Nothing,
            1 => Content::One(IntervalIndex(self.sum)),
            _ => Content::Several(NodeIndex::NONE),
        }
    }
}

impl<T: Copy> History<T> {
    /// Builds the index of intervals in any order, of which no two have an address at the same time.
    pub fn new(mut intervals: Vec<Interval<T>>) -> Self {
        intervals.retain(|interval| has_addresses(interval.range));
        // No two intervals start at the same time and address.
        intervals.sort_unstable_by_key(|interval| (interval.from, interval.range.start));
        let intervals = IndexedTable::from(intervals);
        let mut sweep = Sweep::default();
        let mut bounds = bounds(&intervals, &mut sweep);
        let slots = bounds.iter_mut().filter_map(|bound| match &mut bound.content {
            Content::Several(leaf) => Some((bound.address, leaf)),
            Content::Nothing | Content::One(_) => None,
        });
        let overlaps = Overlaps::new(sweep.overlapping, |index| intervals[index].range, slots);
        Self {
            landmarks: bounds.iter().map(|bound| bound.address).step_by(STRIDE).collect(),
            intervals,
            bounds,
            overlaps,
        }
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
    #[doc(hidden)]
    pub fn code_bounds(&self) -> Option<AddressRange> {
        Some(AddressRange {
            start: self.bounds.first()?.address,
            end: self.bounds.last()?.address,
        })
    }

    /// All intervals, by start time.
    pub fn intervals(&self) -> &[Interval<T>] {
        self.intervals.rows()
    }

    /// Returns all intervals that contain `address`.
    pub fn all_at(&self, address: Address) -> impl Iterator<Item = &Interval<T>> {
        let indices = self.lists_at(address).flatten();
        indices.map(|&index| &self.intervals[index])
    }

    /// Whether `address` has a value at any time.
    #[doc(hidden)]
    pub fn is_ever_at(&self, address: Address) -> bool {
        self.all_at(address).next().is_some()
    }

    /// Returns the interval at `address` and `time`.
    pub fn at(&self, address: Address, time: Time) -> Option<&Interval<T>> {
        let interval = match self.bounds.get(self.slot_of(address)?)?.content {
            Content::Nothing => None,
            Content::One(index) => Some(&self.intervals[index]),
            Content::Several(leaf) => self.overlaps.lists_of(leaf).find_map(|list| {
                let after = list.partition_point(|&index| self.intervals[index].from <= time);
                let interval = &self.intervals[*list.get(after.checked_sub(1)?)?];
                (time < interval.until).then_some(interval)
            }),
        };
        interval.filter(|interval| interval.from <= time && time < interval.until)
    }

    /// Returns the values in `range` at `time`, clipped to it, from the lowest address up, with `None` for parts
    /// without a value. Takes one step per bound in `range`.
    #[doc(hidden)]
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
    #[doc(hidden)]
    pub fn has_later(&self, address: Address, time: Time) -> bool {
        self.lists_at(address)
            .filter_map(<[_]>::last)
            .any(|&last| self.intervals[last].from > time)
    }

    /// Returns the times around `time` at which `address` has the same value, or none.
    #[doc(hidden)]
    pub fn times_at(&self, address: Address, time: Time) -> Range<Time> {
        let mut times = Time(0)..Time::MAX;
        for list in self.lists_at(address) {
            let after = list.partition_point(|&index| self.intervals[index].from <= time);
            if let Some(&before) = after.checked_sub(1).and_then(|before| list.get(before)) {
                let Interval { from, until, .. } = self.intervals[before];
                if time < until {
                    return from..until;
                }
                times.start = times.start.max(until);
            }
            if let Some(&next) = list.get(after) {
                times.end = times.end.min(self.intervals[next].from);
            }
        }
        times
    }

    /// Returns the lists of intervals that contain `address` at any time. Those of a list don't overlap, and are in
    /// the order of time.
    fn lists_at(&self, address: Address) -> impl Iterator<Item = &[IntervalIndex]> {
        let bound = self.slot_of(address).and_then(|slot| self.bounds.get(slot));
        let (one, leaf) = match bound.map(|bound| &bound.content) {
            None | Some(Content::Nothing) => (None, None),
            Some(Content::One(index)) => (Some(std::slice::from_ref(index)), None),
            Some(&Content::Several(leaf)) => (None, Some(leaf)),
        };
        let several = leaf.into_iter().flat_map(|leaf| self.overlaps.lists_of(leaf));
        one.into_iter().chain(several)
    }
}

/// Returns the addresses where `intervals` start or end, sorted.
fn bounds<T>(intervals: &IndexedTable<IntervalIndex, Interval<T>>, sweep: &mut Sweep) -> Vec<Bound> {
    let mut endpoints = Vec::with_capacity(intervals.len().saturating_mul(2));
    for (interval, Interval { range, .. }) in intervals.enumerate() {
        endpoints.extend(
            [(range.start, true), (range.end, false)].map(|(address, is_start)| Endpoint {
                address,
                is_start,
                interval,
            }),
        );
    }
    // Intervals that end at an address don't overlap with those that start there.
    endpoints.sort_unstable_by_key(|endpoint| (endpoint.address, endpoint.is_start));
    let mut last = None;
    let bounds = endpoints.into_iter().filter_map(|endpoint| {
        let before = last.replace(endpoint.address);
        let before = before.filter(|&before| before < endpoint.address);
        let bound = before.map(|address| Bound {
            address,
            content: sweep.content(),
        });
        sweep.pass(endpoint);
        bound
    });
    let mut bounds: Vec<Bound> = bounds.collect();
    bounds.extend(last.map(|address| Bound {
        address,
        content: Content::Nothing,
    }));
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange::new(Address(start), end - start).unwrap()
    }

    #[test]
    fn ranges_without_addresses_change_nothing() {
        let [empty, inverted] = [150, 120].map(|end| AddressRange {
            start: Address(150),
            end: Address(end),
        });
        let mut builder = Builder::default();
        builder.put(range(100, 200), Time(10), 'a');
        for other in [empty, inverted] {
            builder.put(other, Time(20), 'b');
            builder.clear(other, Time(30));
        }
        let history = builder.finish();
        let only = [Interval {
            range: range(100, 200),
            from: Time(10),
            until: Time::MAX,
            value: 'a',
        }];
        assert_eq!(history.intervals(), only);
        let others = [empty, inverted].map(|range| Interval { range, ..only[0] });
        let history = History::new([&only[..], &others].concat());
        assert_eq!(history.intervals(), only);
        assert!(history.is_ever_at(Address(150)) && !history.is_ever_at(Address(200)));
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
        assert_eq!(history.code_bounds(), Some(range(90, 300)));
        assert!(
            Builder::<char>::default()
                .finish()
                .at(Address(1), Time(1))
                .is_none()
        );
    }

    #[test]
    fn only_values_that_share_addresses_are_in_the_tree() {
        let mut builder = Builder::default();
        for (time, start) in (0..).zip([700, 100, 300, 200, 500]) {
            builder.put(range(start, start + 100), Time(time), time);
        }
        let apart = builder.clone().finish();
        assert_eq!((apart.overlaps.list_entries(), apart.bounds.len()), (0, 8));
        builder.put(range(250, 320), Time(9), 9);
        let history = builder.finish();
        let values = |address| -> Vec<u64> {
            let mut values: Vec<u64> = history.all_at(Address(address)).map(|it| it.value).collect();
            values.sort_unstable();
            values
        };
        assert_eq!(
            [150, 220, 260, 310, 350, 450, 750].map(values),
            [vec![1], vec![3], vec![3, 9], vec![2, 9], vec![2], vec![], vec![0]]
        );
        // The new value, and the ended parts of two others.
        assert_eq!(history.overlaps.list_entries(), 4);
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
            let value_at = |time| history.at(address, time).map(|interval| interval.value);
            assert_eq!(value_at(Time(time)), expected, "{address} at {time}");
            let times = history.times_at(address, Time(time));
            assert!(times.contains(&Time(time)));
            let ends = [times.start, Time(times.end.0 - 1)];
            assert_eq!(ends.map(value_at), [expected; 2], "{address} at {time}");
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
