//! Resolves XRay function IDs with the instrumentation map of the binary that wrote the trace.
//!
//! The section `xray_instr_map` has an entry for each address that can be instrumented; the entries of a
//! function are consecutive. Function IDs count from 1 and increase whenever an entry has another function
//! address than the entry before. The runtime assigns the same IDs when it patches all functions
//! (`__xray_patch`), and so does `llvm-xray extract`.

use std::fmt::Display;

use jitdump::{Address, ByteOrder};
use object::elf;
use object::endian::Endianness;
use object::read::elf::{FileHeader, Rela as _, SectionHeader, SectionTable};

use crate::bytes::Reader;
use crate::collections::hash::HashMap;
use crate::results::diagnostics::{Diagnostic, Issue};

/// Newest version of entries.
const NEWEST_VERSION: u8 = 2;

/// First version in which addresses are relative to the field that holds them.
const FIRST_RELATIVE_VERSION: u8 = 2;

/// The instrumented functions of a program or library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstrumentationMap {
    addresses: Vec<Address>,
    /// Build ID of the file, of any length; empty if it has none.
    pub build_id: Vec<u8>,
    /// Size of a pointer of the program in bytes, 4 or 8.
    pub pointer_size: u8,
    /// Whether the file is position-independent; its addresses are then relative to the load address.
    pub is_position_independent: bool,
}

impl InstrumentationMap {
    /// Reads the map of an ELF file, 32-bit or 64-bit, with either endianness.
    pub fn read(file: &[u8]) -> Result<Self, Diagnostic> {
        /// Offset of the class in an ELF file (`EI_CLASS`).
        const CLASS: usize = 4;
        if file.get(CLASS) == Some(&elf::ELFCLASS32.0) {
            Self::read_class::<elf::FileHeader32<Endianness>>(file)
        } else {
            Self::read_class::<elf::FileHeader64<Endianness>>(file)
        }
    }

    /// Reads the map of a 32-bit or 64-bit file.
    fn read_class<H: FileHeader<Endian = Endianness>>(file: &[u8]) -> Result<Self, Diagnostic> {
        let header = H::parse(file).map_err(not_elf)?;
        let endian = header.endian().map_err(not_elf)?;
        let sections = header.sections(endian, file).map_err(not_elf)?;
        let names = header.section_strings_index(endian, file).map_err(not_elf)?;
        let names = sections.section(names).and_then(|it| it.data(endian, file));
        let kind = header.e_type(endian);
        if kind == elf::ET_REL {
            return Err(Diagnostic::new(Issue::XrayNotLinked));
        }
        let binary = Binary {
            header,
            endian,
            file,
            sections: &sections,
            names: names.map_err(not_elf)?,
        };
        let map = binary.section(b"xray_instr_map")?;
        let map = map.ok_or_else(|| Diagnostic::new(Issue::XrayNoMap))?;
        let mut addresses = map.function_addresses()?.collect::<Result<Vec<_>, _>>()?;
        addresses.dedup();
        Ok(Self {
            addresses,
            build_id: binary.build_id().to_vec(),
            pointer_size: map.pointer_size,
            is_position_independent: kind == elf::ET_DYN,
        })
    }

    /// Returns the address of the function with this ID, as linked; `None` for an unknown ID.
    pub fn address(&self, function: u32) -> Option<Address> {
        let index = usize::try_from(function).ok()?.checked_sub(1)?;
        self.addresses.get(index).copied()
    }

    /// Returns the addresses of all functions; the first one has ID 1.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }
}

fn not_elf(error: impl Display) -> Diagnostic {
    Diagnostic::new(Issue::XrayNotElf).with("cause", error)
}

/// Returns the type of the relocations that store load address plus addend, with the addend in the
/// relocation. `None` for machines without such a type or without XRay.
fn relative_relocation(machine: elf::Machine) -> Option<elf::RelocationType> {
    Some(match machine {
        elf::EM_X86_64 => elf::R_X86_64_RELATIVE,
        elf::EM_AARCH64 => elf::R_AARCH64_RELATIVE,
        elf::EM_PPC64 => elf::R_PPC64_RELATIVE,
        elf::EM_RISCV => elf::R_RISCV_RELATIVE,
        elf::EM_LOONGARCH => elf::R_LARCH_RELATIVE,
        elf::EM_S390 => elf::R_390_RELATIVE,
        _ => return None,
    })
}

struct Binary<'a, 's, H: FileHeader> {
    header: &'a H,
    endian: Endianness,
    file: &'a [u8],
    sections: &'s SectionTable<'a, H>,
    /// Section names, each terminated by a NUL.
    names: &'a [u8],
}

impl<'a, H: FileHeader<Endian = Endianness>> Binary<'a, '_, H> {
    /// Returns the section with a name and its relocations; `None` if there is none. Fails if it cannot be read.
    fn section(&self, name: &[u8]) -> Result<Option<AddressedSection<'a>>, Diagnostic> {
        let Some(section) = self.sections.iter().find(|it| self.has_name(it, name)) else {
            return Ok(None);
        };
        let data = section
            .data(self.endian, self.file)
            .map_err(|error| Diagnostic::new(Issue::XrayCutMap).with("cause", error))?;
        let address = section.sh_addr(self.endian).into();
        Ok(Some(AddressedSection {
            data,
            address,
            pointer_size: if self.header.is_type_64() { 8 } else { 4 },
            endian: match self.endian {
                Endianness::Little => ByteOrder::Little,
                Endianness::Big => ByteOrder::Big,
            },
            addends: self.relocations(address, data.len() as u64),
        }))
    }

    /// Returns whether a section has this name. Reads no further, because a damaged file can have very long
    /// names.
    fn has_name(&self, section: &H::SectionHeader, name: &[u8]) -> bool {
        let start = section.sh_name(self.endian) as usize;
        let rest = self.names.get(start..).and_then(|names| names.strip_prefix(name));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// Returns the addends that relocations have for the section, by offset from its start. The file does not
    /// have these values in place; with other forms of relocations (REL, RELR), it does.
    fn relocations(&self, address: u64, size: u64) -> HashMap<u64, u64> {
        let mut found = HashMap::default();
        let Some(relative) = relative_relocation(self.header.e_machine(self.endian)) else {
            return found;
        };
        // Sections may overlap, but no more bytes are read in total than the file has.
        let mut left = self.file.len();
        for section in self.sections.iter() {
            let Ok(Some((relocations, _))) = section.rela(self.endian, self.file) else {
                continue;
            };
            let Some(less) = left.checked_sub(size_of_val(relocations)) else {
                break;
            };
            left = less;
            for relocation in relocations {
                let at = relocation.r_offset(self.endian).into().checked_sub(address);
                if let Some(at) = at.filter(|&at| at < size)
                    && relocation.r_type(self.endian, false) == relative
                {
                    let added: i64 = relocation.r_addend(self.endian).into();
                    found.insert(at, added as u64);
                }
            }
        }
        found
    }

    /// Returns the build ID; empty if there is none.
    fn build_id(&self) -> &'a [u8] {
        let mut left = self.file.len();
        for section in self.sections.iter() {
            let Ok(Some(mut notes)) = section.notes(self.endian, self.file) else {
                continue;
            };
            while let Ok(Some(note)) = notes.next() {
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(self.endian) == elf::NT_GNU_BUILD_ID {
                    return note.desc();
                }
            }
            // Same limit as in `relocations`.
            let size: u64 = section.sh_size(self.endian).into();
            match usize::try_from(size).ok().and_then(|size| left.checked_sub(size)) {
                Some(less) => left = less,
                None => break,
            }
        }
        b""
    }
}

/// A section that contains addresses.
struct AddressedSection<'a> {
    data: &'a [u8],
    /// Address of its first byte.
    address: u64,
    /// Size of an address, in bytes.
    pointer_size: u8,
    endian: ByteOrder,
    /// Addends of relocations, by offset from the start of the section.
    addends: HashMap<u64, u64>,
}

impl AddressedSection<'_> {
    /// Reads a relocated, pointer-sized number `at` bytes from the start.
    fn read_pointer(&self, at: u64) -> Option<u64> {
        if let Some(&addend) = self.addends.get(&at) {
            return Some(self.truncated(addend));
        }
        let mut reader = Reader::new(self.data, self.endian);
        reader.skip(at)?;
        match self.pointer_size {
            4 => reader.u32().map(u64::from),
            _ => reader.u64(),
        }
    }

    fn truncated(&self, address: u64) -> u64 {
        match self.pointer_size {
            4 => address & u64::from(u32::MAX),
            _ => address,
        }
    }

    /// Reads a number `at` bytes from the start that is relative to its own address.
    fn read_relative(&self, at: u64) -> Option<u64> {
        let here = self.address.wrapping_add(at);
        Some(self.truncated(self.read_pointer(at)?.wrapping_add(here)))
    }

    /// Returns the function address of each map entry.
    fn function_addresses(&self) -> Result<impl Iterator<Item = Result<Address, Diagnostic>>, Diagnostic> {
        // Two addresses, and as many bytes again for kind, version and padding.
        let entry_size = usize::from(self.pointer_size).saturating_mul(4);
        let size = self.data.len();
        if size.checked_rem(entry_size) != Some(0) {
            return Err(Diagnostic::new(Issue::XrayOddSize)
                .with("size", size)
                .with("entry", entry_size));
        }
        let starts = (0..size as u64).step_by(entry_size);
        Ok(starts.filter_map(|at| self.function_address(at)))
    }

    /// Returns the function address of the entry at an offset; `None` past the end of the section, which no caller
    /// requests.
    fn function_address(&self, at: u64) -> Option<Result<Address, Diagnostic>> {
        let pointer = u64::from(self.pointer_size);
        let mut fields = Reader::new(self.data, self.endian);
        fields.skip(at)?;
        fields.skip(pointer.checked_mul(2)?)?;
        let (_kind, _is_always_on, version) = (fields.u8()?, fields.u8()?, fields.u8()?);
        let function = at.checked_add(pointer)?;
        let function = match version {
            0..FIRST_RELATIVE_VERSION => self.read_pointer(function)?,
            FIRST_RELATIVE_VERSION..=NEWEST_VERSION => self.read_relative(function)?,
            _ => {
                let unknown = Diagnostic::new(Issue::XrayEntryVersion).with("version", version);
                return Some(Err(unknown.with("newest", NEWEST_VERSION)));
            }
        };
        Some(Ok(Address(function)))
    }
}
