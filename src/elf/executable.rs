//! Reads the code segments and function symbols of an executable or shared library.

use jitdump::{Address, AddressRange};
use object::elf;
use object::endian::Endianness;
use object::read::elf::{FileHeader, ProgramHeader, Sym};

use crate::collections::range_map::RangeMap;

/// An executable segment of a file (`PT_LOAD` with `PF_X`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// File offset of the first byte.
    pub file_offset: u64,
    /// Number of bytes in the file; 0 of code that only has names.
    pub file_size: u64,
    /// Linked address range.
    pub range: AddressRange,
}

/// Maximum number of code segments that are read; linkers create one or two.
pub(super) const MAX_SEGMENTS: usize = 64;

/// The executable segments of a file.
#[derive(Clone, Debug, Default)]
pub struct Segments(pub Vec<Segment>);

impl Segments {
    /// Returns the linked address of a file offset; `None` if no segment contains it.
    pub fn address(&self, file_offset: u64) -> Option<Address> {
        /// Mappings start and end at page boundaries, so they extend beyond the segment on both sides.
        const PAGE: u64 = 0x1_0000;
        let segment = self.0.iter().find(|segment| {
            let end = segment.file_offset.saturating_add(segment.range.size());
            let start = segment.file_offset & !(PAGE - 1);
            (start..end).contains(&file_offset)
        })?;
        let before = segment.range.start.0.wrapping_sub(segment.file_offset);
        Some(Address(before.wrapping_add(file_offset)))
    }

    /// Returns the file offset of linked addresses; `None` if no segment has them in the file.
    pub fn file_offset(&self, linked: AddressRange) -> Option<u64> {
        let mut segments = self.0.iter();
        let segment = segments.find(|segment| segment.range.intersection(linked) == Some(linked))?;
        let before = linked.start.0.checked_sub(segment.range.start.0)?;
        let is_in_file = before.checked_add(linked.size())? <= segment.file_size;
        is_in_file.then(|| segment.file_offset.checked_add(before))?
    }
}

/// Code segments and functions of an ELF file. Parts that cannot be parsed are left out.
#[derive(Clone, Debug, Default)]
pub struct Executable {
    /// Architecture as printed by `uname -m`; empty for those that XRay does not support.
    pub architecture: &'static [u8],
    /// Executable segments.
    pub segments: Segments,
    /// Function symbols, at their linked addresses.
    pub functions: RangeMap<Address>,
}

impl Executable {
    /// Reads an ELF file, 32-bit or 64-bit, of either endianness.
    pub fn read(file: &[u8]) -> Self {
        /// Offset of the byte with the ELF class (`EI_CLASS`).
        const CLASS: usize = 4;
        let code = if file.get(CLASS) == Some(&elf::ELFCLASS32.0) {
            Self::read_class::<elf::FileHeader32<Endianness>>(file)
        } else {
            Self::read_class::<elf::FileHeader64<Endianness>>(file)
        };
        code.unwrap_or_default()
    }

    /// Reads the code segments of a 32-bit or 64-bit file.
    fn read_class<H: FileHeader<Endian = Endianness>>(file: &[u8]) -> object::read::Result<Self> {
        let header = H::parse(file)?;
        let endian = header.endian()?;
        let is_code = |segment: &&H::ProgramHeader| {
            segment.p_type(endian) == elf::PT_LOAD && segment.p_flags(endian).contains(elf::PF_X)
        };
        let with_code = header.program_headers(endian, file)?.iter().filter(is_code);
        let segments = with_code.filter_map(|segment| {
            let file_size = segment.p_filesz(endian).into();
            Some(Segment {
                file_offset: segment.p_offset(endian).into(),
                file_size,
                range: AddressRange::new(Address(segment.p_vaddr(endian).into()), file_size)?,
            })
        });
        let segments = Segments(segments.take(MAX_SEGMENTS).collect());
        let sections = header.sections(endian, file).unwrap_or_default();
        let mut functions = RangeMap::default();
        for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            let Ok(symbols) = sections.symbols(endian, file, kind) else {
                continue;
            };
            for symbol in symbols.iter().filter(|symbol| symbol.st_type() == elf::STT_FUNC) {
                let start = Address(symbol.st_value(endian).into());
                if let Some(range) = AddressRange::new(start, symbol.st_size(endian).into()) {
                    functions.insert(range, start);
                }
            }
        }
        Ok(Self {
            architecture: architecture(header.e_machine(endian)),
            segments,
            functions,
        })
    }
}

/// Returns a machine's name as `uname -m` prints it; empty for those that XRay does not support.
fn architecture(machine: elf::Machine) -> &'static [u8] {
    match machine {
        elf::EM_X86_64 => b"x86_64",
        elf::EM_AARCH64 => b"aarch64",
        elf::EM_ARM => b"armv7l",
        elf::EM_PPC64 => b"ppc64le",
        elf::EM_RISCV => b"riscv64",
        elf::EM_LOONGARCH => b"loongarch64",
        elf::EM_S390 => b"s390x",
        _ => b"",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use jitdump::ByteOrder;

    /// Returns an ELF file with so many code segments of a page each, and nothing else.
    pub fn with_segments(count: u16) -> Vec<u8> {
        let endian = ByteOrder::Little;
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        endian.write_u16(&mut file, 2);
        endian.write_u16(&mut file, 62);
        endian.write_u32(&mut file, 1);
        // The program headers are after this header; there are no sections.
        for word in [0, 64, 0] {
            endian.write_u64(&mut file, word);
        }
        endian.write_u32(&mut file, 0);
        for half in [64, 56, count, 64, 0, 0] {
            endian.write_u16(&mut file, half);
        }
        for at in 0..u64::from(count) {
            endian.write_u32(&mut file, 1);
            endian.write_u32(&mut file, 5);
            let (offset, address) = (0x1000 * at, 0x40_0000 + 0x1000 * at);
            for word in [offset, address, address, 0x1000, 0x1000, 0x1000] {
                endian.write_u64(&mut file, word);
            }
        }
        file
    }

    #[test]
    fn files_have_up_to_64_code_segments() {
        for (count, read) in [(64, 64), (65, 64)] {
            let executable = Executable::read(&with_segments(count));
            assert_eq!(executable.segments.0.len(), read, "{count}");
            assert_eq!(executable.segments.address(0x1000 * 63), Some(Address(0x43_f000)));
            assert_eq!(executable.segments.address(0x1000 * 64), None);
        }
    }
}
