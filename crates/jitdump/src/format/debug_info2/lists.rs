//! The layout of DEBUG_INFO2 records with six lists, from the first draft of the format (type 827346259).
//!
//! ```text
//! u32 file_count             u32 file_list_size      (rounded up to 4)
//! u32 function_names_count   u32 function_names_list_size   (rounded up to 4)
//! u32 function_count  u32 inline_call_count  u32 range_count  u32 line_count
//! files           NUL-terminated strings
//! function names  NUL-terminated strings
//! functions       u32 name, file, start line, start column, flags; the first is the function itself
//! inline calls    u32 depth, range count, function, line, column; in depth-first order
//! ranges          u32 start, size; grouped by call
//! lines           u32 code offset, file, line, column
//! ```
//!
//! Lines count from 1 and columns from 0; all ones means none. Offsets are in bytes from the start of the
//! function. If a size is not rounded up although padding follows, it is rounded when it is read.

use crate::bytes::{ByteOrder, Reader};
use crate::debug_info::{DebugInfo, InlinedCall, LineRow, SourceFunction};
use crate::format::debug_info::ParsedDebugInfo;
use crate::format::debug_info2::{ExpectedList, Files, Strings, is_missing};
use crate::format::record::MAX_PADDING;

/// Sizes of list entries, in bytes.
const FUNCTION_SIZE: usize = 20;
const CALL_SIZE: usize = 20;
const RANGE_SIZE: usize = 8;
const LINE_SIZE: usize = 16;

/// The lists of a record, not parsed yet.
#[derive(Clone, Debug)]
pub struct EncodedLists<'a> {
    endian: ByteOrder,
    files: Strings<'a>,
    names: Strings<'a>,
    functions: &'a [u8],
    calls: &'a [u8],
    ranges: &'a [u8],
    lines: &'a [u8],
    /// Whether the sizes of both lists of strings are multiples of 4.
    pub is_rounded: bool,
}

/// The numbers at the start of a record.
#[derive(Clone, Copy, Debug)]
struct ListLengths {
    files: u32,
    file_size: u32,
    names: u32,
    name_size: u32,
    functions: u32,
    calls: u32,
    ranges: u32,
    lines: u32,
}

impl ListLengths {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            files: reader.u32()?,
            file_size: reader.u32()?,
            names: reader.u32()?,
            name_size: reader.u32()?,
            functions: reader.u32()?,
            calls: reader.u32()?,
            ranges: reader.u32()?,
            lines: reader.u32()?,
        })
    }

    fn is_rounded(&self) -> bool {
        self.file_size.is_multiple_of(4) && self.name_size.is_multiple_of(4)
    }
}

impl<'a> EncodedLists<'a> {
    /// Splits a record's content into lists; `None` if the sizes don't match the record's.
    pub fn split(content: &'a [u8], endian: ByteOrder) -> Option<Self> {
        let mut reader = Reader::new(content, endian);
        let counts = ListLengths::read(&mut reader)?;
        if counts.is_rounded() {
            return Self::split_lists(reader, endian, counts);
        }
        let rounded = || {
            Some(ListLengths {
                file_size: counts.file_size.checked_next_multiple_of(4)?,
                name_size: counts.name_size.checked_next_multiple_of(4)?,
                ..counts
            })
        };
        let is_padding = |list: &Strings<'_>, size: u32| {
            let padding = list.bytes.get(size as usize..).unwrap_or_default();
            padding.iter().all(|&byte| byte == 0)
        };
        let rounded = rounded()
            .and_then(|rounded| Self::split_lists(reader, endian, rounded))
            .filter(|lists| {
                is_padding(&lists.files, counts.file_size) && is_padding(&lists.names, counts.name_size)
            });
        let mut lists = rounded.or_else(|| Self::split_lists(reader, endian, counts))?;
        lists.is_rounded = false;
        Some(lists)
    }

    /// Returns the lists by the eight numbers at the start of a record.
    pub(super) fn expected_lists(counts: &[u64]) -> Option<Vec<ExpectedList>> {
        let &[
            files,
            file_size,
            names,
            name_size,
            functions,
            calls,
            ranges,
            lines,
        ] = counts
        else {
            return None;
        };
        let of_strings = |name, size, strings| ExpectedList { name, size, strings };
        Some(vec![
            of_strings("file list", file_size, files),
            of_strings("function names", name_size, names),
            ExpectedList::of_entries("functions", functions, FUNCTION_SIZE),
            ExpectedList::of_entries("inline calls", calls, CALL_SIZE),
            ExpectedList::of_entries("ranges", ranges, RANGE_SIZE),
            ExpectedList::of_entries("lines", lines, LINE_SIZE),
        ])
    }

    /// Splits what follows the lengths of the lists; `None` if it is shorter, or has no functions and lines.
    fn split_lists(mut reader: Reader<'a>, endian: ByteOrder, counts: ListLengths) -> Option<Self> {
        let mut list = |count: u32, size: usize| reader.bytes(u64::from(count).checked_mul(size as u64)?);
        let lists = Self {
            endian,
            files: Strings::split(list(counts.file_size, 1)?, counts.files.into(), 3)?,
            names: Strings::split(list(counts.name_size, 1)?, counts.names.into(), 3)?,
            functions: list(counts.functions, FUNCTION_SIZE)?,
            calls: list(counts.calls, CALL_SIZE)?,
            ranges: list(counts.ranges, RANGE_SIZE)?,
            lines: list(counts.lines, LINE_SIZE)?,
            is_rounded: true,
        };
        // An empty record carries no information and could be of any type.
        let is_used = counts.functions > 0 || counts.lines > 0;
        let rest = reader.rest();
        let is_padding = rest.len() <= MAX_PADDING || rest.iter().all(|&byte| byte == 0);
        (is_used && is_padding).then_some(lists)
    }

    /// Returns the numbers of entries: files, names, functions, calls, ranges and lines.
    pub fn counts(&self) -> [u64; 6] {
        let of = |list: &[u8], size: usize| list.len().checked_div(size).unwrap_or_default() as u64;
        [
            self.files.count,
            self.names.count,
            of(self.functions, FUNCTION_SIZE),
            of(self.calls, CALL_SIZE),
            of(self.ranges, RANGE_SIZE),
            of(self.lines, LINE_SIZE),
        ]
    }

    /// Returns the flags of each function, whose meaning is not published.
    pub fn flags(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.records(self.functions).map(|[.., flags]: [u32; 5]| flags)
    }

    /// Parses the lists.
    pub fn read(&self) -> ParsedDebugInfo<'a> {
        let (paths, names) = (self.files.by_index(), self.names.by_index());
        let mut files = Files::new(&paths);
        let mut info = DebugInfo::default();
        let mut missing_indices = 0u64;
        for [name, file, line, column, _flags] in self.records(self.functions) {
            for (index, count) in [(name, names.len()), (file, paths.len())] {
                missing_indices = missing_indices.saturating_add(is_missing(index, count).into());
            }
            info.functions.push(SourceFunction {
                name: names.get(name as usize).copied().unwrap_or_default(),
                file: files.number(file),
                line: line_number(line),
                column: column_from_0(column),
            });
        }
        for [offset, file, line, column] in self.records(self.lines) {
            info.rows.push(LineRow {
                offset,
                file: files.number(file),
                line: line_number(line),
                column: column_from_0(column),
                discriminator: 0,
            });
        }
        info.files = files.files;
        let mut ranges = self.records::<2>(self.ranges);
        let mut claimed = 0u64;
        for [depth, range_count, function, line, column] in self.records(self.calls) {
            claimed = claimed.saturating_add(range_count.into());
            let ranges = ranges.by_ref().take(range_count as usize);
            let call = InlinedCall {
                depth,
                function,
                ranges: ranges
                    .map(|[start, size]| start..start.saturating_add(size))
                    .collect(),
                line: line_number(line),
                column: column_from_0(column),
            };
            info.calls.push(call);
        }
        let present = self.ranges.len().checked_div(RANGE_SIZE).unwrap_or_default() as u64;
        let pairs = info.rows.iter().zip(info.rows.iter().skip(1));
        ParsedDebugInfo {
            unsorted: pairs.filter(|(one, next)| next.offset < one.offset).count() as u64,
            missing_indices,
            info,
            ranges_unpaired: claimed.abs_diff(present),
            ..ParsedDebugInfo::default()
        }
    }

    /// Returns the fields of each entry of a list.
    fn records<const N: usize>(&self, list: &'a [u8]) -> impl Iterator<Item = [u32; N]> + use<'a, N> {
        let endian = self.endian;
        list.chunks_exact(size_of::<[u32; N]>()).map(move |bytes| {
            let mut reader = Reader::new(bytes, endian);
            std::array::from_fn(|_| reader.u32().unwrap_or(u32::MAX))
        })
    }
}

/// Converts a line number; all ones becomes 0 (unknown).
fn line_number(line: u32) -> u32 {
    if line == u32::MAX { 0 } else { line }
}

/// Converts a 0-based column to a 1-based one.
fn column_from_0(column: u32) -> u32 {
    column.wrapping_add(1)
}
