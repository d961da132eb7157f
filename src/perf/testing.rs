//! Makes attributes and records for unit tests.

use std::sync::atomic::{AtomicU64, Ordering};

use jitdump::ByteOrder;

use crate::bytes::{BLOCK_SIZE, BlockFile};
use crate::perf::attr::offset;
use crate::perf::header::PIPE_HEADER_SIZE;
use crate::perf::record::{HEADER_ATTR, HEADER_SIZE, write_header};

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

/// Returns the start of a profile in pipe format, with one event.
pub fn pipe(attr: &[u8]) -> Vec<u8> {
    let words: Vec<u64> = attr
        .chunks_exact(8)
        .map(|word| ORDER.u64_at(word, 0).unwrap())
        .collect();
    let mut bytes = [&b"PERFILE2"[..], &PIPE_HEADER_SIZE.to_le_bytes()].concat();
    bytes.extend(record(HEADER_ATTR, 0, &words));
    bytes
}

/// A file of blocks that is in memory.
#[derive(Debug)]
pub struct BlocksInMemory {
    /// Bytes of the file.
    pub bytes: Vec<u8>,
    /// Number of bytes that can be read.
    pub readable: usize,
    read: AtomicU64,
}

impl BlocksInMemory {
    /// Creates a file.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            readable: bytes.len(),
            bytes,
            read: AtomicU64::new(0),
        }
    }

    /// Returns the number of bytes that were read.
    pub fn read_bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

impl BlockFile for BlocksInMemory {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_blocks(&self, offset: u64, into: &mut [u8]) -> usize {
        let end = offset + into.len() as u64;
        let is_end = |at: u64| at.is_multiple_of(BLOCK_SIZE) || at == self.size();
        assert!(is_end(offset) && is_end(end) || self.readable < self.bytes.len());
        let readable = self.bytes.get(offset as usize..self.readable).unwrap_or_default();
        let count = readable.len().min(into.len());
        into[..count].copy_from_slice(&readable[..count]);
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        count
    }
}
