//! Decodes the bytes of a buffer into events.
//!
//! The low half of an event's first byte is its type; the high half is a subtype or flags. The rest depends
//! on the data version, as noted at each difference. A type is accepted only in the data versions that have
//! it. Its subtypes are accepted in all of these, except for mapped files in samples.

mod measurements;
mod memory;
mod program;

use jitdump::RuntimeTime;

use crate::results::diagnostics::Issue;
use crate::traces::mono::format::cursor::{BufferCursor, Encoding};
use crate::traces::mono::format::event::{LogEvent, LogEventKind, Method, Pointer, ThreadId, TypeReference};
use crate::traces::mono::format::list::{MethodFrames, StackEncoding};

// Event types.
const ALLOCATION: u8 = 0;
const COLLECTION: u8 = 1;
const METADATA: u8 = 2;
const METHOD: u8 = 3;
const EXCEPTION: u8 = 4;
const MONITOR: u8 = 5;
const HEAP: u8 = 6;
const SAMPLE: u8 = 7;
const RUNTIME: u8 = 8;
const COVERAGE: u8 = 9;
const META: u8 = 10;

// Event types with the subtypes of calls.
const LEAVE: u8 = METHOD | 0x10;
const ENTER: u8 = METHOD | 0x20;
const EXCEPTION_LEAVE: u8 = METHOD | 0x30;

/// Data version that simplified the format. Since then, all events have a time, methods in stacks use the
/// same base as those in events, flags that were always 0 are gone, and small numbers are single bytes.
const SIMPLIFIED: u8 = 13;

/// First data version in which the type of an object is a vtable.
const WITH_VTABLES: u8 = 15;

/// Flag in the subtype of exceptions and locks: a stack follows.
const HAS_STACK: u8 = 0x80;

/// An entry or exit of a method. These are most of the events of a log with calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MethodCall {
    /// Time of the event.
    pub(super) time: RuntimeTime,
    /// The method that was entered or left.
    pub(super) method: Method,
    /// Whether the method was entered.
    pub(super) is_enter: bool,
}

/// Decodes events one by one.
#[derive(Clone, Debug)]
pub(super) struct EventDecoder<'a> {
    cursor: BufferCursor<'a>,
    encoding: Encoding,
    thread: ThreadId,
    /// Time of the last event, in nanoseconds.
    time: u64,
    /// Last method that was decoded.
    method: u64,
}

impl<'a> EventDecoder<'a> {
    pub(super) fn new(
        content: &'a [u8],
        encoding: Encoding,
        thread: ThreadId,
        time_base: u64,
        method_base: u64,
    ) -> Self {
        Self {
            cursor: BufferCursor::new(content),
            encoding,
            thread,
            time: time_base,
            method: method_base,
        }
    }

    /// Returns the number of bytes left.
    pub(super) fn remaining(&self) -> usize {
        self.cursor.rest().len()
    }

    /// Decodes the next event, which starts at `offset` in the file.
    #[inline]
    pub(super) fn event(&mut self, offset: u64) -> Result<LogEvent<'a>, Issue> {
        let head = self.cursor.byte()?;
        let subtype = head & 0xf0;
        // Time of a sample that the times of later events do not follow.
        let mut own_time = None;
        let kind = match head & 0x0f {
            METHOD => self.method(subtype)?,
            ALLOCATION => self.allocation(subtype)?,
            COLLECTION => self.collection(subtype)?,
            METADATA => self.metadata(subtype)?,
            EXCEPTION => self.exception(subtype)?,
            MONITOR => self.monitor(subtype)?,
            HEAP => self.heap(subtype)?,
            SAMPLE if self.since(4) => self.sample(subtype, &mut own_time)?,
            RUNTIME if self.since(8) => self.code_buffer(subtype)?,
            COVERAGE if self.since(10) && !self.since(16) => self.coverage(subtype)?,
            META if self.since(SIMPLIFIED) => self.meta(subtype)?,
            _ => return Err(Issue::MonoUnknownEvent),
        };
        Ok(LogEvent {
            time: RuntimeTime(own_time.unwrap_or(self.time)),
            thread: self.thread,
            offset,
            kind,
        })
    }

    /// Decodes the next event if it is a valid call. Any other event is left for [`Self::event`].
    ///
    /// An [`LogEvent`] is as large as its largest kind, so creating one takes longer than decoding a call.
    #[inline]
    pub(super) fn call(&mut self) -> Option<MethodCall> {
        let mut cursor = self.cursor;
        let is_enter = match cursor.byte().ok()? {
            ENTER => true,
            LEAVE | EXCEPTION_LEAVE => false,
            _ => return None,
        };
        let time = self.time.wrapping_add(cursor.unsigned().ok()?);
        let method = self.method.wrapping_add(cursor.signed().ok()?);
        (self.cursor, self.time, self.method) = (cursor, time, method);
        Some(MethodCall {
            time: RuntimeTime(time),
            method: self.encoding.method(method),
            is_enter,
        })
    }

    /// Returns whether the log has this data version or a later one.
    fn since(&self, version: u8) -> bool {
        self.encoding.version >= version
    }

    /// Reads a time difference and adds it modulo 2^64, as time may step back.
    #[inline]
    fn advance(&mut self) -> Result<(), Issue> {
        self.time = self.time.wrapping_add(self.cursor.unsigned()?);
        Ok(())
    }

    /// Reads a time difference of an event that has none before version 13.
    fn advance_if_simplified(&mut self) -> Result<(), Issue> {
        if self.since(SIMPLIFIED) {
            self.advance()
        } else {
            Ok(())
        }
    }

    /// Skips flags that were always 0 and were removed in version 13.
    fn skip_old_flags(&mut self) -> Result<(), Issue> {
        if !self.since(SIMPLIFIED) {
            self.cursor.unsigned()?;
        }
        Ok(())
    }

    /// Reads a number that is a single byte since version 13.
    fn small_number(&mut self) -> Result<u64, Issue> {
        if self.since(SIMPLIFIED) {
            Ok(self.cursor.byte()?.into())
        } else {
            self.cursor.unsigned()
        }
    }

    #[inline]
    fn pointer(&mut self) -> Result<Pointer, Issue> {
        Ok(Pointer(self.encoding.pointer(self.cursor.signed()?)))
    }

    fn type_reference(&mut self) -> Result<TypeReference, Issue> {
        let pointer = self.pointer()?;
        Ok(if self.since(WITH_VTABLES) {
            TypeReference::VTable(pointer)
        } else {
            TypeReference::Class(pointer)
        })
    }

    /// Reads a stack if `is_there` is set.
    fn frames(&mut self, is_there: bool) -> Result<MethodFrames<'a>, Issue> {
        if !is_there {
            return Ok(MethodFrames::NONE);
        }
        self.skip_old_flags()?;
        let stack_encoding = if self.since(SIMPLIFIED) {
            StackEncoding::Chained
        } else {
            StackEncoding::FromBase
        };
        MethodFrames::read(&mut self.cursor, &self.encoding, stack_encoding, &mut self.method)
    }

    /// Decodes synchronization points and other events about the log itself.
    fn meta(&mut self, subtype: u8) -> Result<LogEventKind<'a>, Issue> {
        self.advance()?;
        match subtype {
            0x00 => Ok(LogEventKind::SyncPoint(self.cursor.byte()?)),
            0x10 => Ok(LogEventKind::AotId(self.cursor.string()?)),
            _ => Err(Issue::MonoUnknownEvent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes calls separately from other events.
    fn calls_first<'a>(mut decoder: EventDecoder<'a>) -> Vec<Result<LogEvent<'a>, Issue>> {
        let mut walk = Vec::new();
        while decoder.remaining() > 0 && !matches!(walk.last(), Some(Err(_))) {
            let head = decoder.cursor.rest()[0];
            let event = match decoder.call() {
                None => decoder.event(0),
                Some(call) => Ok(LogEvent {
                    time: call.time,
                    thread: decoder.thread,
                    offset: 0,
                    kind: match (head, call.is_enter) {
                        (0x23, true) => LogEventKind::Enter(call.method),
                        (0x13, false) => LogEventKind::Leave(call.method),
                        (0x33, false) => LogEventKind::ExceptionLeave(call.method),
                        both => panic!("{both:x?} is not a call"),
                    },
                }),
            };
            walk.push(event);
        }
        walk
    }

    fn events<'a>(mut decoder: EventDecoder<'a>) -> Vec<Result<LogEvent<'a>, Issue>> {
        let mut walk = Vec::new();
        while decoder.remaining() > 0 && !matches!(walk.last(), Some(Err(_))) {
            walk.push(decoder.event(0));
        }
        walk
    }

    #[test]
    fn calls_read_by_themselves_are_those_that_are_read_as_events() {
        // Calls, and between them events with methods and times of their own; the last number is too long.
        let content = [
            &b"\x23\x05\x10\x23\x85\x01\x90\x7f\x13\x00\xf0\xff\xff\x01\x33\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x08"[..],
            b"\x43\x01\x18\x20\x30name\0\x13\x02\x00\x10\x03\x08\x04\x20\x02\x08\x08\x23\x01\x08\x0a\x05\x00",
            b"\x14\x01\x00\x01\x18\x02\x33\x01\x68\x23\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ]
        .concat();
        for mask in [u32::MAX.into(), u64::MAX] {
            let encoding = Encoding {
                version: 17,
                roots_have_addresses: true,
                pointer_mask: mask,
                pointer_base: 0x7f00_0000_1000,
                object_base: 0,
            };
            let decoder =
                |content| EventDecoder::new(content, encoding, ThreadId(7), 1 << 40, 0x5500_0000_2000);
            for end in 0..=content.len() {
                let content = &content[..end];
                let expected = events(decoder(content));
                assert_eq!(calls_first(decoder(content)), expected, "{end}");
            }
            let walk = events(decoder(&content));
            assert!(
                walk.len() == 12 && walk[11] == Err(Issue::MonoLongNumber),
                "{walk:?}"
            );
        }
    }
}
