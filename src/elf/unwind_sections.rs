//! Reads the unwinding tables of executables, libraries and their separate debug files.

use jitdump::{Address, AddressRange};
use object::read::{Object, ObjectSection, ReadRef};
use object::{Endianness, elf};

use crate::elf::call_frames::{CallFrames, FrameHeader, FrameSection, SectionKind};
use crate::elf::executable::Segments;
use crate::elf::limited_reads::{FileMemory, section_content};
use crate::elf::symbols::{code_segments, parse_if};

/// Unwinding tables of an ELF file.
#[derive(Debug)]
pub struct UnwindSections {
    /// Build ID; empty if the file has none.
    pub build_id: Vec<u8>,
    /// Code segments.
    pub segments: Segments,
    /// Sections of procedure linkage tables.
    linkage: Vec<AddressRange>,
    /// Tables by section, `.eh_frame` first.
    pub tables: Vec<CallFrames>,
}

impl UnwindSections {
    /// Reads a little-endian, 64-bit ELF file for a machine; `None` if it is not one, or if `is_wanted` is false for its build
    /// ID. If there is not enough memory for all of it, returns a part or `None`.
    pub fn read_if<'a>(
        file: impl ReadRef<'a>,
        memory: &FileMemory<'_>,
        machine: elf::Machine,
        is_wanted: impl FnOnce(Option<&[u8]>) -> bool,
    ) -> Option<Self> {
        let (object::File::Elf64(file), build_id) = parse_if(file, is_wanted)? else {
            return None;
        };
        if file.endianness() != object::Endianness::Little
            || file.elf_header().e_machine.get(Endianness::Little) != machine
        {
            return None;
        }
        Some(Self {
            build_id,
            linkage: linkage_ranges(&file),
            tables: read_tables(&file, memory)?,
            segments: code_segments(&file),
        })
    }

    /// Whether an address is in a procedure linkage table. Linkers for AArch64 write no unwinding tables for these.
    pub fn is_linkage(&self, address: Address) -> bool {
        self.linkage.iter().any(|range| range.contains(address))
    }

    /// Returns the size in memory in bytes.
    pub fn size(&self) -> u64 {
        self.tables
            .iter()
            .fold(0, |sum: u64, table| sum.saturating_add(table.size()))
    }
}

/// Reads the tables of a file; `None` if there is not enough memory for one of them.
fn read_tables<'a>(file: &impl Object<'a>, memory: &FileMemory<'_>) -> Option<Vec<CallFrames>> {
    // binutils before 2.26 gave compressed sections another name; GNU ld still can.
    let sections = [
        (".eh_frame", SectionKind::EhFrame),
        (".debug_frame", SectionKind::DebugFrame),
        (".zdebug_frame", SectionKind::DebugFrame),
    ];
    let text = file.section_by_name(".text").map_or(0, |text| text.address());
    let mut tables = Vec::new();
    for (name, kind) in sections {
        let Some(section) = file.section_by_name(name) else {
            continue;
        };
        let address = match kind {
            SectionKind::EhFrame => section.address(),
            SectionKind::DebugFrame => 0,
        };
        let Some(bytes) = section_content(&section, memory) else {
            continue;
        };
        let header = match kind {
            SectionKind::EhFrame => read_header(file, memory),
            SectionKind::DebugFrame => None,
        };
        let section = FrameSection {
            kind,
            bytes,
            address: Address(address),
            text: Address(text),
        };
        let table = CallFrames::read(section, header, memory)?;
        if !table.is_empty() {
            tables.push(table);
        }
    }
    Some(tables)
}

/// Reads the index of `.eh_frame`.
fn read_header<'a>(file: &impl Object<'a>, memory: &FileMemory<'_>) -> Option<FrameHeader> {
    let section = file.section_by_name(".eh_frame_hdr")?;
    Some(FrameHeader {
        bytes: section_content(&section, memory)?,
        address: Address(section.address()),
    })
}

/// Returns the sections of procedure linkage tables.
fn linkage_ranges<'a>(file: &impl Object<'a>) -> Vec<AddressRange> {
    let names = [".plt", ".plt.sec", ".plt.got", ".iplt"].into_iter();
    let ranges = names.filter_map(|name| {
        let section = file.section_by_name(name)?;
        AddressRange::new(Address(section.address()), section.size())
    });
    ranges.collect()
}

// There are tables for these machines only.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::call_frames::RuleRoom;
    use crate::elf::limited_reads::MemoryRoom;

    const MACHINE: elf::Machine = if cfg!(target_arch = "aarch64") {
        elf::EM_AARCH64
    } else {
        elf::EM_X86_64
    };

    #[test]
    fn tables_without_memory_are_not_read() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let room = MemoryRoom::default();
        let memory = room.file();
        let read = |memory| UnwindSections::read_if(&program[..], memory, MACHINE, |_| true);
        let size = read(&memory).unwrap().size();
        assert!(size > 0 && !memory.is_exceeded());
        let room = MemoryRoom::new(size - 1);
        let memory = room.file();
        // On AArch64, programs have a second table, `.debug_frame`, and there is memory for one of them.
        let is_part = |read: UnwindSections| cfg!(target_arch = "aarch64") && read.size() < size;
        assert!(read(&memory).is_none_or(is_part) && memory.is_exceeded());
    }

    #[test]
    fn rules_are_the_same_with_the_linkers_index_and_without() {
        let mut program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let room = MemoryRoom::default();
        let read = |program: &[u8]| {
            let sections = UnwindSections::read_if(program, &room.file(), MACHINE, |_| true);
            sections.unwrap().tables.swap_remove(0)
        };
        let indexed = read(&program);
        for name in memchr::memmem::find_iter(&program.clone(), b".eh_frame_hdr\0") {
            program[name + 1] = b'x';
        }
        let all = read(&program);
        assert!(indexed.starts().eq(all.starts()));
        let room = RuleRoom::default();
        for start in all.starts().step_by(all.starts().count() / 1000) {
            for address in (0..256).map(|offset| Address(start.0 + offset)) {
                let [one, other] = [&indexed, &all].map(|table| format!("{:?}", table.at(address, &room)));
                assert_eq!(one, other, "{address:?}");
            }
        }
    }
}
