//! DEBUG_INFO2 records: lines and inlined calls of a function, in the two layouts that samply's author
//! published. They share their name, and the number of one is the other's number for something else, so the
//! structure of a record tells which it has.

pub mod lists;
pub mod positions;

use crate::bytes::ByteOrder;
use crate::debug_info::SourceFile;
use crate::hash::HashMap;
use crate::runtime::jitdump::debug_info::Lines;
use crate::units::Address;

/// How a record is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Six lists, of the function that is loaded next.
    Lists,
    /// Positions with their callers, of the function at this address.
    Positions(Address),
}

/// The layout of a record with this content, if it is one of the two.
pub fn layout(content: &[u8], order: ByteOrder) -> Option<Layout> {
    if let Some(parts) = positions::Parts::split(content, order) {
        return Some(Layout::Positions(parts.address));
    }
    lists::Parts::split(content, order).map(|_| Layout::Lists)
}

/// Reads the content of a record, for a function of `size` bytes.
pub fn parse(content: &[u8], size: u32, order: ByteOrder) -> Option<Lines<'_>> {
    if let Some(parts) = positions::Parts::split(content, order) {
        return Some(parts.read(size));
    }
    Some(lists::Parts::split(content, order)?.read())
}

/// NUL-terminated strings, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Strings<'a> {
    bytes: &'a [u8],
    count: u64,
}

impl<'a> Strings<'a> {
    /// `count` strings; `None` if there are fewer, or if there is more behind them than padding.
    fn split(bytes: &'a [u8], count: u64, max_padding: usize) -> Option<Self> {
        let last = usize::try_from(count).ok()?.checked_sub(1);
        let end = match last {
            Some(last) => memchr::memchr_iter(0, bytes).nth(last)?.saturating_add(1),
            None => 0,
        };
        (bytes.get(end..)?.len() <= max_padding).then_some(Self { bytes, count })
    }

    /// All of them by their numbers.
    fn index(&self) -> Vec<&'a [u8]> {
        // There are as many, or `split` would have failed.
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let mut index = Vec::with_capacity(count.min(self.bytes.len()));
        index.extend(self.bytes.split(|&byte| byte == 0).take(count));
        index
    }
}

/// The files that are used, by the numbers of their names.
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

    /// The number of a file, which is none for all ones and for a name that is not there.
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

    fn finish(self) -> Vec<SourceFile<'a>> {
        self.files
    }
}
