//! Records of the flight data recorder.
//!
//! The first bit of a record tells its size: records of functions have 8 bytes, metadata records 16, which the bytes of
//! an event may follow. Nothing is aligned. Bytes that mean nothing are as they were in the runtime's memory.
//!
//! Functions tell how many ticks have passed since the record before, from a base that metadata records set. In
//! version 5, events do as well; before, they have a tick of their own and leave the base as it is.

use crate::bytes::{ByteOrder, Reader};
use crate::runtime::xray::header::Header;
use crate::runtime::xray::index::Buffer;
use crate::runtime::xray::record::{Record, What};
use crate::runtime::xray::trace::Fault;
use crate::tally::Tally;

/// The sizes in bytes of the two sorts of records.
pub(super) const FUNCTION: usize = 8;
pub(super) const METADATA: usize = 16;

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

/// The version in which buffers have the size that they have, in front, and no mark at their ends.
pub(super) const WITH_EXTENTS: u16 = 2;
/// The version in which buffers tell the process.
pub(super) const WITH_PID: u16 = 3;
/// The version in which custom events have a processor. Only this one has it.
const WITH_EVENT_CPU: u16 = 4;
/// The version in which events count ticks like functions do.
const WITH_EVENT_DELTAS: u16 = 5;

/// The kind of a metadata record by its first byte; `None` for a record of a function.
#[inline]
pub(super) fn metadata_kind(first: u8, order: ByteOrder) -> Option<u8> {
    // Bit fields are filled from the end at which the machine has its lowest byte.
    match order {
        ByteOrder::Little => (first & 1 != 0).then_some(first >> 1),
        ByteOrder::Big => (first & 0x80 != 0).then_some(first & 0x7f),
    }
}

/// The first byte of metadata records of a kind.
pub(super) fn introducer(kind: u8, order: ByteOrder) -> u8 {
    match order {
        ByteOrder::Little => kind << 1 | 1,
        ByteOrder::Big => 0x80 | kind,
    }
}

/// Action, number and ticks of the record of a function.
#[inline]
pub(super) fn function_fields(record: [u8; FUNCTION], order: ByteOrder) -> (u32, u32, u32) {
    match order {
        ByteOrder::Little => {
            let both = u64::from_le_bytes(record);
            ((both as u32 >> 1) & 7, both as u32 >> 4, (both >> 32) as u32)
        }
        ByteOrder::Big => {
            let both = u64::from_be_bytes(record);
            let word = (both >> 32) as u32;
            (word >> 28, word & 0x0fff_ffff, both as u32)
        }
    }
}

/// Reads the records of a buffer one by one.
#[derive(Clone, Debug)]
pub(super) struct Decoder<'a> {
    rest: &'a [u8],
    /// Where the buffer ends in the file.
    end: u64,
    is_cut: bool,
    order: ByteOrder,
    version: u16,
    /// What the next function counts its ticks from.
    base: u64,
    /// That of the last record.
    tick: u64,
    cpu: u16,
    /// How many there were so far.
    typed_events: u64,
    has_ended_by_mark: bool,
    faults: Tally<Fault>,
}

/// What becomes of a metadata record.
enum Step<'a> {
    Record { tick: u64, cpu: u16, what: What<'a> },
    Next,
    End,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(content: &'a [u8], header: &Header, buffer: &Buffer) -> Self {
        Self {
            rest: content,
            end: buffer.end,
            is_cut: buffer.is_cut,
            order: header.order,
            version: header.version,
            base: buffer.tick,
            tick: buffer.tick,
            cpu: 0,
            typed_events: 0,
            has_ended_by_mark: false,
            faults: Tally::default(),
        }
    }

    pub(super) fn faults(&self) -> &Tally<Fault> {
        &self.faults
    }

    /// Where the next record starts in the file.
    pub(super) fn next_offset(&self) -> u64 {
        self.end.saturating_sub(self.rest.len() as u64)
    }

    /// Whether the walk has come to a record that marks the end of the buffer.
    pub(super) fn has_ended_by_mark(&self) -> bool {
        self.has_ended_by_mark
    }

    /// The next record that tells something.
    #[inline]
    pub(super) fn record(&mut self) -> Option<Record<'a>> {
        loop {
            let offset = self.next_offset();
            let Some((&head, behind)) = self.rest.split_first_chunk::<FUNCTION>() else {
                self.finish(offset);
                return None;
            };
            let [first, ..] = head;
            let Some(kind) = metadata_kind(first, self.order) else {
                self.rest = behind;
                match self.function(head, offset) {
                    Some(record) => return Some(record),
                    None => continue,
                }
            };
            match self.metadata(kind, offset) {
                Step::Record { tick, cpu, what } => return Some(self.told(tick, cpu, offset, what)),
                Step::Next => {}
                Step::End => return None,
            }
        }
    }

    /// The record of a function; `None` if it is neither entered nor left.
    #[inline]
    fn function(&mut self, head: [u8; FUNCTION], offset: u64) -> Option<Record<'a>> {
        let (action, function, delta) = function_fields(head, self.order);
        self.base = match self.base.checked_add(delta.into()) {
            Some(base) => base,
            None => self.overflow(offset),
        };
        let what = match action {
            0 => What::Enter { function },
            1 => What::Exit { function },
            2 => What::TailExit { function },
            3 => What::EnterWithArguments { function },
            _ => {
                self.faults.add(Fault::UnknownRecord, offset);
                return None;
            }
        };
        Some(self.told(self.base, self.cpu, offset, what))
    }

    #[inline]
    fn told(&mut self, tick: u64, cpu: u16, offset: u64, what: What<'a>) -> Record<'a> {
        if tick < self.tick {
            self.faults.add(Fault::TickBack, offset);
        }
        self.tick = tick;
        Record {
            tick,
            cpu,
            offset,
            what,
        }
    }

    #[cold]
    fn overflow(&mut self, offset: u64) -> u64 {
        self.faults.add(Fault::TickOverflow, offset);
        u64::MAX
    }

    fn metadata(&mut self, kind: u8, offset: u64) -> Step<'a> {
        let Some((record, behind)) = self.rest.split_at_checked(METADATA) else {
            return self.finish(offset);
        };
        let mut body = Reader::new(record.get(1..).unwrap_or_default(), self.order);
        match kind {
            CUSTOM_EVENT | TYPED_EVENT => return self.event(kind, body, behind, offset),
            END_OF_BUFFER if self.version < WITH_EXTENTS => {
                self.has_ended_by_mark = true;
                self.rest = &[];
                return Step::End;
            }
            _ => {}
        }
        self.rest = behind;
        let step = match kind {
            NEW_CPU_ID => self.new_cpu(&mut body),
            TSC_WRAP => body.u64().map(|tick| {
                self.base = tick;
                Step::Next
            }),
            CALL_ARGUMENT => body.u64().map(|argument| Step::Record {
                tick: self.tick,
                cpu: self.cpu,
                what: What::Argument(argument),
            }),
            WALL_TIME | PID => Some(Step::Next),
            _ => None,
        };
        step.unwrap_or_else(|| self.give_up(Fault::UnknownKind, offset))
    }

    fn new_cpu(&mut self, body: &mut Reader<'_>) -> Option<Step<'a>> {
        self.cpu = body.u16()?;
        self.base = body.u64()?;
        Some(Step::Next)
    }

    /// An event, whose bytes stand `behind` its record.
    fn event(&mut self, kind: u8, mut body: Reader<'_>, behind: &'a [u8], offset: u64) -> Step<'a> {
        let Some(fields) = self.event_fields(&mut body, offset) else {
            return self.give_up(Fault::UnknownKind, offset);
        };
        let Ok(size) = usize::try_from(fields.size) else {
            return self.give_up(Fault::BadEventSize, offset);
        };
        let Some((payload, rest)) = behind.split_at_checked(size) else {
            return self.finish(offset);
        };
        self.rest = rest;
        if self.version >= WITH_EVENT_DELTAS {
            self.base = fields.tick;
        }
        let what = match kind {
            TYPED_EVENT => {
                self.typed_events = self.typed_events.saturating_add(1);
                let kind = fields.number;
                What::Typed { kind, payload }
            }
            _ => What::Custom { payload },
        };
        let has_cpu = kind == CUSTOM_EVENT && self.version == WITH_EVENT_CPU;
        Step::Record {
            tick: fields.tick,
            cpu: if has_cpu { fields.number } else { self.cpu },
            what,
        }
    }

    /// `None` where the record is too short, which none is.
    fn event_fields(&mut self, body: &mut Reader<'_>, offset: u64) -> Option<EventFields> {
        let size = body.u32()? as i32;
        let tick = if self.version < WITH_EVENT_DELTAS {
            body.u64()?
        } else {
            let delta = body.u32()? as i32;
            match self.base.checked_add_signed(delta.into()) {
                Some(tick) => tick,
                // before the first of all ticks
                None if delta < 0 => 0,
                None => self.overflow(offset),
            }
        };
        // In custom events of most versions there is nothing.
        let number = body.u16()?;
        Some(EventFields { size, tick, number })
    }

    /// Leaves out the rest of the buffer.
    #[cold]
    fn give_up(&mut self, fault: Fault, offset: u64) -> Step<'a> {
        self.faults.add(fault, offset);
        self.end()
    }

    /// Ends the walk where no whole record is left, and tells why if something is.
    #[cold]
    fn finish(&mut self, offset: u64) -> Step<'a> {
        let is_short = self.loses_bytes() && self.typed_events > 0;
        if !self.rest.is_empty() && !self.is_cut && !is_short {
            self.faults.add(Fault::CutRecord, offset);
        }
        self.end()
    }

    fn end(&mut self) -> Step<'a> {
        if self.loses_bytes() {
            let lost = self.typed_events.saturating_mul(METADATA as u64);
            self.faults.add_many(Fault::LostByWriter, lost, self.end);
        }
        self.typed_events = 0;
        self.rest = &[];
        Step::End
    }

    // Quirk: compiler-rt counts only what follows the record of a typed event as the buffer's bytes, and writes no more
    // than it has counted. So of each buffer, 16 bytes of its end are missing for each of them, and it often ends inside a
    // record (LLVM 14 and 19; the recording `xray-fdr-typed19`).
    fn loses_bytes(&self) -> bool {
        self.version >= WITH_EXTENTS
    }
}

/// What the record of an event tells.
struct EventFields {
    size: i32,
    tick: u64,
    /// The type of a typed event, or the processor of a custom one.
    number: u16,
}
