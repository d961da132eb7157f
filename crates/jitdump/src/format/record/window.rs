//! A part of a file, for a walk that must not depend on where the part ends.

use std::cell::Cell;

/// Consecutive bytes of a file.
///
/// Offsets are those in the file. A read of bytes that the file has and the window lacks is noted; what was
/// concluded from it may be wrong.
#[derive(Clone, Debug)]
pub struct ContentWindow<'a> {
    bytes: &'a [u8],
    /// Offset of the first byte.
    start: usize,
    /// Size of the file.
    size: usize,
    has_missed: Cell<bool>,
}

impl<'a> ContentWindow<'a> {
    /// Creates a window of all bytes of a file.
    pub fn whole(file: &'a [u8]) -> Self {
        Self::new(file, 0, file.len())
    }

    /// Creates a window of the bytes at offset `start` of a file of `size` bytes.
    pub fn new(bytes: &'a [u8], start: usize, size: usize) -> Self {
        Self {
            bytes,
            start,
            size,
            has_missed: Cell::new(false),
        }
    }

    /// Returns the size of the file.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether bytes outside the window were read.
    pub fn has_missed(&self) -> bool {
        self.has_missed.get()
    }

    /// Returns `size` bytes at offset `at`; `None` if the file ends before them.
    pub fn get(&self, at: usize, size: usize) -> Option<&'a [u8]> {
        let end = at.checked_add(size).filter(|&end| end <= self.size)?;
        let found = self.within(at, end);
        if found.is_none() {
            self.has_missed.set(true);
        }
        found
    }

    /// Returns the bytes from `at` to `end`, or to the end of the window; `None` if there are none.
    pub fn rest(&self, at: usize, end: usize) -> Option<&'a [u8]> {
        let window_end = self.start.saturating_add(self.bytes.len());
        if window_end < end.min(self.size) {
            // The caller looks at all bytes up to `end`.
            let known = self.within(at, window_end).filter(|known| !known.is_empty());
            if known.is_none() {
                self.has_missed.set(true);
            }
            return known;
        }
        self.within(at, end.min(self.size))
            .filter(|rest| !rest.is_empty())
    }

    fn within(&self, at: usize, end: usize) -> Option<&'a [u8]> {
        self.bytes
            .get(at.checked_sub(self.start)?..end.checked_sub(self.start)?)
    }
}
