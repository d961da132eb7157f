//! Lines and columns of a text, as JavaScript counts them.

use std::borrow::Cow;
use std::ops::Range;

/// A position in a text. The default is no position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TextPosition {
    /// Line, from 1.
    pub line: u32,
    /// Column in UTF-16 code units, from 1.
    pub column: u32,
}

/// Bytes between two entries of [`Text::units`].
const CHUNK: usize = 1024;

/// A text with an index of its lines and columns.
///
/// Lines end at `\n`, `\r`, `\r\n`, U+2028 and U+2029 (ECMA-262, 12.3).
#[derive(Clone, Debug)]
pub struct Text<'t> {
    bytes: Cow<'t, [u8]>,
    /// Offset of each line in bytes.
    lines: Vec<u32>,
    /// Number of UTF-16 code units before each chunk of bytes.
    units: Vec<u32>,
}

impl<'t> Text<'t> {
    /// Indexes a text; `None` if it is larger than 4 GiB. A byte order mark is skipped, as runtimes do.
    pub fn new(bytes: impl Into<Cow<'t, [u8]>>) -> Option<Self> {
        const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
        let mut bytes = bytes.into();
        if bytes.starts_with(BYTE_ORDER_MARK) {
            bytes = match bytes {
                Cow::Borrowed(bytes) => bytes.get(BYTE_ORDER_MARK.len()..)?.into(),
                Cow::Owned(mut bytes) => bytes.split_off(BYTE_ORDER_MARK.len()).into(),
            };
        }
        u32::try_from(bytes.len()).ok()?;
        Some(Self {
            lines: line_starts(&bytes),
            units: unit_counts(&bytes),
            bytes,
        })
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of lines.
    pub fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// Returns the bytes of a range, or none if it is not in the text.
    pub fn slice(&self, range: Range<u32>) -> &[u8] {
        let range = range.start as usize..range.end as usize;
        self.bytes.get(range).unwrap_or_default()
    }

    /// Returns the offset of a position in bytes; `None` if the line does not have the column. The end of a line is
    /// a position, too.
    pub fn offset(&self, position: TextPosition) -> Option<u32> {
        let line = (position.line as usize).checked_sub(1)?;
        let start = *self.lines.get(line)?;
        // A line has its terminator; the last one has the end of the text.
        let next = self.lines.get(line.saturating_add(1));
        let end = next.map_or(self.bytes.len().saturating_add(1), |&next| next as usize);
        let column = position.column.checked_sub(1)?;
        // A character has at most as many code units as bytes.
        let nearest = (start as usize).checked_add(column as usize)?;
        if nearest >= end {
            return None;
        }
        let until = nearest.saturating_add(1).min(self.bytes.len());
        if column as usize <= CHUNK && self.is_ascii(start as usize..until) {
            return Some(nearest as u32);
        }
        let unit = self.units_before(start).checked_add(column)?;
        // The last chunk that starts at this unit or before it.
        let chunk = self
            .units
            .partition_point(|&before| before <= unit)
            .checked_sub(1)?;
        let mut offset = chunk.saturating_mul(CHUNK).min(self.bytes.len());
        let mut left = unit.checked_sub(*self.units.get(chunk)?)?;
        for &byte in self.bytes.get(offset..)? {
            let width = utf16_width(byte);
            if width > 0 && left < width {
                break;
            }
            left = left.saturating_sub(width);
            offset = offset.saturating_add(1);
        }
        (left == 0 && offset < end && offset >= start as usize).then_some(offset as u32)
    }

    /// Returns the position of an offset in bytes.
    pub fn position(&self, offset: u32) -> TextPosition {
        let line = self.lines.partition_point(|&start| start <= offset);
        let start = self
            .lines
            .get(line.saturating_sub(1))
            .copied()
            .unwrap_or_default();
        let bytes = offset.saturating_sub(start);
        let column = if bytes as usize <= CHUNK && self.is_ascii(start as usize..offset as usize) {
            bytes
        } else {
            self.units_before(offset).saturating_sub(self.units_before(start))
        };
        TextPosition {
            line: line as u32,
            column: column.saturating_add(1),
        }
    }

    /// Whether all bytes of a range are code units of their own.
    fn is_ascii(&self, range: Range<usize>) -> bool {
        self.bytes.get(range).is_some_and(<[u8]>::is_ascii)
    }

    /// Returns the number of UTF-16 code units before an offset.
    fn units_before(&self, offset: u32) -> u32 {
        let offset = offset as usize;
        let chunk = offset / CHUNK;
        let Some(&before) = self.units.get(chunk) else {
            return self.units.last().copied().unwrap_or_default();
        };
        let rest = self.bytes.get(chunk.saturating_mul(CHUNK)..offset);
        let in_chunk: u32 = rest
            .unwrap_or_default()
            .iter()
            .map(|&byte| utf16_width(byte))
            .sum();
        before.saturating_add(in_chunk)
    }
}

/// Number of UTF-16 code units of the character that starts with this byte of UTF-8; 0 inside a character.
fn utf16_width(byte: u8) -> u32 {
    match byte {
        0x80..=0xbf => 0,
        0xf0..=0xff => 2,
        _ => 1,
    }
}

/// Returns the offset of each line's first byte.
fn line_starts(bytes: &[u8]) -> Vec<u32> {
    let mut lines = vec![0];
    let mut from = 0usize;
    while let Some(found) = bytes
        .get(from..)
        .and_then(|rest| memchr::memchr3(b'\n', b'\r', 0xe2, rest))
    {
        let at = from.saturating_add(found);
        let rest = bytes.get(at..).unwrap_or_default();
        let size = line_terminator(rest);
        from = at.saturating_add(size.max(1));
        if size > 0 {
            lines.push(from as u32);
        }
    }
    lines
}

/// Size in bytes of the line terminator that a text starts with; 0 if it does not start with one.
pub(super) fn line_terminator(rest: &[u8]) -> usize {
    match rest {
        [b'\r', b'\n', ..] => 2,
        [b'\r' | b'\n', ..] => 1,
        [0xe2, 0x80, 0xa8 | 0xa9, ..] => 3,
        _ => 0,
    }
}

/// Returns the number of UTF-16 code units before each chunk of [`CHUNK`] bytes, and of all.
fn unit_counts(bytes: &[u8]) -> Vec<u32> {
    let mut total = 0u32;
    let mut counts = Vec::with_capacity((bytes.len() / CHUNK).saturating_add(2));
    counts.push(0);
    for chunk in bytes.chunks(CHUNK) {
        let units = if chunk.is_ascii() {
            chunk.len() as u32
        } else {
            chunk.iter().map(|&byte| utf16_width(byte)).sum()
        };
        total = total.saturating_add(units);
        counts.push(total);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_offsets_are_inverse() {
        let mut long = "x".repeat(3000);
        long.push_str("é😀\u{2028}end");
        for text in ["", "a", "a\nb\r\nc\rd\n", "é😀x\n😀", "aé b\nc😀", &long] {
            let indexed = Text::new(text.as_bytes()).unwrap();
            for (offset, _) in text
                .char_indices()
                .filter(|(at, _)| !text[..*at].ends_with('\r') || text.as_bytes()[*at] != b'\n')
            {
                let position = indexed.position(offset as u32);
                assert_eq!(
                    indexed.offset(position),
                    Some(offset as u32),
                    "{text:?} {position:?}"
                );
            }
        }
        let text = Text::new("\u{feff}é😀x\ny".as_bytes()).unwrap();
        let at = |line, column| text.offset(TextPosition { line, column });
        assert_eq!(
            (at(1, 1), at(1, 2), at(1, 4), at(2, 1)),
            (Some(0), Some(2), Some(6), Some(8))
        );
        // The end of the text.
        assert_eq!(at(2, 2), Some(9));
        assert_eq!(
            Text::new(&b"a"[..])
                .unwrap()
                .offset(TextPosition { line: 1, column: 2 }),
            Some(1)
        );
        // Inside a surrogate pair, past the end of the line, past the last line.
        assert_eq!(
            (at(1, 3), at(1, 7), at(3, 1), at(0, 1), at(1, 0)),
            (None, None, None, None, None)
        );
    }
}
