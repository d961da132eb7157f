//! The buffers of the flight data recorder: where they start and end.
//!
//! From version 2 on, a record in front of each buffer tells how many bytes of it follow. In version 1, each takes
//! as many bytes of the file as the header says, of which those behind the mark of its end mean nothing: they
//! can look like records, since they are older ones.
//!
//! Where no buffer starts, and where one has a size that leads to no other one, the next start is looked for: records that
//! stand in a row at starts of buffers only, with values that they can have.

use crate::bytes::Reader;
use crate::runtime::RuntimeTime;
use crate::runtime::xray::fdr::{self, Decoder, METADATA};
use crate::runtime::xray::header::{self, Header};
use crate::runtime::xray::index::Buffer;
use crate::runtime::xray::trace::Fault;
use crate::tally::Tally;

/// A part of a trace behind its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// A buffer, with the records in front that say so.
    Buffer(Buffer),
    /// Bytes in place of one.
    NoBuffer {
        /// Where they start in the file.
        offset: u64,
        /// Where they end.
        end: u64,
        /// What they are.
        reason: NoBuffer,
    },
}

/// What can stand in place of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoBuffer {
    /// A record of the size of a buffer that has no bytes.
    Empty,
    /// What can't be read.
    Fault(Fault),
}

/// How many bytes a buffer has at least: records of the thread, time and processor.
const LEAST: u64 = 3 * METADATA as u64;

/// That of the record of a buffer's thread.
pub(super) const METADATA_SIZE: u64 = METADATA as u64;

/// How many bytes in a row tell a start of a buffer from other bytes.
const START: usize = 3 * METADATA;

/// How large a buffer may be in a header that is believed: more than any program asks for.
const MAX_USUAL: u64 = 1 << 30;

/// Whether what follows a header is a buffer, beyond doubt.
pub(super) fn starts_like_one(records: &[u8], header: &Header) -> bool {
    let is_there = |bytes: &[u8]| is_start(bytes, header, u64::MAX);
    records.get(..START).is_some_and(is_there)
}

/// Whether a metadata record of this kind starts here.
fn is(bytes: &[u8], kind: u8, header: &Header) -> bool {
    kind_of(bytes, header) == Some(kind)
}

fn kind_of(bytes: &[u8], header: &Header) -> Option<u8> {
    fdr::metadata_kind(*bytes.first()?, header.order)
}

/// The fields of the metadata record that starts here.
fn body<'a>(bytes: &'a [u8], header: &Header) -> Option<Reader<'a>> {
    let record = bytes.get(1..METADATA)?;
    Some(Reader::new(record, header.order))
}

/// Nanoseconds, from a record of the wall clock. It has microseconds, though llvm-xray takes them for nanoseconds.
fn wall_time(bytes: &[u8], header: &Header) -> Option<RuntimeTime> {
    let mut body = body(bytes, header)?;
    let (seconds, microseconds) = (body.u64()?, body.u32()?);
    let nanoseconds = u64::from(microseconds).checked_mul(1_000)?;
    let whole = seconds.checked_mul(1_000_000_000)?;
    whole.checked_add(nanoseconds).map(RuntimeTime)
}

/// Whether the first records of a buffer stand here, of which `room` bytes may follow the record of its size.
fn is_start(bytes: &[u8], header: &Header, room: u64) -> bool {
    let has_extents = header.version >= fdr::WITH_EXTENTS;
    let new_buffer = match has_extents {
        true => bytes.get(METADATA..).unwrap_or_default(),
        false => bytes,
    };
    let behind = new_buffer.get(METADATA..).unwrap_or_default();
    let is_first = match kind_of(behind, header) {
        Some(fdr::WALL_TIME) => wall_time(behind, header).is_some(),
        Some(fdr::PID | fdr::NEW_CPU_ID) => has_extents,
        _ => false,
    };
    is_first && is(new_buffer, fdr::NEW_BUFFER, header) && (!has_extents || has_size(bytes, header, room))
}

/// Whether the record of a possible size stands here.
fn has_size(bytes: &[u8], header: &Header, room: u64) -> bool {
    let usual = header.buffer_size.unwrap_or_default().min(MAX_USUAL);
    let size = body(bytes, header).and_then(|mut body| body.u64());
    is(bytes, fdr::BUFFER_EXTENTS, header) && size.is_some_and(|size| size <= room.max(usual))
}

/// A walk over the buffers of a trace.
#[derive(Clone, Debug)]
pub(super) struct Buffers<'a> {
    file: &'a [u8],
    header: Header,
    position: usize,
    faults: Tally<Fault>,
}

impl<'a> Buffers<'a> {
    pub(super) fn new(file: &'a [u8], header: Header) -> Self {
        Self {
            file,
            header,
            position: header::SIZE,
            faults: Tally::default(),
        }
    }

    /// What could not be used of what was walked so far.
    pub(super) fn faults(&self) -> &Tally<Fault> {
        &self.faults
    }

    /// The next buffer, or what stands in place of one.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        let at = self.position;
        if at >= self.file.len() {
            return None;
        }
        let buffer = match self.header.version {
            ..fdr::WITH_EXTENTS => self.of_fixed_size(at),
            _ => self.of_own_size(at),
        };
        Some(match buffer {
            Ok(buffer) => Piece::Buffer(buffer),
            Err(reason) => Piece::NoBuffer {
                offset: at as u64,
                end: self.position as u64,
                reason,
            },
        })
    }

    fn from(&self, at: usize) -> &'a [u8] {
        self.file.get(at..).unwrap_or_default()
    }

    /// Where the next buffer starts, from `from` on but before `to`; `to` if none does, or the end of the file.
    fn next_start(&self, from: usize, to: usize) -> usize {
        let to = to.min(self.file.len());
        let first = match self.header.version {
            ..fdr::WITH_EXTENTS => fdr::NEW_BUFFER,
            _ => fdr::BUFFER_EXTENTS,
        };
        let introducer = fdr::introducer(first, self.header.order);
        memchr::memchr_iter(introducer, self.file.get(from..to).unwrap_or_default())
            .filter_map(|at| from.checked_add(at))
            .find(|&at| {
                let bytes = self.from(at);
                let room = bytes.len().saturating_sub(METADATA);
                bytes.len() >= START && is_start(bytes, &self.header, room as u64)
            })
            .unwrap_or(to)
    }

    /// Goes on at the next start behind `at`, where none is.
    fn skip_to_next(&mut self, at: usize) -> Fault {
        self.position = self.next_start(at.saturating_add(1), usize::MAX);
        let skipped = self.position.saturating_sub(at) as u64;
        self.faults.add_many(Fault::SkippedBytes, skipped, at as u64);
        Fault::SkippedBytes
    }

    /// The buffer of version 1 that starts here, as the header says how large it is.
    fn of_fixed_size(&mut self, at: usize) -> Result<Buffer, NoBuffer> {
        if !is(self.from(at), fdr::NEW_BUFFER, &self.header) {
            return Err(NoBuffer::Fault(self.skip_to_next(at)));
        }
        let size = self.header.buffer_size.filter(|&size| size >= LEAST);
        let end = match size {
            Some(size) => at.saturating_add(usize::try_from(size).unwrap_or(usize::MAX)),
            None => {
                self.faults.add(Fault::BadSize, at as u64);
                self.next_start(at.saturating_add(1), usize::MAX)
            }
        };
        self.position = end.min(self.file.len());
        let mut buffer = self.buffer(at, at)?;
        if end > self.file.len() {
            buffer.is_cut = true;
            // What is missing may be only what means nothing.
            let content = self.file.get(at..).unwrap_or_default();
            let behind = content.get(METADATA..).unwrap_or_default();
            let mut decoder = Decoder::new(behind, &self.header, &buffer);
            while decoder.record().is_some() {}
            if !decoder.has_ended_by_mark() {
                self.faults.add(Fault::CutTail, at as u64);
            }
        }
        Ok(buffer)
    }

    /// The buffer that starts here with a record of its size.
    fn of_own_size(&mut self, at: usize) -> Result<Buffer, NoBuffer> {
        let bytes = self.from(at);
        if !is(bytes, fdr::BUFFER_EXTENTS, &self.header) {
            return Err(NoBuffer::Fault(self.skip_to_next(at)));
        }
        let Some(size) = body(bytes, &self.header).and_then(|mut body| body.u64()) else {
            self.faults.add(Fault::CutTail, at as u64);
            self.position = self.file.len();
            return Err(NoBuffer::Fault(Fault::CutTail));
        };
        let start = at.saturating_add(METADATA);
        if size == 0 {
            self.position = start;
            return Err(NoBuffer::Empty);
        }
        let new_buffer = self.from(start);
        if new_buffer.len() >= METADATA && !is(new_buffer, fdr::NEW_BUFFER, &self.header) {
            return Err(NoBuffer::Fault(self.skip_to_next(at)));
        }
        let end = start.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
        let (end, is_cut) = self.checked_end(at, start, end);
        self.position = end;
        let buffer = self.buffer(at, start);
        buffer.map(|buffer| Buffer { is_cut, ..buffer })
    }

    /// Where the buffer at `at` ends, if it says that it does at `end`, and whether the file ends before it.
    fn checked_end(&mut self, at: usize, start: usize, end: usize) -> (usize, bool) {
        let declared = end.saturating_sub(start) as u64;
        let is_too_large = self.header.buffer_size.is_some_and(|size| declared > size);
        let leads_on = end == self.file.len() || self.may_start(end);
        if leads_on && !is_too_large {
            return (end, false);
        }
        // Whatever it says, it ends where the next one starts.
        let to = if leads_on { end } else { usize::MAX };
        let next = self.next_start(start.saturating_add(METADATA), to);
        if next < end && next < self.file.len() {
            self.faults.add(Fault::BadSize, at as u64);
            return (next, false);
        }
        if end > self.file.len() {
            self.faults.add(Fault::CutTail, at as u64);
            return (self.file.len(), true);
        }
        (end, false)
    }

    /// Whether another buffer may start here, where one is expected.
    fn may_start(&self, at: usize) -> bool {
        let bytes = self.from(at);
        let next = kind_of(bytes.get(METADATA..).unwrap_or_default(), &self.header);
        let is_cut = bytes.len() < 2 * METADATA;
        is(bytes, fdr::BUFFER_EXTENTS, &self.header)
            && (is_cut || matches!(next, Some(fdr::NEW_BUFFER | fdr::BUFFER_EXTENTS)))
    }

    /// The buffer that starts at `at` with the records from `start` on, and ends at the current position.
    fn buffer(&mut self, at: usize, start: usize) -> Result<Buffer, NoBuffer> {
        let content = self.file.get(start..self.position).unwrap_or_default();
        let mut buffer = Buffer {
            process: None,
            thread: 0,
            offset: at as u64,
            wall: None,
            tick: 0,
            start: start.saturating_add(METADATA) as u64,
            end: self.position as u64,
            is_cut: false,
        };
        match self.first_records(content, &mut buffer) {
            Some(()) => Ok(buffer),
            None => {
                self.faults.add(Fault::NoTick, at as u64);
                Err(NoBuffer::Fault(Fault::NoTick))
            }
        }
    }

    /// Reads the records up to the first tick. `None` if there is none in front of the first function.
    fn first_records(&self, content: &[u8], buffer: &mut Buffer) -> Option<()> {
        let header = &self.header;
        buffer.thread = body(content, header)?.u32()? as i32;
        let mut rest = content.get(METADATA..)?;
        loop {
            let mut body = body(rest, header)?;
            match kind_of(rest, header)? {
                fdr::WALL_TIME => buffer.wall = wall_time(rest, header),
                fdr::PID if header.version >= fdr::WITH_PID => buffer.process = Some(body.u32()? as i32),
                fdr::NEW_CPU_ID => {
                    body.skip(2)?;
                    buffer.tick = body.u64()?;
                    return Some(());
                }
                fdr::TSC_WRAP => {
                    buffer.tick = body.u64()?;
                    return Some(());
                }
                fdr::PID => {}
                _ => return None,
            }
            rest = rest.get(METADATA..)?;
        }
    }
}

impl Iterator for Buffers<'_> {
    type Item = Buffer;

    fn next(&mut self) -> Option<Buffer> {
        loop {
            if let Piece::Buffer(buffer) = self.next_piece()? {
                return Some(buffer);
            }
        }
    }
}
