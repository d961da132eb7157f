//! Code that was replaced or moved away, by address and time.

use crate::history::{History, Interval};
use crate::symbolize::code_over_time::Placed;
use crate::units::{Address, Time};

/// Maximum number of intervals that are searched one by one.
const MAX_UNSORTED: usize = 64;

/// Intervals that have ended.
///
/// Indexed intervals are in several histories. A new one takes in all that are not larger, so each interval is indexed
/// again a logarithmic number of times, and there are as few histories.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// From the largest to the smallest.
    indexed: Vec<History<Placed>>,
    unsorted: Vec<Interval<Placed>>,
}

impl Past {
    /// Adds an interval.
    pub fn add(&mut self, interval: Interval<Placed>) {
        self.unsorted.push(interval);
        if self.unsorted.len() < MAX_UNSORTED {
            return;
        }
        let mut intervals = std::mem::take(&mut self.unsorted);
        while let Some(last) = self
            .indexed
            .pop_if(|last| last.intervals().len() <= intervals.len())
        {
            intervals.extend_from_slice(last.intervals());
        }
        self.indexed.push(History::new(intervals));
    }

    /// Returns the newest code at an address at a time.
    pub fn at(&self, address: Address, time: Time) -> Option<Placed> {
        let holds = |interval: &&Interval<Placed>| {
            interval.range.contains(address) && interval.from <= time && time < interval.until
        };
        let unsorted = self.unsorted.iter().filter(holds);
        let indexed = self
            .indexed
            .iter()
            .filter_map(|history| history.at(address, time));
        let newest = unsorted.chain(indexed).max_by_key(|interval| interval.from);
        newest.map(|interval| interval.value)
    }
}
