//! Filters that select the entries of a dump.

use std::str::FromStr;

use jitdump::{Address, AddressRange, printable};
use memchr::memmem;

/// Conditions on an entry; an entry must meet all of them.
#[derive(Clone, Debug, Default)]
pub struct EntryFilter {
    /// Substring of the function's name.
    pub name: Option<Vec<u8>>,
    /// Address inside the code of the function.
    pub address: Option<Address>,
    /// Times, in the unit of the file.
    pub times: Option<TimeRange>,
}

/// A half-open range of times, in the unit of the file; without `to`, it has no end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeRange {
    from: u64,
    to: Option<u64>,
}

impl EntryFilter {
    /// Returns whether the filter selects all entries.
    pub fn is_empty(&self) -> bool {
        !self.selects_functions() && self.times.is_none()
    }

    /// Returns whether the filter selects functions by name or address.
    pub fn selects_functions(&self) -> bool {
        self.name.is_some() || self.address.is_some()
    }

    /// Returns whether an entry with this time meets the condition on times. An entry without a time does
    /// not.
    pub fn matches_time(&self, time: Option<u64>) -> bool {
        self.times
            .is_none_or(|times| time.is_some_and(|time| times.contains(time)))
    }

    /// Returns whether a function with this name meets the condition on names.
    pub fn matches_name(&self, name: &[u8]) -> bool {
        let part = self.name.as_deref();
        part.is_none_or(|part| memmem::find(name, part).is_some())
    }

    /// Returns whether code at any of these ranges meets the condition on addresses.
    pub fn matches_code(&self, places: impl IntoIterator<Item = AddressRange>) -> bool {
        self.address
            .is_none_or(|address| places.into_iter().any(|place| place.contains(address)))
    }
}

impl TimeRange {
    /// Returns whether a time is in the range.
    pub fn contains(self, time: u64) -> bool {
        self.from <= time && self.to.is_none_or(|to| time < to)
    }
}

impl FromStr for TimeRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = printable(text.as_bytes());
        let wrong = || format!("{text} is not FROM..TO, two numbers of which either may be left out");
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        let number = |digits: &str| match digits {
            "" => Ok(None),
            _ => digits.parse().map(Some).map_err(|_| wrong()),
        };
        let (from, to) = (number(from)?.unwrap_or_default(), number(to)?);
        if to.is_some_and(|to| to <= from) {
            Err(format!("{text} has nothing in it: TO is not later than FROM"))
        } else {
            Ok(Self { from, to })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_end_of_times_may_be_left_out() {
        let times = |text: &str| -> Result<TimeRange, String> { text.parse() };
        for (text, inside, outside) in [
            ("5..8", &[5, 7][..], &[4, 8][..]),
            ("5..", &[5, u64::MAX], &[4]),
            ("..8", &[0, 7], &[8]),
            ("..", &[0, u64::MAX], &[]),
        ] {
            let times = times(text).unwrap();
            assert!(inside.iter().all(|&time| times.contains(time)), "{text}");
            assert!(!outside.iter().any(|&time| times.contains(time)), "{text}");
        }
        for wrong in ["", "5", "a..b", "5...8", "-1..2"] {
            assert!(times(wrong).is_err(), "{wrong}");
        }
    }
}
