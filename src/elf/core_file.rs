//! The memory in a core file, or in a copy of it as debuggers make them (`gcore`).

use object::elf;
use object::endian::Endianness;
use object::read::elf::{FileHeader, ProgramHeader};

use crate::units::{Address, AddressRange};

/// Why a file is no core file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is no ELF file, or is damaged so that its program headers can't be read.
    #[error("is not an ELF file that can be read: {0}")]
    NotElf(String),
    /// It is another ELF file.
    #[error("is an ELF file, but not a core file")]
    NotACore,
}

/// The memory of a process.
#[derive(Clone, Debug, Default)]
pub struct CoreFile<'a> {
    /// The segments, from the lowest address up.
    segments: Vec<(AddressRange, &'a [u8])>,
}

impl<'a> CoreFile<'a> {
    /// Reads the program headers of a file, of 32 bits or 64, in either byte order.
    pub fn parse(file: &'a [u8]) -> Result<Self, Error> {
        /// Where a file says of which class it is (`EI_CLASS`).
        const CLASS: usize = 4;
        let class = file.get(CLASS);
        if class == Some(&elf::ELFCLASS32.0) {
            Self::parse_class::<elf::FileHeader32<Endianness>>(file)
        } else {
            Self::parse_class::<elf::FileHeader64<Endianness>>(file)
        }
    }

    fn parse_class<H: FileHeader<Endian = Endianness>>(file: &'a [u8]) -> Result<Self, Error> {
        let error = |error: object::read::Error| Error::NotElf(error.to_string());
        let header = H::parse(file).map_err(error)?;
        let endian = header.endian().map_err(error)?;
        if header.e_type(endian) != elf::ET_CORE {
            return Err(Error::NotACore);
        }
        let mut segments = Vec::new();
        for segment in header.program_headers(endian, file).map_err(error)? {
            let start = Address(segment.p_vaddr(endian).into());
            let data = segment.data(endian, file).unwrap_or_default();
            if segment.p_type(endian) == elf::PT_LOAD
                && let Some(range) = AddressRange::new(start, data.len() as u64)
            {
                segments.push((range, data));
            }
        }
        segments.sort_by_key(|&(range, _)| range);
        Ok(Self { segments })
    }

    /// What lies at some addresses, if all of it is in one segment.
    pub fn bytes(&self, range: AddressRange) -> Option<&'a [u8]> {
        let behind = self
            .segments
            .partition_point(|(segment, _)| segment.start <= range.start);
        let &(segment, data) = self.segments.get(behind.checked_sub(1)?)?;
        let start = usize::try_from(range.start.0.checked_sub(segment.start.0)?).ok()?;
        let end = start.checked_add(usize::try_from(range.size()).ok()?)?;
        data.get(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(kind: u16, address: u64, memory: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        file[16..18].copy_from_slice(&kind.to_le_bytes());
        file[20] = 1;
        file[32..40].copy_from_slice(&64u64.to_le_bytes());
        file[52..54].copy_from_slice(&64u16.to_le_bytes());
        file[54..56].copy_from_slice(&56u16.to_le_bytes());
        file[56..58].copy_from_slice(&1u16.to_le_bytes());
        file[64..68].copy_from_slice(&1u32.to_le_bytes());
        for (at, number) in [
            (72, 120),
            (80, address),
            (96, memory.len() as u64),
            (104, memory.len() as u64),
        ] {
            file[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        file.extend_from_slice(memory);
        file
    }

    #[test]
    fn memory_is_found_by_its_address() {
        let file = core(4, 0x1000, b"memory");
        let core = CoreFile::parse(&file).unwrap();
        let bytes = |start, size| core.bytes(AddressRange::new(Address(start), size).unwrap());
        assert_eq!(bytes(0x1001, 3), Some(&b"emo"[..]));
        assert_eq!(bytes(0x1000, 6), Some(&b"memory"[..]));
        assert_eq!(bytes(0x1001, 6), None);
        assert_eq!(bytes(0xfff, 2), None);
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(CoreFile::parse(&core(3, 0, b"x")).unwrap_err(), Error::NotACore);
        assert!(matches!(CoreFile::parse(b"text").unwrap_err(), Error::NotElf(_)));
        let mut cut = core(4, 0x1000, b"memory");
        cut.truncate(90);
        assert!(CoreFile::parse(&cut).is_err());
    }
}
