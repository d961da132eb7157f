//! Reads the records of a file with several threads.

use std::ops::Range;

use jitdump::ByteOrder;

use crate::bytes::start_of_block;
use crate::perf::record::Record;
use crate::perf::record::data::{COPY_SIZE, FilePart};
use crate::perf::record::reader::MAX_SIZE;
use crate::threads;

/// Bytes of a file that are in memory at a time.
const BATCH_SIZE: usize = 8 << 20;

/// Bytes that one thread looks at, at least.
const PIECE_SIZE: u64 = 512 << 10;

/// Consecutive records in memory.
#[derive(Clone, Debug)]
pub struct RecordSlice<'a> {
    bytes: &'a [u8],
    /// Offset of the next record, in bytes from the first one.
    offset: u64,
    /// Number of bytes from there to the end of all records.
    left: u64,
    endian: ByteOrder,
}

impl<'a> Iterator for RecordSlice<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        let record = Record::parse(self.bytes, self.offset, self.left, self.endian)?;
        let size = usize::try_from(record.size()).unwrap_or(usize::MAX);
        // Data after the last record may be outside.
        self.bytes = self.bytes.get(size..).unwrap_or_default();
        self.offset = record.end();
        self.left = self.left.saturating_sub(record.size());
        Some(record)
    }
}

/// Reads all records of a file in batches. Their sizes lead from one to the next, which takes little time; the rest is done
/// by several threads.
#[derive(Debug)]
pub struct Batches<'a> {
    part: FilePart<'a>,
    endian: ByteOrder,
    /// Offset of the next record, in bytes from the first one.
    at: u64,
    /// Bytes of the file. What follows the first `filled` has no meaning.
    buffer: Vec<u8>,
    /// Offset in the file of the first byte of `buffer`.
    start: u64,
    filled: usize,
}

impl<'a> Batches<'a> {
    /// Starts with the first record of `part`.
    pub fn new(part: FilePart<'a>, endian: ByteOrder) -> Self {
        Self {
            part,
            endian,
            at: 0,
            buffer: Vec::new(),
            start: 0,
            filled: 0,
        }
    }

    /// Returns the offset of the next record, in bytes from the first one. After the last batch, it is that of the end of
    /// the records, or of the first one that is truncated or invalid.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// Reads the next batch of records. Returns what `visit` returns for each part of it, in file order; nothing after the
    /// last record.
    pub fn next<F: Send>(&mut self, visit: impl Fn(RecordSlice<'_>) -> F + Sync) -> Vec<F> {
        self.fill();
        let pieces = self.pieces();
        let slices: Vec<RecordSlice<'_>> = pieces
            .iter()
            .map(|piece| RecordSlice {
                bytes: self.held(piece.start),
                offset: piece.start,
                left: piece.end.saturating_sub(piece.start),
                endian: self.endian,
            })
            .collect();
        threads::map(&slices, |slice| visit(slice.clone()))
    }

    /// Divides the whole records in memory, and moves behind them.
    fn pieces(&mut self) -> Vec<Range<u64>> {
        let mut pieces = Vec::new();
        let mut start = self.at;
        let mut at = self.at;
        loop {
            let left = self.part.len().saturating_sub(at);
            let record = Record::parse(self.held(at), at, left, self.endian);
            let end = record.map_or(at, |record| record.end());
            if record.is_none() && at > start || end.saturating_sub(start) >= PIECE_SIZE {
                pieces.push(start..end);
                start = end;
            }
            if record.is_none() {
                break;
            }
            at = end;
        }
        self.at = at;
        pieces
    }

    /// Returns the bytes from an offset on that are in memory.
    fn held(&self, at: u64) -> &[u8] {
        let at = self.part.start().saturating_add(at).checked_sub(self.start);
        let at = at.and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.buffer.get(at..self.filled))
            .unwrap_or_default()
    }

    /// Fills the buffer from the next record on.
    fn fill(&mut self) {
        let from = self.part.start().saturating_add(self.at);
        let kept = self.held(self.at).len();
        if kept > 0 {
            self.buffer
                .copy_within(self.filled.saturating_sub(kept)..self.filled, 0);
            self.start = from;
        } else {
            self.start = start_of_block(from);
        }
        self.filled = kept;
        let next = self.start.saturating_add(kept as u64);
        let end = self.part.start().saturating_add(self.part.len());
        // A record that is not whole although so much of it is there is invalid.
        if next >= end || kept > MAX_SIZE.saturating_add(1) {
            return;
        }
        let size = self
            .part
            .end_of_blocks()
            .saturating_sub(next)
            .min(BATCH_SIZE as u64);
        let needed = kept.saturating_add(size as usize);
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        let part = self.part;
        let offsets = (next..).step_by(COPY_SIZE);
        let into = self.buffer.get_mut(kept..needed).unwrap_or_default();
        let mut pieces: Vec<(u64, &mut [u8])> = offsets.zip(into.chunks_mut(COPY_SIZE)).collect();
        let read = threads::map_mut(&mut pieces, |(offset, piece)| {
            (part.read_blocks(*offset, piece), piece.len())
        });
        let whole = read.iter().take_while(|(read, size)| read == size).count();
        let read = read.iter().take(whole.saturating_add(1)).map(|&(read, _)| read);
        self.filled = read.fold(kept, usize::saturating_add);
        let left = usize::try_from(end.saturating_sub(self.start)).unwrap_or(usize::MAX);
        self.filled = self.filled.min(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::BLOCK_SIZE;
    use crate::perf::record::data::Data;
    use crate::perf::record::{self, Records};
    use crate::perf::testing::{BlocksInMemory, ORDER};

    /// Records of many sizes, some with data after them that is larger than a batch.
    fn records() -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 0..2000_usize {
            let size = number * 7919 % 65_000;
            if number % 500 == 7 {
                record::write_header(&mut bytes, ORDER, record::AUXTRACE, 0, 16);
                let payload = number / 500 * BATCH_SIZE / 2;
                ORDER.write_u64(&mut bytes, payload as u64);
                bytes.resize(bytes.len() + payload, 0xff);
            }
            record::write_header(&mut bytes, ORDER, record::SAMPLE, 0, 8 + size);
            bytes.resize(bytes.len() + size, number as u8);
        }
        bytes
    }

    fn read(file: &BlocksInMemory, start: u64) -> (Vec<(u64, u32, u64)>, u64) {
        let Data::File(part) = Data::of_file(file).tail(start) else {
            panic!("a file");
        };
        let mut batches = Batches::new(part, ORDER);
        let mut found = Vec::new();
        loop {
            let batch = batches.next(|records| {
                let of = |record: Record<'_>| (record.offset, record.kind, record.size());
                records.map(of).collect::<Vec<_>>()
            });
            if batch.is_empty() {
                return (found, batches.offset());
            }
            assert!(batches.buffer.len() <= BATCH_SIZE + 2 * BLOCK_SIZE as usize);
            found.extend(batch.concat());
        }
    }

    #[test]
    fn every_record_is_in_one_batch() {
        const START: usize = 1000;
        let mut bytes = vec![0xee; START];
        bytes.extend(records());
        let expected = Records::new(&bytes[START..], 0, ORDER);
        let expected: Vec<_> = expected.map(|it| (it.offset, it.kind, it.size())).collect();
        let size = (bytes.len() - START) as u64;
        let mut file = BlocksInMemory::new(bytes);
        assert!(read(&file, START as u64) == (expected.clone(), size));
        // The end is cut off.
        file.bytes.truncate(START + size as usize - 10);
        file.readable = file.bytes.len();
        let last = expected.last().unwrap().0;
        assert!(read(&file, START as u64) == (expected[..expected.len() - 1].to_vec(), last));
        // A record is invalid.
        let (at, ..) = expected[1200];
        file.bytes[START + at as usize + 6..][..2].fill(0);
        assert!(read(&file, START as u64) == (expected[..1200].to_vec(), at));
        // Reading fails.
        file.readable = START + expected[900].0 as usize;
        let (found, end) = read(&file, START as u64);
        assert!(found.len() <= 900 && end <= expected[900].0);
        assert!(found == expected[..found.len()]);
    }
}
