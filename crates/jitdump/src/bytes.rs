//! Reading and writing integers of either endianness in untrusted bytes.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use byteorder::{BE, ByteOrder as _, LE};

/// Bytes that can be read in any order, such as those of a file that is not in memory.
pub trait RandomAccess: Debug + Sync {
    /// Returns the number of bytes.
    fn size(&self) -> u64;

    /// Copies bytes from offset `offset`, and returns their number, which is less than `into.len()` only at the end
    /// and after an error. If the file changes, later calls may copy other bytes.
    fn read(&self, offset: u64, into: &mut [u8]) -> usize;

    /// Returns the `size` bytes at offset `offset`, the same in each call; `None` if there are fewer, and after an
    /// error. Ranges must be equal or disjoint.
    fn get(&self, offset: u64, size: usize) -> Option<&[u8]>;
}

/// Size in bytes of the blocks of a [`BlockFile`].
pub const BLOCK_SIZE: u64 = 64 << 10;

/// Returns the start of the block that a position is in.
pub fn start_of_block(position: u64) -> u64 {
    position.saturating_sub(position % BLOCK_SIZE)
}

/// A file that is read in blocks, of which it keeps none.
pub trait BlockFile: Debug + Sync {
    /// Returns the number of bytes.
    fn size(&self) -> u64;

    /// Copies bytes from offset `offset`, and returns their number, which is less than `into.len()` only after an error.
    /// Whoever opened the file gets the error. Both ends of the range must be multiples of [`BLOCK_SIZE`] or the end of the
    /// file.
    fn read_blocks(&self, offset: u64, into: &mut [u8]) -> usize;

    /// Writes up to `size` bytes from offset `offset` to another file within the kernel, and returns their number: 0 if that is
    /// not possible, and after an error, which copying the bytes would show again.
    fn send(&self, _offset: u64, _size: u64, _to: BorrowedFd<'_>) -> u64 {
        0
    }
}

/// The endianness of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

#[doc(hidden)]
impl ByteOrder {
    /// Endianness of the machine that runs this program.
    pub const NATIVE: Self = if cfg!(target_endian = "big") {
        Self::Big
    } else {
        Self::Little
    };

    /// Converts between little-endian bytes and this endianness.
    #[inline]
    fn swapped<const N: usize>(self, mut little: [u8; N]) -> [u8; N] {
        if self == Self::Big {
            little.reverse();
        }
        little
    }

    /// Returns the 64-bit integer that these bytes are.
    #[inline]
    #[doc(hidden)]
    pub fn u64_of(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    /// Appends a 16-bit integer.
    #[doc(hidden)]
    pub fn write_u16(self, out: &mut Vec<u8>, value: u16) {
        out.extend_from_slice(&self.swapped(value.to_le_bytes()));
    }

    /// Appends a 32-bit integer.
    #[doc(hidden)]
    pub fn write_u32(self, out: &mut Vec<u8>, value: u32) {
        out.extend_from_slice(&self.swapped(value.to_le_bytes()));
    }

    /// Appends a 64-bit integer.
    #[doc(hidden)]
    pub fn write_u64(self, out: &mut Vec<u8>, value: u64) {
        out.extend_from_slice(&self.swapped(value.to_le_bytes()));
    }

    /// Overwrites the 16-bit integer at offset `at`. Does nothing if `bytes` is too short, here and below.
    #[doc(hidden)]
    pub fn set_u16(self, bytes: &mut [u8], at: usize, value: u16) {
        self.set(bytes, at, value.to_le_bytes());
    }

    /// Overwrites the 32-bit integer at offset `at`.
    #[doc(hidden)]
    pub fn set_u32(self, bytes: &mut [u8], at: usize, value: u32) {
        self.set(bytes, at, value.to_le_bytes());
    }

    /// Overwrites the 64-bit integer at offset `at`.
    #[doc(hidden)]
    pub fn set_u64(self, bytes: &mut [u8], at: usize, value: u64) {
        self.set(bytes, at, value.to_le_bytes());
    }

    fn set<const N: usize>(self, bytes: &mut [u8], at: usize, little: [u8; N]) {
        if let Some(field) = bytes.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut()) {
            *field = self.swapped(little);
        }
    }

    /// Sets the 32-bit length field at offset `at` to the number of bytes that follow the field.
    #[doc(hidden)]
    pub fn set_length(self, bytes: &mut [u8], at: usize) {
        let length = bytes.len().saturating_sub(at.saturating_add(4));
        self.set_u32(bytes, at, length as u32);
    }

    /// Returns the 32-bit integer at offset `at`; `None` if `bytes` is too short.
    #[inline]
    #[doc(hidden)]
    pub fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        })
    }

    /// Returns the 16-bit integer at offset `at`; `None` if `bytes` is too short.
    #[inline]
    #[doc(hidden)]
    pub fn u16_at(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        })
    }

    /// Returns the 64-bit integer at offset `at`; `None` if `bytes` is too short.
    #[inline]
    #[doc(hidden)]
    pub fn u64_at(self, bytes: &[u8], at: usize) -> Option<u64> {
        Some(self.u64_of(*bytes.get(at..)?.first_chunk()?))
    }
}

/// A cursor over bytes. A read past the end returns `None` and does not advance the cursor.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    endian: ByteOrder,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8], endian: ByteOrder) -> Self {
        Self { bytes, endian }
    }

    /// Returns the bytes that have not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Reads the next `count` bytes.
    pub fn bytes(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(usize::try_from(count).ok()?)?;
        self.bytes = rest;
        Some(taken)
    }

    /// Skips `count` bytes.
    pub fn skip(&mut self, count: u64) -> Option<()> {
        self.bytes(count).map(|_| ())
    }

    /// Reads the next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.bytes(1)?.first().copied()
    }

    /// Reads the next 16-bit integer.
    pub fn u16(&mut self) -> Option<u16> {
        let bytes = self.bytes(2)?;
        Some(match self.endian {
            ByteOrder::Little => LE::read_u16(bytes),
            ByteOrder::Big => BE::read_u16(bytes),
        })
    }

    /// Reads the next 32-bit integer.
    pub fn u32(&mut self) -> Option<u32> {
        let bytes = self.bytes(4)?;
        Some(match self.endian {
            ByteOrder::Little => LE::read_u32(bytes),
            ByteOrder::Big => BE::read_u32(bytes),
        })
    }

    /// Reads the next 64-bit integer.
    pub fn u64(&mut self) -> Option<u64> {
        let bytes = self.bytes(8)?;
        Some(match self.endian {
            ByteOrder::Little => LE::read_u64(bytes),
            ByteOrder::Big => BE::read_u64(bytes),
        })
    }

    /// Reads the bytes up to the next NUL, and skips the NUL; `None` without a NUL.
    pub fn c_string(&mut self) -> Option<&'a [u8]> {
        let (string, rest) = split_once(self.bytes, 0)?;
        self.bytes = rest;
        Some(string)
    }
}

/// Splits `bytes` at the first `byte`, which is in neither part.
pub fn split_once(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    split_around(bytes, memchr::memchr(byte, bytes)?)
}

/// Splits `bytes` at the last `byte`, which is in neither part.
pub fn rsplit_once(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    split_around(bytes, memchr::memrchr(byte, bytes)?)
}

fn split_around(bytes: &[u8], at: usize) -> Option<(&[u8], &[u8])> {
    let (before, rest) = bytes.split_at_checked(at)?;
    Some((before, rest.get(1..)?))
}

/// Returns the bytes from offset `start` to offset `end`; `None` if `bytes` is too short.
pub fn slice(bytes: &[u8], start: u64, end: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

/// Appends `bytes`, padded with NULs to `size` bytes.
pub fn write_padded(out: &mut Vec<u8>, bytes: &[u8], size: usize) {
    out.extend_from_slice(bytes);
    out.extend(std::iter::repeat_n(0, size.saturating_sub(bytes.len())));
}

/// Returns the part of a path after the last slash.
pub fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Returns `bytes` up to the first NUL, or all of them. The kernel and perf pad names with NULs.
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Converts a name from a file to a single line of text that is safe to print.
///
/// Bytes that are not UTF-8 are replaced, and characters that [control a terminal](is_terminal_control) are
/// escaped.
pub fn printable(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for character in String::from_utf8_lossy(name).chars() {
        if is_terminal_control(character) {
            text.extend(character.escape_unicode());
        } else {
            text.push(character);
        }
    }
    text
}

/// Returns a path without characters that a terminal interprets.
pub fn printable_path(path: &Path) -> String {
    printable(path.as_os_str().as_bytes())
}

/// Returns whether a character has an effect beyond its own glyph: control characters, line and paragraph
/// separators, invisible characters, and characters that change the direction of the surrounding text.
///
/// The joiners U+200C and U+200D are excluded, because words of some scripts, JavaScript identifiers and
/// emoji contain them.
pub fn is_terminal_control(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Formats bytes in hexadecimal, without separators.
pub fn hex_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Formats bytes in hexadecimal, separated by spaces.
pub fn hex(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_byte_orders_and_stops_at_the_end() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, b'a', 0, b'b'];
        let mut reader = Reader::new(&bytes, ByteOrder::Little);
        assert_eq!(reader.u16(), Some(0x0201));
        let mut big = Reader::new(&bytes, ByteOrder::Big);
        assert_eq!(big.u64(), Some(0x0102_0304_0506_0708));
        assert_eq!(big.c_string(), Some(&b"a"[..]));
        assert_eq!(big.c_string(), None);
        assert_eq!(big.u16(), None);
        assert_eq!(big.rest(), b"b");
        assert_eq!(reader.bytes(u64::MAX), None);
        assert_eq!(reader.rest().len(), 9);
    }

    #[test]
    fn printable_escapes_terminal_controls() {
        assert_eq!(printable(b"JS:*eat /a b.js:1:2"), "JS:*eat /a b.js:1:2");
        assert_eq!(printable(b"\x1b[31mred\n"), "\\u{1b}[31mred\\u{a}");
        assert_eq!(printable("grö\u{9f}e".as_bytes()), "grö\\u{9f}e");
        assert_eq!(printable(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(printable("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        for invisible in [
            '\u{2028}',
            '\u{2029}',
            '\u{feff}',
            '\u{200b}',
            '\u{2060}',
            '\u{e0041}',
        ] {
            let number = u32::from(invisible);
            assert_eq!(
                printable(invisible.to_string().as_bytes()),
                format!("\\u{{{number:x}}}")
            );
        }
    }

    #[test]
    fn terminal_controls_are_characters_that_rust_escapes() {
        // The standard library uses Unicode's tables to escape characters that have no glyph.
        for steering in (0..=0x10_ffff)
            .filter_map(char::from_u32)
            .filter(|&it| is_terminal_control(it))
        {
            let is_plain = steering.escape_debug().count() == 1;
            assert!(!is_plain, "{:x}", u32::from(steering));
        }
        for text in [
            "\u{645}\u{6cc}\u{200c}\u{62e}",
            "👩\u{200d}💻",
            "e\u{301}",
            "\u{a0}\u{3000}",
        ] {
            assert_eq!(printable(text.as_bytes()), text);
        }
    }
}
