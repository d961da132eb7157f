//! The layout of DEBUG_INFO2 records with positions that refer to their callers (type 827346260), as read by
//! samply's branch support-inlines.
//!
//! ```text
//! u64 code_addr   u64 code_offset_count   u64 position_count   u64 string_count
//! code offsets    u32 code offset (up to the next one's), position; sorted
//! positions       i32 caller's position (-1: none), u32 function name, i32 file (-1: none),
//!                 u32 function's line, function's column, line, column
//! strings         NUL-terminated
//! ```
//!
//! Lines and columns count from 1; 0 means none. Names and files are indexes of strings.

use crate::bytes::{ByteOrder, Reader};
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::IndexedTable;
use crate::collections::interner::Interner;
use crate::debug_info::{InlinedCall, LineRow, MAX_DEPTH, MAX_RANGES, SourceFunction};
use crate::format::debug_info::ParsedDebugInfo;
use crate::format::debug_info2::{ExpectedList, Files, Strings, is_missing};
use crate::format::record::MAX_PADDING;
use crate::units::Address;

/// Sizes of list entries, in bytes.
const OFFSET_SIZE: usize = 8;
const POSITION_SIZE: usize = 28;

/// Maximum number of call ranges for each entry of the record, in addition to [`MAX_RANGES`]. A real entry
/// opens few calls, but a crafted record could close and reopen 64 calls at every byte.
const RANGES_PER_ENTRY: usize = 2;

/// The lists of a record, not parsed yet.
#[derive(Clone, Debug)]
pub struct RawLists<'a> {
    /// Address at which the function was loaded.
    pub address: Address,
    endian: ByteOrder,
    offsets: &'a [u8],
    positions: &'a [u8],
    strings: Strings<'a>,
}

/// An entry of the list of positions.
#[derive(Clone, Copy, Debug)]
struct PositionEntry {
    caller: u32,
    function: FunctionKey,
    line: u32,
    column: u32,
}

/// A function as a position gives it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FunctionKey {
    /// Indices of strings.
    name: u32,
    file: u32,
    line: u32,
    column: u32,
}

impl<'a> RawLists<'a> {
    /// Splits a record's content into lists; `None` if the sizes don't match the record's.
    pub fn split(content: &'a [u8], endian: ByteOrder) -> Option<Self> {
        let mut reader = Reader::new(content, endian);
        let address = Address(reader.u64()?);
        let (offsets, positions, string_count) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let mut list = |count: u64, size: usize| reader.bytes(count.checked_mul(size as u64)?);
        let (offsets, positions) = (list(offsets, OFFSET_SIZE)?, list(positions, POSITION_SIZE)?);
        let strings = Strings::split(reader.rest(), string_count, MAX_PADDING)?;
        (!offsets.is_empty() && !positions.is_empty()).then_some(Self {
            address,
            endian,
            offsets,
            positions,
            strings,
        })
    }

    /// Returns the lists by the four numbers at the start of a record. Strings take the rest of the record.
    pub(super) fn expected_lists(counts: &[u64]) -> Option<Vec<ExpectedList>> {
        let &[_address, offsets, positions, _strings] = counts else {
            return None;
        };
        Some(vec![
            ExpectedList::of_entries("code offsets", offsets, OFFSET_SIZE),
            ExpectedList::of_entries("positions", positions, POSITION_SIZE),
        ])
    }

    /// Parses the lists for a function of `size` bytes.
    pub fn read(&self, size: u32) -> ParsedDebugInfo<'a> {
        let strings = self.strings.by_index();
        let mut files = Files::new(&strings);
        let mut found = ParsedDebugInfo::default();
        let mut entries = self.entries();
        let pairs = entries.iter().zip(entries.iter().skip(1));
        found.unsorted = pairs.filter(|(one, next)| next.offset < one.offset).count() as u64;
        entries.sort_by_key(|entry| entry.offset);
        let ends = entries.iter().skip(1).map(|next| next.offset).chain([size]);
        let max_ranges = entries
            .len()
            .saturating_mul(RANGES_PER_ENTRY)
            .saturating_add(MAX_RANGES);
        let mut tree = InlinedCallTree::new(self.positions(), max_ranges);
        for (entry, end) in entries.iter().zip(ends) {
            let Some((position, call)) = tree.visit(entry.position) else {
                found.invalid = found.invalid.saturating_add(1);
                tree.close(0);
                continue;
            };
            tree.extend(call, entry.offset, end);
            found.info.rows.push(LineRow {
                offset: entry.offset,
                file: files.number(position.function.file),
                line: position.line,
                column: position.column,
                discriminator: 0,
            });
        }
        tree.close(0);
        found.calls_lost = tree.lost;
        let function = |key: &FunctionKey| SourceFunction {
            name: strings.get(key.name as usize).copied().unwrap_or_default(),
            file: files.number(key.file),
            line: key.line,
            column: key.column,
        };
        let indices = tree.functions.all.iter().flat_map(|key| [key.name, key.file]);
        found.missing_indices = indices.filter(|&index| is_missing(index, strings.len())).count() as u64;
        found.info.functions = tree.functions.all.iter().map(function).collect();
        found.info.files = files.files;
        found.info.calls = tree.into_calls();
        found
    }

    /// Returns the entries of the first list, in the order of the record.
    fn entries(&self) -> Vec<OffsetEntry> {
        let entries = self.offsets.chunks_exact(OFFSET_SIZE).map(|bytes| {
            let mut reader = Reader::new(bytes, self.endian);
            OffsetEntry {
                offset: reader.u32().unwrap_or(0),
                position: reader.u32().unwrap_or(u32::MAX),
            }
        });
        entries.collect()
    }

    /// Returns the entries of the second list.
    fn positions(&self) -> Vec<PositionEntry> {
        let entries = self.positions.chunks_exact(POSITION_SIZE);
        let position = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes, self.endian);
            let mut next = || reader.u32().unwrap_or(u32::MAX);
            PositionEntry {
                caller: next(),
                function: FunctionKey {
                    name: next(),
                    file: next(),
                    line: next(),
                    column: next(),
                },
                line: next(),
                column: next(),
            }
        };
        entries.map(position).collect()
    }
}

/// Where the code of a position starts, up to the next entry.
#[derive(Clone, Copy)]
struct OffsetEntry {
    /// From the start of the function, in bytes.
    offset: u32,
    /// Index of the position.
    position: u32,
}

/// What makes calls one.
#[derive(PartialEq, Eq, Hash)]
struct CallKey {
    parent: Option<u32>,
    /// Line and column of the call site.
    line: u32,
    column: u32,
    /// The called function.
    function: u32,
}

#[derive(Debug)]
struct CallTreeEntry {
    parent: Option<u32>,
    info: InlinedCall,
}

/// The tree of inlined calls, built from positions and their callers.
struct InlinedCallTree {
    positions: Vec<PositionEntry>,
    /// The call that each position is in.
    calls_of: Vec<Visited>,
    /// The first one added is the outermost function at the first code offset.
    functions: Interner<FunctionKey>,
    call_numbers: HashMap<CallKey, u32>,
    calls: IndexedTable<u32, CallTreeEntry>,
    /// The calls that contain the current code offset, innermost last, each with its start offset.
    open: Vec<(u32, u32)>,
    /// End of the last code range.
    end: u32,
    /// How many more ranges calls may have.
    ranges_left: usize,
    /// Number of ranges over the limit and of positions that are nested too deep.
    lost: u64,
    /// The path from a position or a call to its root. A field so that its memory is reused.
    path: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Visited {
    NotYet,
    /// The callers form a cycle or are missing.
    Unusable,
    /// In this call, or in the function itself (`None`).
    In(Option<u32>),
}

impl InlinedCallTree {
    fn new(positions: Vec<PositionEntry>, max_ranges: usize) -> Self {
        Self {
            calls_of: vec![Visited::NotYet; positions.len()],
            positions,
            functions: Interner::default(),
            call_numbers: HashMap::default(),
            calls: IndexedTable::default(),
            open: Vec::new(),
            end: 0,
            ranges_left: max_ranges,
            lost: 0,
            path: Vec::new(),
        }
    }

    fn position(&self, at: u32) -> Option<PositionEntry> {
        self.positions.get(at as usize).copied()
    }

    fn visited(&self, at: u32) -> Visited {
        self.calls_of
            .get(at as usize)
            .copied()
            .unwrap_or(Visited::Unusable)
    }

    fn mark(&mut self, at: u32, visited: Visited) {
        if let Some(mark) = self.calls_of.get_mut(at as usize) {
            *mark = visited;
        }
    }

    /// Returns a position and the call that it is in; `None` if it or a caller is missing, or its callers form a cycle.
    fn visit(&mut self, at: u32) -> Option<(PositionEntry, Option<u32>)> {
        // Collect the callers up to one that has been visited or has no caller.
        self.path.clear();
        let mut next = at;
        while next != u32::MAX && self.visited(next) == Visited::NotYet {
            // Marked as unusable first, so that a cycle ends.
            self.mark(next, Visited::Unusable);
            self.path.push(next);
            next = self.position(next)?.caller;
        }
        let mut caller = (next != u32::MAX).then_some(next);
        while let Some(at) = self.path.pop() {
            let visited = self.enter(at, caller);
            self.mark(at, visited);
            caller = Some(at);
        }
        match self.visited(at) {
            Visited::In(call) => Some((self.position(at)?, call)),
            _ => None,
        }
    }

    /// Returns the call that a position is in; its caller has been visited.
    fn enter(&mut self, at: u32, caller: Option<u32>) -> Visited {
        let Some(position) = self.position(at) else {
            return Visited::Unusable;
        };
        let Some(caller) = caller else {
            self.functions.of(position.function);
            return Visited::In(None);
        };
        let (Visited::In(parent), Some(site)) = (self.visited(caller), self.position(caller)) else {
            return Visited::Unusable;
        };
        let depth = parent.map_or(0, |parent| self.calls[parent].info.depth.saturating_add(1));
        if depth >= MAX_DEPTH {
            // A position that is nested too deep belongs to its caller.
            self.lost = self.lost.saturating_add(1);
            return Visited::In(parent);
        }
        let function = self.functions.of(position.function);
        let key = CallKey {
            parent,
            line: site.line,
            column: site.column,
            function,
        };
        let number = *self.call_numbers.entry(key).or_insert_with(|| {
            self.calls.push(CallTreeEntry {
                parent,
                info: InlinedCall {
                    depth,
                    function,
                    ranges: Vec::new(),
                    line: site.line,
                    column: site.column,
                },
            })
        });
        Visited::In(Some(number))
    }

    /// Adds the code from `offset` to `end` to `call` and its callers.
    fn extend(&mut self, call: Option<u32>, offset: u32, end: u32) {
        self.path.clear();
        let mut next = call;
        while let Some(call) = next {
            self.path.push(call);
            next = self.calls[call].parent;
        }
        self.path.reverse();
        if offset != self.end {
            self.close(0);
        }
        let open = self.open.iter().map(|&(call, _)| call);
        let same = open
            .zip(&self.path)
            .take_while(|(open, wanted)| open == *wanted)
            .count();
        self.close(same);
        self.open
            .extend(self.path.iter().skip(same).map(|&call| (call, offset)));
        self.end = end;
    }

    /// Closes all open calls except the `count` outermost ones.
    fn close(&mut self, count: usize) {
        while self.open.len() > count {
            let Some((call, start)) = self.open.pop() else {
                break;
            };
            // Several entries at one offset, or behind the end of the code.
            if start >= self.end {
                continue;
            }
            match self.ranges_left.checked_sub(1) {
                Some(left) => {
                    self.ranges_left = left;
                    self.calls[call].info.ranges.push(start..self.end);
                }
                None => self.lost = self.lost.saturating_add(1),
            }
        }
    }

    /// Returns the calls, each followed by its callees.
    fn into_calls(self) -> Vec<InlinedCall> {
        let mut inside = self.calls.map(|_| Vec::new());
        let mut next: Vec<u32> = Vec::new();
        for (number, call) in self.calls.enumerate() {
            match call.parent {
                Some(parent) => inside[parent].push(number),
                None => next.push(number),
            }
        }
        next.reverse();
        let calls = self.calls.into_iter().map(|call| Some(call.info));
        let mut calls: IndexedTable<u32, Option<InlinedCall>> = calls.collect();
        let mut ordered = Vec::with_capacity(calls.len());
        while let Some(number) = next.pop() {
            ordered.extend(calls[number].take());
            next.extend(inside[number].iter().rev());
        }
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of code that is by turns in six nested calls and in none, one byte each.
    fn record(entries: u32) -> Vec<u8> {
        let endian = ByteOrder::Little;
        let mut content = Vec::new();
        for number in [0x1000, u64::from(entries), 7, 1] {
            endian.write_u64(&mut content, number);
        }
        for offset in 0..entries {
            let position = if offset % 2 == 0 { 6 } else { 0 };
            endian.write_u32(&mut content, offset);
            endian.write_u32(&mut content, position);
        }
        for position in 0..7u32 {
            for number in [position.wrapping_sub(1), 0, 0, 1, 1, position + 1, 1] {
                endian.write_u32(&mut content, number);
            }
        }
        content.extend_from_slice(b"name\0");
        content
    }

    #[test]
    fn calls_have_two_ranges_for_each_entry_and_1024() {
        for (entries, lost) in [(1024, 0), (1026, 2)] {
            let content = record(entries);
            let lists = RawLists::split(&content, ByteOrder::Little).unwrap();
            let found = lists.read(entries);
            assert_eq!((found.info.calls.len(), found.calls_lost), (6, lost));
            assert_eq!(found.info.range_count(), u64::from(entries) * 3 - lost);
        }
    }
}
