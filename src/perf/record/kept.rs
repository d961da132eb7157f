//! Records that are looked at again, in memory.

use jitdump::ByteOrder;

use crate::perf::record::Record;

/// Copies of some records of a profile, without the data after them. They have the offsets of the originals.
#[derive(Clone, Debug, Default)]
pub struct KeptRecords {
    bytes: Vec<u8>,
    /// Offset of each record from the first one of the profile, and its start in `bytes`; in file order.
    places: Vec<(u64, usize)>,
}

impl KeptRecords {
    /// Adds a record that follows all others.
    pub fn push(&mut self, record: &Record<'_>) {
        self.places.push((record.offset, self.bytes.len()));
        self.bytes.extend_from_slice(record.bytes);
    }

    /// Adds the records after those of these.
    pub fn append(&mut self, later: Self) {
        let start = self.bytes.len();
        let places = later.places.into_iter();
        self.places
            .extend(places.map(|(offset, at)| (offset, start.saturating_add(at))));
        self.bytes.extend(later.bytes);
    }

    /// Iterates over all records, in file order.
    pub fn iter(&self, endian: ByteOrder) -> impl Iterator<Item = Record<'_>> {
        let places = self.places.iter();
        places.filter_map(move |&(offset, start)| self.record(offset, start, endian))
    }

    /// Returns the record at an offset from the first one of the profile, in bytes.
    pub fn at(&self, offset: u64, endian: ByteOrder) -> Option<Record<'_>> {
        let found = self
            .places
            .binary_search_by_key(&offset, |&(offset, _)| offset)
            .ok()?;
        let &(offset, start) = self.places.get(found)?;
        self.record(offset, start, endian)
    }

    fn record(&self, offset: u64, start: usize, endian: ByteOrder) -> Option<Record<'_>> {
        Record::parse(self.bytes.get(start..)?, offset, u64::MAX, endian)
    }
}
