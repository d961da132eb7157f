//! Reader of debug sections that ends after a number of reads.
//!
//! Short crafted tables can refer to the same long list many times. Every step of gimli reads something, so its work is limited
//! by that number.

use std::borrow::Cow;
use std::cell::Cell;

use gimli::{EndianSlice, Error, Reader, ReaderOffsetId, Result, RunTimeEndian};

/// Reads that anything counts for that takes memory.
pub const READS_PER_ITEM: u64 = 32;

/// A part of a section.
#[derive(Clone, Copy, Debug)]
pub struct CountedReader<'a, 'c> {
    slice: EndianSlice<'a, RunTimeEndian>,
    /// Number of reads that are left.
    left: &'c Cell<u64>,
}

impl<'a, 'c> CountedReader<'a, 'c> {
    /// Starts at the first byte of a section.
    pub fn new(bytes: &'a [u8], endian: RunTimeEndian, left: &'c Cell<u64>) -> Self {
        let slice = EndianSlice::new(bytes, endian);
        Self { slice, left }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.slice.slice()
    }

    fn count(&self) -> Result<()> {
        count(self.left, 1)
    }
}

/// Counts a number of reads.
pub fn count(left: &Cell<u64>, reads: u64) -> Result<()> {
    let rest = left.get().checked_sub(reads);
    left.set(rest.unwrap_or(0));
    rest.map(drop).ok_or(Error::UnexpectedEof(ReaderOffsetId(0)))
}

impl Reader for CountedReader<'_, '_> {
    type Endian = RunTimeEndian;
    type Offset = usize;

    fn endian(&self) -> RunTimeEndian {
        self.slice.endian()
    }

    fn len(&self) -> usize {
        self.slice.len()
    }

    fn empty(&mut self) {
        self.slice.empty();
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.slice.truncate(len)
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.slice.offset_from(base.slice)
    }

    fn offset_id(&self) -> ReaderOffsetId {
        self.slice.offset_id()
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        self.slice.lookup_offset_id(id)
    }

    fn find(&self, byte: u8) -> Result<usize> {
        let found = Reader::find(&self.slice, byte)?;
        // Texts are searched a word at a time.
        count(self.left, 1_u64.saturating_add(found as u64 / 8))?;
        Ok(found)
    }

    fn skip(&mut self, len: usize) -> Result<()> {
        self.count()?;
        self.slice.skip(len)
    }

    fn split(&mut self, len: usize) -> Result<Self> {
        self.count()?;
        let slice = self.slice.split(len)?;
        Ok(Self { slice, ..*self })
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        self.slice.to_slice()
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        Reader::to_string(&self.slice)
    }

    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        Reader::to_string_lossy(&self.slice)
    }

    fn read_slice(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.count()?;
        Reader::read_slice(&mut self.slice, buffer)
    }

    fn read_u8(&mut self) -> Result<u8> {
        self.count()?;
        self.slice.read_u8()
    }
}
