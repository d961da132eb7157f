//! From the bytes of a buffer to events.
//!
//! The first byte of an event has its type in the lower half and a subtype or flags in the upper one. What follows
//! changed with the data versions: each place where it did says so. Types are taken in the versions whose writers
//! know them; of the types themselves, each version is taken to have all subtypes.

mod measured;
mod memory;
mod program;

use crate::runtime::RuntimeTime;
use crate::runtime::mono::cursor::{Cursor, Encoding};
use crate::runtime::mono::event::{Event, Kind, Method, Pointer, ThreadId, TypeReference};
use crate::runtime::mono::list::{Form, Frames};
use crate::runtime::mono::log::Fault;

// Types.
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

// Types with their subtypes, of calls.
const LEAVE: u8 = METHOD | 0x10;
const ENTER: u8 = METHOD | 0x20;
const EXCEPTION_LEAVE: u8 = METHOD | 0x30;

/// The data version that made many things plain: all events have a time, methods of stacks are counted like those of
/// events, flags that were always 0 are gone, and small numbers are single bytes.
const PLAIN: u8 = 13;

/// The data version in which types of objects are vtables.
const WITH_VTABLES: u8 = 15;

/// The flag of a subtype that says that a stack follows, for exceptions and locks.
const WITH_STACK: u8 = 0x80;

/// A method was entered or left, as most events tell of a log that has calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Call {
    /// When.
    pub(super) time: RuntimeTime,
    /// Which.
    pub(super) method: Method,
    /// Which of the two.
    pub(super) is_enter: bool,
}

/// Reads events one by one.
#[derive(Clone, Debug)]
pub(super) struct Decoder<'a> {
    cursor: Cursor<'a>,
    encoding: Encoding,
    thread: ThreadId,
    /// That of the last event.
    time: u64,
    /// The last method that was named.
    method: u64,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(
        content: &'a [u8],
        encoding: Encoding,
        thread: ThreadId,
        time_base: u64,
        method_base: u64,
    ) -> Self {
        Self {
            cursor: Cursor::new(content),
            encoding,
            thread,
            time: time_base,
            method: method_base,
        }
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.cursor.rest().len()
    }

    /// The next event, which starts at `offset` of the file.
    #[inline]
    pub(super) fn event(&mut self, offset: u64) -> Result<Event<'a>, Fault> {
        let head = self.cursor.byte()?;
        let subtype = head & 0xf0;
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
            META if self.since(PLAIN) => self.meta(subtype)?,
            _ => return Err(Fault::UnknownEvent),
        };
        Ok(Event {
            time: RuntimeTime(own_time.unwrap_or(self.time)),
            thread: self.thread,
            offset,
            kind,
        })
    }

    /// The next event, if it is a call; any other stays, to be read by [`Self::event`], and so does a damaged one.
    ///
    /// An [`Event`] is as large as its largest kind: to make one takes longer than to read a call.
    #[inline]
    pub(super) fn call(&mut self) -> Option<Call> {
        let mut cursor = self.cursor;
        let is_enter = match cursor.byte().ok()? {
            ENTER => true,
            LEAVE | EXCEPTION_LEAVE => false,
            _ => return None,
        };
        let time = self.time.wrapping_add(cursor.unsigned().ok()?);
        let method = self.method.wrapping_add(cursor.signed().ok()?);
        (self.cursor, self.time, self.method) = (cursor, time, method);
        Some(Call {
            time: RuntimeTime(time),
            method: self.encoding.method(method),
            is_enter,
        })
    }

    /// Whether the log is of this data version or a later one.
    fn since(&self, version: u8) -> bool {
        self.encoding.version >= version
    }

    /// Reads the difference to the last time. It is modulo 2^64: time may step back.
    #[inline]
    fn advance(&mut self) -> Result<(), Fault> {
        self.time = self.time.wrapping_add(self.cursor.unsigned()?);
        Ok(())
    }

    /// The same for events that have no time in old versions.
    fn advance_if_plain(&mut self) -> Result<(), Fault> {
        match self.since(PLAIN) {
            true => self.advance(),
            false => Ok(()),
        }
    }

    /// Passes over flags which were always 0 and then dropped.
    fn skip_old_flags(&mut self) -> Result<(), Fault> {
        if !self.since(PLAIN) {
            self.cursor.unsigned()?;
        }
        Ok(())
    }

    /// A number that is a byte in version 13 and later.
    fn small(&mut self) -> Result<u64, Fault> {
        match self.since(PLAIN) {
            true => Ok(self.cursor.byte()?.into()),
            false => self.cursor.unsigned(),
        }
    }

    #[inline]
    fn pointer(&mut self) -> Result<Pointer, Fault> {
        Ok(Pointer(self.encoding.pointer(self.cursor.signed()?)))
    }

    fn type_reference(&mut self) -> Result<TypeReference, Fault> {
        let pointer = self.pointer()?;
        Ok(match self.since(WITH_VTABLES) {
            true => TypeReference::VTable(pointer),
            false => TypeReference::Class(pointer),
        })
    }

    /// A stack, if there is one.
    fn frames(&mut self, is_there: bool) -> Result<Frames<'a>, Fault> {
        if !is_there {
            return Ok(Frames::NONE);
        }
        self.skip_old_flags()?;
        let form = match self.since(PLAIN) {
            true => Form::Chained,
            false => Form::FromBase,
        };
        Frames::counted(&mut self.cursor, &self.encoding, form, &mut self.method)
    }

    /// Synchronisation points and the like, which are about the log itself.
    fn meta(&mut self, subtype: u8) -> Result<Kind<'a>, Fault> {
        self.advance()?;
        match subtype {
            0x00 => Ok(Kind::SyncPoint(self.cursor.byte()?)),
            0x10 => Ok(Kind::AotId(self.cursor.string()?)),
            _ => Err(Fault::UnknownEvent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A walk that reads calls by themselves.
    fn calls_first<'a>(mut decoder: Decoder<'a>) -> Vec<Result<Event<'a>, Fault>> {
        let mut walk = Vec::new();
        while decoder.left() > 0 && !matches!(walk.last(), Some(Err(_))) {
            let head = decoder.cursor.rest()[0];
            let event = match decoder.call() {
                None => decoder.event(0),
                Some(call) => Ok(Event {
                    time: call.time,
                    thread: decoder.thread,
                    offset: 0,
                    kind: match (head, call.is_enter) {
                        (0x23, true) => Kind::Enter(call.method),
                        (0x13, false) => Kind::Leave(call.method),
                        (0x33, false) => Kind::ExceptionLeave(call.method),
                        both => panic!("{both:x?} is no call"),
                    },
                }),
            };
            walk.push(event);
        }
        walk
    }

    fn events<'a>(mut decoder: Decoder<'a>) -> Vec<Result<Event<'a>, Fault>> {
        let mut walk = Vec::new();
        while decoder.left() > 0 && !matches!(walk.last(), Some(Err(_))) {
            walk.push(decoder.event(0));
        }
        walk
    }

    #[test]
    fn calls_read_by_themselves_are_those_that_are_read_as_events() {
        // calls, and between them events that name methods and times of their own; the last number is too long
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
                mask,
                pointer_base: 0x7f00_0000_1000,
                object_base: 0,
            };
            let decoder = |content| Decoder::new(content, encoding, ThreadId(7), 1 << 40, 0x5500_0000_2000);
            for end in 0..=content.len() {
                let content = &content[..end];
                let expected = events(decoder(content));
                assert_eq!(calls_first(decoder(content)), expected, "{end}");
            }
            let walk = events(decoder(&content));
            assert!(walk.len() == 12 && walk[11] == Err(Fault::LongNumber), "{walk:?}");
        }
    }
}
