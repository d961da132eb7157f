//! EMBEDDED_SOURCE_FILE records: the text of a file that debug information names.
//!
//! samply's author named the record (number 827346261). No runtime is known to write it, and no layout was
//! published. Two are read, told apart by whether the sizes of the first one add up:
//!
//! ```text
//! u32 path size   u32 text size   path   text     up to 7 bytes of padding
//! path, NUL   text     NULs at the end don't belong to the text
//! ```
//!
//! The path is spelled as in the debug information. A record may stand before or behind the functions of its
//! file; where there are several of one path, each function has the last one before it, or else the first.

use crate::bytes::{ByteOrder, Reader, split_once};
use crate::runtime::jitdump::record::MAX_PADDING;

/// A file's path and text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EmbeddedSource<'a> {
    /// The path.
    pub path: &'a [u8],
    /// The text.
    pub text: &'a [u8],
}

impl<'a> EmbeddedSource<'a> {
    /// Reads the content of a record.
    pub fn parse(content: &'a [u8], order: ByteOrder) -> Option<Self> {
        let source = Self::with_sizes(content, order).or_else(|| Self::with_nul(content))?;
        let is_path = !source.path.is_empty() && !source.path.iter().any(u8::is_ascii_control);
        is_path.then_some(source)
    }

    fn with_sizes(content: &'a [u8], order: ByteOrder) -> Option<Self> {
        let mut reader = Reader::new(content, order);
        let (path_size, text_size) = (reader.u32()?, reader.u32()?);
        let path = reader.bytes(path_size.into())?;
        let text = reader.bytes(text_size.into())?;
        let padding = reader.rest();
        let is_padding = padding.len() <= MAX_PADDING && padding.iter().all(|&byte| byte == 0);
        is_padding.then_some(Self {
            path: path.strip_suffix(b"\0").unwrap_or(path),
            text: text.strip_suffix(b"\0").unwrap_or(text),
        })
    }

    fn with_nul(content: &'a [u8]) -> Option<Self> {
        let (path, mut text) = split_once(content, 0)?;
        while let [rest @ .., 0] = text {
            text = rest;
        }
        Some(Self { path, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_are_read() {
        let expected = EmbeddedSource {
            path: b"/a/b.js",
            text: b"let a;\n",
        };
        let with_nul = b"/a/b.js\0let a;\n\0\0\0";
        assert_eq!(EmbeddedSource::parse(with_nul, ByteOrder::Little), Some(expected));
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut sized = Vec::new();
            order.put_u32(&mut sized, 7);
            order.put_u32(&mut sized, 7);
            sized.extend_from_slice(b"/a/b.jslet a;\n\0\0");
            assert_eq!(EmbeddedSource::parse(&sized, order), Some(expected));
        }
        for other in [&b""[..], b"no end", b"\0text", b"\x1b[2J\0text"] {
            assert_eq!(EmbeddedSource::parse(other, ByteOrder::Little), None, "{other:?}");
        }
    }
}
