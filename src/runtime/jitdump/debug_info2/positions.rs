//! The layout with positions that know their callers, which samply's reader has (number 827346260).
//!
//! ```text
//! u64 code_addr   u64 code_offset_count   u64 position_count   u64 string_count
//! code offsets    u32 code offset (up to the next one's), position; sorted
//! positions       i32 caller's position (-1: none), u32 function name, i32 file (-1: none),
//!                 u32 function's line, function's column, line, column
//! strings         NUL-terminated
//! ```
//!
//! Lines and columns count from 1, and 0 stands for none. Names and files are strings by their index.

use crate::bytes::{ByteOrder, Reader};
use crate::debug_info::{InlinedCall, MAX_DEPTH, MAX_RANGES, Row, SourceFunction};
use crate::hash::HashMap;
use crate::runtime::jitdump::debug_info::Lines;
use crate::runtime::jitdump::debug_info2::{Files, Strings};
use crate::runtime::jitdump::record::MAX_PADDING;
use crate::units::Address;

/// Sizes in bytes of what is in the lists.
const OFFSET_SIZE: usize = 8;
const POSITION_SIZE: usize = 28;

/// How many ranges calls may have for each entry of the record, beside [`MAX_RANGES`]: a real one opens few
/// calls at a time, but 64 of them could be closed and opened again at every byte.
const RANGES_PER_ENTRY: usize = 8;

/// The lists of a record, of which only the sizes were looked at.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    /// Where the function was loaded.
    pub address: Address,
    order: ByteOrder,
    offsets: &'a [u8],
    positions: &'a [u8],
    strings: Strings<'a>,
}

/// An entry of the list of positions.
#[derive(Clone, Copy, Debug)]
struct Position {
    caller: u32,
    function: Function,
    line: u32,
    column: u32,
}

/// A function as a position has it: name, file, line, column.
type Function = (u32, u32, u32, u32);

impl<'a> Parts<'a> {
    /// Splits a record's content; `None` if its sizes don't add up.
    pub fn split(content: &'a [u8], order: ByteOrder) -> Option<Self> {
        let mut reader = Reader::new(content, order);
        let address = Address(reader.u64()?);
        let (offsets, positions, string_count) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let mut list = |count: u64, size: usize| reader.bytes(count.checked_mul(size as u64)?);
        let (offsets, positions) = (list(offsets, OFFSET_SIZE)?, list(positions, POSITION_SIZE)?);
        let strings = Strings::split(reader.rest(), string_count, MAX_PADDING)?;
        (!offsets.is_empty() && !positions.is_empty()).then_some(Self {
            address,
            order,
            offsets,
            positions,
            strings,
        })
    }

    /// What the lists say of a function of `size` bytes.
    pub fn read(&self, size: u32) -> Lines<'a> {
        let strings = self.strings.index();
        let mut files = Files::new(&strings);
        let mut found = Lines::default();
        let offsets = self.offsets.chunks_exact(OFFSET_SIZE).map(|bytes| {
            let mut reader = Reader::new(bytes, self.order);
            (reader.u32().unwrap_or(0), reader.u32().unwrap_or(u32::MAX))
        });
        let mut offsets: Vec<(u32, u32)> = offsets.collect();
        offsets.sort_by_key(|&(offset, _)| offset);
        let ends = offsets.iter().skip(1).map(|&(offset, _)| offset).chain([size]);
        let max_ranges = offsets
            .len()
            .saturating_mul(RANGES_PER_ENTRY)
            .saturating_add(MAX_RANGES);
        let mut tree = Tree::new(self.positions(), max_ranges);
        for (&(offset, at), end) in offsets.iter().zip(ends) {
            let Some((position, call)) = tree.visit(at) else {
                found.astray = found.astray.saturating_add(1);
                tree.close(0);
                continue;
            };
            tree.extend(call, offset, end);
            let (_, file, ..) = position.function;
            found.info.rows.push(Row {
                offset,
                file: files.number(file),
                line: position.line,
                column: position.column,
                discriminator: 0,
            });
        }
        tree.close(0);
        found.calls_lost = tree.lost;
        let function = |&(name, file, line, column): &Function| SourceFunction {
            name: strings.get(name as usize).copied().unwrap_or_default(),
            file: files.number(file),
            line,
            column,
        };
        found.info.functions = tree.functions.iter().map(function).collect();
        found.info.files = files.finish();
        found.info.calls = tree.into_calls();
        found
    }

    fn positions(&self) -> Vec<Position> {
        let entries = self.positions.chunks_exact(POSITION_SIZE);
        let position = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes, self.order);
            let mut next = || reader.u32().unwrap_or(u32::MAX);
            let (caller, name, file) = (next(), next(), next());
            Position {
                caller,
                function: (name, file, next(), next()),
                line: next(),
                column: next(),
            }
        };
        entries.map(position).collect()
    }
}

/// A call, as the same callers at the same line and column call the same function.
type CallKey = (Option<u32>, u32, u32, u32);

#[derive(Debug)]
struct Call {
    parent: Option<u32>,
    info: InlinedCall,
}

/// The tree of calls that positions with their callers stand for.
struct Tree {
    positions: Vec<Position>,
    /// What is known of each position.
    calls_of: Vec<Visited>,
    functions: Vec<Function>,
    function_numbers: HashMap<Function, u32>,
    call_numbers: HashMap<CallKey, u32>,
    calls: Vec<Call>,
    /// The calls that the code is in now, the innermost last, with where each of them started.
    open: Vec<(u32, u32)>,
    /// Up to where the code has been visited.
    end: u32,
    /// How many more ranges calls may have.
    ranges_left: usize,
    /// Ranges that were too many, and positions that were too deep.
    lost: u64,
    /// The way up from a position or a call, while it is followed; kept for its memory.
    path: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Visited {
    NotYet,
    /// It calls itself, or leads nowhere.
    Unusable,
    /// In the function itself, or in this call.
    In(Option<u32>),
}

impl Tree {
    fn new(positions: Vec<Position>, max_ranges: usize) -> Self {
        Self {
            calls_of: vec![Visited::NotYet; positions.len()],
            positions,
            functions: Vec::new(),
            function_numbers: HashMap::default(),
            call_numbers: HashMap::default(),
            calls: Vec::new(),
            open: Vec::new(),
            end: 0,
            ranges_left: max_ranges,
            lost: 0,
            path: Vec::new(),
        }
    }

    fn position(&self, at: u32) -> Option<Position> {
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

    /// A position, and the call that it is in.
    fn visit(&mut self, at: u32) -> Option<(Position, Option<u32>)> {
        // From the position up to one that is known already or has no caller.
        self.path.clear();
        let mut next = at;
        while next != u32::MAX && self.visited(next) == Visited::NotYet {
            // Unless it turns out to be otherwise; this way a circle ends.
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

    /// What call a position is in, that of its caller being known.
    fn enter(&mut self, at: u32, caller: Option<u32>) -> Visited {
        let Some(position) = self.position(at) else {
            return Visited::Unusable;
        };
        let Some(caller) = caller else {
            self.function(position.function);
            return Visited::In(None);
        };
        let (Visited::In(parent), Some(site)) = (self.visited(caller), self.position(caller)) else {
            return Visited::Unusable;
        };
        let depth = parent
            .and_then(|parent| self.calls.get(parent as usize))
            .map_or(0, |call| call.info.depth.saturating_add(1));
        if depth >= MAX_DEPTH {
            // What is too deep counts as its caller's.
            self.lost = self.lost.saturating_add(1);
            return Visited::In(parent);
        }
        let function = self.function(position.function);
        let key = (parent, site.line, site.column, function);
        let number = *self.call_numbers.entry(key).or_insert_with(|| {
            let number = self.calls.len() as u32;
            self.calls.push(Call {
                parent,
                info: InlinedCall {
                    depth,
                    function,
                    ranges: Vec::new(),
                    line: site.line,
                    column: site.column,
                },
            });
            number
        });
        Visited::In(Some(number))
    }

    /// The number of a function. The first one that is asked for is that of the outermost position of the
    /// first code.
    fn function(&mut self, function: Function) -> u32 {
        *self.function_numbers.entry(function).or_insert_with(|| {
            let number = self.functions.len() as u32;
            self.functions.push(function);
            number
        })
    }

    /// The code from `offset` to `end` is in `call`, and so in its callers.
    fn extend(&mut self, call: Option<u32>, offset: u32, end: u32) {
        self.path.clear();
        let mut next = call;
        while let Some(call) = next {
            self.path.push(call);
            next = self.calls.get(call as usize).and_then(|call| call.parent);
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

    /// Ends all open calls but the outermost `count`.
    fn close(&mut self, count: usize) {
        while self.open.len() > count {
            let Some((call, start)) = self.open.pop() else {
                break;
            };
            let Some(call) = self.calls.get_mut(call as usize) else {
                continue;
            };
            match self.ranges_left.checked_sub(1) {
                Some(left) => {
                    self.ranges_left = left;
                    call.info.ranges.push(start..self.end);
                }
                None => self.lost = self.lost.saturating_add(1),
            }
        }
    }

    /// All calls, each followed by those inside it.
    fn into_calls(self) -> Vec<InlinedCall> {
        let mut inside: Vec<Vec<u32>> = vec![Vec::new(); self.calls.len()];
        let mut next = Vec::new();
        for (number, call) in (0u32..).zip(&self.calls) {
            match call.parent.and_then(|parent| inside.get_mut(parent as usize)) {
                Some(siblings) => siblings.push(number),
                None => next.push(number),
            }
        }
        next.reverse();
        let mut calls: Vec<Option<InlinedCall>> =
            self.calls.into_iter().map(|call| Some(call.info)).collect();
        let mut ordered = Vec::with_capacity(calls.len());
        while let Some(number) = next.pop() {
            ordered.extend(calls.get_mut(number as usize).and_then(Option::take));
            next.extend(inside.get(number as usize).into_iter().flatten().rev());
        }
        ordered
    }
}
