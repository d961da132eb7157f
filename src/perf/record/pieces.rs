//! Reads the records of a file with several threads.
//!
//! Each thread reads the next part of the file that no other one has. Where the first record starts in it is found by the thread
//! with the part before, from the sizes of records. That takes little time, so no thread waits long for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use jitdump::ByteOrder;

use crate::bytes::start_of_block;
use crate::perf::record::Record;
use crate::perf::record::data::{FilePart, READ_SIZE};
use crate::perf::record::reader::MAX_SIZE;
use crate::threads::{self, lock};

/// Bytes before those that were read: room for the start of a record.
const ROOM: usize = MAX_SIZE + 1;

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

/// What the threads have in common.
struct Reading<'a> {
    part: FilePart<'a>,
    endian: ByteOrder,
    /// Number of the next piece of the file that a thread will read.
    next: AtomicU64,
    seam: Mutex<Seam>,
    has_moved: Condvar,
}

/// Where the records of a piece end, and those of the next one start.
struct Seam {
    /// Number of the piece after it.
    piece: u64,
    /// Offset of the next record, in bytes from the first one.
    at: u64,
    /// Bytes of that record in the piece before.
    start: Vec<u8>,
    /// What follows, if that is not a record.
    end: Option<PiecesEnd>,
}

/// Why no more records are read before the end of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PiecesEnd {
    /// They cannot be read.
    OfRecords,
    /// They are not wanted.
    OfVisit,
}

/// Bytes of a file.
#[derive(Default)]
struct Buffer {
    /// Room, and then the bytes that were read. What follows the first `filled` has no meaning.
    bytes: Vec<u8>,
    filled: usize,
}

/// Calls `visit` with all records of a file, of a piece at a time and in several threads, until it returns `None`. `merge` gets
/// what it returns in file order. Returns the offset in bytes, from the first record, of the end of the records, or of the first
/// one that is truncated or invalid; `None` after a `None`.
pub fn visit_pieces<F: Send>(
    part: FilePart<'_>,
    endian: ByteOrder,
    visit: impl Fn(RecordSlice<'_>) -> Option<F> + Sync,
    merge: impl FnMut(F) + Send,
) -> Option<u64> {
    let reading = Reading {
        part,
        endian,
        next: AtomicU64::new(0),
        seam: Mutex::new(Seam {
            piece: 0,
            at: 0,
            start: Vec::new(),
            end: None,
        }),
        has_moved: Condvar::new(),
    };
    let merging = Mutex::new((merge, 0, BTreeMap::new()));
    threads::on_all(|| {
        let mut buffer = Buffer::default();
        while let Some((piece, records)) = reading.next(&mut buffer) {
            let Some(found) = visit(records) else {
                reading.end(&mut lock(&reading.seam), PiecesEnd::OfVisit);
                break;
            };
            let (merge, merged, waiting) = &mut *lock(&merging);
            waiting.insert(piece, found);
            while let Some(found) = waiting.remove(merged) {
                merge(found);
                *merged = merged.saturating_add(1);
            }
        }
    });
    let seam = reading.seam.into_inner().unwrap_or_else(PoisonError::into_inner);
    (seam.end != Some(PiecesEnd::OfVisit)).then_some(seam.at)
}

impl Reading<'_> {
    /// Reads the next piece. Returns its number, and the records that end in it.
    fn next<'b>(&self, buffer: &'b mut Buffer) -> Option<(u64, RecordSlice<'b>)> {
        let piece = self.next.fetch_add(1, Ordering::Relaxed);
        let start = start_of_block(self.part.start());
        let start = start.saturating_add(piece.saturating_mul(READ_SIZE as u64));
        let size = self.part.end_of_blocks().saturating_sub(start);
        let size = usize::try_from(size).unwrap_or(usize::MAX).min(READ_SIZE);
        if size == 0 {
            return None;
        }
        let end = start.saturating_add(size as u64);
        // The data after a record may be larger than many pieces.
        let is_passed = self.part.start().saturating_add(lock(&self.seam).at) >= end;
        if !is_passed {
            buffer.read(self.part, start, size);
        }
        let mut seam = lock(&self.seam);
        while seam.piece < piece && seam.end.is_none() {
            seam = self.has_moved.wait(seam).unwrap_or_else(PoisonError::into_inner);
        }
        if seam.end.is_some() {
            return None;
        }
        seam.piece = piece.saturating_add(1);
        let is_whole = is_passed || buffer.filled >= ROOM.saturating_add(size);
        let records = if is_passed {
            self.records(&[], seam.at, 0)
        } else {
            self.pass(&mut seam, buffer, start)
        };
        if !is_whole || seam.start.len() >= ROOM {
            self.end(&mut seam, PiecesEnd::OfRecords);
        }
        self.has_moved.notify_all();
        Some((piece, records))
    }

    fn end(&self, seam: &mut Seam, end: PiecesEnd) {
        seam.end = Some(end);
        self.has_moved.notify_all();
    }

    /// Moves the seam behind the last whole record in a buffer. Returns the records before it. `start` is the offset in the file
    /// of the bytes that were read.
    fn pass<'b>(&self, seam: &mut Seam, buffer: &'b mut Buffer, start: u64) -> RecordSlice<'b> {
        let first = seam.at;
        let in_buffer = self.part.start().saturating_add(first).saturating_sub(start);
        let before = ROOM.saturating_sub(seam.start.len());
        if let Some(room) = buffer.bytes.get_mut(before..ROOM) {
            room.copy_from_slice(&seam.start);
        }
        let from = before.saturating_add(usize::try_from(in_buffer).unwrap_or(usize::MAX));
        let end = self
            .part
            .start()
            .saturating_add(self.part.len())
            .saturating_sub(start);
        let end = ROOM.saturating_add(usize::try_from(end).unwrap_or(usize::MAX));
        let bytes = buffer.bytes.get(from..buffer.filled.min(end)).unwrap_or_default();
        let mut all = self.records(bytes, first, self.part.len().saturating_sub(first));
        all.by_ref().for_each(drop);
        seam.at = all.offset;
        seam.start.clear();
        seam.start
            .extend_from_slice(all.bytes.get(..ROOM).unwrap_or(all.bytes));
        self.records(bytes, first, all.offset.saturating_sub(first))
    }

    /// Returns the records in `bytes`, which start at `offset`; `left` is the number of bytes to the end of all
    /// records.
    fn records<'b>(&self, bytes: &'b [u8], offset: u64, left: u64) -> RecordSlice<'b> {
        RecordSlice {
            bytes,
            offset,
            left,
            endian: self.endian,
        }
    }
}

impl Buffer {
    /// Reads `size` bytes from offset `start` of a file.
    fn read(&mut self, part: FilePart<'_>, start: u64, size: usize) {
        let end = ROOM.saturating_add(size);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let into = self.bytes.get_mut(ROOM..end).unwrap_or_default();
        self.filled = ROOM.saturating_add(part.read_blocks(start, into));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::data::ProfileBytes;
    use crate::perf::record::{self, Records};
    use crate::perf::testing::{BlocksInMemory, ORDER};

    /// Records of many sizes, some with data after them that is larger than a piece.
    fn records() -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 0..2000_usize {
            let size = number * 7919 % 65_000;
            if number % 500 == 7 {
                record::write_header(&mut bytes, ORDER, record::AUXTRACE, 0, 16);
                let payload = number / 500 * 5 * READ_SIZE / 2;
                ORDER.write_u64(&mut bytes, payload as u64);
                bytes.resize(bytes.len() + payload, 0xff);
            }
            record::write_header(&mut bytes, ORDER, record::SAMPLE, 0, 8 + size);
            bytes.resize(bytes.len() + size, number as u8);
        }
        bytes
    }

    fn read(file: &BlocksInMemory, start: u64) -> (Vec<(u64, u32, u64)>, u64) {
        let ProfileBytes::File(part) = ProfileBytes::of_file(file).tail(start) else {
            panic!("a file");
        };
        let mut found = Vec::new();
        let visit = |records: RecordSlice<'_>| {
            let of = |record: Record<'_>| (record.offset, record.kind, record.size());
            Some(records.map(of).collect::<Vec<_>>())
        };
        let end = visit_pieces(part, ORDER, visit, |records| found.extend(records));
        (found, end.unwrap())
    }

    #[test]
    fn every_record_is_in_one_piece() {
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
        // Records are not wanted.
        let ProfileBytes::File(part) = ProfileBytes::of_file(&file) else {
            panic!("a file");
        };
        let visit = |_: RecordSlice<'_>| None::<()>;
        assert_eq!(visit_pieces(part, ORDER, visit, |()| ()), None);
        // Reading fails.
        file.readable = START + expected[900].0 as usize;
        let (found, end) = read(&file, START as u64);
        assert!(found.len() <= 900 && end <= expected[900].0);
        assert!(found == expected[..found.len()]);
    }
}
