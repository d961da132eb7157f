//! SOURCE_TRACK records: positions of a function's code in other files than its usual lines, such as generated code, bytecode
//! or an intermediate representation.
//!
//! The record (type 827346262) is a proposal of this project, described in `docs/runtime-authors.md`:
//!
//! ```text
//! u64 code_addr    address of the function, as in its LOAD record
//! track            name, NUL-terminated, followed by NULs up to a multiple of 4
//! lists            the layout of DEBUG_INFO2 with six lists
//! ```
//!
//! A function has any number of tracks with different names. Their records precede its LOAD record.

use crate::bytes::{ByteOrder, Reader};
use crate::format::debug_info::ParsedDebugInfo;
use crate::format::debug_info2::lists::EncodedLists;
use crate::units::Address;

/// Maximum length of a track's name, in bytes.
const MAX_NAME: usize = 64;

/// Positions of one function in one track.
#[derive(Clone, Debug)]
pub struct SourceTrack<'a> {
    /// Address of the function's code.
    pub start: Address,
    /// Name of the track.
    pub name: &'a [u8],
    /// The lists of the record, not parsed yet.
    pub lists: EncodedLists<'a>,
}

impl<'a> SourceTrack<'a> {
    /// Parses the content of a record; `None` if it does not have the layout.
    pub fn parse(content: &'a [u8], endian: ByteOrder) -> Option<Self> {
        let mut reader = Reader::new(content, endian);
        let start = Address(reader.u64()?);
        let name = reader.c_string()?;
        let is_name = (1..=MAX_NAME).contains(&name.len())
            && std::str::from_utf8(name).is_ok()
            && !name.iter().any(u8::is_ascii_control);
        let size = name.len().saturating_add(1);
        let padding = size.next_multiple_of(4).saturating_sub(size);
        let is_padded = reader.bytes(padding as u64)?.iter().all(|&byte| byte == 0);
        let lists = EncodedLists::split(reader.rest(), endian)?;
        (is_name && is_padded).then_some(Self { start, name, lists })
    }

    /// Parses the positions.
    pub fn read(&self) -> ParsedDebugInfo<'a> {
        self.lists.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &[u8], padding: usize) -> Vec<u8> {
        let endian = ByteOrder::Little;
        let mut content = Vec::new();
        endian.write_u64(&mut content, 0x1000);
        content.extend_from_slice(name);
        content.resize(content.len() + padding, 0);
        for number in [1, 4, 0, 0, 0, 0, 0, 1] {
            endian.write_u32(&mut content, number);
        }
        content.extend_from_slice(b"a.b\0");
        for number in [4, 0, 7, 2] {
            endian.write_u32(&mut content, number);
        }
        content
    }

    #[test]
    fn a_track_has_a_name_and_lines() {
        for (name, padding) in [(&b"bytecode"[..], 4), (b"ir1", 1), (&[b'x'; 64], 4)] {
            let content = record(name, padding);
            let track = SourceTrack::parse(&content, ByteOrder::Little).unwrap();
            assert_eq!((track.start, track.name), (Address(0x1000), name));
            let info = track.read().info;
            assert_eq!(info.files[0].path, &b"a.b"[..]);
            let row = info.rows[0];
            assert_eq!((row.offset, row.line, row.column), (4, 7, 3));
        }
        for invalid in [
            record(b"", 4),
            record(b"ir", 1),
            record(b"a\x1b[m", 3),
            record(&[b'x'; 65], 3),
            record(b"ir1", 1)[..40].to_vec(),
        ] {
            assert!(SourceTrack::parse(&invalid, ByteOrder::Little).is_none());
        }
    }
}
