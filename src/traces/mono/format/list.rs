//! Lists in events, as views of the file's bytes that can be iterated repeatedly.
//!
//! A list is validated when its event is decoded, so iteration cannot fail.

use std::fmt;
use std::marker::PhantomData;

use jitdump::Address;

use crate::results::diagnostics::Issue;
use crate::traces::mono::format::cursor::{BufferCursor, Encoding, last_signed};
use crate::traces::mono::format::event::{
    CounterChange, CounterDescription, CounterValue, Method, ObjectMove, ObjectReference, Root, RootOrigin,
};

/// An element of a list.
pub trait Element<'a>: Copy {
    /// Minimum size of an element, in bytes.
    const SIZE: u64;

    /// Reads the next element. `running` is 0 for the first element, and then keeps its value between
    /// elements.
    fn read(cursor: &mut BufferCursor<'a>, encoding: &Encoding, running: &mut u64) -> Result<Self, Issue>;
}

/// A list of elements of one type.
#[derive(Clone, Copy)]
pub struct EncodedList<'a, T> {
    bytes: &'a [u8],
    count: u32,
    encoding: Encoding,
    elements: PhantomData<T>,
}

impl<'a, T: Element<'a>> EncodedList<'a, T> {
    /// Reads a count and that many elements.
    pub(super) fn read_counted(cursor: &mut BufferCursor<'a>, encoding: &Encoding) -> Result<Self, Issue> {
        let count = cursor.count(T::SIZE)?;
        Self::read(count, cursor, encoding)
    }

    /// Reads `count` elements.
    pub(super) fn read(
        count: u64,
        cursor: &mut BufferCursor<'a>,
        encoding: &Encoding,
    ) -> Result<Self, Issue> {
        let before = *cursor;
        let mut running = 0;
        for _ in 0..count {
            T::read(cursor, encoding, &mut running)?;
        }
        Ok(Self {
            bytes: cursor.since(before),
            count: u32::try_from(count).map_err(|_| Issue::MonoBadCount)?,
            encoding: *encoding,
            elements: PhantomData,
        })
    }

    /// Iterates over the list.
    pub fn iter(&self) -> Iter<'a, T> {
        Iter {
            cursor: BufferCursor::new(self.bytes),
            left: self.count,
            encoding: self.encoding,
            running: 0,
            elements: PhantomData,
        }
    }
}

impl<'a, T: Element<'a> + PartialEq> PartialEq for EncodedList<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Element<'a> + fmt::Debug> fmt::Debug for EncodedList<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Iterator over an [`EncodedList`].
#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    cursor: BufferCursor<'a>,
    left: u32,
    encoding: Encoding,
    running: u64,
    elements: PhantomData<T>,
}

impl<'a, T: Element<'a>> Iterator for Iter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        T::read(&mut self.cursor, &self.encoding, &mut self.running).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl<'a, T: Element<'a>> ExactSizeIterator for Iter<'a, T> {}

impl Element<'_> for Address {
    const SIZE: u64 = 1;

    fn read(cursor: &mut BufferCursor<'_>, encoding: &Encoding, _: &mut u64) -> Result<Self, Issue> {
        cursor.address(encoding)
    }
}

impl Element<'_> for ObjectMove {
    const SIZE: u64 = 2;

    fn read(cursor: &mut BufferCursor<'_>, encoding: &Encoding, _: &mut u64) -> Result<Self, Issue> {
        Ok(Self {
            from: cursor.object(encoding)?,
            to: cursor.object(encoding)?,
        })
    }
}

impl Element<'_> for ObjectReference {
    const SIZE: u64 = 1;

    fn read(cursor: &mut BufferCursor<'_>, encoding: &Encoding, running: &mut u64) -> Result<Self, Issue> {
        /// First data version with offsets, each relative to the previous one.
        const WITH_OFFSET: u8 = 2;
        let has_offset = encoding.version >= WITH_OFFSET;
        if has_offset {
            *running = running.wrapping_add(cursor.unsigned()?);
        }
        Ok(Self {
            offset: has_offset.then_some(*running),
            object: cursor.object(encoding)?,
        })
    }
}

impl Element<'_> for Root {
    const SIZE: u64 = 2;

    fn read(cursor: &mut BufferCursor<'_>, encoding: &Encoding, _: &mut u64) -> Result<Self, Issue> {
        if encoding.roots_have_addresses {
            let address = cursor.address(encoding)?;
            return Ok(Self {
                object: cursor.object(encoding)?,
                origin: RootOrigin::Address(address),
            });
        }
        let object = cursor.object(encoding)?;
        let kind = match encoding.version {
            13 => cursor.byte()?.into(),
            _ => cursor.unsigned()?,
        };
        let extra = cursor.unsigned()?;
        Ok(Self {
            object,
            origin: RootOrigin::Kind { kind, extra },
        })
    }
}

/// Reads the type, unit or variance of a counter, which is one byte in data versions 13 and 14.
fn counter_number(cursor: &mut BufferCursor<'_>, encoding: &Encoding) -> Result<u64, Issue> {
    match encoding.version {
        13 | 14 => Ok(cursor.byte()?.into()),
        _ => cursor.unsigned(),
    }
}

impl<'a> Element<'a> for CounterDescription<'a> {
    const SIZE: u64 = 6;

    fn read(cursor: &mut BufferCursor<'a>, encoding: &Encoding, _: &mut u64) -> Result<Self, Issue> {
        /// The section that has a name in the event (`MONO_COUNTER_PERFCOUNTERS`).
        const NAMED: u64 = 1 << 15;
        let section = cursor.unsigned()?;
        let section_name = match section {
            NAMED => cursor.string()?,
            _ => b"",
        };
        Ok(Self {
            section,
            section_name,
            name: cursor.string()?,
            value_type: counter_number(cursor, encoding)?,
            unit: counter_number(cursor, encoding)?,
            variance: counter_number(cursor, encoding)?,
            index: cursor.unsigned()?,
        })
    }
}

impl<'a> CounterChange<'a> {
    /// Reads all changes of an event, up to and including the index 0 that terminates them.
    pub(super) fn read_all(
        cursor: &mut BufferCursor<'a>,
        encoding: &Encoding,
    ) -> Result<EncodedList<'a, Self>, Issue> {
        let mut ahead = *cursor;
        let mut count = 0_u64;
        while BufferCursor::new(ahead.rest()).unsigned()? != 0 {
            Self::read(&mut ahead, encoding, &mut 0)?;
            count = count.saturating_add(1);
        }
        let list = EncodedList::read(count, cursor, encoding)?;
        cursor.unsigned()?;
        Ok(list)
    }
}

impl<'a> Element<'a> for CounterChange<'a> {
    const SIZE: u64 = 3;

    fn read(cursor: &mut BufferCursor<'a>, encoding: &Encoding, _: &mut u64) -> Result<Self, Issue> {
        let index = cursor.unsigned()?;
        let value = match counter_number(cursor, encoding)? {
            0 | 2 | 3 | 7 => CounterValue::Signed(cursor.signed()?.cast_signed()),
            1 | 4 => CounterValue::Unsigned(cursor.unsigned()?),
            5 => CounterValue::Double(cursor.double()?),
            6 if cursor.byte()? == 0 => CounterValue::Text(None),
            6 => CounterValue::Text(Some(cursor.string()?)),
            _ => return Err(Issue::MonoUnknownCounter),
        };
        Ok(Self { index, value })
    }
}

/// Encoding of the methods of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StackEncoding {
    /// Outermost first, each relative to the one before (from data version 13 on).
    Chained,
    /// Outermost first, each relative to a base.
    FromBase,
    /// Innermost first, each relative to the one before; used by samples.
    Inwards,
    /// As `Inwards`, but two offsets follow each method, in IL and native code (data versions 6 to 12).
    InwardsWithOffsets,
}

/// A stack of managed methods, innermost first regardless of the order in the file. Samples use this order,
/// all other events the reverse.
#[derive(Clone, Copy)]
pub struct MethodFrames<'a> {
    bytes: &'a [u8],
    count: u32,
    stack_encoding: StackEncoding,
    mask: u64,
    /// For [`StackEncoding::Chained`], the innermost method; otherwise the base of the differences.
    start: u64,
}

impl<'a> MethodFrames<'a> {
    /// An empty stack.
    pub const NONE: Self = Self {
        bytes: &[],
        count: 0,
        stack_encoding: StackEncoding::FromBase,
        mask: 0,
        start: 0,
    };

    /// Reads a count and that many methods. `method` is the last method decoded in the buffer.
    pub(super) fn read(
        cursor: &mut BufferCursor<'a>,
        encoding: &Encoding,
        stack_encoding: StackEncoding,
        method: &mut u64,
    ) -> Result<Self, Issue> {
        let size = match stack_encoding {
            StackEncoding::InwardsWithOffsets => 3,
            _ => 1,
        };
        let count = cursor.count(size)?;
        // Local copies, so that they can stay in registers.
        let (mut reader, mut last) = (*cursor, *method);
        for _ in 0..count {
            let difference = reader.signed()?;
            if stack_encoding != StackEncoding::FromBase {
                last = last.wrapping_add(difference);
            }
            if stack_encoding == StackEncoding::InwardsWithOffsets {
                reader.signed()?;
                reader.signed()?;
            }
        }
        let before = std::mem::replace(cursor, reader);
        let first = std::mem::replace(method, last);
        Ok(Self {
            bytes: cursor.since(before),
            count: u32::try_from(count).map_err(|_| Issue::MonoBadCount)?,
            stack_encoding,
            mask: encoding.pointer_mask,
            start: match stack_encoding {
                StackEncoding::Chained => *method,
                StackEncoding::FromBase => encoding.pointer_base,
                StackEncoding::Inwards | StackEncoding::InwardsWithOffsets => first,
            },
        })
    }

    /// Returns whether the stack is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the stack, innermost method first.
    pub fn iter(&self) -> FramesIter<'a> {
        FramesIter(*self)
    }
}

impl PartialEq for MethodFrames<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for MethodFrames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Iterator over [`MethodFrames`].
#[derive(Clone, Debug)]
pub struct FramesIter<'a>(MethodFrames<'a>);

impl Iterator for FramesIter<'_> {
    type Item = Method;

    fn next(&mut self) -> Option<Method> {
        let Self(frames) = self;
        frames.count = frames.count.checked_sub(1)?;
        let value = match frames.stack_encoding {
            StackEncoding::Chained => {
                let (difference, before) = last_signed(frames.bytes)?;
                frames.bytes = before;
                let value = frames.start;
                frames.start = value.wrapping_sub(difference);
                value
            }
            StackEncoding::FromBase => {
                let (difference, before) = last_signed(frames.bytes)?;
                frames.bytes = before;
                frames.start.wrapping_add(difference)
            }
            StackEncoding::Inwards | StackEncoding::InwardsWithOffsets => {
                let mut cursor = BufferCursor::new(frames.bytes);
                frames.start = frames.start.wrapping_add(cursor.signed().ok()?);
                if frames.stack_encoding == StackEncoding::InwardsWithOffsets {
                    cursor.signed().ok()?;
                    cursor.signed().ok()?;
                }
                frames.bytes = cursor.rest();
                frames.start
            }
        };
        Some(Method(value & frames.mask))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.count as usize, Some(self.0.count as usize))
    }
}

impl ExactSizeIterator for FramesIter<'_> {}
