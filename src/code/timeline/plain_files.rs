//! Address spaces that have nothing but a few mapped files.

use std::ops::Range;

use jitdump::{Address, AddressRange, Time};

use crate::code::process::Map;
use crate::code::timeline::Lookup;

/// Maximum number of maps that are searched one by one.
const MAX: usize = 16;

/// Mapped files. They are never replaced by anything but other files.
#[derive(Debug)]
pub(super) struct PlainFiles(Box<[(AddressRange, Time)]>);

impl PlainFiles {
    /// Returns the files of an address space, if all its maps are of files, and few.
    pub(super) fn of(maps: &[Map]) -> Option<Self> {
        let are_plain = maps.len() <= MAX && maps.iter().all(|map| map.backing.is_file());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::process_records::Backing;

    #[test]
    fn files_are_there_from_their_first_map_on() {
        let map = |time, start, backing| {
            Map::private(time, AddressRange::new(Address(start), 0x100).unwrap(), backing)
        };
        let maps = [
            map(10, 0x1000, Backing::File),
            map(20, 0x1080, Backing::File),
            map(30, 0x1000, Backing::File),
        ];
        let files = PlainFiles::of(&maps).unwrap();
        for (address, time, expected) in [
            (0x1000, 9, Lookup::Unmapped),
            (0x1000, 10, Lookup::File),
            (0x10ff, 10, Lookup::File),
            (0x1100, 19, Lookup::Unmapped),
            (0x117f, 20, Lookup::File),
            (0x1180, 99, Lookup::Unmapped),
        ] {
            let (address, time) = (Address(address), Time(time));
            assert_eq!(files.at(address, time), expected, "{address} {time}");
            let times = files.times_at(address, time);
            assert!(times.contains(&time));
            for end in [times.start, Time(times.end.0 - 1)] {
                assert_eq!(files.at(address, end), expected, "{address} {end}");
            }
        }
        assert!(PlainFiles::of(&[map(1, 0x1000, Backing::Anonymous)]).is_none());
        assert!(PlainFiles::of(&[maps[0]; 16]).is_some());
        assert!(PlainFiles::of(&[maps[0]; 17]).is_none());
    }
}
