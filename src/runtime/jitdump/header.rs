//! The header at the start of a jitdump.

use crate::bytes::{ByteOrder, Reader};

/// "JiTD" as a number: the first four bytes of the file, in the byte order of all of it.
const MAGIC: u32 = 0x4A69_5444;

/// The size in bytes of the header that the specification lays out; a file may say that its own is longer.
pub const SIZE: u32 = 40;

/// The only flag: times are those of a cycle counter (`JITDUMP_FLAGS_ARCH_TIMESTAMP`).
const ARCH_TIMESTAMP: u64 = 1;

/// Why a file is not a jitdump.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Its program was killed before it wrote anything, as Chromium's are.
    #[error("is empty")]
    Empty,
    /// It ends inside the header.
    #[error("ends after {0} bytes, inside its header")]
    TooShort(u64),
    /// It is something else.
    #[error("is not a jitdump: it starts with {0:02x?}, not with JiTD")]
    NotAJitdump([u8; 4]),
}

/// The header.
///
/// Quirk: its time is not kept, since V8 and CPython write CLOCK_REALTIME in microseconds there (all captures
/// of node20 and cpython313), but see [`Header::time`]; nor its padding, which is 0xdeadbeef from V8 and left
/// over from the stack from CPython 3.13.0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The byte order of the file, which is that of the machine it was written on.
    pub order: ByteOrder,
    /// Version of the format.
    pub version: u32,
    /// The size in bytes that the header says it has.
    pub size: u32,
    /// ELF's number of the machine; 0 from CPython 3.13.0, which leaves it out (capture cpython313).
    pub elf_machine: u32,
    /// The process that wrote the file, by the number that it knows itself under.
    pub pid: u32,
    /// When the file was made. On which clock, only a comparison with the records tells.
    pub time: u64,
    /// Bits; only the lowest one has a meaning.
    pub flags: u64,
}

/// The byte order of a file that starts as a jitdump does.
pub fn byte_order(file: &[u8]) -> Option<ByteOrder> {
    let magic = *file.first_chunk()?;
    let orders = [
        (ByteOrder::Little, u32::from_le_bytes(magic)),
        (ByteOrder::Big, u32::from_be_bytes(magic)),
    ];
    let (order, _) = orders.into_iter().find(|&(_, number)| number == MAGIC)?;
    Some(order)
}

impl Header {
    /// Reads the header.
    pub fn parse(file: &[u8]) -> Result<Self, Error> {
        let too_short = || match file.len() as u64 {
            0 => Error::Empty,
            length => Error::TooShort(length),
        };
        let magic: [u8; 4] = *file.first_chunk().ok_or_else(too_short)?;
        let order = byte_order(file).ok_or(Error::NotAJitdump(magic))?;
        Self::parse_rest(file, order).ok_or_else(too_short)
    }

    fn parse_rest(file: &[u8], order: ByteOrder) -> Option<Self> {
        let mut reader = Reader::new(file, order);
        let _magic = reader.u32()?;
        let version = reader.u32()?;
        let size = reader.u32()?;
        let elf_machine = reader.u32()?;
        let _padding = reader.u32()?;
        Some(Self {
            order,
            version,
            size,
            elf_machine,
            pid: reader.u32()?,
            time: reader.u64()?,
            flags: reader.u64()?,
        })
    }

    /// Where the records start: behind the header as long as it says it is, if that can be.
    pub fn first_record(&self, file: &[u8]) -> Option<usize> {
        let says = usize::try_from(self.size).ok()?;
        (self.size >= SIZE && says <= file.len()).then_some(says)
    }

    /// Whether the times in the file are those of a cycle counter.
    ///
    /// Quirk: LLVM 19's ORC (capture llvm19-jitlink) writes its flags from memory that it never set, here the
    /// text `lvm19-`, and its times are CLOCK_MONOTONIC all the same. So the flag counts only where no other
    /// bit is set.
    pub fn counts_cycles(&self) -> bool {
        self.flags == ARCH_TIMESTAMP
    }

    /// Whether the version is one that is known: the specification calls itself version 2, and its headers have 1. perf
    /// takes 0 as well, and refuses 2.
    pub fn has_known_version(&self) -> bool {
        self.version <= 2
    }

    /// Whether bits are set in the flags that have no meaning.
    pub fn has_unknown_flags(&self) -> bool {
        self.flags & !ARCH_TIMESTAMP != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(put: fn(&mut Vec<u8>, u32)) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [MAGIC, 1, SIZE, 62, 0xdead_beef, 77] {
            put(&mut out, word);
        }
        out.extend_from_slice(&[0; 16]);
        out
    }

    #[test]
    fn both_byte_orders_are_told_apart() {
        let little = header(|out, word| ByteOrder::Little.put_u32(out, word));
        let big = header(|out, word| ByteOrder::Big.put_u32(out, word));
        for (file, order) in [(little, ByteOrder::Little), (big, ByteOrder::Big)] {
            let header = Header::parse(&file).unwrap();
            assert_eq!(header.order, order);
            assert_eq!((header.version, header.elf_machine, header.pid), (1, 62, 77));
        }
    }

    #[test]
    fn what_is_no_jitdump_says_why() {
        assert_eq!(Header::parse(b""), Err(Error::Empty));
        assert_eq!(Header::parse(b"DT"), Err(Error::TooShort(2)));
        assert_eq!(Header::parse(b"DTiJ rest"), Err(Error::TooShort(9)));
        assert_eq!(Header::parse(b"\x7fELF"), Err(Error::NotAJitdump(*b"\x7fELF")));
    }
}
