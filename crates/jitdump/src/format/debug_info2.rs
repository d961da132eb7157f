//! DEBUG_INFO2 records: lines and inlined calls of a function, in two layouts.
//!
//! samply's author published both layouts under this name. The type number of one means another record
//! in the numbering of the other, so the layout is recognised by the structure of the record.

pub mod lists;
pub mod positions;
pub mod source_track;

use crate::bytes::{ByteOrder, Reader};
use crate::collections::hash::HashMap;
use crate::debug_info::SourceFile;
use crate::format::debug_info::ParsedDebugInfo;
use crate::format::tier;
use crate::units::Address;

/// A layout of DEBUG_INFO2 records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DebugInfo2Layout {
    /// Six lists that describe the next function to be loaded.
    Lists,
    /// Source positions with their callers, for the function at this address.
    Positions(Address),
}

/// Returns the layout of a record with this content; `None` if it has neither of the two.
pub fn layout(content: &[u8], endian: ByteOrder) -> Option<DebugInfo2Layout> {
    if let Some(lists) = positions::RawLists::split(content, endian) {
        return Some(DebugInfo2Layout::Positions(lists.address));
    }
    lists::EncodedLists::split(content, endian).map(|_| DebugInfo2Layout::Lists)
}

/// Parses the content of a record for a function of `size` bytes.
pub fn parse(content: &[u8], size: u32, endian: ByteOrder) -> Option<ParsedDebugInfo<'_>> {
    if let Some(lists) = positions::RawLists::split(content, endian) {
        return Some(lists.read(size));
    }
    Some(lists::EncodedLists::split(content, endian)?.read())
}

/// Returns the lists of a record that has this layout.
pub fn lists(content: &[u8], endian: ByteOrder) -> Option<lists::EncodedLists<'_>> {
    match positions::RawLists::split(content, endian) {
        Some(_) => None,
        None => lists::EncodedLists::split(content, endian),
    }
}

/// Whether a record of the type that JIT_TIER and the layout with positions share is meant as the latter, though it does not
/// have the layout.
pub fn may_be_positions(content: &[u8]) -> bool {
    /// Size of the numbers before the positions, in bytes.
    const COUNTS_SIZE: usize = 32;
    content.len() >= COUNTS_SIZE && tier::parse(content).is_none()
}

/// A list that a record should have, by the numbers at its start.
struct ExpectedList {
    name: &'static str,
    /// Size in bytes.
    size: u64,
    /// Number of strings in it.
    strings: u64,
}

impl ExpectedList {
    /// A list of `count` entries of this size.
    fn of_entries(name: &'static str, count: u64, entry_size: usize) -> Self {
        Self {
            name,
            size: count.saturating_mul(entry_size as u64),
            strings: 0,
        }
    }
}

/// Returns what is wrong with the sizes of a record that has neither layout. `is_lists` is whether its type is that of the
/// layout with lists.
pub fn mismatch(content: &[u8], is_lists: bool, endian: ByteOrder) -> String {
    let mut reader = Reader::new(content, endian);
    let counts: Option<Vec<u64>> = if is_lists {
        (0..8).map(|_| reader.u32().map(u64::from)).collect()
    } else {
        (0..4).map(|_| reader.u64()).collect()
    };
    let lists = counts.and_then(|counts| {
        if is_lists {
            lists::EncodedLists::expected_lists(&counts)
        } else {
            positions::RawLists::expected_lists(&counts)
        }
    });
    let Some(lists) = lists else {
        return "ends inside its counts".to_owned();
    };
    for ExpectedList { name, size, strings } in lists {
        let left = reader.rest().len();
        let Some(list) = reader.bytes(size) else {
            return format!("{name}: {size} bytes, and {left} are left");
        };
        let there = memchr::memchr_iter(0, list).count() as u64;
        if there < strings {
            return format!("{name}: {strings} strings, and {there} are there");
        }
    }
    format!("{} bytes after the last list", reader.rest().len())
}

/// Whether the sizes of lists of strings in a record with lists are not rounded up, as they should be.
pub fn has_unrounded_sizes(content: &[u8], endian: ByteOrder) -> bool {
    lists(content, endian).is_some_and(|lists| !lists.is_rounded)
}

/// Whether an index of a string is neither one of `count` strings nor all ones (none).
fn is_missing(index: u32, count: usize) -> bool {
    index != u32::MAX && index as usize >= count
}

/// Consecutive NUL-terminated strings.
#[derive(Clone, Copy, Debug)]
pub struct Strings<'a> {
    bytes: &'a [u8],
    count: u64,
}

impl<'a> Strings<'a> {
    /// Creates a list of `count` strings; `None` if there are fewer, or if more than padding follows them.
    /// Padding of more than `max_padding` bytes is NULs.
    fn split(bytes: &'a [u8], count: u64, max_padding: usize) -> Option<Self> {
        let last = usize::try_from(count).ok()?.checked_sub(1);
        let end = match last {
            Some(last) => memchr::memchr_iter(0, bytes).nth(last)?.saturating_add(1),
            None => 0,
        };
        let padding = bytes.get(end..)?;
        let is_padding = padding.len() <= max_padding || padding.iter().all(|&byte| byte == 0);
        is_padding.then_some(Self { bytes, count })
    }

    /// Returns the strings by index.
    fn by_index(&self) -> Vec<&'a [u8]> {
        // `split` made sure that there are this many.
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let mut strings = Vec::with_capacity(count.min(self.bytes.len()));
        strings.extend(self.bytes.split(|&byte| byte == 0).take(count));
        strings
    }
}

/// The files that are used, by the index of their name.
#[derive(Debug)]
struct Files<'s, 'a> {
    names: &'s [&'a [u8]],
    known: HashMap<u32, u32>,
    files: Vec<SourceFile<'a>>,
}

impl<'s, 'a> Files<'s, 'a> {
    fn new(names: &'s [&'a [u8]]) -> Self {
        Self {
            names,
            known: HashMap::default(),
            files: Vec::new(),
        }
    }

    /// Returns the index of a file; `None` if `name` is out of range, as all ones (no file) is.
    fn number(&mut self, name: u32) -> Option<u32> {
        if let Some(&known) = self.known.get(&name) {
            return Some(known);
        }
        let path = self.names.get(name as usize)?;
        let number = u32::try_from(self.files.len()).ok()?;
        self.files.push((*path).into());
        self.known.insert(name, number);
        Some(number)
    }
}
