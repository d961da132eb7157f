//! A history that grows while it is used.

use crate::history::{Builder, History, end};
use crate::units::{Address, AddressRange, Time};

/// Maximum number of pieces of code that a record is compared with. Code is in one piece, unless a file is
/// made to take long.
const MAX_PIECES: usize = 64;

/// Maximum number of intervals that are searched one by one.
const MAX_UNSORTED: usize = 64;

/// Values by address and time, while new ones come.
///
/// Intervals that have ended are in several histories. A new one takes in all that are not larger, so each interval is indexed
/// again a logarithmic number of times, and there are as few histories.
#[derive(Clone, Debug)]
pub struct GrowingHistory<T> {
    /// What is there now, and intervals that have ended and are not indexed yet.
    recent: Builder<T>,
    /// From the largest to the smallest.
    indexed: Vec<History<T>>,
}

impl<T: Copy> Default for GrowingHistory<T> {
    fn default() -> Self {
        Self {
            recent: Builder::default(),
            indexed: Vec::new(),
        }
    }
}

impl<T: Copy> GrowingHistory<T> {
    /// Sets the value at `range` from `time` on. Newer values stay: threads write at the same time, and forked processes write
    /// the buffers of their parents again.
    pub fn put(&mut self, range: AddressRange, time: Time, value: T) {
        let newer: Vec<_> = self
            .recent
            .live
            .overlapping(range)
            .take(MAX_PIECES)
            .filter(|&(_, (since, _))| since > time)
            .collect();
        let mut end_of_rest = range.end;
        for (piece, (since, _)) in newer {
            self.put_between(piece.end, end_of_rest, time, value);
            end_of_rest = piece.start;
            if self.ended_at(piece.start, time).is_none() {
                end(&mut self.recent.ended, piece, time, since, value);
            }
        }
        self.put_between(range.start, end_of_rest, time, value);
        self.index_ended();
    }

    /// Puts a value at the addresses from `start` to `end`, if there are any.
    fn put_between(&mut self, start: Address, end: Address, time: Time, value: T) {
        if start < end {
            self.recent.put(AddressRange { start, end }, time, value);
        }
    }

    /// Ends the values at `range` that `is_it` accepts.
    pub fn clear(&mut self, range: AddressRange, time: Time, is_it: impl Fn(T) -> bool) {
        let own: Vec<AddressRange> = self
            .recent
            .pieces(range)
            .take(MAX_PIECES)
            .filter(|&(_, value)| is_it(value))
            .map(|(piece, _)| piece)
            .collect();
        for piece in own {
            self.recent.clear(piece, time);
        }
        self.index_ended();
    }

    /// Returns the value at an address at a time, and since when it is there.
    pub fn at(&self, address: Address, time: Time) -> Option<(Time, T)> {
        let current = self.recent.live.get(address);
        current
            .filter(|&(since, _)| since <= time)
            .or_else(|| self.ended_at(address, time))
    }

    /// Returns what is there now and since when, from the lowest address up.
    pub fn now(&self) -> impl Iterator<Item = (AddressRange, (Time, T))> + '_ {
        self.recent.live.iter()
    }

    /// Returns the newest value at an address at a time among those that have ended.
    fn ended_at(&self, address: Address, time: Time) -> Option<(Time, T)> {
        let ended = self.recent.ended.iter();
        let unsorted = ended.filter(|interval| interval.holds(address, time));
        let indexed = self
            .indexed
            .iter()
            .filter_map(|history| history.at(address, time));
        let newest = unsorted.chain(indexed).max_by_key(|interval| interval.from);
        newest.map(|interval| (interval.from, interval.value))
    }

    /// Indexes the intervals that have ended, once there are many, with all histories that are not larger.
    fn index_ended(&mut self) {
        if self.recent.ended.len() < MAX_UNSORTED {
            return;
        }
        let mut intervals = std::mem::take(&mut self.recent.ended);
        while let Some(last) = self
            .indexed
            .pop_if(|last| last.intervals().len() <= intervals.len())
        {
            intervals.extend_from_slice(last.intervals());
        }
        self.indexed.push(History::new(intervals));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange::new(Address(start), end - start).unwrap()
    }

    fn at(code: &GrowingHistory<u32>, address: u64, time: u64) -> Option<u32> {
        code.at(Address(address), Time(time))
            .map(|(_, function)| function)
    }

    /// Checks what is at addresses at times.
    fn check(code: &GrowingHistory<u32>, expected: &[(u64, u64, Option<u32>)]) {
        for &(address, time, function) in expected {
            assert_eq!(at(code, address, time), function, "{address} {time}");
        }
    }

    #[test]
    fn replaced_and_moved_code_is_found_at_its_time() {
        let mut code = GrowingHistory::default();
        code.put(range(100, 200), Time(10), 1);
        code.put(range(150, 250), Time(20), 2);
        code.clear(range(150, 250), Time(30), |function| function == 2);
        code.put(range(300, 400), Time(30), 2);
        check(
            &code,
            &[
                (150, 9, None),
                (150, 10, Some(1)),
                (150, 20, Some(2)),
                (149, 50, Some(1)),
                (150, 30, None),
                (350, 29, None),
                (350, 30, Some(2)),
            ],
        );
    }

    #[test]
    fn late_records_do_not_replace_newer_code() {
        let mut code = GrowingHistory::default();
        code.put(range(100, 200), Time(10), 1);
        code.put(range(100, 200), Time(20), 2);
        code.put(range(100, 200), Time(5), 3);
        code.put(range(100, 200), Time(10), 1);
        code.put(range(500, 600), Time(15), 4);
        for (time, function) in [(4, None), (5, Some(3)), (10, Some(1)), (20, Some(2))] {
            assert_eq!(at(&code, 100, time), function, "{time}");
        }
        assert_eq!(at(&code, 500, 15), Some(4));
    }

    #[test]
    fn late_records_have_their_addresses_around_newer_code() {
        let mut code = GrowingHistory::default();
        code.put(range(120, 130), Time(20), 2);
        code.put(range(150, 250), Time(20), 3);
        code.put(range(100, 200), Time(10), 1);
        check(
            &code,
            &[
                (99, 30, None),
                (100, 30, Some(1)),
                (119, 10, Some(1)),
                (120, 20, Some(2)),
                (120, 19, Some(1)),
                (130, 30, Some(1)),
                (149, 30, Some(1)),
                (150, 30, Some(3)),
                (150, 10, Some(1)),
                (200, 10, None),
            ],
        );
    }

    #[test]
    fn a_move_takes_a_function_from_64_pieces_of_code_the_highest_first() {
        for (end, last) in [(200, 136), (201, 138)] {
            let mut code = GrowingHistory::default();
            code.put(range(0, end), Time(1), 1);
            for start in (1..200).step_by(2) {
                code.put(range(start, start + 1), Time(2), 2);
            }
            code.clear(range(0, end), Time(3), |function| function == 1);
            assert_eq!(at(&code, last, 3), None, "{end}");
            assert_eq!(at(&code, last - 2, 3), Some(1), "{end}");
        }
    }

    #[test]
    fn the_64th_interval_that_has_ended_is_indexed_with_those_before() {
        let mut code = GrowingHistory::default();
        for time in 0..64 {
            code.put(range(100, 200), Time(time), time);
        }
        assert_eq!((code.recent.ended.len(), code.indexed.len()), (63, 0));
        code.put(range(100, 200), Time(64), 64);
        assert_eq!((code.recent.ended.len(), code.indexed.len()), (0, 1));
        assert_eq!(code.indexed[0].intervals().len(), 64);
    }

    /// The index over time, with many replaced functions, against a list of what was put.
    #[test]
    fn any_point_in_time_is_found_again() {
        let mut code = GrowingHistory::default();
        let mut put = Vec::new();
        let mut state = 7u64;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        for time in 0..3000 {
            let start = random(1000);
            let range = range(start, start + 1 + random(50));
            code.put(range, Time(time.into()), time);
            put.push((range, time));
        }
        for _ in 0..3000 {
            let (address, time) = (random(1050), random(3100));
            let mut held = put
                .iter()
                .filter(|(range, since)| range.contains(Address(address)) && u64::from(*since) <= time);
            let expected = held.next_back().map(|&(_, function)| function);
            assert_eq!(at(&code, address, time), expected, "{address} {time}");
        }
    }
}
