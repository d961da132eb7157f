//! EMBEDDED_SOURCE_FILE records: the text of a source file that debug information refers to.
//!
//! samply's author defined the record (type 827346261). No known runtime writes it, and its layout was never
//! published. Two layouts are accepted. A record has the first one if its sizes match the record's:
//!
//! ```text
//! u32 path size   u32 text size   path   text     up to 7 bytes of padding
//! path, NUL   text     NULs at the end are not part of the text
//! ```
//!
//! The path has the same spelling as in the debug information. A record may precede or follow the functions
//! of its file. If several records have the same path, a function uses the last one before it, or else the
//! first.

use crate::bytes::{ByteOrder, Reader, split_once};
use crate::format::record::MAX_PADDING;

/// A source file with its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EmbeddedSource<'a> {
    /// Path of the file.
    pub path: &'a [u8],
    /// Text of the file.
    pub text: &'a [u8],
    /// Offset of the text in the content of the record, in bytes.
    pub text_start: usize,
}

impl<'a> EmbeddedSource<'a> {
    /// Parses the content of a record; `None` if it has neither of the two layouts.
    pub fn parse(content: &'a [u8], endian: ByteOrder) -> Option<Self> {
        let source = Self::with_sizes(content, endian).or_else(|| Self::with_nul(content))?;
        let is_path = !source.path.is_empty() && !source.path.iter().any(u8::is_ascii_control);
        is_path.then_some(source)
    }

    /// Parses the layout with the sizes of the path and the text at the start, padded with zeros.
    fn with_sizes(content: &'a [u8], endian: ByteOrder) -> Option<Self> {
        let mut reader = Reader::new(content, endian);
        let (path_size, text_size) = (reader.u32()?, reader.u32()?);
        let path = reader.bytes(path_size.into())?;
        let text_start = content.len().checked_sub(reader.rest().len())?;
        let text = reader.bytes(text_size.into())?;
        let padding = reader.rest();
        let is_padding = padding.len() <= MAX_PADDING && padding.iter().all(|&byte| byte == 0);
        is_padding.then_some(Self {
            path: path.strip_suffix(b"\0").unwrap_or(path),
            text: text.strip_suffix(b"\0").unwrap_or(text),
            text_start,
        })
    }

    /// Parses the layout with a NUL after the path, and the text up to the padding.
    fn with_nul(content: &'a [u8]) -> Option<Self> {
        let (path, mut text) = split_once(content, 0)?;
        while let [rest @ .., 0] = text {
            text = rest;
        }
        Some(Self {
            path,
            text,
            text_start: path.len().checked_add(1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_are_read() {
        let expected = |text_start| EmbeddedSource {
            path: b"/a/b.js",
            text: b"let a;\n",
            text_start,
        };
        let with_nul = b"/a/b.js\0let a;\n\0\0\0";
        assert_eq!(
            EmbeddedSource::parse(with_nul, ByteOrder::Little),
            Some(expected(8))
        );
        for endian in [ByteOrder::Little, ByteOrder::Big] {
            let mut sized = Vec::new();
            endian.write_u32(&mut sized, 7);
            endian.write_u32(&mut sized, 7);
            sized.extend_from_slice(b"/a/b.jslet a;\n\0\0");
            assert_eq!(EmbeddedSource::parse(&sized, endian), Some(expected(15)));
        }
        for other in [&b""[..], b"no end", b"\0text", b"\x1b[2J\0text"] {
            assert_eq!(EmbeddedSource::parse(other, ByteOrder::Little), None, "{other:?}");
        }
    }
}
