//! DEBUG_INFO2 records: lines and inlined calls of a function, in the two layouts that samply's author
//! published. They share their name, and the number of one is the other's number for something else, so the
//! structure of a record tells which it has.

pub mod lists;
pub mod positions;

use crate::bytes::ByteOrder;
use crate::debug_info::DebugInfo;
use crate::units::Address;

/// Bytes that may stand behind the last part of a record, if it is padded to a multiple of 8.
const MAX_PADDING: usize = 7;

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

/// What was found, and what of it could not be used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found<'a> {
    /// What was found.
    pub info: DebugInfo<'a>,
    /// Entries that lead nowhere or in circles.
    pub unusable: u64,
}

/// Reads the content of a record, for a function of `size` bytes.
pub fn parse(content: &[u8], size: u32, order: ByteOrder) -> Option<Found<'_>> {
    if let Some(parts) = positions::Parts::split(content, order) {
        return Some(parts.read(size));
    }
    Some(lists::Parts::split(content, order)?.read())
}

/// Splits NUL-terminated strings; `None` if there are fewer, or if there is more behind them than padding.
fn strings(bytes: &[u8], count: u64, max_padding: usize) -> Option<Vec<&[u8]>> {
    let mut strings = Vec::new();
    let mut rest = bytes;
    for _ in 0..count {
        let end = memchr::memchr(0, rest)?;
        strings.push(rest.get(..end)?);
        rest = rest.get(end + 1..)?;
    }
    (rest.len() <= max_padding).then_some(strings)
}
