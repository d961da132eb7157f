//! Decodes records of XRay's flight data recorder (FDR) mode.
//!
//! The first bit of a record selects its size: function records have 8 bytes, metadata records 16. The
//! payload of an event may follow. Nothing is aligned. Unused bytes hold whatever was in the runtime's
//! memory.
//!
//! Function records have the number of ticks since the previous record. Metadata records set the base. In
//! version 5, events count ticks in the same way; in older versions, they have a tick of their own and do not
//! change the base.

use jitdump::{ByteOrder, Tally};

use crate::bytes::Reader;
use crate::results::diagnostics::Issue;
use crate::traces::xray::format::buffer::TraceBuffer;
use crate::traces::xray::format::header::TraceHeader;
use crate::traces::xray::format::record::{RecordKind, TraceRecord};

/// Sizes of function and metadata records, in bytes.
pub(super) const FUNCTION_SIZE: usize = 8;
pub(super) const METADATA_SIZE: usize = 16;

// Kinds of metadata records.
pub(super) const NEW_BUFFER: u8 = 0;
pub(super) const END_OF_BUFFER: u8 = 1;
pub(super) const NEW_CPU_ID: u8 = 2;
pub(super) const TSC_WRAP: u8 = 3;
pub(super) const WALL_TIME: u8 = 4;
pub(super) const CUSTOM_EVENT: u8 = 5;
pub(super) const CALL_ARGUMENT: u8 = 6;
pub(super) const BUFFER_EXTENTS: u8 = 7;
pub(super) const TYPED_EVENT: u8 = 8;
pub(super) const PID: u8 = 9;

/// First version in which an extents record before each buffer has its actual size, without an end-of-buffer
/// record.
pub(super) const WITH_EXTENTS: u16 = 2;
/// First version in which buffers have the process ID.
pub(super) const WITH_PID: u16 = 3;
/// The only version in which custom events have a processor ID.
const WITH_EVENT_CPU: u16 = 4;
/// First version in which events have tick differences, like functions.
const WITH_EVENT_DELTAS: u16 = 5;

/// Returns the kind of a metadata record from its first byte; `None` for a function record.
#[inline]
pub(super) fn metadata_kind(first: u8, endian: ByteOrder) -> Option<u8> {
    // Bit fields start at the end that holds the machine's least significant byte.
    match endian {
        ByteOrder::Little => (first & 1 != 0).then_some(first >> 1),
        ByteOrder::Big => (first & 0x80 != 0).then_some(first & 0x7f),
    }
}

/// Returns the first byte of metadata records of a kind.
pub(super) fn introducer(kind: u8, endian: ByteOrder) -> u8 {
    match endian {
        ByteOrder::Little => kind << 1 | 1,
        ByteOrder::Big => 0x80 | kind,
    }
}

/// Fields of a function record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionFields {
    /// Code of the action.
    pub action: u32,
    /// Function ID.
    pub function: u32,
    /// Ticks since the previous record.
    pub delta: u32,
}

impl FunctionFields {
    /// Decodes a record.
    #[inline]
    pub fn of(record: [u8; FUNCTION_SIZE], endian: ByteOrder) -> Self {
        match endian {
            ByteOrder::Little => {
                let both = u64::from_le_bytes(record);
                let word = both as u32;
                Self {
                    action: (word >> 1) & 7,
                    function: word >> 4,
                    delta: (both >> 32) as u32,
                }
            }
            ByteOrder::Big => {
                let both = u64::from_be_bytes(record);
                let word = (both >> 32) as u32;
                Self {
                    action: (word >> 28) & 7,
                    function: word & 0x0fff_ffff,
                    delta: both as u32,
                }
            }
        }
    }
}

/// Decodes the records of a buffer one by one.
#[derive(Clone, Debug)]
pub(super) struct FdrDecoder<'a> {
    rest: &'a [u8],
    /// End of the buffer in the file, in bytes.
    end: u64,
    is_cut: bool,
    endian: ByteOrder,
    version: u16,
    /// Tick to which the next function's difference is added.
    base: u64,
    /// Tick of the last record.
    tick: u64,
    cpu: u16,
    /// Number of typed events so far.
    typed_events: u64,
    /// Whether an end-of-buffer record has been read.
    pub(super) has_end_marker: bool,
    /// Whether the last record has been read, or the buffer was abandoned.
    is_over: bool,
    pub(super) faults: Tally<Issue>,
}

/// Result of reading a metadata record.
enum MetadataStep<'a> {
    Record {
        tick: u64,
        cpu: u16,
        kind: RecordKind<'a>,
    },
    Next,
    End,
}

impl<'a> FdrDecoder<'a> {
    pub(super) fn new(content: &'a [u8], header: &TraceHeader, buffer: &TraceBuffer) -> Self {
        Self {
            rest: content,
            end: buffer.end,
            is_cut: buffer.is_cut,
            endian: header.endian,
            version: header.version,
            base: buffer.tick,
            tick: buffer.tick,
            cpu: 0,
            typed_events: 0,
            has_end_marker: false,
            is_over: false,
            faults: Tally::default(),
        }
    }

    /// Returns the offset of the next record in the file, in bytes.
    pub(super) fn next_offset(&self) -> u64 {
        self.end.saturating_sub(self.rest.len() as u64)
    }

    /// Returns the next call, argument or event.
    #[inline]
    pub(super) fn record(&mut self) -> Option<TraceRecord<'a>> {
        loop {
            let offset = self.next_offset();
            let Some((&head, rest)) = self.rest.split_first_chunk::<FUNCTION_SIZE>() else {
                if !self.is_over {
                    self.finish(offset);
                }
                return None;
            };
            let [first, ..] = head;
            let Some(kind) = metadata_kind(first, self.endian) else {
                if self.is_filler(head) {
                    self.abandon_buffer(Issue::XrayNoEnd, offset);
                    return None;
                }
                self.rest = rest;
                match self.function(head, offset) {
                    Some(record) => return Some(record),
                    None => continue,
                }
            };
            match self.metadata(kind, offset) {
                MetadataStep::Record { tick, cpu, kind } => {
                    return Some(self.make_record(tick, cpu, offset, kind));
                }
                MetadataStep::Next => {}
                MetadataStep::End => return None,
            }
        }
    }

    /// Returns whether a function record is one of the bytes after a version 1 buffer whose end is not marked. No function
    /// has ID 0.
    #[inline]
    fn is_filler(&self, head: [u8; FUNCTION_SIZE]) -> bool {
        self.version < WITH_EXTENTS && FunctionFields::of(head, self.endian).function == 0
    }

    /// Decodes a function record; `None` if its action is unknown.
    #[inline]
    fn function(&mut self, head: [u8; FUNCTION_SIZE], offset: u64) -> Option<TraceRecord<'a>> {
        let fields = FunctionFields::of(head, self.endian);
        self.base = match self.base.checked_add(fields.delta.into()) {
            Some(base) => base,
            None => self.overflow(offset),
        };
        let Some(kind) = RecordKind::of_action(fields.action, fields.function) else {
            self.faults.add(Issue::XrayUnknownRecord, offset);
            return None;
        };
        Some(self.make_record(self.base, self.cpu, offset, kind))
    }

    /// Makes a record at a tick, and counts a tick that goes back.
    #[inline]
    fn make_record(&mut self, tick: u64, cpu: u16, offset: u64, kind: RecordKind<'a>) -> TraceRecord<'a> {
        if tick < self.tick {
            self.faults.add(Issue::XrayTickBack, offset);
        }
        self.tick = tick;
        TraceRecord {
            tick,
            cpu,
            offset,
            kind,
        }
    }

    #[cold]
    fn overflow(&mut self, offset: u64) -> u64 {
        self.faults.add(Issue::XrayTickOverflow, offset);
        u64::MAX
    }

    /// Follows a metadata record; returns the record that it stands for, if it is one.
    fn metadata(&mut self, kind: u8, offset: u64) -> MetadataStep<'a> {
        let Some((record, rest)) = self.rest.split_at_checked(METADATA_SIZE) else {
            return self.finish(offset);
        };
        let mut body = Reader::new(record.get(1..).unwrap_or_default(), self.endian);
        match kind {
            CUSTOM_EVENT | TYPED_EVENT => return self.event(kind, body, rest, offset),
            END_OF_BUFFER if self.version < WITH_EXTENTS => {
                self.has_end_marker = true;
                return self.end();
            }
            _ => {}
        }
        self.rest = rest;
        let step = match kind {
            NEW_CPU_ID => self.new_cpu(&mut body),
            TSC_WRAP => body.u64().map(|tick| {
                self.base = tick;
                MetadataStep::Next
            }),
            CALL_ARGUMENT => body.u64().map(|argument| MetadataStep::Record {
                tick: self.tick,
                cpu: self.cpu,
                kind: RecordKind::Argument(argument),
            }),
            WALL_TIME | PID => Some(MetadataStep::Next),
            _ => None,
        };
        step.unwrap_or_else(|| self.abandon_buffer(Issue::XrayUnknownKind, offset))
    }

    fn new_cpu(&mut self, body: &mut Reader<'_>) -> Option<MetadataStep<'a>> {
        self.cpu = body.u16()?;
        self.base = body.u64()?;
        Some(MetadataStep::Next)
    }

    /// Decodes an event; `rest` starts with its payload.
    fn event(&mut self, kind: u8, mut body: Reader<'_>, rest: &'a [u8], offset: u64) -> MetadataStep<'a> {
        let Some(fields) = self.event_fields(&mut body, offset) else {
            return self.abandon_buffer(Issue::XrayUnknownKind, offset);
        };
        let Ok(size) = usize::try_from(fields.size) else {
            return self.abandon_buffer(Issue::XrayBadEventSize, offset);
        };
        let Some((payload, rest)) = rest.split_at_checked(size) else {
            return self.finish(offset);
        };
        self.rest = rest;
        if self.version >= WITH_EVENT_DELTAS {
            self.base = fields.tick;
        }
        let record_kind = match kind {
            TYPED_EVENT => {
                self.typed_events = self.typed_events.saturating_add(1);
                RecordKind::Typed {
                    kind: fields.number,
                    payload,
                }
            }
            _ => RecordKind::Custom { payload },
        };
        let has_cpu = kind == CUSTOM_EVENT && self.version == WITH_EVENT_CPU;
        MetadataStep::Record {
            tick: fields.tick,
            cpu: if has_cpu { fields.number } else { self.cpu },
            kind: record_kind,
        }
    }

    /// Returns `None` if the record is too short, which cannot happen.
    fn event_fields(&mut self, body: &mut Reader<'_>, offset: u64) -> Option<EventFields> {
        let size = body.u32()? as i32;
        let tick = if self.version < WITH_EVENT_DELTAS {
            body.u64()?
        } else {
            let delta = body.u32()? as i32;
            match self.base.checked_add_signed(delta.into()) {
                Some(tick) => tick,
                // earlier than the first possible tick
                None if delta < 0 => 0,
                None => self.overflow(offset),
            }
        };
        // Unused in custom events of most versions.
        let number = body.u16()?;
        Some(EventFields { size, tick, number })
    }

    /// Drops the rest of the buffer.
    #[cold]
    fn abandon_buffer(&mut self, fault: Issue, offset: u64) -> MetadataStep<'a> {
        self.faults.add(fault, offset);
        self.end()
    }

    /// Ends the buffer, and reports remaining bytes that are not a complete record.
    #[cold]
    fn finish(&mut self, offset: u64) -> MetadataStep<'a> {
        let is_short = self.loses_bytes() && self.typed_events > 0;
        if !self.rest.is_empty() && !self.is_cut && !is_short {
            self.faults.add(Issue::XrayCutRecord, offset);
        }
        if self.version < WITH_EXTENTS && !self.is_cut {
            self.faults.add(Issue::XrayNoEnd, offset);
        }
        self.end()
    }

    fn end(&mut self) -> MetadataStep<'a> {
        if self.loses_bytes() {
            let lost = self.typed_events.saturating_mul(METADATA_SIZE as u64);
            self.faults.add_many(Issue::XrayLostByWriter, lost, self.end);
        }
        self.is_over = true;
        self.rest = &[];
        MetadataStep::End
    }

    // Quirk: compiler-rt does not count the 16-byte records of typed events, only their payload, and writes
    // no more bytes than it has counted. So each typed event costs a buffer 16 bytes at its end, and the
    // buffer often ends inside a record. Before version 5, it counted them (LLVM 14 and 19; the recording `xray-fdr-typed19`).
    fn loses_bytes(&self) -> bool {
        self.version >= WITH_EVENT_DELTAS
    }
}

/// Fields of an event record.
struct EventFields {
    size: i32,
    tick: u64,
    /// Type of a typed event, or processor ID of a custom one.
    number: u16,
}
