//! Debug information of a function: its line table and inlined calls.
//!
//! Runtimes fill a [`DebugInfo`] with the content of their files. [`DebugInfo::normalise`] then makes it
//! consistent, so that its users need no checks: rows are sorted, the ranges of a call are within the ranges of
//! its caller and overlap no others, and all indices are valid.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::borrow::Cow;
use std::ops::Range;

use crate::collections::range_map::RangeMap;
use crate::units::{Address, AddressRange};

/// Maximum nesting depth of inlined calls; readers walk them recursively.
#[doc(hidden)]
pub const MAX_DEPTH: u32 = 64;

/// Maximum number of ranges of all calls of a function, in addition to twice the number that they came with:
/// splitting a caller's ranges among its callees multiplies them by the depth. Real calls are split into few.
#[doc(hidden)]
pub const MAX_RANGES: usize = 1 << 10;

/// Maximum line number; a larger one is invalid. elfutils rejects a line table with lines from 2^31 on.
#[doc(hidden)]
pub const MAX_LINE: u32 = 1 << 24;

/// Lines and inlined calls of one function.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DebugInfo<'a> {
    /// Source files.
    pub files: Vec<SourceFile<'a>>,
    /// The function itself, followed by the functions that were inlined into it.
    pub functions: Vec<SourceFunction<'a>>,
    /// Line table, which maps code offsets to source lines.
    pub rows: Vec<LineRow>,
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LineRow {
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

/// Counts of items dropped or changed to make debug information consistent.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Rows outside the function.
    pub rows: u64,
    /// Rows with a line but without a valid file. They are kept without a line.
    pub files: u64,
    /// Rows, functions and calls with a line above [`MAX_LINE`]. They are kept without a line.
    pub lines: u64,
    /// Inlined calls without code, with code that belongs to another call, or nested too deeply.
    pub calls: u64,
    /// Ranges of the other calls that were empty, or not entirely in the caller or in another call.
    pub ranges: u64,
    /// Places where an inlined call starts or ends inside a line.
    pub borders: u64,
}

/// A source location in the call chain of a code address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceFrame {
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
    /// Returns the number of ranges of all inlined calls.
    #[doc(hidden)]
    pub fn range_count(&self) -> u64 {
        let counts = self.calls.iter().map(|call| call.ranges.len() as u64);
        counts.fold(0, u64::saturating_add)
    }

    /// Returns about how many bytes of memory this takes, without what it borrows.
    pub fn memory_size(&self) -> u64 {
        let paths = self.files.iter().map(|file| match &file.path {
            Cow::Borrowed(_) => 0,
            Cow::Owned(path) => path.len(),
        });
        let tables = [
            size_of_val(&self.files[..]),
            size_of_val(&self.functions[..]),
            size_of_val(&self.rows[..]),
            size_of_val(&self.calls[..]),
        ];
        let size = tables.into_iter().chain(paths).fold(0, usize::saturating_add);
        let ranges = self.range_count().saturating_mul(size_of::<Range<u32>>() as u64);
        ranges.saturating_add(size as u64)
    }

    /// Returns the call chain of the code at an offset: the innermost inlined call first, the function itself
    /// last. The debug information must be [normalised](Self::normalise).
    pub fn frames_at(&self, offset: u32) -> Vec<SourceFrame> {
        let contains = |call: &&InlinedCall| call.ranges.iter().any(|range| range.contains(&offset));
        self.chain(offset, self.calls.iter().filter(contains))
    }

    /// Returns the same for each of some offsets, which must ascend.
    #[doc(hidden)]
    pub fn frames_at_all(
        &self,
        offsets: impl Iterator<Item = u32>,
    ) -> impl Iterator<Item = Vec<SourceFrame>> {
        let mut innermost = Innermost::of(&self.calls);
        offsets.map(move |offset| {
            innermost.go_to(offset);
            let open = innermost.open.iter();
            self.chain(offset, open.filter_map(|&(_, call)| self.calls.get(call)))
        })
    }

    /// Returns the call chain of the code at an offset that is in `calls`, the outermost first.
    fn chain<'c>(&self, offset: u32, calls: impl Iterator<Item = &'c InlinedCall>) -> Vec<SourceFrame> {
        let mut frames = Vec::new();
        let mut function = 0;
        for call in calls {
            frames.push(SourceFrame {
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
        let row = self.rows.get(..rows).and_then(<[LineRow]>::last).copied();
        let row = row.or_else(|| self.prologue_row());
        let (file, line, column) = row.map_or((None, 0, 0), |row| (row.file, row.line, row.column));
        frames.push(SourceFrame {
            function,
            file,
            line,
            column,
        });
        frames.reverse();
        frames
    }

    /// Returns a row for the code before the first row, if there is any: the line of the function's declaration, or else
    /// the first row's line.
    #[doc(hidden)]
    pub fn prologue_row(&self) -> Option<LineRow> {
        let first = self.rows.first().filter(|first| first.offset > 0)?;
        let declared = self.declaration_row(None);
        let row = if declared.line > 0 { declared } else { *first };
        Some(LineRow {
            offset: 0,
            discriminator: 0,
            ..row
        })
    }

    /// Returns the number of rows in another file than that of the function that contains their code. The debug information
    /// must be [normalised](Self::normalise).
    #[doc(hidden)]
    pub fn rows_in_other_files(&self) -> u64 {
        let mut innermost = Innermost::of(&self.calls);
        let is_elsewhere = |row: &&LineRow| {
            innermost.go_to(row.offset);
            let call = innermost.call().and_then(|call| self.calls.get(call));
            let function = self.functions.get(call.map_or(0, |call| call.function as usize));
            let declared = function.and_then(|function| function.file);
            row.line > 0 && declared.is_some() && declared != row.file
        };
        self.rows.iter().filter(is_elsewhere).count() as u64
    }

    /// Makes everything consistent for a function of `size` bytes. Afterwards, there is at least one function and
    /// all indices are valid.
    #[doc(hidden)]
    pub fn normalise(&mut self, size: u32) -> Dropped {
        let mut dropped = self.normalise_tables(size);
        let call_borders = self.call_borders(size);
        dropped.borders = self.start_rows_at_calls(&call_borders);
        self.remove_repeated_rows(&call_borders);
        dropped
    }

    /// Does the same, and adds no rows where inlined calls start or end: each address has the row before it.
    #[doc(hidden)]
    pub fn normalise_tables(&mut self, size: u32) -> Dropped {
        let files = self.files.len();
        let valid_file = |file: Option<u32>| file.filter(|&file| (file as usize) < files);
        if self.functions.is_empty() {
            self.functions.push(SourceFunction::default());
        }
        for function in &mut self.functions {
            function.file = valid_file(function.file);
        }
        let lines = self.remove_impossible_lines();
        let is_bad = |row: &&LineRow| valid_file(row.file).is_none() && (row.file.is_some() || row.line > 0);
        let bad_files = self.rows.iter().filter(is_bad).count();
        for row in &mut self.rows {
            row.file = valid_file(row.file);
            if row.file.is_none() {
                // A line without a file is meaningless.
                (row.line, row.column, row.discriminator) = (0, 0, 0);
            }
        }
        let rows = self.normalise_rows(size);
        let (calls, ranges) = self.normalise_calls(size);
        Dropped {
            files: bad_files as u64,
            lines,
            rows,
            calls,
            ranges,
            borders: 0,
        }
    }

    /// Removes lines that no file has, with their columns. Returns their number.
    fn remove_impossible_lines(&mut self) -> u64 {
        let mut removed = 0u64;
        let mut check = |line: &mut u32, column: &mut u32| {
            if *line > MAX_LINE {
                (*line, *column) = (0, 0);
                removed = removed.saturating_add(1);
            }
        };
        for row in &mut self.rows {
            check(&mut row.line, &mut row.column);
        }
        for function in &mut self.functions {
            check(&mut function.line, &mut function.column);
        }
        for call in &mut self.calls {
            check(&mut call.line, &mut call.column);
        }
        removed
    }

    /// Returns the offsets at which calls start or end, sorted.
    fn call_borders(&self, size: u32) -> Vec<u32> {
        let ranges = self.calls.iter().flat_map(|call| &call.ranges);
        let mut borders: Vec<u32> = ranges.flat_map(|range| [range.start, range.end]).collect();
        borders.retain(|&border| border < size);
        borders.sort_unstable();
        borders.dedup();
        borders
    }

    /// Removes rows equal to the one before, unless a call starts or ends there.
    fn remove_repeated_rows(&mut self, borders: &[u32]) {
        self.rows.dedup_by(|row, kept| {
            let with_same_offset = LineRow {
                offset: row.offset,
                ..*kept
            };
            with_same_offset == *row && borders.binary_search(&row.offset).is_err()
        });
    }

    /// Adds rows where a call starts or ends, as compilers do: eu-addr2line looks up the calls at the start of an
    /// address's row, not at the address itself. Returns the number of rows that it added between others.
    ///
    /// A row is in the innermost call, so it does not continue in another one. What starts without a row of its own gets
    /// the line that the same call had before, or else the one where its function is declared.
    fn start_rows_at_calls(&mut self, borders: &[u32]) -> u64 {
        if borders.is_empty() {
            return 0;
        }
        // New rows follow the others until all are sorted, and no list of their own is needed.
        let count = self.rows.len();
        let mut next = 0usize;
        let mut innermost = Innermost::of(&self.calls);
        for &border in borders {
            let row_at = |next: usize| self.rows.get(next).filter(|_| next < count);
            while let Some(row) = row_at(next).filter(|row| row.offset < border) {
                innermost.go_to(row.offset);
                innermost.set_row(*row);
                next = next.saturating_add(1);
            }
            innermost.go_to(border);
            let row = match row_at(next).filter(|row| row.offset == border) {
                Some(row) => {
                    next = next.saturating_add(1);
                    *row
                }
                None => {
                    let declared = self.declaration_row(innermost.call());
                    let row = LineRow {
                        offset: border,
                        ..innermost.row().unwrap_or(declared)
                    };
                    self.rows.push(row);
                    row
                }
            };
            innermost.set_row(row);
        }
        let added = self.rows.len().saturating_sub(count);
        self.rows.sort_unstable_by_key(|row| row.offset);
        if count == 0 { 0 } else { added as u64 }
    }

    /// Returns a row with the line where the function of a call is declared; `None` is the function itself.
    fn declaration_row(&self, call: Option<usize>) -> LineRow {
        let call = call.and_then(|call| self.calls.get(call));
        let function = self.functions.get(call.map_or(0, |call| call.function as usize));
        let function = function.filter(|function| function.file.is_some() && function.line > 0);
        LineRow {
            offset: 0,
            file: function.and_then(|function| function.file),
            line: function.map_or(0, |function| function.line),
            column: function.map_or(0, |function| function.column),
            discriminator: 0,
        }
    }

    /// Sorts the rows. The last of several rows at one offset wins, as for all readers of DWARF.
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
        dropped as u64
    }

    /// Makes the ranges of each call sorted, disjoint, inside those of its caller, and outside those of the calls before it in the
    /// same caller. Drops calls without a range then, of an unknown function, or too deep, each with the calls inside it. Calls are
    /// in the order of a depth-first walk, and stay in it.
    ///
    /// Returns the number of calls that were dropped, and of ranges of the others that were changed or dropped.
    fn normalise_calls(&mut self, size: u32) -> (u64, u64) {
        if self.calls.is_empty() {
            return (0, 0);
        }
        let functions = self.functions.len();
        let range_count: usize = self.calls.iter().map(|call| call.ranges.len()).sum();
        let mut ranges_left = range_count.saturating_mul(2).saturating_add(MAX_RANGES);
        // With room for a few calls inside each other.
        let mut open = Vec::with_capacity(4);
        open.push(OpenCall {
            call: 0,
            free: Some(free_ranges(std::slice::from_ref(&(0..size)))),
        });
        let mut claimed = Vec::new();
        let mut kept = 0;
        let mut changed = 0u64;
        // Calls that are kept move to the front, so `open` has indices of calls before the current one.
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
            let mut changed_here = 0;
            if let Some(caller) = open.last_mut().filter(|_| is_sound) {
                changed_here = take_free(caller.free(before), &claimed, &mut call.ranges);
            }
            if !call.ranges.is_empty()
                && let Some(left) = ranges_left.checked_sub(call.ranges.len())
            {
                ranges_left = left;
                changed = changed.saturating_add(changed_here);
                open.push(OpenCall::new(kept));
                self.calls.swap(kept, at);
                kept = kept.saturating_add(1);
            }
        }
        let dropped = self.calls.len().saturating_sub(kept);
        self.calls.truncate(kept);
        (dropped as u64, changed)
    }
}

/// A range of a call.
struct CallRange {
    range: Range<u32>,
    depth: u32,
    /// Index of the call.
    call: usize,
}

/// The innermost call at ascending offsets.
struct Innermost {
    /// Ranges of calls by start, outermost first; the next one is last.
    ranges: Vec<CallRange>,
    /// Ends of the ranges that contain the offset, with the indices of their calls, outermost first.
    open: Vec<(u32, usize)>,
    /// The last row in each call, and at the end that in the function itself.
    rows: Vec<Option<LineRow>>,
}

impl Innermost {
    fn of(calls: &[InlinedCall]) -> Self {
        let mut ranges = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            ranges.extend(call.ranges.iter().map(|range| CallRange {
                range: range.clone(),
                depth: call.depth,
                call: at,
            }));
        }
        ranges.sort_unstable_by_key(|one: &CallRange| std::cmp::Reverse((one.range.start, one.depth)));
        Self {
            ranges,
            open: Vec::new(),
            rows: vec![None; calls.len().saturating_add(1)],
        }
    }

    fn go_to(&mut self, offset: u32) {
        while let Some(CallRange { range, call, .. }) = self.ranges.pop_if(|next| next.range.start <= offset)
        {
            // An inner range ends where an outer one does, or before.
            while self.open.pop_if(|(end, _)| *end <= range.start).is_some() {}
            self.open.push((range.end, call));
        }
        while self.open.pop_if(|(end, _)| *end <= offset).is_some() {}
    }

    fn call(&self) -> Option<usize> {
        self.open.last().map(|&(_, call)| call)
    }

    fn row(&self) -> Option<LineRow> {
        let at = self.call().unwrap_or(self.rows.len().saturating_sub(1));
        self.rows.get(at).copied().flatten()
    }

    fn set_row(&mut self, row: LineRow) {
        let at = self.call().unwrap_or(self.rows.len().saturating_sub(1));
        if let Some(last) = self.rows.get_mut(at) {
            *last = Some(row);
        }
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
        free.insert(range, ());
    }
    free
}

/// Removes the free parts of `claimed` from the map; appends them to `taken`, sorted and merged. Returns the number of
/// ranges that are empty or not entirely free.
fn take_free(free: &mut RangeMap<()>, claimed: &[Range<u32>], taken: &mut Vec<Range<u32>>) -> u64 {
    let mut changed = 0u64;
    for range in claimed {
        let mut left = range.len() as u64;
        if let Some(range) = address_range(range) {
            // The offsets were 32-bit integers before.
            free.remove_with(range, |piece, ()| {
                left = left.saturating_sub(piece.size());
                taken.push(piece.start.0 as u32..piece.end.0 as u32);
            });
        }
        let is_changed = range.is_empty() || left > 0;
        changed = changed.saturating_add(is_changed.into());
    }
    taken.sort_unstable_by_key(|range| range.start);
    taken.dedup_by(|range, last| {
        let is_neighbour = last.end == range.start;
        if is_neighbour {
            last.end = range.end;
        }
        is_neighbour
    });
    changed
}

#[cfg(test)]
// Ranges of code, not of numbers.
#[allow(clippy::single_range_in_vec_init)]
mod tests;
