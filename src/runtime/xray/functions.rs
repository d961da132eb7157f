//! Which functions the numbers of a trace mean: the instrumentation map of the binary that wrote it.
//!
//! The section `xray_instr_map` has an entry for each place in the code that can be instrumented, those of a function in a
//! row. Functions are counted from 1 on, a new one wherever the address is another than that of the entry before. So
//! the runtime counts when all are switched on (`__xray_patch`), and so does `llvm-xray extract`.

use std::fmt::Display;

use object::elf;
use object::endian::Endianness;
use object::read::elf::{FileHeader, Rela as _, SectionHeader, SectionTable};

use crate::bytes::{ByteOrder, Reader};
use crate::hash::HashMap;
use crate::units::Address;

/// The newest version of entries.
const NEWEST: u8 = 2;

/// The version in which addresses are relative to where they stand.
const RELATIVE: u8 = 2;

/// Why a file tells of no functions.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is no ELF file, or is damaged so that its sections can't be read.
    #[error("is not an ELF file that can be read: {0}")]
    NotElf(String),
    /// Nothing in it is instrumented.
    #[error(
        "has no section xray_instr_map: it was not compiled with -fxray-instrument, or linked without it"
    )]
    NoMap,
    /// The map is not that of a linked program or library.
    #[error("is not linked yet")]
    NotLinked,
    /// The map leaves the file.
    #[error("has a section xray_instr_map that is not in the file: {0}")]
    CutMap(String),
    /// Not all of the map is entries.
    #[error("has a section xray_instr_map of {0} bytes, which is no multiple of its entries' {1}")]
    OddSize(u64, u64),
    /// An entry is of a version that is not known.
    #[error("has an entry of version {0} in its section xray_instr_map; known are 0 to {NEWEST}")]
    Version(u8),
}

/// The instrumented functions of a program or library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Functions {
    addresses: Vec<Address>,
    /// The build-id of the file, of whatever length; empty if it has none.
    pub build_id: Vec<u8>,
    /// The size in bytes of the program's pointers, 4 or 8.
    pub pointer_size: u8,
    /// Whether the file can be loaded anywhere: addresses are then relative to where it is.
    pub is_position_independent: bool,
    /// Whether the section `xray_fn_idx` says the same; `None` where there is none, or one that can't be
    /// understood. The runtime takes that one for functions that are switched on one by one.
    pub agrees_with_index: Option<bool>,
}

impl Functions {
    /// Reads the map of an ELF file, of 32 bits or 64, in either byte order.
    pub fn read(file: &[u8]) -> Result<Self, Error> {
        /// Where a file says of which class it is (`EI_CLASS`).
        const CLASS: usize = 4;
        if file.get(CLASS) == Some(&elf::ELFCLASS32.0) {
            Self::read_class::<elf::FileHeader32<Endianness>>(file)
        } else {
            Self::read_class::<elf::FileHeader64<Endianness>>(file)
        }
    }

    fn read_class<H: FileHeader<Endian = Endianness>>(file: &[u8]) -> Result<Self, Error> {
        let header = H::parse(file).map_err(not_elf)?;
        let endian = header.endian().map_err(not_elf)?;
        let sections = header.sections(endian, file).map_err(not_elf)?;
        let names = header.section_strings_index(endian, file).map_err(not_elf)?;
        let names = sections.section(names).and_then(|it| it.data(endian, file));
        let kind = header.e_type(endian);
        if kind == elf::ET_REL {
            return Err(Error::NotLinked);
        }
        let binary = Binary {
            header,
            endian,
            file,
            sections: &sections,
            names: names.map_err(not_elf)?,
        };
        let map = binary.section(b"xray_instr_map").ok_or(Error::NoMap)??;
        let entries = map.entries()?;
        let mut addresses: Vec<Address> = Vec::new();
        // Of the first entry of each.
        let mut firsts = Vec::new();
        for entry in entries {
            let entry = entry?;
            if addresses.last() != Some(&entry.function) {
                addresses.push(entry.function);
                firsts.push(entry.at);
            }
        }
        let index = binary.section(b"xray_fn_idx").and_then(Result::ok);
        Ok(Self {
            agrees_with_index: index.and_then(|index| index.starts(&map).map(|starts| starts == firsts)),
            addresses,
            build_id: binary.build_id().to_vec(),
            pointer_size: map.pointer,
            is_position_independent: kind == elf::ET_DYN,
        })
    }

    /// The address of the function that has a number, as the file was linked.
    pub fn address(&self, function: u32) -> Option<Address> {
        let index = usize::try_from(function).ok()?.checked_sub(1)?;
        self.addresses.get(index).copied()
    }

    /// All addresses, of the functions from 1 on.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }
}

fn not_elf(error: impl Display) -> Error {
    Error::NotElf(error.to_string())
}

/// The type of relocations that put an address where the file is loaded, with what is added to it beside the
/// place and not in it. `None` for machines that have no such, or have no XRay.
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

/// An ELF file.
struct Binary<'a, 's, H: FileHeader> {
    header: &'a H,
    endian: Endianness,
    file: &'a [u8],
    sections: &'s SectionTable<'a, H>,
    /// Of the sections, each of which a NUL ends.
    names: &'a [u8],
}

impl<'a, H: FileHeader<Endian = Endianness>> Binary<'a, '_, H> {
    fn section(&self, name: &[u8]) -> Option<Result<Section<'a>, Error>> {
        let section = self.sections.iter().find(|it| self.has_name(it, name))?;
        let data = match section.data(self.endian, self.file) {
            Ok(data) => data,
            Err(error) => return Some(Err(Error::CutMap(error.to_string()))),
        };
        let address = section.sh_addr(self.endian).into();
        Some(Ok(Section {
            data,
            address,
            pointer: if self.header.is_type_64() { 8 } else { 4 },
            order: match self.endian {
                Endianness::Little => ByteOrder::Little,
                Endianness::Big => ByteOrder::Big,
            },
            relocated: self.relocations(address, data.len() as u64),
        }))
    }

    /// Whether a section has a name. It is not looked at any further: in a damaged file, all names can be very long.
    fn has_name(&self, section: &H::SectionHeader, name: &[u8]) -> bool {
        let start = section.sh_name(self.endian) as usize;
        let rest = self.names.get(start..).and_then(|names| names.strip_prefix(name));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// What is put at places of the section, by the distance from its start, where that is not in the file. With other
    /// forms of relocations (REL, RELR), what is added is there.
    fn relocations(&self, address: u64, size: u64) -> HashMap<u64, u64> {
        let mut found = HashMap::default();
        let Some(relative) = relative_relocation(self.header.e_machine(self.endian)) else {
            return found;
        };
        // Sections may lie over each other, but not for more than the file has.
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
            // As with relocations.
            let size: u64 = section.sh_size(self.endian).into();
            match usize::try_from(size).ok().and_then(|size| left.checked_sub(size)) {
                Some(less) => left = less,
                None => break,
            }
        }
        b""
    }
}

/// A section with addresses.
struct Section<'a> {
    data: &'a [u8],
    /// Of its first byte.
    address: u64,
    /// The size in bytes of addresses.
    pointer: u8,
    order: ByteOrder,
    relocated: HashMap<u64, u64>,
}

/// An entry of the map.
struct Entry {
    /// Its address.
    at: u64,
    function: Address,
}

impl<'a> Section<'a> {
    /// The number of the size of an address that stands `at` bytes from the start.
    fn pointer(&self, at: u64) -> Option<u64> {
        if let Some(&relocated) = self.relocated.get(&at) {
            return Some(self.masked(relocated));
        }
        let mut reader = Reader::new(self.data, self.order);
        reader.skip(at)?;
        match self.pointer {
            4 => reader.u32().map(u64::from),
            _ => reader.u64(),
        }
    }

    fn masked(&self, address: u64) -> u64 {
        match self.pointer {
            4 => address & u64::from(u32::MAX),
            _ => address,
        }
    }

    /// What stands `at` bytes from the start relative to there.
    fn relative(&self, at: u64) -> Option<u64> {
        let here = self.address.wrapping_add(at);
        Some(self.masked(self.pointer(at)?.wrapping_add(here)))
    }

    /// How many bytes an entry of the map has: two addresses, and as much again for kind, version and nothing.
    fn entry_size(&self) -> u64 {
        u64::from(self.pointer).saturating_mul(4)
    }

    fn entries(&'a self) -> Result<impl Iterator<Item = Result<Entry, Error>> + 'a, Error> {
        let (size, entry) = (self.data.len() as u64, self.entry_size());
        if size.checked_rem(entry) != Some(0) {
            return Err(Error::OddSize(size, entry));
        }
        let starts = (0..size).step_by(usize::from(self.pointer).saturating_mul(4));
        Ok(starts.filter_map(|at| self.entry(at)))
    }

    /// `None` behind the end, where none is asked for.
    fn entry(&self, at: u64) -> Option<Result<Entry, Error>> {
        let pointer = u64::from(self.pointer);
        let mut fields = Reader::new(self.data, self.order);
        fields.skip(at)?;
        fields.skip(pointer.checked_mul(2)?)?;
        let (_kind, _is_always_on, version) = (fields.u8()?, fields.u8()?, fields.u8()?);
        let function = at.checked_add(pointer)?;
        let function = match version {
            0..RELATIVE => self.pointer(function)?,
            RELATIVE..=NEWEST => self.relative(function)?,
            _ => return Some(Err(Error::Version(version))),
        };
        Some(Ok(Entry {
            at: self.address.wrapping_add(at),
            function: Address(function),
        }))
    }

    /// Where the entries of each function start, if this is the index of a map. `None` if it leads elsewhere.
    fn starts(&self, map: &Section<'_>) -> Option<Vec<u64>> {
        // Each function has where its entries start, relative to there, and how many they are; or, in older files, where
        // they start and end.
        let size = u64::from(self.pointer).checked_mul(2)?;
        let places = || (0..self.data.len() as u64).step_by(usize::from(self.pointer).saturating_mul(2));
        let is_in_map = |start: &u64| {
            (*start)
                .checked_sub(map.address)
                .is_some_and(|at| at < map.data.len() as u64)
        };
        (self.data.len() as u64)
            .checked_rem(size)
            .filter(|&rest| rest == 0)?;
        let relative = || places().map(|at| self.relative(at).filter(is_in_map)).collect();
        let absolute = || places().map(|at| self.pointer(at).filter(is_in_map)).collect();
        Option::or_else(relative(), absolute)
    }
}
