//! A walk over the records of a file that is still written.

use std::ops::ControlFlow;

use crate::bytes::{ByteOrder, RandomAccess};
use crate::format::record::window::ContentWindow;
use crate::format::record::{PREFIX_SIZE, Records, Step};

/// Bytes read at first, in which most new records fit.
const FIRST_WINDOW_SIZE: usize = 16 << 10;

/// Bytes read at a time while there are many new records.
const WINDOW_SIZE: usize = 1 << 20;

/// Maximum bytes that wait for the rest of a record before they may be damage instead.
const MAX_UNFINISHED: usize = 1 << 20;

/// How far a walk has come.
///
/// Bytes at the end of the file may be the first part of a record. They stay unread until the rest is there, or, if
/// they are many, no record starts with them, or none follows them, until three valid records do. Bytes are then damage, as in
/// [`Records`]. The end is read again only after it has grown by half, so the walk takes linear time however often it
/// goes on.
#[derive(Clone, Debug)]
pub struct Growth {
    position: usize,
    last_time: Option<u64>,
    /// Size of the file from which on another look at the unfinished end is worth it.
    retry_at: usize,
}

impl Growth {
    /// Starts at byte `start` of the file.
    pub fn new(start: usize) -> Self {
        Self {
            position: start,
            last_time: None,
            retry_at: 0,
        }
    }

    /// Returns the offset at which the walk goes on.
    pub fn position(&self) -> u64 {
        self.position as u64
    }

    /// Calls `visit` with the records since the last call, of at most some megabytes of the file unless it is damaged, and
    /// returns whether there are more. If the file `is_complete`, an unfinished record at its end is reported.
    pub fn advance(
        &mut self,
        file: &dyn RandomAccess,
        endian: ByteOrder,
        is_complete: bool,
        visit: &mut dyn FnMut(Step<'_>),
    ) -> bool {
        let size = usize::try_from(file.size()).unwrap_or(usize::MAX);
        // A growing file may get anything after its present end.
        let end = if is_complete { size } else { usize::MAX };
        let first = self.position;
        let mut window_size = FIRST_WINDOW_SIZE;
        let mut read = ReadBytes::default();
        while self.position < size {
            let (start, left) = (self.position, size.saturating_sub(self.position));
            if !read.read(file, start, size, window_size) {
                return false;
            }
            let has_all = read.has_all;
            let window = read.bytes_from(start);
            if self.walk(window, end, endian, visit).is_break() {
                self.position = size;
                return false;
            }
            if has_all && !is_complete {
                self.visit_last(read.bytes_from(self.position), end, endian, visit);
            }
            if self.position > start {
                // One large window is enough for a call.
                if window_size > FIRST_WINDOW_SIZE && !has_all {
                    return true;
                }
                window_size = WINDOW_SIZE;
                continue;
            }
            // The record here needs a larger window, which the next call reads.
            if first < start && !has_all {
                return true;
            }
            if size < self.retry_at && !is_complete {
                return false;
            }
            let next_end = self.records(window, end, endian).next_end();
            let is_there = is_complete || next_end.is_some_and(|end| end <= size);
            // No record starts with such bytes, or the whole record is there and what follows it is none: they need not wait.
            let has_next = |end| size.saturating_sub(end) >= PREFIX_SIZE;
            let may_be_damage = left > MAX_UNFINISHED || next_end.map_or(left >= PREFIX_SIZE, has_next);
            if !has_all && (is_there || may_be_damage) {
                window_size = window_size.saturating_mul(8).max(WINDOW_SIZE);
                continue;
            }
            if has_all && may_be_damage && self.skip_damage(window, size, endian, visit) {
                continue;
            }
            if left > FIRST_WINDOW_SIZE {
                let later = size.saturating_add(left / 2);
                let rest = next_end.filter(|&end| end > size);
                self.retry_at = rest.map_or(later, |end| later.min(end));
            }
            return false;
        }
        false
    }

    /// Visits the records in a part of the file. Breaks at the last one of a complete file.
    fn walk(
        &mut self,
        bytes: &[u8],
        end: usize,
        endian: ByteOrder,
        visit: &mut dyn FnMut(Step<'_>),
    ) -> ControlFlow<()> {
        let mut records = self.records(bytes, end, endian);
        loop {
            let step = records.next();
            if records.has_missed() {
                return ControlFlow::Continue(());
            }
            let Some(step) = step else {
                return ControlFlow::Break(());
            };
            visit(step);
            (self.position, self.last_time) = records.state();
        }
    }

    /// Visits the last records, from the current position on. What follows them is not written yet, so they are judged by their
    /// own content.
    fn visit_last(&mut self, rest: &[u8], end: usize, endian: ByteOrder, visit: &mut dyn FnMut(Step<'_>)) {
        let mut records = self.records(rest, end, endian);
        while let Some(record) = records.next_by_itself() {
            visit(Step::Record(record));
            (self.position, self.last_time) = records.state();
        }
    }

    /// Skips damage at the current position, if valid records follow it. Returns whether it did.
    fn skip_damage(
        &mut self,
        rest: &[u8],
        size: usize,
        endian: ByteOrder,
        visit: &mut dyn FnMut(Step<'_>),
    ) -> bool {
        let mut records = self.records(rest, size, endian);
        let step = records.next();
        let (position, last_time) = records.state();
        let Some(step) = step.filter(|_| position < size) else {
            return false;
        };
        // What seems to end where the file ends now may go on in another way.
        let later = ContentWindow::new(rest, self.position, usize::MAX);
        let after = Records::in_window(later, position, endian, last_time);
        if !matches!(step, Step::Record(_)) && !after.starts_run(position, false) {
            return false;
        }
        visit(step);
        (self.position, self.last_time) = (position, last_time);
        true
    }

    fn records<'a>(&self, bytes: &'a [u8], end: usize, endian: ByteOrder) -> Records<'a> {
        let window = ContentWindow::new(bytes, self.position, end);
        Records::in_window(window, self.position, endian, self.last_time)
    }
}

/// Bytes of a file that were read last. Once they are all that is left, they are not read again, however often there is damage in
/// them.
#[derive(Default)]
struct ReadBytes {
    /// Their offset in the file.
    start: usize,
    bytes: Vec<u8>,
    /// Whether they reach to the end of the file.
    has_all: bool,
}

impl ReadBytes {
    /// Reads up to `most` bytes of a file of `size` bytes from `start` on. Returns `false` if the file has become shorter, or cannot
    /// be read.
    fn read(&mut self, file: &dyn RandomAccess, start: usize, size: usize, most: usize) -> bool {
        if self.has_all {
            return true;
        }
        let left = size.saturating_sub(start);
        let wanted = most.min(left);
        self.start = start;
        self.bytes.resize(wanted, 0);
        self.has_all = wanted == left;
        file.read(start as u64, &mut self.bytes) >= wanted
    }

    /// Returns the bytes from an offset in the file on.
    fn bytes_from(&self, offset: usize) -> &[u8] {
        let before = offset.saturating_sub(self.start);
        self.bytes.get(before..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::format::record::contents::tests::{Distant, record};

    /// A file, and the number of bytes that were read of it.
    #[derive(Debug)]
    struct Counted(Distant, AtomicUsize);

    impl RandomAccess for Counted {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> usize {
            self.1.fetch_add(into.len(), Ordering::Relaxed);
            self.0.read(offset, into)
        }

        fn get(&self, _: u64, _: usize) -> Option<&[u8]> {
            None
        }
    }

    fn close(time: u64) -> Vec<u8> {
        record(3, time, 0)
    }

    #[test]
    fn up_to_1_mib_may_be_an_unfinished_record() {
        for (size, expected) in [(1 << 20, &[1][..]), ((1 << 20) + 1, &[1, 2, 3, 4])] {
            // Its first bytes are the type of a LOAD record and a size of 4 GiB.
            let mut unfinished = vec![0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
            unfinished.resize(size - 3 * 16, 0);
            let file = [close(1), unfinished, close(2), close(3), close(4)].concat();
            let mut growth = Growth::new(0);
            let mut times = Vec::new();
            let mut visit = |step: Step<'_>| times.extend(step.record().map(|record| record.time));
            let file = Distant(file);
            while growth.advance(&file, ByteOrder::Little, false, &mut visit) {}
            assert_eq!(times, expected, "{size}");
        }
    }

    #[test]
    fn a_file_is_not_read_again_for_each_damage() {
        let part = |time: u64| [close(time), close(time), close(time), vec![0xab; 40]].concat();
        let content: Vec<u8> = (1..=2000).flat_map(part).collect();
        let size = content.len();
        let file = Counted(Distant(content), AtomicUsize::new(0));
        let mut growth = Growth::new(0);
        let mut records = 0;
        let mut visit = |step: Step<'_>| records += usize::from(step.record().is_some());
        while growth.advance(&file, ByteOrder::Little, false, &mut visit) {}
        assert_eq!(records, 6000);
        let read = file.1.into_inner();
        assert!(read < 2 * size, "{read} of {size}");
    }

    /// Bytes of a LOAD record are lost, so its size reaches into the record after it.
    #[test]
    fn a_record_that_none_follows_is_damage_as_in_the_finished_file() {
        let mut short = record(0, 2, 48);
        short.truncate(56);
        let file = [close(1), short, close(3), close(4), close(5)].concat();
        let mut growth = Growth::new(0);
        let mut times = Vec::new();
        for (size, expected) in [(file.len() - 16, &[1][..]), (file.len(), &[1, 3, 4, 5])] {
            let part = Distant(file[..size].to_vec());
            let mut visit = |step: Step<'_>| times.extend(step.record().map(|record| record.time));
            while growth.advance(&part, ByteOrder::Little, false, &mut visit) {}
            assert_eq!(times, expected, "{size}");
        }
        let finished = Records::new(&file, 0, ByteOrder::Little);
        let finished = finished.filter_map(|step| Some(step.record()?.time));
        assert_eq!(finished.collect::<Vec<_>>(), times);
    }
}
