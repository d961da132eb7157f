//! Decodes the numbers and strings of events.

use jitdump::Address;

use crate::results::diagnostics::Issue;
use crate::traces::mono::format::event::{ManagedObject, Method};

/// Maximum size of a 64-bit number in bytes, with seven bits per byte.
const MAX_NUMBER: usize = 10;

/// Bits of a byte that belong to the number. The highest bit means that more bytes follow.
const BITS: u8 = 0x7f;

/// Base values and format variants of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoding {
    /// Data version.
    pub version: u8,
    /// Whether roots have addresses instead of kinds.
    pub roots_have_addresses: bool,
    /// Valid bits of a pointer of the program.
    pub pointer_mask: u64,
    /// Base of pointers.
    pub pointer_base: u64,
    /// Base of objects, in units of 8 bytes.
    pub object_base: u64,
}

impl Encoding {
    /// Returns the pointer at a distance from the base.
    pub fn pointer(&self, distance: u64) -> u64 {
        self.pointer_base.wrapping_add(distance) & self.pointer_mask
    }

    /// Returns the object at a distance from the base.
    pub fn object(&self, distance: u64) -> ManagedObject {
        ManagedObject((self.object_base.wrapping_add(distance) << 3) & self.pointer_mask)
    }

    /// Returns the method for a decoded value.
    pub fn method(&self, value: u64) -> Method {
        Method(value & self.pointer_mask)
    }
}

/// Reads the content of a buffer from its start to its end.
#[derive(Clone, Copy, Debug)]
pub struct BufferCursor<'a> {
    rest: &'a [u8],
}

impl<'a> BufferCursor<'a> {
    /// Starts at the first byte of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes that have not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads a byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Issue> {
        let (&byte, rest) = self.rest.split_first().ok_or(Issue::MonoCutEvent)?;
        self.rest = rest;
        Ok(byte)
    }

    /// Reads a floating-point number of eight bytes.
    pub fn double(&mut self) -> Result<f64, Issue> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Issue::MonoCutEvent)?;
        self.rest = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    /// Reads an unsigned number.
    #[inline]
    pub fn unsigned(&mut self) -> Result<u64, Issue> {
        match self.short() {
            Some((value, _)) => Ok(value),
            None => self.long(false),
        }
    }

    /// Reads a signed number as a value to add modulo 2^64.
    #[inline]
    pub fn signed(&mut self) -> Result<u64, Issue> {
        match self.short() {
            Some((value, size)) => Ok(sign_extended(value, size)),
            None => self.long(true),
        }
    }

    /// Reads a number of up to three bytes, as nearly all are, and returns it with its size in bits. Longer
    /// numbers are not read.
    #[inline]
    fn short(&mut self) -> Option<(u64, u32)> {
        let bits = |byte: u8| u64::from(byte & BITS);
        let (value, size, rest) = match *self.rest {
            [a @ ..=BITS, ref rest @ ..] => (bits(a), 7, rest),
            [a, b @ ..=BITS, ref rest @ ..] => (bits(a) | bits(b) << 7, 14, rest),
            [a, b, c @ ..=BITS, ref rest @ ..] => (bits(a) | bits(b) << 7 | bits(c) << 14, 21, rest),
            _ => return None,
        };
        self.rest = rest;
        Some((value, size))
    }

    /// Reads a signed or unsigned number of any length.
    #[inline(never)]
    fn long(&mut self, is_signed: bool) -> Result<u64, Issue> {
        let mut value = 0;
        let mut shift = 0_u32;
        for _ in 0..MAX_NUMBER {
            let byte = self.byte()?;
            let bits = byte & BITS;
            value |= u64::from(bits).wrapping_shl(shift);
            shift = shift.saturating_add(7);
            if byte <= BITS {
                // Only the lowest bit of the last byte fits into 64 bits.
                let is_too_large = shift > u64::BITS && bits > 1 && !(is_signed && bits == BITS);
                return if is_too_large {
                    Err(Issue::MonoLongNumber)
                } else if is_signed {
                    Ok(sign_extended(value, shift))
                } else {
                    Ok(value)
                };
            }
        }
        Err(Issue::MonoLongNumber)
    }

    /// Reads the bytes up to the next NUL.
    pub fn string(&mut self) -> Result<&'a [u8], Issue> {
        let end = memchr::memchr(0, self.rest).ok_or(Issue::MonoUnterminatedString)?;
        let (string, rest) = self
            .rest
            .split_at_checked(end)
            .ok_or(Issue::MonoUnterminatedString)?;
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(string)
    }

    /// Reads the number of elements that follow, each of which takes at least `size` bytes.
    pub fn count(&mut self, size: u64) -> Result<u64, Issue> {
        let count = self.unsigned()?;
        match count.checked_mul(size) {
            Some(bytes) if bytes <= self.rest.len() as u64 => Ok(count),
            _ => Err(Issue::MonoBadCount),
        }
    }

    /// Reads an address.
    #[inline]
    pub fn address(&mut self, encoding: &Encoding) -> Result<Address, Issue> {
        Ok(Address(encoding.pointer(self.signed()?)))
    }

    /// Reads an object.
    #[inline]
    pub fn object(&mut self, encoding: &Encoding) -> Result<ManagedObject, Issue> {
        Ok(encoding.object(self.signed()?))
    }

    /// Returns the bytes read since the cursor was at `before`.
    pub fn since(&self, before: Self) -> &'a [u8] {
        let read = before.rest.len().saturating_sub(self.rest.len());
        before.rest.get(..read).unwrap_or_default()
    }
}

/// Extends the sign of a number of `size` bits.
#[inline]
fn sign_extended(value: u64, size: u32) -> u64 {
    let unused = u64::BITS.saturating_sub(size);
    value
        .wrapping_shl(unused)
        .cast_signed()
        .wrapping_shr(unused)
        .cast_unsigned()
}

/// Decodes the last signed number in `bytes` and returns it with the bytes before it. The numbers must be
/// valid.
pub fn last_signed(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (_, before) = bytes.split_last()?;
    let start = before.iter().rposition(|&byte| byte <= BITS);
    let start = start.map_or(0, |end| end.saturating_add(1));
    let (before, number) = bytes.split_at_checked(start)?;
    Some((BufferCursor::new(number).signed().ok()?, before))
}

#[cfg(test)]
mod tests {
    use super::*;

    use gimli::{EndianSlice, LittleEndian, Reader as _};

    /// Numbers of up to eleven bytes, made of the interesting byte values, with and without trailing bytes,
    /// and all prefixes of them.
    fn encoded() -> impl Iterator<Item = Vec<u8>> {
        const MIDDLE: [u8; 5] = [0x80, 0x81, 0xc0, 0xd5, 0xff];
        const LAST: [u8; 7] = [0x00, 0x01, 0x02, 0x3f, 0x40, 0x7e, 0x7f];
        (0..11).flat_map(|size| {
            (0..MIDDLE.len() * LAST.len()).flat_map(move |choice| {
                let middle = (0..size).map(|at| MIDDLE[(choice + at * at) % MIDDLE.len()]);
                let number: Vec<u8> = middle.chain([LAST[choice / MIDDLE.len()]]).collect();
                let longer = [&number[..], &[0xff; 10]].concat();
                (0..=number.len())
                    .map(move |cut| number[..cut].to_vec())
                    .chain([longer])
            })
        })
    }

    #[test]
    fn numbers_of_all_lengths_are_those_that_gimli_reads() {
        let mut read = 0;
        for bytes in encoded() {
            let mut theirs = EndianSlice::new(&bytes, LittleEndian);
            let mut ours = BufferCursor::new(&bytes);
            match (theirs.read_uleb128(), ours.unsigned()) {
                (Ok(theirs), Ok(ours)) => assert_eq!(ours, theirs, "{bytes:x?}"),
                (Err(_), Err(_)) => continue,
                both => panic!("{bytes:x?}: {both:?}"),
            }
            assert_eq!(ours.rest(), theirs.slice(), "{bytes:x?}");
            read += 1;
        }
        assert!(read > 500);
    }

    #[test]
    fn numbers_with_a_sign_are_those_that_gimli_reads_from_either_end() {
        let mut read = 0;
        for bytes in encoded() {
            let mut theirs = EndianSlice::new(&bytes, LittleEndian);
            let mut ours = BufferCursor::new(&bytes);
            match (theirs.read_sleb128(), ours.signed()) {
                (Ok(theirs), Ok(ours)) => assert_eq!(ours.cast_signed(), theirs, "{bytes:x?}"),
                (Err(_), Err(_)) => continue,
                // A value to add modulo 2^64 may also be 2^63.
                (Err(_), Ok(ours)) => {
                    assert!(
                        bytes.get(9) == Some(&1) && ours >= 1 << 63,
                        "{bytes:x?}: {ours:x}"
                    );
                    continue;
                }
                both => panic!("{bytes:x?}: {both:?}"),
            }
            assert_eq!(ours.rest(), theirs.slice(), "{bytes:x?}");
            let number = ours.since(BufferCursor::new(&bytes));
            let value = BufferCursor::new(number).signed().unwrap();
            let behind = [&[0x80, 0x80, 0x01], number].concat();
            assert_eq!(last_signed(&behind), Some((value, &behind[..3])), "{bytes:x?}");
            read += 1;
        }
        assert!(read > 500);
    }
}
