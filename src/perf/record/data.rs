//! The bytes of a profile, in memory or in a file.
//!
//! A profile can be far larger than memory. Nothing borrows the bytes of its file: they pass through the [`ProfileWindow`]s
//! that read it, and who needs some of them later copies these.
//!
//! A profile that is read from its file passes through windows once in each walk, and once when it is
//! copied. The windows of a walk are small enough for a processor's cache.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};

use crate::bytes::{self, BLOCK_SIZE, BlockFile, start_of_block};
use crate::perf::record::Record;
use crate::threads;

/// Bytes in memory, or a part of a file.
#[derive(Clone, Copy, Debug)]
pub enum ProfileBytes<'a> {
    /// In memory.
    Memory(&'a [u8]),
    /// In a file.
    File(FilePart<'a>),
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub struct FilePart<'a> {
    file: &'a dyn BlockFile,
    /// Offset in the file, in bytes.
    start: u64,
    /// Offset in the file, in bytes.
    end: u64,
}

impl FilePart<'_> {
    /// Returns the number of bytes.
    pub(super) fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Returns the offset in the file, in bytes.
    pub(super) fn start(self) -> u64 {
        self.start
    }

    /// Copies blocks of the file, as [`BlockFile::read_blocks`] does.
    pub(super) fn read_blocks(self, offset: u64, into: &mut [u8]) -> usize {
        self.file.read_blocks(offset, into)
    }

    /// Writes bytes to another file, as [`BlockFile::send`] does. `at` is the offset in the part.
    fn send(self, at: u64, size: u64, to: BorrowedFd<'_>) -> u64 {
        self.file.send(self.start.saturating_add(at), size, to)
    }

    /// Returns the offset in the file, in bytes, of the end of the last block of the part.
    pub(super) fn end_of_blocks(self) -> u64 {
        let end = self.end.checked_next_multiple_of(BLOCK_SIZE).unwrap_or(u64::MAX);
        end.min(self.file.size())
    }
}

impl<'a> From<&'a [u8]> for ProfileBytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Memory(bytes)
    }
}

impl<'a> ProfileBytes<'a> {
    /// All bytes of a file.
    pub fn of_file(file: &'a dyn BlockFile) -> Self {
        Self::File(FilePart {
            file,
            start: 0,
            end: file.size(),
        })
    }

    /// Returns the number of bytes.
    pub fn len(self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(part) => part.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes from offset `start` to offset `end`; `None` if there are fewer.
    pub fn part(self, start: u64, end: u64) -> Option<Self> {
        match self {
            Self::Memory(bytes) => bytes::slice(bytes, start, end).map(Self::Memory),
            Self::File(_) if start > end || end > self.len() => None,
            Self::File(part) => Some(Self::File(FilePart {
                file: part.file,
                start: part.start.checked_add(start)?,
                end: part.start.checked_add(end)?,
            })),
        }
    }

    /// Returns the bytes from offset `start` on; none if there are fewer.
    pub fn tail(self, start: u64) -> Self {
        self.part(start, self.len()).unwrap_or(Self::Memory(&[]))
    }

    /// Returns the bytes if they are in memory.
    pub fn in_memory(self) -> Option<&'a [u8]> {
        match self {
            Self::Memory(bytes) => Some(bytes),
            Self::File(_) => None,
        }
    }

    /// Returns the bytes from offset `start` to offset `end`, read into memory; `None` if there are fewer.
    pub fn bytes(self, start: u64, end: u64) -> Option<Cow<'a, [u8]>> {
        let part = self.part(start, end)?;
        if let Self::Memory(bytes) = part {
            return Some(Cow::Borrowed(bytes));
        }
        let mut copy = Vec::new();
        part.copy_to(&mut copy).ok()?;
        (copy.len() as u64 == part.len()).then_some(Cow::Owned(copy))
    }

    /// Writes all bytes.
    pub fn copy_to(self, out: &mut dyn Write) -> io::Result<()> {
        ProfileWindow::new(self, COPY_SIZE).copy(0, self.len(), out)
    }

    /// Writes a record of these bytes with the data after it.
    pub fn copy_record(self, record: &Record<'_>, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(record.bytes)?;
        self.copy_payload(record, out)
    }

    /// Writes the data after a record of these bytes.
    pub fn copy_payload(self, record: &Record<'_>, out: &mut dyn Write) -> io::Result<()> {
        if record.payload_size == record.payload.len() as u64 {
            return out.write_all(record.payload);
        }
        let start = record.end().saturating_sub(record.payload_size);
        match self.part(start, record.end()) {
            Some(payload) => payload.copy_to(out),
            None => Ok(()),
        }
    }
}

/// Bytes that are copied at a time. Writing hundreds of megabytes at once takes two to ten times as long on ext4 as in
/// pieces.
pub const COPY_SIZE: usize = 1 << 20;

/// Bytes that are read at a time to look at records: they stay in a processor's cache.
pub const READ_SIZE: usize = 256 << 10;

/// A part of [`ProfileBytes`] that is in memory, and moves.
#[derive(Clone, Debug)]
pub struct ProfileWindow<'a> {
    data: ProfileBytes<'a>,
    /// Bytes that are read at a time.
    read_size: usize,
    /// Bytes of the file. What follows the first `filled` has no meaning.
    buffer: Vec<u8>,
    /// Offset in the file of the first byte of `buffer`.
    start: u64,
    filled: usize,
    /// Offset in the data of the first byte of `buffer`; it wraps around if that is before the data.
    base: u64,
    /// Number of bytes of `buffer` that are in the data.
    limit: usize,
}

impl<'a> ProfileWindow<'a> {
    /// Creates a window that has no bytes of a file yet, and reads `read_size` of them at a time, at least a block.
    pub fn new(data: ProfileBytes<'a>, read_size: usize) -> Self {
        Self {
            data,
            read_size: read_size.max(BLOCK_SIZE as usize),
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            base: 0,
            limit: 0,
        }
    }

    /// Continues with data that starts where this one does, with the same bytes as far as both go.
    pub(super) fn restrict(&mut self, data: ProfileBytes<'a>) {
        self.data = data;
        self.find_data();
    }

    /// Finds the data in the buffer.
    fn find_data(&mut self) {
        if let ProfileBytes::File(part) = self.data {
            self.base = self.start.wrapping_sub(part.start);
            let end = usize::try_from(part.end.saturating_sub(self.start)).unwrap_or(usize::MAX);
            self.limit = self.filled.min(end);
        }
    }

    /// Returns the data that the window moves over.
    pub fn data(&self) -> ProfileBytes<'a> {
        self.data
    }

    /// Returns the bytes from offset `at` on that are in memory.
    #[inline]
    pub fn held(&self, at: u64) -> &[u8] {
        let (bytes, at) = match self.data {
            ProfileBytes::Memory(bytes) => (bytes, at),
            ProfileBytes::File(_) => (
                self.buffer.get(..self.limit).unwrap_or_default(),
                at.wrapping_sub(self.base),
            ),
        };
        let at = usize::try_from(at).ok();
        at.and_then(|at| bytes.get(at..)).unwrap_or_default()
    }

    /// Moves the window, if necessary, so that it has at least `wanted` bytes from offset `at` on. It has fewer at the end
    /// of the data and after an error.
    pub fn fill(&mut self, at: u64, wanted: usize) {
        if let ProfileBytes::File(part) = self.data
            && self.held(at).len() < wanted
        {
            self.read(part, at, wanted);
            self.find_data();
        }
    }

    /// Reads the bytes from `at` on into the buffer: `wanted` ones or more, if there are as many.
    #[cold]
    fn read(&mut self, part: FilePart<'a>, at: u64, wanted: usize) {
        let from = part.start.saturating_add(at);
        if from >= part.end {
            return;
        }
        let kept = match from.checked_sub(self.start).map(usize::try_from) {
            Some(Ok(kept)) if kept <= self.filled => kept,
            _ => {
                self.start = start_of_block(from);
                self.filled = 0;
                0
            }
        };
        // Whatever is in front of the wanted bytes is no longer needed.
        self.buffer.copy_within(kept..self.filled, 0);
        self.start = self.start.saturating_add(kept as u64);
        self.filled = self.filled.saturating_sub(kept);
        let next = self.start.saturating_add(self.filled as u64);
        let missing = from
            .saturating_add(wanted as u64)
            .saturating_sub(next)
            .max(self.read_size as u64);
        let size = missing
            .checked_next_multiple_of(BLOCK_SIZE)
            .unwrap_or(u64::MAX)
            .min(part.end_of_blocks().saturating_sub(next));
        let Some(end) = usize::try_from(size)
            .ok()
            .and_then(|size| self.filled.checked_add(size))
        else {
            return;
        };
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        if let Some(into) = self.buffer.get_mut(self.filled..end) {
            self.filled = self.filled.saturating_add(part.read_blocks(next, into));
        }
    }

    /// Writes the bytes from offset `from` to offset `until`. Writes nothing if there are fewer.
    pub fn copy<W: Write + ?Sized>(&mut self, from: u64, until: u64, out: &mut W) -> io::Result<()> {
        if until > self.data.len() {
            return Ok(());
        }
        let mut from = from;
        while from < until {
            self.fill(from, 1);
            let left = usize::try_from(until.saturating_sub(from)).unwrap_or(usize::MAX);
            let held = self.held(from);
            let piece = held.get(..left.min(COPY_SIZE)).unwrap_or(held);
            if piece.is_empty() {
                break;
            }
            out.write_all(piece)?;
            from = from.saturating_add(piece.len() as u64);
        }
        Ok(())
    }
}

/// Where records are written to.
pub trait Output: Write + Send {
    /// Returns the file, after writing buffered bytes to it; `None` if there is none.
    fn file(&mut self) -> io::Result<Option<BorrowedFd<'_>>> {
        Ok(None)
    }
}

impl Output for Vec<u8> {}

impl<T> Output for io::Cursor<T> where Self: Write + Send {}

impl Output for File {
    fn file(&mut self) -> io::Result<Option<BorrowedFd<'_>>> {
        Ok(Some(File::as_fd(self)))
    }
}

impl<W: Write + Send + AsFd> Output for BufWriter<W> {
    fn file(&mut self) -> io::Result<Option<BorrowedFd<'_>>> {
        self.flush()?;
        Ok(Some(self.get_ref().as_fd()))
    }
}

/// Copies parts of [`ProfileBytes`], each after the last one.
#[derive(Debug)]
pub struct Copier<'a> {
    window: ProfileWindow<'a>,
    /// Bytes after those of `window`, read while those are written.
    ahead: ProfileWindow<'a>,
}

impl<'a> Copier<'a> {
    /// Copies parts of `data`.
    pub fn new(data: ProfileBytes<'a>) -> Self {
        let window = ProfileWindow::new(data, COPY_SIZE);
        Self {
            ahead: window.clone(),
            window,
        }
    }

    /// Returns the data that parts are copied of.
    pub fn data(&self) -> ProfileBytes<'a> {
        self.window.data
    }

    /// Writes the bytes from offset `from` to offset `until`. Writes nothing if there are fewer.
    pub fn copy<W: Output + ?Sized>(&mut self, from: u64, until: u64, out: &mut W) -> io::Result<()> {
        /// Fewer bytes are not worth another thread.
        const MIN_SIZE: u64 = 256 << 10;
        let ProfileBytes::File(part) = self.data() else {
            return self.window.copy(from, until, out);
        };
        if until > self.data().len() {
            return Ok(());
        }
        let mut from = from;
        if until.saturating_sub(from) >= MIN_SIZE
            && let Some(to) = out.file()?
        {
            loop {
                match part.send(from, until.saturating_sub(from), to) {
                    0 => break,
                    sent => from = from.saturating_add(sent),
                }
            }
        }
        while until.saturating_sub(from) >= MIN_SIZE {
            self.window.fill(from, 1);
            let held = self.window.held(from);
            let left = usize::try_from(until.saturating_sub(from)).unwrap_or(usize::MAX);
            let piece = held.get(..left).unwrap_or(held);
            if piece.is_empty() {
                return Ok(());
            }
            from = from.saturating_add(piece.len() as u64);
            if from >= until {
                return out.write_all(piece);
            }
            let ahead = &mut self.ahead;
            let (written, ()) = threads::join(|| out.write_all(piece), || ahead.fill(from, 1));
            written?;
            std::mem::swap(&mut self.window, &mut self.ahead);
        }
        self.window.copy(from, until, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::testing::BlocksInMemory;

    fn bytes(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn every_part_of_a_file_has_its_bytes() {
        let file = BlocksInMemory::new(bytes(300_001));
        let whole = ProfileBytes::of_file(&file);
        assert_eq!(whole.len(), 300_001);
        for (start, end) in [(0, 300_001), (5, 70_000), (65_536, 65_537), (300_001, 300_001)] {
            let part = whole.part(start, end).unwrap();
            let expected = &file.bytes[start as usize..end as usize];
            assert_eq!(part.bytes(0, part.len()).unwrap()[..], *expected);
            let mut copy = Vec::new();
            part.copy_to(&mut copy).unwrap();
            assert!(copy == expected);
        }
        assert!(whole.part(0, 300_002).is_none());
        assert!(whole.part(7, 6).is_none());
        assert!(whole.tail(300_002).is_empty());
    }

    #[test]
    fn a_window_moves_in_any_direction_and_ends_with_the_data() {
        const START: u64 = 1000;
        let file = BlocksInMemory::new(bytes(1_000_000));
        let data = ProfileBytes::of_file(&file).part(START, 900_000).unwrap();
        let mut window = ProfileWindow::new(data, 1);
        for at in [
            0, 10, 65_000, 64_000, 898_900, 898_999, 500_000, 500_001, 0, 899_000,
        ] {
            for wanted in [1, 200, 70_000, 400_000] {
                window.fill(at, wanted);
                let held = window.held(at);
                let whole = &file.bytes[(START + at) as usize..900_000];
                assert!(whole.starts_with(held), "{at}, {wanted}");
                assert!(held.len() >= wanted.min(whole.len()), "{at}, {wanted}");
            }
        }
    }

    #[test]
    fn memory_for_a_window_does_not_grow() {
        let file = BlocksInMemory::new(bytes(3_000_000));
        let mut window = ProfileWindow::new(ProfileBytes::of_file(&file), READ_SIZE);
        for at in (0..3_000_000).step_by(99) {
            window.fill(at, 65_543);
        }
        assert!(window.buffer.len() <= READ_SIZE + 2 * BLOCK_SIZE as usize);
        let read = file.read_bytes();
        assert!(read == 3_000_000, "each byte is read once: {read}");
    }

    #[test]
    fn copied_parts_have_the_bytes_of_the_file() {
        const SIZE: u64 = 9_000_001;
        let file = BlocksInMemory::new(bytes(SIZE as usize + 77));
        for data in [
            ProfileBytes::of_file(&file).tail(77),
            ProfileBytes::from(&file.bytes[77..]),
        ] {
            let mut copier = Copier::new(data);
            let mut copy = Vec::new();
            let ends = [0, 5, 5, 300_000, 3_000_000, 3_000_100, 3_200_000, 8_999_999, SIZE];
            for range in ends.windows(2) {
                copier.copy(range[0], range[1], &mut copy).unwrap();
            }
            copier.copy(0, SIZE + 1, &mut copy).unwrap();
            assert!(copy == file.bytes[77..]);
        }
        let read = file.read_bytes();
        assert!(read < 2 * SIZE, "{read}");
    }

    #[test]
    fn a_file_that_cannot_be_read_ends_there() {
        let mut file = BlocksInMemory::new(bytes(300_000));
        file.readable = 100_000;
        let data = ProfileBytes::of_file(&file);
        assert!(data.bytes(0, 300_000).is_none());
        let mut copy = Vec::new();
        data.copy_to(&mut copy).unwrap();
        assert_eq!(copy.len(), 100_000);
    }
}
