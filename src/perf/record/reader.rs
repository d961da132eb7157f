//! Reads records one after the other, wherever they are.

use jitdump::ByteOrder;

use crate::perf::record::data::{ProfileBytes, ProfileWindow, READ_SIZE};
use crate::perf::record::{HEADER_SIZE, Record, SIZE_OFFSET};

/// Largest size of a record in bytes, without the data after it.
pub(super) const MAX_SIZE: usize = u16::MAX as usize;

/// Bytes from the start of a record that have all of its sizes.
const SIZES: usize = 16;

/// Reads records in file order. Ends at the first truncated or invalid record. Unlike
/// [`Records`](crate::perf::record::Records), it reads them from a file, too. A record is borrowed only until the next
/// one is read.
#[derive(Clone, Debug)]
pub struct RecordReader<'a> {
    window: ProfileWindow<'a>,
    /// Offset of the next record, in bytes from the first one.
    at: u64,
    endian: ByteOrder,
}

impl<'a> RecordReader<'a> {
    /// Reads the records in `data`.
    pub fn new(data: ProfileBytes<'a>, endian: ByteOrder) -> Self {
        Self {
            window: ProfileWindow::new(data, READ_SIZE),
            at: 0,
            endian,
        }
    }

    /// Returns the data that records are read from.
    pub fn data(&self) -> ProfileBytes<'a> {
        self.window.data()
    }

    /// Returns the offset of the next record, in bytes from the first one.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// Continues with the records from `start` to `end` of `data`, offsets in bytes from the first one.
    pub fn restrict(&mut self, data: ProfileBytes<'a>, start: u64, end: u64) {
        self.window.restrict(data.part(0, end).unwrap_or(data));
        self.at = start;
    }

    /// Continues at a record. `offset` is in bytes from the first one.
    pub fn seek(&mut self, offset: u64) {
        self.at = offset;
    }

    /// Reads the next record.
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "records are borrowed from the reader"
    )]
    pub fn next(&mut self) -> Option<Record<'_>> {
        self.fill();
        let Self { window, at, endian } = self;
        let record = record_at(window, *at, *endian)?;
        *at = record.end();
        Some(record)
    }

    /// Returns the next record without reading it.
    #[inline]
    pub fn peek(&mut self) -> Option<Record<'_>> {
        self.fill();
        record_at(&self.window, self.at, self.endian)
    }

    /// Returns the bytes from the next record on that are in memory: at least `wanted`, unless the data ends before.
    pub(super) fn ahead(&mut self, wanted: usize) -> &[u8] {
        self.window.fill(self.at, wanted);
        self.window.held(self.at)
    }

    /// After the last record: the offset at which records end, in bytes from the first one, if other bytes follow.
    pub fn undecoded(&self) -> Option<u64> {
        (self.at < self.data().len()).then_some(self.at)
    }

    /// Gets the whole next record into memory.
    #[inline]
    fn fill(&mut self) {
        let held = self.window.held(self.at);
        let is_whole = match self.endian.u16_at(held, SIZE_OFFSET) {
            Some(size) => held.len() >= SIZES.max(size.into()),
            None => false,
        };
        if !is_whole {
            self.window.fill(self.at, MAX_SIZE.saturating_add(HEADER_SIZE));
        }
    }
}

#[inline]
fn record_at<'w>(window: &'w ProfileWindow<'_>, at: u64, endian: ByteOrder) -> Option<Record<'w>> {
    let left = window.data().len().checked_sub(at)?;
    Record::parse(window.held(at), at, left, endian)
}
