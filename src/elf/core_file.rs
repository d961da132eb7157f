//! Locates process memory in core files, including those written by debuggers (`gcore`).

use std::cmp::Reverse;

use jitdump::{Address, AddressRange};
use object::elf;
use object::endian::Endianness;
use object::read::ReadRef;
use object::read::elf::{FileHeader, ProgramHeader};

use crate::results::diagnostics::{Diagnostic, Issue};

/// Maps the memory of a process to offsets in its core file.
#[derive(Clone, Debug, Default)]
pub struct CoreFile {
    /// Address ranges of the segments and their file offsets, by ascending start; no range contains another one.
    segments: Vec<(AddressRange, u64)>,
}

impl CoreFile {
    /// Reads the program headers of a file, 32-bit or 64-bit, of either endianness.
    pub fn parse<'a>(file: impl ReadRef<'a>) -> Result<Self, Diagnostic> {
        /// Offset of the byte with the ELF class (`EI_CLASS`).
        const CLASS: u64 = 4;
        if file.read_at::<u8>(CLASS) == Ok(&elf::ELFCLASS32.0) {
            Self::parse_class::<elf::FileHeader32<Endianness>>(file)
        } else {
            Self::parse_class::<elf::FileHeader64<Endianness>>(file)
        }
    }

    /// Reads the memory in a 32-bit or 64-bit core file.
    fn parse_class<'a, H: FileHeader<Endian = Endianness>>(
        file: impl ReadRef<'a>,
    ) -> Result<Self, Diagnostic> {
        let error = |cause: object::read::Error| Diagnostic::new(Issue::CoreNotElf).with("cause", cause);
        let len = file
            .len()
            .map_err(|()| Diagnostic::new(Issue::CoreNotElf).with("cause", "unknown length"))?;
        let header = H::parse(file).map_err(error)?;
        let endian = header.endian().map_err(error)?;
        if header.e_type(endian) != elf::ET_CORE {
            return Err(Diagnostic::new(Issue::CoreNotACore));
        }
        let mut segments = Vec::new();
        for segment in header.program_headers(endian, file).map_err(error)? {
            let start = Address(segment.p_vaddr(endian).into());
            let (offset, size) = segment.file_range(endian);
            // The file may be truncated.
            let size = size.min(len.saturating_sub(offset));
            if segment.p_type(endian) == elf::PT_LOAD
                && let Some(range) = AddressRange::new(start, size)
            {
                segments.push((range, offset));
            }
        }
        segments.sort_by_key(|&(range, _)| (range.start, Reverse(range.end)));
        let mut covered = Address(0);
        segments.retain(|(range, _)| {
            let is_new = range.end > covered;
            covered = covered.max(range.end);
            is_new
        });
        Ok(Self { segments })
    }

    /// Returns the file offset of an address range; `None` unless a single segment contains all of it.
    pub fn file_offset(&self, range: AddressRange) -> Option<u64> {
        let next = self
            .segments
            .partition_point(|(segment, _)| segment.start <= range.start);
        let &(segment, offset) = self.segments.get(next.checked_sub(1)?)?;
        let start = range.start.0.checked_sub(segment.start.0)?;
        (range.end <= segment.end).then(|| offset.checked_add(start))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: u64 = 64;

    /// Returns an ELF file of a type, with a segment for each address and its memory.
    fn file(kind: u16, memory: &[(u64, &[u8])]) -> Vec<u8> {
        let mut file = vec![0; HEADERS as usize];
        file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        file[16..18].copy_from_slice(&kind.to_le_bytes());
        file[20] = 1;
        file[32..40].copy_from_slice(&HEADERS.to_le_bytes());
        file[52..54].copy_from_slice(&64u16.to_le_bytes());
        file[54..56].copy_from_slice(&56u16.to_le_bytes());
        file[56..58].copy_from_slice(&(memory.len() as u16).to_le_bytes());
        let mut offset = HEADERS + 56 * memory.len() as u64;
        for &(address, bytes) in memory {
            let size = bytes.len() as u64;
            for number in [1, offset, address, 0, size, size, 0] {
                file.extend_from_slice(&number.to_le_bytes());
            }
            offset += size;
        }
        memory.iter().for_each(|(_, bytes)| file.extend_from_slice(bytes));
        file
    }

    fn core(memory: &[(u64, &[u8])]) -> Vec<u8> {
        file(4, memory)
    }

    fn bytes(file: &[u8], start: u64, size: u64) -> Option<&[u8]> {
        let core = CoreFile::parse(file).unwrap();
        let offset = core.file_offset(AddressRange::new(Address(start), size).unwrap())?;
        Some(&file[offset as usize..(offset + size) as usize])
    }

    #[test]
    fn memory_is_found_by_its_address() {
        let file = core(&[(0x1000, b"memory")]);
        assert_eq!(bytes(&file, 0x1001, 3), Some(&b"emo"[..]));
        assert_eq!(bytes(&file, 0x1000, 6), Some(&b"memory"[..]));
        assert_eq!(bytes(&file, 0x1001, 6), None);
        assert_eq!(bytes(&file, 0xfff, 2), None);
    }

    #[test]
    fn small_segments_do_not_hide_large_ones() {
        let file = core(&[
            (0x1002, b"x"),
            (0x1000, b"memory"),
            (0x1000, b"y"),
            (0x1004, b"ry and more"),
        ]);
        assert_eq!(bytes(&file, 0x1003, 3), Some(&b"ory"[..]));
        assert_eq!(bytes(&file, 0x1000, 6), Some(&b"memory"[..]));
        assert_eq!(bytes(&file, 0x1005, 10), Some(&b"y and more"[..]));
    }

    #[test]
    fn memory_in_a_truncated_file_is_found() {
        let mut file = core(&[(0x1000, b"memory")]);
        file.truncate(file.len() - 2);
        assert_eq!(bytes(&file, 0x1000, 4), Some(&b"memo"[..]));
        assert_eq!(bytes(&file, 0x1000, 5), None);
    }

    #[test]
    fn other_files_are_refused() {
        let other = file(3, &[(0, b"x")]);
        assert_eq!(CoreFile::parse(&*other).unwrap_err().issue, Issue::CoreNotACore);
        let text = CoreFile::parse(&b"text"[..]).unwrap_err();
        assert_eq!(text.issue, Issue::CoreNotElf);
        let mut cut = core(&[(0x1000, b"memory")]);
        cut.truncate(90);
        assert!(CoreFile::parse(&*cut).is_err());
    }
}
