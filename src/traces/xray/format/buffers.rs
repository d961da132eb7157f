//! Finds the buffers of XRay's flight data recorder (FDR) mode in a file.
//!
//! From version 2 on, an extents record before each buffer has the size of the buffer. In version 1, each
//! buffer takes as many bytes of the file as the header specifies. Bytes after its end-of-buffer record have
//! no meaning, although they can look like records, since they are older ones.
//!
//! If a buffer is missing at the expected offset, or its size does not lead to another buffer, the reader
//! searches for the next start. A start is a sequence of records that occurs only at starts of buffers, with
//! possible values.

use std::ops::Range;

use jitdump::{RuntimeTime, Tally};

use crate::bytes::Reader;
use crate::results::diagnostics::Issue;
use crate::traces::xray::format::buffer::TraceBuffer;
use crate::traces::xray::format::fdr;
use crate::traces::xray::format::fdr::{FdrDecoder, METADATA_SIZE};
use crate::traces::xray::format::header;
use crate::traces::xray::format::header::TraceHeader;

/// A part of a trace after its header: a buffer, or the bytes between two buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceSegment {
    /// A buffer, including the metadata records that start it.
    Buffer(TraceBuffer),
    /// Bytes outside of buffers.
    Gap {
        /// Offset in the file, in bytes.
        offset: u64,
        /// End offset in the file, in bytes.
        end: u64,
        /// What the bytes are.
        reason: GapReason,
    },
}

/// Why bytes are not part of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GapReason {
    /// An extents record for a buffer of zero bytes.
    Empty,
    /// Unreadable bytes.
    Issue(Issue),
}

/// Minimum size of a buffer in bytes: records for the thread, wall time and processor.
const MIN_BUFFER_SIZE: u64 = 3 * METADATA_SIZE as u64;

/// Number of bytes needed to recognize the start of a buffer.
const START_SIZE: usize = 3 * METADATA_SIZE;

/// Maximum buffer size in a header that is trusted, in bytes; more than any program requests.
const MAX_TRUSTED_SIZE: u64 = 1 << 30;

/// Returns whether the data after a header starts with a buffer. Used to detect the file type, so it is
/// strict.
pub(super) fn starts_with_buffer(records: &[u8], header: &TraceHeader) -> bool {
    let is_there = |bytes: &[u8]| is_start(bytes, header, u64::MAX);
    records.get(..START_SIZE).is_some_and(is_there)
}

/// Returns whether `bytes` start with a metadata record of this kind.
fn is_kind(bytes: &[u8], kind: u8, header: &TraceHeader) -> bool {
    kind_of(bytes, header) == Some(kind)
}

fn kind_of(bytes: &[u8], header: &TraceHeader) -> Option<u8> {
    fdr::metadata_kind(*bytes.first()?, header.endian)
}

/// Returns a reader for the fields of the metadata record at the start of `bytes`.
fn fields_of<'a>(bytes: &'a [u8], header: &TraceHeader) -> Option<Reader<'a>> {
    let record = bytes.get(1..METADATA_SIZE)?;
    Some(Reader::new(record, header.endian))
}

/// Returns the nanoseconds of a wall time record. The record has microseconds, although llvm-xray takes them
/// for nanoseconds.
fn wall_time(bytes: &[u8], header: &TraceHeader) -> Option<RuntimeTime> {
    let mut body = fields_of(bytes, header)?;
    let (seconds, microseconds) = (body.u64()?, body.u32()?);
    let nanoseconds = u64::from(microseconds).checked_mul(1_000)?;
    let whole = seconds.checked_mul(1_000_000_000)?;
    whole.checked_add(nanoseconds).map(RuntimeTime)
}

/// Returns whether `bytes` start with the first records of a buffer. `room` is the number of bytes available
/// after its extents record.
fn is_start(bytes: &[u8], header: &TraceHeader, room: u64) -> bool {
    let has_extents = header.version >= fdr::WITH_EXTENTS;
    let new_buffer = if has_extents {
        bytes.get(METADATA_SIZE..).unwrap_or_default()
    } else {
        bytes
    };
    let next = new_buffer.get(METADATA_SIZE..).unwrap_or_default();
    let is_first = match kind_of(next, header) {
        Some(fdr::WALL_TIME) => wall_time(next, header).is_some(),
        Some(fdr::PID | fdr::NEW_CPU_ID) => has_extents,
        _ => false,
    };
    is_first
        && is_kind(new_buffer, fdr::NEW_BUFFER, header)
        && (!has_extents || has_size(bytes, header, room))
}

/// Returns whether `bytes` start with an extents record whose size fits into `room` or a buffer of usual size.
fn has_size(bytes: &[u8], header: &TraceHeader, room: u64) -> bool {
    let usual = header.buffer_size.unwrap_or_default().min(MAX_TRUSTED_SIZE);
    let size = fields_of(bytes, header).and_then(|mut body| body.u64());
    is_kind(bytes, fdr::BUFFER_EXTENTS, header) && size.is_some_and(|size| size <= room.max(usual))
}

/// Finds the buffers of a trace.
#[derive(Clone, Debug)]
pub(super) struct BufferFinder<'a> {
    file: &'a [u8],
    header: TraceHeader,
    position: usize,
    pub(super) faults: Tally<Issue>,
}

impl<'a> BufferFinder<'a> {
    pub(super) fn new(file: &'a [u8], header: TraceHeader) -> Self {
        Self {
            file,
            header,
            position: header::SIZE,
            faults: Tally::default(),
        }
    }

    /// Returns the next buffer, or the bytes in place of one.
    pub(super) fn next_segment(&mut self) -> Option<TraceSegment> {
        let at = self.position;
        if at >= self.file.len() {
            return None;
        }
        if let Some(header) = self.header_at(at) {
            self.header = header;
            self.position = at.saturating_add(header::SIZE);
            self.faults.add(Issue::XrayAnotherTrace, at as u64);
            return Some(TraceSegment::Gap {
                offset: at as u64,
                end: self.position as u64,
                reason: GapReason::Issue(Issue::XrayAnotherTrace),
            });
        }
        let buffer = match self.header.version {
            ..fdr::WITH_EXTENTS => self.read_v1_buffer(at),
            _ => self.read_buffer_with_extents(at),
        };
        Some(match buffer {
            Ok(buffer) => TraceSegment::Buffer(buffer),
            Err(reason) => TraceSegment::Gap {
                offset: at as u64,
                end: self.position as u64,
                reason,
            },
        })
    }

    /// Returns the header of another trace of the same version, which the format allows between buffers.
    fn header_at(&self, at: usize) -> Option<TraceHeader> {
        let bytes = self.bytes_from(at);
        if bytes.first_chunk::<4>() != self.file.first_chunk() {
            return None;
        }
        let header = TraceHeader::parse(bytes).ok()?;
        starts_with_buffer(bytes.get(header::SIZE..)?, &header).then_some(header)
    }

    fn bytes_from(&self, at: usize) -> &'a [u8] {
        self.file.get(at..).unwrap_or_default()
    }

    /// Returns the offset of the first buffer in `from..to`. If none starts there, returns `to` or the end of the
    /// file, whichever is lower.
    fn next_start(&self, from: usize, to: usize) -> usize {
        let to = to.min(self.file.len());
        let first = match self.header.version {
            ..fdr::WITH_EXTENTS => fdr::NEW_BUFFER,
            _ => fdr::BUFFER_EXTENTS,
        };
        let introducer = fdr::introducer(first, self.header.endian);
        memchr::memchr_iter(introducer, self.file.get(from..to).unwrap_or_default())
            .filter_map(|at| from.checked_add(at))
            .find(|&at| {
                let bytes = self.bytes_from(at);
                let room = bytes.len().saturating_sub(METADATA_SIZE);
                bytes.len() >= START_SIZE && is_start(bytes, &self.header, room as u64)
            })
            .unwrap_or(to)
    }

    /// Skips from `at`, where no buffer starts, to the next start.
    fn skip_to_next(&mut self, at: usize) -> Issue {
        self.position = self.next_start(at.saturating_add(1), usize::MAX);
        let skipped = self.position.saturating_sub(at) as u64;
        self.faults.add_many(Issue::XraySkippedBytes, skipped, at as u64);
        Issue::XraySkippedBytes
    }

    /// Reads a buffer of version 1, whose size is in the file header.
    fn read_v1_buffer(&mut self, at: usize) -> Result<TraceBuffer, GapReason> {
        if !is_kind(self.bytes_from(at), fdr::NEW_BUFFER, &self.header) {
            return Err(GapReason::Issue(self.skip_to_next(at)));
        }
        let size = self.header.buffer_size.filter(|&size| size >= MIN_BUFFER_SIZE);
        let end = match size {
            Some(size) => at.saturating_add(usize::try_from(size).unwrap_or(usize::MAX)),
            None => {
                self.faults.add(Issue::XrayBadSize, at as u64);
                self.next_start(at.saturating_add(1), usize::MAX)
            }
        };
        self.position = end.min(self.file.len());
        let mut buffer = self.read_buffer(at, at..self.position)?;
        if end > self.file.len() {
            buffer.is_cut = true;
            // The missing bytes may be only those after the end-of-buffer record.
            if !self.has_end_marker(&buffer) {
                self.faults.add(Issue::XrayCutTail, at as u64);
            }
        }
        Ok(buffer)
    }

    /// Returns whether a buffer of version 1 has an end-of-buffer record.
    fn has_end_marker(&self, buffer: &TraceBuffer) -> bool {
        let records = self.bytes_from(usize::try_from(buffer.start).unwrap_or(usize::MAX));
        let mut decoder = FdrDecoder::new(records, &self.header, buffer);
        while decoder.record().is_some() {}
        decoder.has_end_marker
    }

    /// Reads a buffer that starts with an extents record.
    fn read_buffer_with_extents(&mut self, at: usize) -> Result<TraceBuffer, GapReason> {
        let bytes = self.bytes_from(at);
        if !is_kind(bytes, fdr::BUFFER_EXTENTS, &self.header) {
            return Err(GapReason::Issue(self.skip_to_next(at)));
        }
        let Some(size) = fields_of(bytes, &self.header).and_then(|mut body| body.u64()) else {
            self.faults.add(Issue::XrayCutTail, at as u64);
            self.position = self.file.len();
            return Err(GapReason::Issue(Issue::XrayCutTail));
        };
        let start = at.saturating_add(METADATA_SIZE);
        if size == 0 {
            self.position = start;
            return Err(GapReason::Empty);
        }
        let new_buffer = self.bytes_from(start);
        if new_buffer.len() >= METADATA_SIZE && !is_kind(new_buffer, fdr::NEW_BUFFER, &self.header) {
            return Err(GapReason::Issue(self.skip_to_next(at)));
        }
        let end = start.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
        let (end, is_cut) = self.checked_end(at, start, end);
        self.position = end;
        let buffer = self.read_buffer(at, start..end);
        buffer.map(|buffer| TraceBuffer { is_cut, ..buffer })
    }

    /// Returns the end of the buffer at `at` and whether the file ends before it. `end` is the end according
    /// to its extents record.
    fn checked_end(&mut self, at: usize, start: usize, end: usize) -> (usize, bool) {
        let declared = end.saturating_sub(start) as u64;
        let is_too_large = self.header.buffer_size.is_some_and(|size| declared > size);
        let reaches_next = end == self.file.len() || self.may_be_start(end);
        if reaches_next && !is_too_large {
            return (end, false);
        }
        // Whatever its size, a buffer ends at the start of the next one.
        let to = if reaches_next { end } else { usize::MAX };
        let next = self.next_start(start.saturating_add(METADATA_SIZE), to);
        if next < end && next < self.file.len() {
            self.faults.add(Issue::XrayBadSize, at as u64);
            return (next, false);
        }
        if end > self.file.len() {
            self.faults.add(Issue::XrayCutTail, at as u64);
            return (self.file.len(), true);
        }
        (end, false)
    }

    /// Returns whether another buffer may start here, if one is expected.
    fn may_be_start(&self, at: usize) -> bool {
        let bytes = self.bytes_from(at);
        let next = kind_of(bytes.get(METADATA_SIZE..).unwrap_or_default(), &self.header);
        let is_cut = bytes.len() < 2 * METADATA_SIZE;
        is_kind(bytes, fdr::BUFFER_EXTENTS, &self.header)
            && (is_cut || matches!(next, Some(fdr::NEW_BUFFER | fdr::BUFFER_EXTENTS)))
    }

    /// Reads the buffer at `at`, whose records from the new-buffer record on are in the range `records` of the file.
    fn read_buffer(&mut self, at: usize, records: Range<usize>) -> Result<TraceBuffer, GapReason> {
        let start = records.start.saturating_add(METADATA_SIZE) as u64;
        let end = records.end as u64;
        let content = self.file.get(records).unwrap_or_default();
        let Some(first) = FirstRecords::read(content, &self.header) else {
            self.faults.add(Issue::XrayNoTick, at as u64);
            return Err(GapReason::Issue(Issue::XrayNoTick));
        };
        Ok(TraceBuffer {
            process: first.process,
            thread: first.thread,
            offset: at as u64,
            wall: first.wall,
            tick: first.tick,
            start,
            end,
            is_cut: false,
        })
    }
}

/// What the metadata records at the start of a buffer say.
struct FirstRecords {
    thread: i32,
    process: Option<i32>,
    wall: Option<RuntimeTime>,
    tick: u64,
}

impl FirstRecords {
    /// Reads the new-buffer record and the metadata records up to the first tick; `None` if another record comes before it.
    fn read(content: &[u8], header: &TraceHeader) -> Option<Self> {
        let thread = fields_of(content, header)?.u32()? as i32;
        let (mut process, mut wall) = (None, None);
        let mut rest = content.get(METADATA_SIZE..)?;
        let tick = loop {
            let mut body = fields_of(rest, header)?;
            match kind_of(rest, header)? {
                fdr::WALL_TIME => wall = wall_time(rest, header),
                fdr::PID if header.version >= fdr::WITH_PID => process = Some(body.u32()? as i32),
                fdr::NEW_CPU_ID => {
                    body.skip(2)?;
                    break body.u64()?;
                }
                fdr::TSC_WRAP => break body.u64()?,
                fdr::PID => {}
                _ => return None,
            }
            rest = rest.get(METADATA_SIZE..)?;
        };
        Some(Self {
            thread,
            process,
            wall,
            tick,
        })
    }
}
