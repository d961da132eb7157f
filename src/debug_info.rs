//! Debug information of a function: its line table and inlined calls.
//!
//! Runtimes fill a [`DebugInfo`] with the content of their files. [`DebugInfo::normalise`] then makes it
//! consistent, so that its users need no checks: rows are sorted, the ranges of a call are within those of its
//! caller and don't overlap those of others, and all indices are valid.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::borrow::Cow;
use std::ops::Range;

use crate::collections::range_map::RangeMap;
use crate::units::{Address, AddressRange};

/// Maximum nesting depth of inlined calls; readers walk them recursively.
pub const MAX_DEPTH: u32 = 64;

/// Maximum number of ranges of all calls of a function, in addition to twice the number that they came with:
/// splitting a caller's ranges among its callees multiplies them by the depth. No real function has that many.
pub const MAX_RANGES: usize = 1 << 20;

/// Lines and inlined calls of one function.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DebugInfo<'a> {
    /// Source files.
    pub files: Vec<SourceFile<'a>>,
    /// The function itself, followed by the functions that were inlined into it.
    pub functions: Vec<SourceFunction<'a>>,
    /// Line table, which maps code offsets to source lines.
    pub rows: Vec<Row>,
    /// Inlined calls, each followed by the calls inside it.
    pub calls: Vec<InlinedCall>,
}

/// A source file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceFile<'a> {
    /// Path as written by the runtime; may be relative, or not a path at all.
    pub path: Cow<'a, [u8]>,
    /// Text of the file, if it is available.
    pub text: Option<&'a [u8]>,
    /// Path of the script whose source map names the file, if no runtime does.
    pub script: Option<Cow<'a, [u8]>>,
}

/// A function in the source code. Lines and columns are 0 if they are unknown.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct SourceFunction<'a> {
    /// Name; empty if it is unknown.
    pub name: &'a [u8],
    /// File, as an index into [`DebugInfo::files`].
    pub file: Option<u32>,
    /// First line of the function, from 1.
    pub line: u32,
    /// First column of the function, from 1.
    pub column: u32,
}

/// Source line of the code from an offset up to the next row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Offset from the start of the function, in bytes.
    pub offset: u32,
    /// File, as an index into [`DebugInfo::files`].
    pub file: Option<u32>,
    /// Line, from 1; 0 for code without a source line.
    pub line: u32,
    /// Column, from 1; 0 if it is unknown.
    pub column: u32,
    /// DWARF discriminator, which distinguishes blocks on one line; 0 for the first.
    pub discriminator: u32,
}

/// An inlined call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InlinedCall {
    /// Nesting depth: 0 for a call from the function itself, 1 for one from a call of depth 0, and so on.
    pub depth: u32,
    /// Called function, as an index into [`DebugInfo::functions`].
    pub function: u32,
    /// Code of the call, as offsets in bytes from the start of the function.
    pub ranges: Vec<Range<u32>>,
    /// Line of the call, in the caller's file.
    pub line: u32,
    /// Column of the call.
    pub column: u32,
}

impl<'a> From<&'a [u8]> for SourceFile<'a> {
    fn from(path: &'a [u8]) -> Self {
        Self {
            path: path.into(),
            text: None,
            script: None,
        }
    }
}

/// Counts of items dropped to make debug information consistent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Rows outside the function.
    pub rows: u64,
    /// Rows with a line but without a valid file. They are kept without a line.
    pub files: u64,
    /// Inlined calls without code, with code that belongs to another call, or nested too deeply.
    pub calls: u64,
}

/// A source location in the call chain of a code address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Function, as an index into [`DebugInfo::functions`].
    pub function: u32,
    /// File, as an index into [`DebugInfo::files`].
    pub file: Option<u32>,
    /// Executed line, or in a caller the line of the call; 0 if it is unknown.
    pub line: u32,
    /// Column; 0 if it is unknown.
    pub column: u32,
}

impl DebugInfo<'_> {
    /// Returns the call chain of the code at an offset: the innermost inlined call first, the function itself
    /// last. The debug information must be [normalised](Self::normalise).
    pub fn frames_at(&self, offset: u32) -> Vec<Frame> {
        let contains = |call: &&InlinedCall| call.ranges.iter().any(|range| range.contains(&offset));
        let mut frames = Vec::new();
        let mut function = 0;
        for call in self.calls.iter().filter(contains) {
            frames.push(Frame {
                function,
                file: self
                    .functions
                    .get(function as usize)
                    .and_then(|caller| caller.file),
                line: call.line,
                column: call.column,
            });
            function = call.function;
        }
        let rows = self.rows.partition_point(|row| row.offset <= offset);
        let row = self.rows.get(..rows).and_then(<[Row]>::last);
        let (file, line, column) = row.map_or((None, 0, 0), |row| (row.file, row.line, row.column));
        frames.push(Frame {
            function,
            file,
            line,
            column,
        });
        frames.reverse();
        frames
    }

    /// Makes everything consistent for a function of `size` bytes. Afterwards, there is at least one function and
    /// all indices are valid.
    pub fn normalise(&mut self, size: u32) -> Dropped {
        let files = self.files.len();
        let valid_file = |file: Option<u32>| file.filter(|&file| (file as usize) < files);
        if self.functions.is_empty() {
            self.functions.push(SourceFunction::default());
        }
        for function in &mut self.functions {
            function.file = valid_file(function.file);
        }
        let is_bad = |row: &&Row| valid_file(row.file).is_none() && (row.file.is_some() || row.line > 0);
        let bad_files = self.rows.iter().filter(is_bad).count();
        for row in &mut self.rows {
            row.file = valid_file(row.file);
            if row.file.is_none() {
                // A line without a file is meaningless.
                (row.line, row.column, row.discriminator) = (0, 0, 0);
            }
        }
        let dropped = Dropped {
            files: bad_files as u64,
            rows: self.normalise_rows(size),
            calls: self.normalise_calls(size),
        };
        self.start_rows_at_calls(size);
        dropped
    }

    /// Adds rows where a call starts or ends, as compilers do: eu-addr2line looks up the calls at the start of an
    /// address's row, not at the address itself.
    fn start_rows_at_calls(&mut self, size: u32) {
        let ranges = self.calls.iter().flat_map(|call| &call.ranges);
        let mut borders: Vec<u32> = ranges.flat_map(|range| [range.start, range.end]).collect();
        borders.retain(|&border| border < size);
        borders.sort_unstable();
        borders.dedup();
        let mut added = Vec::new();
        let mut rows = self.rows.iter().peekable();
        let mut last = None;
        for border in borders {
            while let Some(row) = rows.next_if(|row| row.offset <= border) {
                last = Some(row);
            }
            // Skipped if a row starts there already, or none precedes it.
            if let Some(&last) = last.filter(|last| last.offset < border) {
                added.push(Row {
                    offset: border,
                    ..last
                });
            }
        }
        self.rows.append(&mut added);
        self.rows.sort_unstable_by_key(|row| row.offset);
    }

    /// Sorts the rows. The last of several rows at one offset wins, as for all readers of DWARF. Rows equal to the
    /// previous one are removed.
    fn normalise_rows(&mut self, size: u32) -> u64 {
        let before = self.rows.len();
        self.rows.retain(|row| row.offset < size);
        let dropped = before.saturating_sub(self.rows.len());
        // They are usually sorted already, and sorting takes memory.
        if !self.rows.is_sorted_by_key(|row| row.offset) {
            self.rows.sort_by_key(|row| row.offset);
        }
        self.rows.dedup_by(|row, kept| {
            let is_same = row.offset == kept.offset;
            if is_same {
                *kept = *row;
            }
            is_same
        });
        self.rows.dedup_by(|row, kept| {
            let with_same_offset = Row {
                offset: row.offset,
                ..*kept
            };
            with_same_offset == *row
        });
        dropped as u64
    }

    fn normalise_calls(&mut self, size: u32) -> u64 {
        if self.calls.is_empty() {
            return 0;
        }
        let functions = self.functions.len();
        let range_count: usize = self.calls.iter().map(|call| call.ranges.len()).sum();
        let mut ranges_left = range_count.saturating_mul(2).saturating_add(MAX_RANGES);
        let mut open = vec![OpenCall::new(0)];
        if let Some(function) = open.first_mut() {
            function.free = Some(free_ranges(std::slice::from_ref(&(0..size))));
        }
        let mut claimed = Vec::new();
        let mut kept = 0;
        for at in 0..self.calls.len() {
            let (before, rest) = self.calls.split_at_mut(at);
            let Some(call) = rest.first_mut() else { break };
            let depth = call.depth as usize;
            // If a caller is dropped, the calls inside it are dropped, too.
            let is_sound =
                depth < open.len() && call.depth < MAX_DEPTH && (call.function as usize) < functions;
            open.truncate(depth.saturating_add(1));
            claimed.clear();
            claimed.append(&mut call.ranges);
            if let Some(caller) = open.last_mut().filter(|_| is_sound) {
                take_free(caller.free(before), &claimed, &mut call.ranges);
            }
            if !call.ranges.is_empty()
                && let Some(left) = ranges_left.checked_sub(call.ranges.len())
            {
                ranges_left = left;
                open.push(OpenCall::new(kept));
                self.calls.swap(kept, at);
                kept = kept.saturating_add(1);
            }
        }
        let dropped = self.calls.len().saturating_sub(kept);
        self.calls.truncate(kept);
        dropped as u64
    }
}

/// A call, or the function itself, while the calls inside it are processed.
struct OpenCall {
    /// Index of the call.
    call: usize,
    /// Code that no inner call has taken yet; computed for the first inner call.
    free: Option<RangeMap<()>>,
}

impl OpenCall {
    fn new(call: usize) -> Self {
        Self { call, free: None }
    }

    fn free(&mut self, calls: &[InlinedCall]) -> &mut RangeMap<()> {
        self.free.get_or_insert_with(|| {
            let call = calls.get(self.call);
            free_ranges(call.map_or(&[], |call| &call.ranges))
        })
    }
}

/// Converts a range of offsets to addresses of a function that starts at 0.
fn address_range(range: &Range<u32>) -> Option<AddressRange> {
    AddressRange::new(Address(range.start.into()), range.len() as u64)
}

/// Returns a map of free ranges.
fn free_ranges(ranges: &[Range<u32>]) -> RangeMap<()> {
    let mut free = RangeMap::default();
    for range in ranges.iter().filter_map(address_range) {
        free.insert(range, (), |_, ()| {});
    }
    free
}

/// Removes the free parts of `claimed` from the map; appends them to `taken`, sorted and merged.
fn take_free(free: &mut RangeMap<()>, claimed: &[Range<u32>], taken: &mut Vec<Range<u32>>) {
    for range in claimed.iter().filter_map(address_range) {
        // The offsets were 32-bit integers before.
        free.remove(range, |piece, ()| {
            taken.push(piece.start.0 as u32..piece.end.0 as u32)
        });
    }
    taken.sort_unstable_by_key(|range| range.start);
    taken.dedup_by(|range, last| {
        let is_neighbour = last.end == range.start;
        if is_neighbour {
            last.end = range.end;
        }
        is_neighbour
    });
}

#[cfg(test)]
// Ranges of code, not of numbers.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    fn row(offset: u32, line: u32) -> Row {
        Row {
            offset,
            file: Some(0),
            line,
            column: 0,
            discriminator: 0,
        }
    }

    fn call(depth: u32, ranges: &[Range<u32>]) -> InlinedCall {
        InlinedCall {
            depth,
            function: 0,
            ranges: ranges.to_vec(),
            line: 1,
            column: 1,
        }
    }

    #[test]
    fn rows_are_sorted_and_the_last_one_at_an_offset_wins() {
        let mut info = DebugInfo {
            files: vec![SourceFile::default()],
            rows: vec![
                row(8, 3),
                row(0, 1),
                row(8, 4),
                row(12, 4),
                row(100, 5),
                row(16, 5),
            ],
            ..DebugInfo::default()
        };
        assert_eq!(info.normalise(100).rows, 1);
        assert_eq!(info.rows, [row(0, 1), row(8, 4), row(16, 5)]);
    }

    #[test]
    fn inlined_calls_are_within_their_callers_and_do_not_overlap() {
        let mut info = DebugInfo {
            calls: vec![
                call(0, &[10..20, 30..40]),
                call(1, &[0..35]),
                call(1, &[32..50]),
                call(3, &[10..20]),
                call(0, &[15..25]),
                call(0, &[10..20]),
                call(1, &[10..20]),
                call(0, &[90..200]),
            ],
            ..DebugInfo::default()
        };
        assert_eq!(info.normalise(100).calls, 3);
        let found: Vec<_> = info
            .calls
            .iter()
            .map(|call| (call.depth, call.ranges.clone()))
            .collect();
        assert_eq!(
            found,
            [
                (0, vec![10..20, 30..40]),
                (1, vec![10..20, 30..35]),
                (1, vec![35..40]),
                (0, vec![20..25]),
                (0, vec![90..100]),
            ]
        );
    }

    #[test]
    fn rows_start_where_calls_do() {
        let mut info = DebugInfo {
            files: vec![SourceFile::default()],
            rows: vec![row(10, 1), row(20, 2)],
            calls: vec![call(0, &[5..15, 20..100])],
            ..DebugInfo::default()
        };
        info.normalise(100);
        assert_eq!(info.rows, [row(10, 1), row(15, 1), row(20, 2)]);
    }

    #[test]
    fn frames_at_an_offset_are_the_enclosing_inlined_calls() {
        let function = |file, line| SourceFunction {
            file: Some(file),
            line,
            ..SourceFunction::default()
        };
        let call = |depth, function, range, line| InlinedCall {
            depth,
            function,
            ranges: vec![range],
            line,
            column: 1,
        };
        let row = |offset, file, line| Row {
            offset,
            file: Some(file),
            line,
            column: 2,
            discriminator: 0,
        };
        let mut info = DebugInfo {
            files: vec![SourceFile::from(&b"a"[..]), SourceFile::from(&b"b"[..])],
            functions: vec![function(0, 1), function(1, 10), function(1, 20)],
            rows: vec![row(0, 0, 2), row(8, 1, 11), row(12, 1, 21), row(16, 0, 3)],
            calls: vec![call(0, 1, 8..16, 5), call(1, 2, 12..16, 12)],
        };
        info.normalise(32);
        let frames = |offset| -> Vec<_> {
            let frames = info.frames_at(offset).into_iter();
            frames
                .map(|frame| (frame.function, frame.file, frame.line))
                .collect()
        };
        assert_eq!(frames(4), [(0, Some(0), 2)]);
        assert_eq!(frames(9), [(1, Some(1), 11), (0, Some(0), 5)]);
        assert_eq!(frames(12), [(2, Some(1), 21), (1, Some(1), 12), (0, Some(0), 5)]);
        assert_eq!(frames(20), [(0, Some(0), 3)]);
        assert_eq!(
            DebugInfo::default().frames_at(0),
            [Frame {
                function: 0,
                file: None,
                line: 0,
                column: 0
            }]
        );
    }

    #[test]
    fn nesting_has_a_limit() {
        let mut info = DebugInfo {
            calls: (0..MAX_DEPTH + 10).map(|depth| call(depth, &[0..10])).collect(),
            ..DebugInfo::default()
        };
        assert_eq!(info.normalise(10).calls, 10);
    }
}
