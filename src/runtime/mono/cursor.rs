//! The numbers and strings that events are made of.

use crate::runtime::mono::event::{Method, Object};
use crate::runtime::mono::log::Fault;
use crate::units::Address;

/// How many bytes a number of 64 bits has at most, seven bits to each.
const MAX_NUMBER: usize = 10;

/// The bits of a byte that belong to the number; the highest one says that more follow.
const BITS: u8 = 0x7f;

/// The highest of the bits of a signed number's last byte.
const SIGN: u8 = 0x40;

/// What a buffer's values are to be added to, and which form they have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoding {
    /// Data version.
    pub version: u8,
    /// Whether roots have addresses, not kinds.
    pub roots_have_addresses: bool,
    /// The bits that a pointer of the program has.
    pub mask: u64,
    /// What pointers are counted from.
    pub pointer_base: u64,
    /// What objects are counted from, in units of 8 bytes.
    pub object_base: u64,
}

impl Encoding {
    /// The pointer at a distance from the base.
    pub fn pointer(&self, distance: u64) -> u64 {
        self.pointer_base.wrapping_add(distance) & self.mask
    }

    /// The object at a distance from the base.
    pub fn object(&self, distance: u64) -> Object {
        Object((self.object_base.wrapping_add(distance) << 3) & self.mask)
    }

    /// The method of which that is the value.
    pub fn method(&self, value: u64) -> Method {
        Method(value & self.mask)
    }
}

/// Reads the content of a buffer from its start to its end.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Starts at the first of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// A byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Fault> {
        let (&byte, rest) = self.rest.split_first().ok_or(Fault::CutEvent)?;
        self.rest = rest;
        Ok(byte)
    }

    /// Eight bytes.
    pub fn double(&mut self) -> Result<f64, Fault> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Fault::CutEvent)?;
        self.rest = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    /// A number without a sign.
    #[inline]
    pub fn unsigned(&mut self) -> Result<u64, Fault> {
        let byte = self.byte()?;
        if byte <= BITS {
            return Ok(byte.into());
        }
        self.long(byte, 0)
    }

    /// A number with a sign, as what is to be added, modulo 2^64.
    #[inline]
    pub fn signed(&mut self) -> Result<u64, Fault> {
        let byte = self.byte()?;
        if byte <= BITS {
            return Ok(sign_extended(byte.into(), byte, 7));
        }
        self.long(byte, SIGN)
    }

    /// The rest of a number behind its first byte; `sign` is the bit of its last byte that is one.
    fn long(&mut self, first: u8, sign: u8) -> Result<u64, Fault> {
        let mut value = u64::from(first & BITS);
        let mut shift = 7_u32;
        for _ in 1..MAX_NUMBER {
            let byte = self.byte()?;
            let bits = byte & BITS;
            value |= u64::from(bits).wrapping_shl(shift);
            shift = shift.saturating_add(7);
            if byte <= BITS {
                // All bits of the last byte but the lowest are beyond 64.
                let is_too_large = shift > u64::BITS && bits > 1 && (sign == 0 || bits != BITS);
                return match is_too_large {
                    true => Err(Fault::LongNumber),
                    false => Ok(sign_extended(value, bits & sign, shift)),
                };
            }
        }
        Err(Fault::LongNumber)
    }

    /// The bytes up to the next NUL.
    pub fn string(&mut self) -> Result<&'a [u8], Fault> {
        let end = memchr::memchr(0, self.rest).ok_or(Fault::UnendedString)?;
        let (string, rest) = self.rest.split_at_checked(end).ok_or(Fault::UnendedString)?;
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(string)
    }

    /// How many of something follow, each of which has `size` bytes at least.
    pub fn count(&mut self, size: u64) -> Result<u64, Fault> {
        let count = self.unsigned()?;
        match count.checked_mul(size) {
            Some(bytes) if bytes <= self.rest.len() as u64 => Ok(count),
            _ => Err(Fault::BadCount),
        }
    }

    /// An address of code or the like.
    #[inline]
    pub fn address(&mut self, encoding: &Encoding) -> Result<Address, Fault> {
        Ok(Address(encoding.pointer(self.signed()?)))
    }

    /// An object.
    #[inline]
    pub fn object(&mut self, encoding: &Encoding) -> Result<Object, Fault> {
        Ok(encoding.object(self.signed()?))
    }

    /// The bytes that were read since the cursor was as `before`.
    pub fn since(&self, before: Self) -> &'a [u8] {
        let read = before.rest.len().saturating_sub(self.rest.len());
        before.rest.get(..read).unwrap_or_default()
    }
}

/// A number of `size` bits whose highest byte has a sign, or none.
#[inline]
fn sign_extended(value: u64, highest: u8, size: u32) -> u64 {
    match highest & SIGN != 0 && size < u64::BITS {
        true => value | u64::MAX.wrapping_shl(size),
        false => value,
    }
}

/// The last number with a sign in `bytes`, and what is before it. They have been read from the front before.
pub fn last_signed(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (_, before) = bytes.split_last()?;
    let start = before.iter().rposition(|&byte| byte <= BITS);
    let start = start.map_or(0, |end| end.saturating_add(1));
    let (before, number) = bytes.split_at_checked(start)?;
    Some((Cursor::new(number).signed().ok()?, before))
}
