//! A whole log: its buffers, each of which has the events of a thread, and what is damaged of them.
//!
//! A value in a buffer needs those before it, so that what follows a damaged event is lost up to the buffer's end.
//! The next buffer starts anew.

use std::fmt;

use crate::bytes::{ByteOrder, Reader};
use crate::runtime::RuntimeTime;
use crate::runtime::mono::cursor::Encoding;
use crate::runtime::mono::decode::{Call, Decoder};
use crate::runtime::mono::event::{Event, ThreadId};
use crate::runtime::mono::header::{Error, Header};
use crate::tally::Tally;

/// The first four bytes of a buffer (`BUF_ID`, little-endian).
pub(super) const BUFFER_ID: [u8; 4] = *b"\x01LPM";

/// The size in bytes of a buffer's header.
pub const BUFFER_HEADER: usize = 48;

/// How large buffers are that Mono has not made larger for one large event. So much may be missing of the last one
/// of a file.
const USUAL_BUFFER: usize = 64 << 10;

/// What in a log could not be used, or only in part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// An event of a type that is not known.
    UnknownEvent,
    /// An event that leaves its buffer.
    CutEvent,
    /// A number of things that can't be in what is left of the buffer.
    BadCount,
    /// A string without an end.
    UnendedString,
    /// A number of more than 64 bits.
    LongNumber,
    /// A counter whose values are of an unknown type.
    UnknownCounter,
    /// Bytes between buffers.
    SkippedBytes,
    /// A buffer whose size is that of more than the file has, though others follow it.
    BadSize,
    /// The file ends inside its last buffer.
    CutTail,
    /// The packed file can't be unpacked to its end.
    BadPacking,
    /// The packed file ends too early.
    CutPacking,
    /// What was unpacked is no log from some point on.
    UnpackedJunk,
    /// More comes out of the packed file than was asked for.
    TooMuch,
    /// Bytes behind the packed file.
    BehindPacking,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownEvent => "events of unknown types, dropped with the rest of their buffers",
            Self::CutEvent => "events that leave their buffers, dropped",
            Self::BadCount => {
                "events with more elements than there is room for, dropped with the rest of their buffers"
            }
            Self::UnendedString => {
                "events with strings without an end, dropped with the rest of their buffers"
            }
            Self::LongNumber => {
                "events with numbers of more than 64 bits, dropped with the rest of their buffers"
            }
            Self::UnknownCounter => {
                "events with counters of unknown types, dropped with the rest of their buffers"
            }
            Self::SkippedBytes => "bytes that are no buffers, passed over",
            Self::BadSize => "buffers larger than the rest of the file, read up to the next ones",
            Self::CutTail => "last buffer cut off by the end of the file",
            Self::BadPacking => "gzip data that can't be unpacked from some point on, dropped from there",
            Self::CutPacking => "gzip data cut off by the end of the file",
            Self::UnpackedJunk => "unpacked data that are no buffers from some point on, dropped from there",
            Self::TooMuch => "gzip data with far more in them than any log has, dropped from some point on",
            Self::BehindPacking => "bytes behind the gzip data, passed over",
        })
    }
}

/// A log that is not packed.
#[derive(Clone, Copy, Debug)]
pub struct Log<'a> {
    file: &'a [u8],
    header: Header<'a>,
}

impl<'a> Log<'a> {
    /// Reads the header. Only what is no log, or one of unknown form, is an error; of a damaged one, all that is
    /// whole is kept.
    pub fn parse(file: &'a [u8]) -> Result<Self, Error> {
        let header = Header::parse(file)?;
        Ok(Self { file, header })
    }

    /// The header.
    pub fn header(&self) -> &Header<'a> {
        &self.header
    }

    /// Walks the buffers in the order of the file, which for each thread is that of time.
    pub fn buffers(&self) -> Buffers<'a> {
        Buffers {
            file: self.file,
            header: self.header,
            position: self.header.size,
            faults: Tally::default(),
        }
    }

    /// Walks the events of all buffers in the order of the file.
    pub fn events(&self) -> LogEvents<'a> {
        LogEvents {
            buffers: self.buffers(),
            current: None,
        }
    }
}

/// A buffer: some of the events of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Buffer<'a> {
    /// Where it starts in the file, in bytes.
    pub offset: u64,
    /// Whose it is.
    pub thread: ThreadId,
    /// What the time of its first event is counted from.
    pub time_base: RuntimeTime,
    /// What methods are counted from.
    method_base: u64,
    encoding: Encoding,
    content: &'a [u8],
    /// How many bytes of events it says it has.
    size: usize,
}

impl<'a> Buffer<'a> {
    /// Its events as they are in the file.
    pub fn content(&self) -> &'a [u8] {
        self.content
    }

    /// How many bytes of events it says it has; more than its content where the file ends, or others follow.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// What pointers are counted from.
    pub fn pointer_base(&self) -> u64 {
        self.encoding.pointer_base
    }

    /// What objects are counted from, in units of 8 bytes.
    pub fn object_base(&self) -> u64 {
        self.encoding.object_base
    }

    /// What methods are counted from.
    pub fn method_base(&self) -> u64 {
        self.method_base
    }

    /// Where it ends in the file.
    pub fn end(&self) -> u64 {
        let start = self.offset.saturating_add(BUFFER_HEADER as u64);
        start.saturating_add(self.content.len() as u64)
    }

    /// Walks its events.
    pub fn events(&self) -> Events<'a> {
        Events {
            end: self.end(),
            is_cut: self.content.len() < self.size,
            decoder: Decoder::new(
                self.content,
                self.encoding,
                self.thread,
                self.time_base.0,
                self.method_base,
            ),
            fault: None,
        }
    }
}

/// A walk over the buffers of a log.
#[derive(Clone, Debug)]
pub struct Buffers<'a> {
    file: &'a [u8],
    header: Header<'a>,
    position: usize,
    faults: Tally<Fault>,
}

/// A walk over the events of a buffer. It ends with the buffer or before an event that can't be understood.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    /// Of the buffer, in the file.
    end: u64,
    is_cut: bool,
    decoder: Decoder<'a>,
    fault: Option<(Fault, u64)>,
}

/// A walk over the events of a log.
#[derive(Clone, Debug)]
pub struct LogEvents<'a> {
    buffers: Buffers<'a>,
    current: Option<Events<'a>>,
}

impl Buffers<'_> {
    /// What could not be used of what was walked so far, but for damaged events.
    pub fn faults(&self) -> &Tally<Fault> {
        &self.faults
    }
}

/// The fields of a buffer's header.
struct BufferHeader {
    size: usize,
    bases: [u64; 5],
}

impl BufferHeader {
    /// `None` where there is none, or not all of it.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes.strip_prefix(&BUFFER_ID)?, ByteOrder::Little);
        let size = usize::try_from(reader.u32()?).ok()?;
        let mut bases = [0; 5];
        for base in &mut bases {
            *base = reader.u64()?;
        }
        Some(Self { size, bases })
    }

    /// Whether a buffer starts here beyond doubt, but for one whose size is damaged as well.
    fn starts(bytes: &[u8]) -> bool {
        let room = bytes.len().saturating_sub(BUFFER_HEADER);
        Self::parse(bytes).is_some_and(|header| header.size <= room.max(USUAL_BUFFER))
    }
}

impl<'a> Buffers<'a> {
    /// Where the next buffer starts, from `from` on; the end of the file if there is none.
    fn next_start(&self, from: usize) -> usize {
        let rest = self.file.get(from..).unwrap_or_default();
        memchr::memmem::find_iter(rest, &BUFFER_ID)
            .filter_map(|at| from.checked_add(at))
            .find(|&at| self.file.get(at..).is_some_and(BufferHeader::starts))
            .unwrap_or(self.file.len())
    }

    /// The buffer at `at`, whose header is `header`.
    fn buffer(&self, at: usize, header: &BufferHeader, content: &'a [u8]) -> Buffer<'a> {
        let [time_base, pointer_base, object_base, thread, method_base] = header.bases;
        /// The data version in which roots have addresses. Mono 2.0 wrote some of it as version 14.
        const WITH_ROOT_ADDRESSES: u8 = 15;
        let Header {
            major, data_version, ..
        } = self.header;
        let early = major >= 2 && data_version == WITH_ROOT_ADDRESSES - 1;
        Buffer {
            offset: at as u64,
            thread: ThreadId(thread),
            time_base: RuntimeTime(time_base),
            method_base,
            encoding: Encoding {
                version: data_version,
                roots_have_addresses: data_version >= WITH_ROOT_ADDRESSES || early,
                mask: match self.header.pointer_size {
                    4 => u32::MAX.into(),
                    _ => u64::MAX,
                },
                pointer_base,
                object_base,
            },
            content,
            size: header.size,
        }
    }
}

impl<'a> Iterator for Buffers<'a> {
    type Item = Buffer<'a>;

    fn next(&mut self) -> Option<Buffer<'a>> {
        loop {
            let at = self.position;
            let bytes = self.file.get(at..).filter(|bytes| !bytes.is_empty())?;
            if let Some(header) = BufferHeader::parse(bytes) {
                let content = bytes.get(BUFFER_HEADER..).unwrap_or_default();
                if let Some(content) = content.get(..header.size) {
                    self.position = at.saturating_add(BUFFER_HEADER).saturating_add(content.len());
                    return Some(self.buffer(at, &header, content));
                }
                let start = at.saturating_add(BUFFER_HEADER);
                self.position = self.next_start(start);
                let fault = match self.position < self.file.len() {
                    true => Fault::BadSize,
                    false => Fault::CutTail,
                };
                self.faults.add(fault, at as u64);
                let content = self.file.get(start..self.position).unwrap_or_default();
                return Some(self.buffer(at, &header, content));
            }
            if bytes.len() < BUFFER_HEADER && (bytes.starts_with(&BUFFER_ID) || BUFFER_ID.starts_with(bytes))
            {
                self.faults.add(Fault::CutTail, at as u64);
                self.position = self.file.len();
                return None;
            }
            self.position = self.next_start(at.saturating_add(1));
            let skipped = self.position.saturating_sub(at) as u64;
            self.faults.add_many(Fault::SkippedBytes, skipped, at as u64);
        }
    }
}

impl Events<'_> {
    /// Where the next event starts in the file, unless the walk has come to a fault.
    pub fn next_offset(&self) -> u64 {
        self.end.saturating_sub(self.decoder.left() as u64)
    }

    /// The next event, if it is a call; else it stays.
    #[inline]
    pub(super) fn next_call(&mut self) -> Option<Call> {
        self.decoder.call()
    }

    /// What ended the walk before the end of the buffer, if something has, and at which byte of the file. Where
    /// the file ends inside the buffer, that an event is cut is no fault beside that.
    pub fn fault(&self) -> Option<(Fault, u64)> {
        /// What lacks its end looks like this.
        const CUT: [Fault; 3] = [Fault::CutEvent, Fault::BadCount, Fault::UnendedString];
        self.fault
            .filter(|(fault, _)| !self.is_cut || !CUT.contains(fault))
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    #[inline]
    fn next(&mut self) -> Option<Event<'a>> {
        let left = self.decoder.left();
        if left == 0 || self.fault.is_some() {
            return None;
        }
        let offset = self.next_offset();
        match self.decoder.event(offset) {
            Ok(event) => Some(event),
            Err(fault) => {
                self.fault = Some((fault, offset));
                None
            }
        }
    }
}

impl LogEvents<'_> {
    /// What could not be used of what was walked so far.
    pub fn faults(&self) -> &Tally<Fault> {
        &self.buffers.faults
    }
}

impl<'a> Iterator for LogEvents<'a> {
    type Item = Event<'a>;

    #[inline]
    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            if let Some(events) = &mut self.current {
                if let Some(event) = events.next() {
                    return Some(event);
                }
                if let Some((fault, offset)) = events.fault() {
                    self.buffers.faults.add(fault, offset);
                }
            }
            self.current = Some(self.buffers.next()?.events());
        }
    }
}
