//! The header at the start of a jitdump.

use crate::bytes::{ByteOrder, RandomAccess, Reader};
use crate::error::{Error, ErrorKind};

/// The first four bytes of the file, "JiTD" as an integer in the file's endianness.
const MAGIC: u32 = 0x4A69_5444;

/// Size of the header in the specification, in bytes. A file may have a longer one.
pub const SIZE: u32 = 40;

/// `JITDUMP_FLAGS_ARCH_TIMESTAMP`, the only defined flag: timestamps come from a cycle counter.
const ARCH_TIMESTAMP: u64 = 1;

/// The header of a jitdump, without its padding.
///
/// Quirk: V8 and CPython write CLOCK_REALTIME in microseconds as [`Header::time`] (all captures of node20 and
/// cpython313). The padding is 0xdeadbeef from V8, and leftover stack contents from CPython 3.13.0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Endianness of the file, which is that of the machine that wrote it.
    pub endian: ByteOrder,
    /// Version of the format.
    pub version: u32,
    /// Size of the header according to the header, in bytes.
    pub size: u32,
    /// ELF machine number. CPython 3.13.0 leaves it at 0 (capture cpython313).
    pub elf_machine: u32,
    /// PID of the process that wrote the file, as that process saw it.
    pub pid: u32,
    /// Creation time of the file. Only a comparison with the records shows which clock it is from.
    pub time: u64,
    /// Flags. Only the lowest bit is defined.
    pub flags: u64,
}

/// Returns the endianness of a jitdump from its magic number; `None` if the file is not a jitdump.
pub fn byte_order(file: &[u8]) -> Option<ByteOrder> {
    let mut orders = [ByteOrder::Little, ByteOrder::Big].into_iter();
    orders.find(|endian| endian.u32_at(file, 0) == Some(MAGIC))
}

impl Header {
    /// Reads the header.
    pub fn parse(file: &[u8]) -> Result<Self, Error> {
        let too_short = || match file.len() as u64 {
            0 => ErrorKind::Empty,
            size => ErrorKind::TooShort { size },
        };
        let magic: [u8; 4] = *file.first_chunk().ok_or_else(too_short)?;
        let not_a_jitdump = || ErrorKind::NotAJitdump { magic };
        let endian = byte_order(file).ok_or_else(not_a_jitdump)?;
        Ok(Self::parse_rest(file, endian).ok_or_else(too_short)?)
    }

    /// Reads the header of a file that is not in memory.
    #[doc(hidden)]
    pub fn read(file: &dyn RandomAccess) -> Result<Self, Error> {
        let mut start = [0; SIZE as usize];
        let read = file.read(0, &mut start);
        Self::parse(start.get(..read).unwrap_or_default())
    }

    /// Parses the fields; `None` if the file ends before the last one.
    fn parse_rest(file: &[u8], endian: ByteOrder) -> Option<Self> {
        let mut reader = Reader::new(file, endian);
        let _magic = reader.u32()?;
        let version = reader.u32()?;
        let size = reader.u32()?;
        let elf_machine = reader.u32()?;
        let _padding = reader.u32()?;
        Some(Self {
            endian,
            version,
            size,
            elf_machine,
            pid: reader.u32()?,
            time: reader.u64()?,
            flags: reader.u64()?,
        })
    }

    /// Returns the offset of the first record, which is the header's size; `None` if that size is impossible in a file
    /// of `file_size` bytes.
    #[doc(hidden)]
    pub fn first_record_offset(&self, file_size: u64) -> Option<usize> {
        let size = usize::try_from(self.size).ok()?;
        (self.size >= SIZE && u64::from(self.size) <= file_size).then_some(size)
    }

    /// Returns whether the timestamps in the file are from a cycle counter.
    ///
    /// Quirk: LLVM 19's ORC (capture llvm19-jitlink) writes uninitialized flags, here the text `lvm19-`,
    /// although its timestamps are from CLOCK_MONOTONIC. The flag is therefore ignored if any other bit is
    /// set.
    pub fn counts_cycles(&self) -> bool {
        self.flags == ARCH_TIMESTAMP
    }

    /// Returns whether the version is supported. The specification is version 2, but its headers have 1. perf
    /// also accepts 0, and rejects 2.
    #[doc(hidden)]
    pub fn has_known_version(&self) -> bool {
        self.version <= 2
    }

    /// Returns whether undefined flags are set.
    #[doc(hidden)]
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
        let little = header(|out, word| ByteOrder::Little.write_u32(out, word));
        let big = header(|out, word| ByteOrder::Big.write_u32(out, word));
        for (file, endian) in [(little, ByteOrder::Little), (big, ByteOrder::Big)] {
            let header = Header::parse(&file).unwrap();
            assert_eq!(header.endian, endian);
            assert_eq!((header.version, header.elf_machine, header.pid), (1, 62, 77));
        }
    }

    #[test]
    fn what_is_no_jitdump_says_why() {
        let error = |file| Header::parse(file).unwrap_err().to_string();
        assert_eq!(error(b""), "empty file");
        assert_eq!(error(b"DT"), "ends inside its header, after 2 bytes");
        assert_eq!(error(b"DTiJ rest"), "ends inside its header, after 9 bytes");
        assert_eq!(
            error(b"\x7fELF"),
            "not a jitdump: starts with 7f 45 4c 46, not with JiTD"
        );
    }
}
