//! The code of a jitdump by address and time, while new code comes.

use crate::collections::range_map::RangeMap;
use crate::history::Interval;
use crate::symbolize::past::Past;
use crate::units::{Address, AddressRange, Time};

/// Maximum number of pieces of code that a late record or a move is compared with. Code is in one piece, unless a file is
/// made to take long.
const MAX_PIECES: usize = 64;

/// A function at an address from a time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Index of the function in the file.
    pub function: u32,
    /// Start of its code.
    pub start: Address,
    /// Time from which on it is there.
    pub since: Time,
}

/// Functions at addresses over time.
#[derive(Clone, Debug, Default)]
pub struct CodeOverTime {
    current: RangeMap<Placed>,
    past: Past,
    last: Time,
}

impl CodeOverTime {
    /// Puts code at `range` from its time on.
    pub fn put(&mut self, range: AddressRange, placed: Placed) {
        if placed.since < self.last {
            return self.put_late(range, placed);
        }
        self.last = placed.since;
        let past = &mut self.past;
        self.current.insert(range, placed, |piece, replaced| {
            end(past, piece, replaced, placed.since);
        });
    }

    /// Puts code whose record comes after records of later times. Threads write at the same time, and forked processes
    /// write the buffers of their parents again. Newer code stays.
    fn put_late(&mut self, range: AddressRange, placed: Placed) {
        let newer: Vec<(AddressRange, Placed)> = self
            .current
            .overlapping(range)
            .take(MAX_PIECES)
            .filter(|(_, current)| current.since > placed.since)
            .collect();
        if newer.is_empty() {
            let past = &mut self.past;
            return self.current.insert(range, placed, |piece, replaced| {
                end(past, piece, replaced, placed.since);
            });
        }
        for (piece, current) in newer {
            if self.past.at(piece.start, placed.since).is_none() {
                end(&mut self.past, piece, placed, current.since);
            }
        }
    }

    /// Takes a function away from `range`, from a time on.
    pub fn take(&mut self, range: AddressRange, function: u32, time: Time) {
        let own = self.current.overlapping(range).take(MAX_PIECES);
        let own: Vec<AddressRange> = own
            .filter(|(_, placed)| placed.function == function)
            .map(|(piece, _)| piece)
            .collect();
        for piece in own {
            let past = &mut self.past;
            self.current
                .remove(piece, |piece, placed| end(past, piece, placed, time));
        }
    }

    /// Returns what is at an address at a time.
    pub fn at(&self, address: Address, time: Time) -> Option<Placed> {
        let current = self.current.get(address);
        current
            .filter(|placed| placed.since <= time)
            .or_else(|| self.past.at(address, time))
    }

    /// Returns what is there now, from the lowest address up.
    pub fn now(&self) -> impl Iterator<Item = (AddressRange, Placed)> + '_ {
        self.current.iter()
    }
}

fn end(past: &mut Past, range: AddressRange, value: Placed, until: Time) {
    if value.since < until {
        past.add(Interval {
            range,
            from: value.since,
            until,
            value,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange::new(Address(start), end - start).unwrap()
    }

    fn placed(function: u32, start: u64, since: u64) -> Placed {
        Placed {
            function,
            start: Address(start),
            since: Time(since),
        }
    }

    fn at(code: &CodeOverTime, address: u64, time: u64) -> Option<u32> {
        code.at(Address(address), Time(time))
            .map(|placed| placed.function)
    }

    #[test]
    fn replaced_and_moved_code_is_found_at_its_time() {
        let mut code = CodeOverTime::default();
        code.put(range(100, 200), placed(1, 100, 10));
        code.put(range(150, 250), placed(2, 150, 20));
        code.take(range(150, 250), 2, Time(30));
        code.put(range(300, 400), placed(2, 300, 30));
        for (address, time, function) in [
            (150, 9, None),
            (150, 10, Some(1)),
            (150, 20, Some(2)),
            (149, 50, Some(1)),
            (150, 30, None),
            (350, 29, None),
            (350, 30, Some(2)),
        ] {
            assert_eq!(at(&code, address, time), function, "{address} {time}");
        }
    }

    #[test]
    fn late_records_do_not_replace_newer_code() {
        let mut code = CodeOverTime::default();
        code.put(range(100, 200), placed(1, 100, 10));
        code.put(range(100, 200), placed(2, 100, 20));
        code.put(range(100, 200), placed(3, 100, 5));
        code.put(range(100, 200), placed(1, 100, 10));
        code.put(range(500, 600), placed(4, 500, 15));
        for (time, function) in [(4, None), (5, Some(3)), (10, Some(1)), (20, Some(2))] {
            assert_eq!(at(&code, 100, time), function, "{time}");
        }
        assert_eq!(at(&code, 500, 15), Some(4));
    }

    #[test]
    fn a_move_takes_a_function_from_64_pieces_of_code_the_highest_first() {
        for (end, last) in [(200, 136), (201, 138)] {
            let mut code = CodeOverTime::default();
            code.put(range(0, end), placed(1, 0, 1));
            for start in (1..200).step_by(2) {
                code.put(range(start, start + 1), placed(2, start, 2));
            }
            code.take(range(0, end), 1, Time(3));
            assert_eq!(at(&code, last, 3), None, "{end}");
            assert_eq!(at(&code, last - 2, 3), Some(1), "{end}");
        }
    }

    /// The index over time, with many replaced functions, against a list of what was put.
    #[test]
    fn any_point_in_time_is_found_again() {
        let mut code = CodeOverTime::default();
        let mut put = Vec::new();
        let mut state = 7u64;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        for time in 0..3000 {
            let start = random(1000);
            let range = range(start, start + 1 + random(50));
            code.put(range, placed(time, start, time.into()));
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
