//! Reads a log: its buffers, the events of each buffer, and the faults of a damaged file.
//!
//! Each value in a buffer depends on the values before it. So a damaged event makes the rest of its buffer
//! unreadable, but not the next buffer.

use jitdump::{ByteOrder, RuntimeTime, Tally};

use crate::bytes::Reader;
use crate::collections::hash::HashMap;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::mono::format::cursor::Encoding;
use crate::traces::mono::format::decode::{EventDecoder, MethodCall};
use crate::traces::mono::format::event::{LogEvent, ThreadId};
use crate::traces::mono::format::header::LogHeader;

/// First four bytes of a buffer (`BUF_ID`, little-endian).
pub(super) const BUFFER_ID: [u8; 4] = *b"\x01LPM";

/// Size of a buffer's header, in bytes.
pub const BUFFER_HEADER_SIZE: usize = 48;

/// Size of a buffer in bytes, unless Mono enlarged it for one large event. This is how much of the last
/// buffer of a file may be missing.
const USUAL_BUFFER_SIZE: usize = 64 << 10;

/// A log that is not packed.
#[derive(Clone, Copy, Debug)]
pub struct Log<'a> {
    file: &'a [u8],
    header: LogHeader<'a>,
}

impl<'a> Log<'a> {
    /// Parses the header. Returns an error only if the file is not a log or has an unknown format. The intact
    /// parts of a damaged log remain readable.
    pub fn parse(file: &'a [u8]) -> Result<Self, Diagnostic> {
        let header = LogHeader::parse(file)?;
        Ok(Self { file, header })
    }

    /// Returns the header.
    pub fn header(&self) -> &LogHeader<'a> {
        &self.header
    }

    /// Iterates over the buffers in file order. Those of a thread are in the order of time, unless Mono wrote several at once.
    pub fn buffers(&self) -> LogBuffers<'a> {
        LogBuffers {
            file: self.file,
            header: self.header,
            position: self.header.size,
            faults: Tally::default(),
        }
    }

    /// Iterates over the buffers that start earlier than one of their thread before them in the file.
    pub fn out_of_order_buffers(&self) -> impl Iterator<Item = OutOfOrderBuffer> {
        let mut latest: HashMap<ThreadId, RuntimeTime> = HashMap::default();
        self.buffers().filter_map(move |buffer| {
            let latest_of_thread = latest.entry(buffer.thread).or_default();
            let back = latest_of_thread.0.saturating_sub(buffer.time_base.0);
            *latest_of_thread = buffer.time_base.max(*latest_of_thread);
            (back > 0).then_some(OutOfOrderBuffer {
                offset: buffer.offset,
                back,
            })
        })
    }

    /// Iterates over the events of all buffers in file order.
    pub fn events(&self) -> LogEvents<'a> {
        LogEvents {
            buffers: self.buffers(),
            current: None,
        }
    }
}

/// A buffer that starts earlier than one of its thread before it in the file.
#[derive(Clone, Copy, Debug)]
pub struct OutOfOrderBuffer {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// How much earlier it starts than the latest of these, in nanoseconds.
    pub back: u64,
}

/// A buffer, which has events of one thread.
#[derive(Clone, Copy, Debug)]
pub struct LogBuffer<'a> {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Thread that owns the buffer.
    pub thread: ThreadId,
    /// Base of the first event's time.
    pub time_base: RuntimeTime,
    /// Base of methods.
    method_base: u64,
    encoding: Encoding,
    content: &'a [u8],
    /// Size of the events in bytes, according to the header.
    size: usize,
}

impl<'a> LogBuffer<'a> {
    /// Returns the encoded events.
    pub fn content(&self) -> &'a [u8] {
        self.content
    }

    /// Returns the size of the events in bytes, according to the header. It exceeds the size of the content
    /// if the buffer is cut off by the end of the file or by another buffer.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// Returns the base of pointers.
    pub fn pointer_base(&self) -> u64 {
        self.encoding.pointer_base
    }

    /// Returns the base of objects, in units of 8 bytes.
    pub fn object_base(&self) -> u64 {
        self.encoding.object_base
    }

    /// Returns the base of methods.
    pub fn method_base(&self) -> u64 {
        self.method_base
    }

    /// Returns the end offset in the file, in bytes.
    pub fn end(&self) -> u64 {
        let start = self.offset.saturating_add(BUFFER_HEADER_SIZE as u64);
        start.saturating_add(self.content.len() as u64)
    }

    /// Iterates over the events.
    pub fn events(&self) -> BufferEvents<'a> {
        BufferEvents {
            end: self.end(),
            is_cut: self.content.len() < self.size,
            decoder: EventDecoder::new(
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

/// Iterator over the buffers of a log.
#[derive(Clone, Debug)]
pub struct LogBuffers<'a> {
    file: &'a [u8],
    header: LogHeader<'a>,
    position: usize,
    faults: Tally<Issue>,
}

/// Iterator over the events of a buffer. Ends with the buffer, or before an event that cannot be decoded.
#[derive(Clone, Debug)]
pub struct BufferEvents<'a> {
    /// End of the buffer in the file, in bytes.
    end: u64,
    is_cut: bool,
    decoder: EventDecoder<'a>,
    fault: Option<(Issue, u64)>,
}

/// Iterator over the events of a log.
#[derive(Clone, Debug)]
pub struct LogEvents<'a> {
    buffers: LogBuffers<'a>,
    current: Option<BufferEvents<'a>>,
}

impl LogBuffers<'_> {
    /// Returns the faults found so far, except those of events.
    pub fn faults(&self) -> &Tally<Issue> {
        &self.faults
    }
}

/// Fields of a buffer's header.
struct BufferHeader {
    size: usize,
    bases: [u64; 5],
}

impl BufferHeader {
    /// Parses a header; `None` if it is missing or incomplete.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes.strip_prefix(&BUFFER_ID)?, ByteOrder::Little);
        let size = usize::try_from(reader.u32()?).ok()?;
        let mut bases = [0; 5];
        for base in &mut bases {
            *base = reader.u64()?;
        }
        Some(Self { size, bases })
    }

    /// Returns whether a buffer with a possible size starts here. Used to search for buffers, so a buffer
    /// with a damaged size is not recognized.
    fn is_plausible_start(bytes: &[u8]) -> bool {
        let room = bytes.len().saturating_sub(BUFFER_HEADER_SIZE);
        Self::parse(bytes).is_some_and(|header| header.size <= room.max(USUAL_BUFFER_SIZE))
    }
}

impl<'a> LogBuffers<'a> {
    /// Returns the offset of the next buffer at or after `from`, or the end of the file.
    fn next_start(&self, from: usize) -> usize {
        let rest = self.file.get(from..).unwrap_or_default();
        memchr::memmem::find_iter(rest, &BUFFER_ID)
            .filter_map(|at| from.checked_add(at))
            .find(|&at| self.file.get(at..).is_some_and(BufferHeader::is_plausible_start))
            .unwrap_or(self.file.len())
    }

    /// Creates the buffer at `at` from its header and content.
    fn make_buffer(&self, at: usize, header: &BufferHeader, content: &'a [u8]) -> LogBuffer<'a> {
        let [time_base, pointer_base, object_base, thread, method_base] = header.bases;
        /// First data version in which roots have addresses. Mono 2.0 also wrote this format as version 14.
        const WITH_ROOT_ADDRESSES: u8 = 15;
        let LogHeader {
            major, data_version, ..
        } = self.header;
        let early = major >= 2 && data_version == WITH_ROOT_ADDRESSES - 1;
        LogBuffer {
            offset: at as u64,
            thread: ThreadId(thread),
            time_base: RuntimeTime(time_base),
            method_base,
            encoding: Encoding {
                version: data_version,
                roots_have_addresses: data_version >= WITH_ROOT_ADDRESSES || early,
                pointer_mask: match self.header.pointer_size {
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

impl<'a> Iterator for LogBuffers<'a> {
    type Item = LogBuffer<'a>;

    fn next(&mut self) -> Option<LogBuffer<'a>> {
        loop {
            let at = self.position;
            let bytes = self.file.get(at..).filter(|bytes| !bytes.is_empty())?;
            if let Some(header) = BufferHeader::parse(bytes) {
                let content = bytes.get(BUFFER_HEADER_SIZE..).unwrap_or_default();
                if let Some(content) = content.get(..header.size) {
                    self.position = at
                        .saturating_add(BUFFER_HEADER_SIZE)
                        .saturating_add(content.len());
                    return Some(self.make_buffer(at, &header, content));
                }
                let start = at.saturating_add(BUFFER_HEADER_SIZE);
                self.position = self.next_start(start);
                let fault = if self.position < self.file.len() {
                    Issue::MonoBadSize
                } else {
                    Issue::MonoCutTail
                };
                self.faults.add(fault, at as u64);
                let content = self.file.get(start..self.position).unwrap_or_default();
                return Some(self.make_buffer(at, &header, content));
            }
            if bytes.len() < BUFFER_HEADER_SIZE
                && (bytes.starts_with(&BUFFER_ID) || BUFFER_ID.starts_with(bytes))
            {
                self.faults.add(Issue::MonoCutTail, at as u64);
                self.position = self.file.len();
                return None;
            }
            self.position = self.next_start(at.saturating_add(1));
            let skipped = self.position.saturating_sub(at) as u64;
            self.faults.add_many(Issue::MonoSkippedBytes, skipped, at as u64);
        }
    }
}

impl BufferEvents<'_> {
    /// Returns the offset of the next event in the file, or of the event with the fault if there is one.
    pub fn next_offset(&self) -> u64 {
        self.end.saturating_sub(self.decoder.remaining() as u64)
    }

    /// Decodes the next event if it is a call; otherwise leaves it.
    #[inline]
    pub(super) fn next_call(&mut self) -> Option<MethodCall> {
        self.decoder.call()
    }

    /// Returns the fault that ended the iteration before the end of the buffer, with its offset in the file.
    /// In a buffer that is cut off, an incomplete event is not an additional fault.
    pub fn fault(&self) -> Option<(Issue, u64)> {
        /// Faults that an incomplete event can cause.
        const CUT: [Issue; 3] = [
            Issue::MonoCutEvent,
            Issue::MonoBadCount,
            Issue::MonoUnterminatedString,
        ];
        self.fault
            .filter(|(fault, _)| !self.is_cut || !CUT.contains(fault))
    }
}

impl<'a> Iterator for BufferEvents<'a> {
    type Item = LogEvent<'a>;

    #[inline]
    fn next(&mut self) -> Option<LogEvent<'a>> {
        let left = self.decoder.remaining();
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
    /// Returns the faults found so far.
    pub fn faults(&self) -> &Tally<Issue> {
        &self.buffers.faults
    }
}

impl<'a> Iterator for LogEvents<'a> {
    type Item = LogEvent<'a>;

    #[inline]
    fn next(&mut self) -> Option<LogEvent<'a>> {
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
