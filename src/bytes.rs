//! Reading and writing integers of either byte order in byte strings that can't be trusted.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use byteorder::{BE, ByteOrder as _, LE};

/// The byte order of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The order of the machine that runs this program.
    pub const NATIVE: Self = if cfg!(target_endian = "big") {
        Self::Big
    } else {
        Self::Little
    };

    /// Appends a 16-bit integer.
    pub fn put_u16(self, out: &mut Vec<u8>, value: u16) {
        out.extend_from_slice(&match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        });
    }

    /// Appends a 32-bit integer.
    pub fn put_u32(self, out: &mut Vec<u8>, value: u32) {
        out.extend_from_slice(&match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        });
    }

    /// Appends a 64-bit integer.
    pub fn put_u64(self, out: &mut Vec<u8>, value: u64) {
        out.extend_from_slice(&match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        });
    }

    /// Overwrites the 32-bit integer at byte `at`, where `bytes` holds one.
    pub fn set_u32(self, bytes: &mut [u8], at: usize, value: u32) {
        if let Some(place) = bytes.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut()) {
            *place = match self {
                Self::Little => value.to_le_bytes(),
                Self::Big => value.to_be_bytes(),
            };
        }
    }

    /// Overwrites the 32-bit length at byte `at`, which does not count itself, with how many bytes stand behind
    /// it.
    pub fn set_length(self, bytes: &mut [u8], at: usize) {
        let behind = bytes.len().saturating_sub(at.saturating_add(4));
        self.set_u32(bytes, at, behind as u32);
    }

    /// The 32-bit integer at byte `at`, where `bytes` holds one.
    pub fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        Reader::new(bytes.get(at..)?, self).u32()
    }

    /// The 64-bit integer at byte `at`, where `bytes` holds one.
    pub fn u64_at(self, bytes: &[u8], at: usize) -> Option<u64> {
        Reader::new(bytes.get(at..)?, self).u64()
    }
}

/// A cursor over bytes; whatever would leave them is `None` and moves nothing.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`.
    pub fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        Self { bytes, order }
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(usize::try_from(count).ok()?)?;
        self.bytes = rest;
        Some(taken)
    }

    /// Passes over `count` bytes.
    pub fn skip(&mut self, count: u64) -> Option<()> {
        self.bytes(count).map(|_| ())
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.bytes(1)?.first().copied()
    }

    /// The next 16-bit integer.
    pub fn u16(&mut self) -> Option<u16> {
        let bytes = self.bytes(2)?;
        Some(match self.order {
            ByteOrder::Little => LE::read_u16(bytes),
            ByteOrder::Big => BE::read_u16(bytes),
        })
    }

    /// The next 32-bit integer.
    pub fn u32(&mut self) -> Option<u32> {
        let bytes = self.bytes(4)?;
        Some(match self.order {
            ByteOrder::Little => LE::read_u32(bytes),
            ByteOrder::Big => BE::read_u32(bytes),
        })
    }

    /// The next 64-bit integer.
    pub fn u64(&mut self) -> Option<u64> {
        let bytes = self.bytes(8)?;
        Some(match self.order {
            ByteOrder::Little => LE::read_u64(bytes),
            ByteOrder::Big => BE::read_u64(bytes),
        })
    }

    /// The bytes up to the next NUL, which is passed over; `None` where there is no NUL.
    pub fn c_string(&mut self) -> Option<&'a [u8]> {
        let (string, rest) = split_once(self.bytes, 0)?;
        self.bytes = rest;
        Some(string)
    }
}

/// What stands in front of the first `byte`, and what behind it.
pub fn split_once(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    split_around(bytes, memchr::memchr(byte, bytes)?)
}

/// What stands in front of the last `byte`, and what behind it.
pub fn rsplit_once(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    split_around(bytes, memchr::memrchr(byte, bytes)?)
}

fn split_around(bytes: &[u8], at: usize) -> Option<(&[u8], &[u8])> {
    let (before, rest) = bytes.split_at_checked(at)?;
    Some((before, rest.get(1..)?))
}

/// Appends `bytes`, and NULs up to `size` bytes.
pub fn put_padded(out: &mut Vec<u8>, bytes: &[u8], size: usize) {
    out.extend_from_slice(bytes);
    out.extend(std::iter::repeat_n(0, size.saturating_sub(bytes.len())));
}

/// The part of a path behind its last slash.
pub fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// `bytes` up to the first NUL, or all of them: how the kernel and perf pad names.
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// A name from a file as text that is safe to print: bytes that are not UTF-8 are replaced, and characters that
/// [steer a terminal](steers_terminal) are escaped. It is a single line.
pub fn printable(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for character in String::from_utf8_lossy(name).chars() {
        if steers_terminal(character) {
            text.extend(character.escape_unicode());
        } else {
            text.push(character);
        }
    }
    text
}

/// Whether a character does not just show itself: control characters, line and paragraph separators, invisible
/// characters, and those that change the direction of the text around them.
///
/// The joiners U+200C and U+200D are text: words of some scripts, identifiers of JavaScript and emoji have them.
pub fn steers_terminal(character: char) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_orders_and_stops_at_the_end() {
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
    fn printable_escapes_what_steers_a_terminal() {
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
    fn what_steers_is_never_what_rust_would_print() {
        // The standard library escapes what has no glyph of its own, from the tables of Unicode.
        for steering in (0..=0x10_ffff)
            .filter_map(char::from_u32)
            .filter(|&it| steers_terminal(it))
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
