//! Makes attributes and records for unit tests.

use crate::bytes::ByteOrder;
use crate::perf::attr::offset;
use crate::perf::record::{HEADER_SIZE, write_header};

/// Endianness of the attributes and records.
pub const ORDER: ByteOrder = ByteOrder::Little;

/// Flag of attributes: records other than samples have a trailer.
pub const SAMPLE_ID_ALL: u64 = 1 << 18;

/// Returns an attribute of `size` bytes.
pub fn attr(size: usize, sample_type: u64, flags: u64) -> Vec<u8> {
    let mut bytes = vec![0; size];
    ORDER.set_u32(&mut bytes, offset::SIZE, size as u32);
    ORDER.set_u64(&mut bytes, offset::SAMPLE_TYPE, sample_type);
    ORDER.set_u64(&mut bytes, offset::FLAGS, flags);
    bytes
}

/// Returns a record of 64-bit fields.
pub fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    write_header(&mut out, ORDER, kind, misc, HEADER_SIZE + 8 * words.len());
    words.iter().for_each(|&word| ORDER.write_u64(&mut out, word));
    out
}
