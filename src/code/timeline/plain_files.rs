//! Address spaces that have nothing but a few mapped files.

use std::ops::Range;

use crate::code::process::Map;
use crate::code::timeline::Lookup;
use crate::perf::event::Backing;
use crate::units::{Address, AddressRange, Time};

/// Maximum number of maps that are searched one by one.
const MAX: usize = 16;

/// Mapped files. They are never replaced by anything but other files.
#[derive(Debug)]
pub(super) struct PlainFiles(Box<[(AddressRange, Time)]>);

impl PlainFiles {
    /// Returns the files of an address space, if all its maps are of files, and few.
    pub(super) fn of(maps: &[Map]) -> Option<Self> {
        let are_plain = maps.len() <= MAX && maps.iter().all(|map| map.backing == Backing::File);
        are_plain.then(|| Self(maps.iter().map(|map| (map.range, map.time)).collect()))
    }

    /// Returns the content of an address at a time.
    pub(super) fn at(&self, address: Address, time: Time) -> Lookup {
        match self.since(address) {
            Some(since) if since <= time => Lookup::File,
            _ => Lookup::Unmapped,
        }
    }

    /// Returns the times around `time` at which an address has the same content.
    pub(super) fn times_at(&self, address: Address, time: Time) -> Range<Time> {
        match self.since(address) {
            Some(since) if since <= time => since..Time::MAX,
            Some(since) => Time(0)..since,
            None => Time(0)..Time::MAX,
        }
    }

    /// Time from which an address is in a file.
    fn since(&self, address: Address) -> Option<Time> {
        let here = self.0.iter().filter(|(range, _)| range.contains(address));
        here.map(|&(_, since)| since).min()
    }
}
