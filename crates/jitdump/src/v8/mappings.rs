//! The mappings of a source map (ECMA-426, 7): lines of segments, whose numbers are in Base64 VLQ.

use serde::Deserialize;

use crate::v8::source_map::MapError;

/// Maximum number of mappings. With the texts of the sources, they take most of the memory.
const MAX_MAPPINGS: usize = 1 << 24;

/// Start of a range of generated text, up to the next mapping or the end of the line. All numbers count from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MapEntry {
    /// Generated line.
    pub line: u32,
    /// Generated column.
    pub column: u32,
    /// Index of the source; [`NONE`] for text that no source has.
    pub source: u32,
    /// Line in the source.
    pub source_line: u32,
    /// Column in the source.
    pub source_column: u32,
    /// Index of the original name; [`NONE`] if there is none.
    pub name: u32,
}

/// Index of what a mapping does not have.
pub const NONE: u32 = u32::MAX;

impl MapEntry {
    /// Returns the start of generated text that no source has.
    pub fn without_source(line: u32, column: u32) -> Self {
        Self {
            line,
            column,
            source: NONE,
            source_line: 0,
            source_column: 0,
            name: NONE,
        }
    }
}

/// Where a section starts in the generated text, from 0.
#[derive(Clone, Copy, Deserialize)]
pub struct Offset {
    /// Line.
    pub line: u32,
    /// Column, in the first line of the section.
    pub column: u32,
}

/// Checks that there is room for another mapping after `count` mappings.
pub fn check_room(count: usize) -> Result<(), MapError> {
    if count < MAX_MAPPINGS {
        Ok(())
    } else {
        Err(MapError::TooLarge)
    }
}

/// Reads the mappings of one map.
pub struct MappingsDecoder {
    /// First index of its sources, and the one after the last.
    pub sources: (u32, u32),
    /// The same of its names.
    pub names: (u32, u32),
    /// Where its text starts.
    pub offset: Offset,
    /// Source, line, column and name of the last mapping.
    pub state: [i64; 4],
}

impl MappingsDecoder {
    /// Appends the mappings of a text.
    pub fn decode(&mut self, text: &[u8], mappings: &mut Vec<MapEntry>) -> Result<(), MapError> {
        for (line, segments) in text.split(|&byte| byte == b';').enumerate() {
            let line_in_map = u32::try_from(line).map_err(|_| MapError::TooLarge)?;
            let line = self
                .offset
                .line
                .checked_add(line_in_map)
                .ok_or(MapError::Mapping)?;
            let base = if line_in_map == 0 { self.offset.column } else { 0 };
            let mut column = i64::from(base);
            for segment in segments
                .split(|&byte| byte == b',')
                .filter(|segment| !segment.is_empty())
            {
                check_room(mappings.len())?;
                let mapping = self.segment(segment, line, &mut column);
                mappings.push(mapping.ok_or(MapError::Mapping)?);
            }
        }
        Ok(())
    }

    /// Parses a segment of a line; `None` if it is invalid. `column` is that of the segment before, and gets its own.
    fn segment(&mut self, text: &[u8], line: u32, column: &mut i64) -> Option<MapEntry> {
        let (distance, mut rest) = read_number(text)?;
        *column = column.checked_add(distance)?;
        let mut mapping = MapEntry::without_source(line, u32::try_from(*column).ok()?);
        if rest.is_empty() {
            return Some(mapping);
        }
        let [source, source_line, source_column, name] = &mut self.state;
        for value in [&mut *source, &mut *source_line, &mut *source_column] {
            let (distance, after) = read_number(rest)?;
            *value = value.checked_add(distance)?;
            rest = after;
        }
        mapping.source = index_in(self.sources, *source)?;
        mapping.source_line = u32::try_from(*source_line).ok()?;
        mapping.source_column = u32::try_from(*source_column).ok()?;
        if !rest.is_empty() {
            let (distance, after) = read_number(rest)?;
            *name = name.checked_add(distance)?;
            mapping.name = index_in(self.names, *name)?;
            rest = after;
        }
        // Newer versions may add fields.
        let _ = rest;
        Some(mapping)
    }
}

/// Index of an entry in a list of which a map has the part from `first` to `end`; `None` outside of that.
fn index_in((first, end): (u32, u32), number: i64) -> Option<u32> {
    let index = u32::try_from(number).ok()?.checked_add(first)?;
    (index < end).then_some(index)
}

/// Reads the next number, and returns it with the rest of the text; `None` if it is invalid or too large.
fn read_number(text: &[u8]) -> Option<(i64, &[u8])> {
    let (mut value, mut shift) = (0i64, 0u32);
    let mut rest = text;
    loop {
        let (&digit, after) = rest.split_first()?;
        rest = after;
        let digit = digit_value(digit)?;
        value |= i64::from(digit & 0x1f).checked_shl(shift)?;
        shift = shift.saturating_add(5);
        if digit & 0x20 == 0 {
            break;
        }
        // Numbers have 32 bits and a sign.
        if shift > 35 {
            return None;
        }
    }
    let magnitude = value >> 1;
    Some((
        if value & 1 == 0 {
            magnitude
        } else {
            magnitude.checked_neg()?
        },
        rest,
    ))
}

/// Returns the value of a Base64 digit.
fn digit_value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => digit.checked_sub(b'A'),
        b'a'..=b'z' => digit.checked_sub(b'a')?.checked_add(26),
        b'0'..=b'9' => digit.checked_sub(b'0')?.checked_add(52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_signs_and_continue() {
        for (text, expected) in [
            ("A", 0),
            ("C", 1),
            ("D", -1),
            ("gB", 16),
            ("hB", -16),
            ("+/////D", 2147483647),
        ] {
            assert_eq!(read_number(text.as_bytes()), Some((expected, &b""[..])), "{text}");
        }
        assert_eq!(read_number(b"CAA"), Some((1, &b"AA"[..])));
        for text in ["", "g", "!", "gggggggggA"] {
            assert_eq!(read_number(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn there_are_up_to_16_mi_mappings() {
        assert_eq!(check_room(16_777_215), Ok(()));
        assert_eq!(check_room(16_777_216), Err(MapError::TooLarge));
    }
}
