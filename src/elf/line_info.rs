//! Reads lines and inlined calls of functions in executables, libraries and their separate debug files.
//!
//! Only compile units with wanted functions are read as a whole. Their entries are walked without recursion, because crafted ones
//! can be nested to any depth.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod counted_reader;
mod search;
mod wanted;

use std::cell::Cell;

use gimli::{DwarfSections, RunTimeEndian};
use jitdump::AddressRange;
use jitdump::debug_info::DebugInfo;
use object::read::{Object, ReadRef};

use crate::elf::limited_reads::{FileMemory, section_content};
use crate::elf::line_info::counted_reader::CountedReader;
use crate::elf::line_info::search::FunctionSearch;
use crate::elf::symbols::parse_if;

/// Maximum number of reads for each byte of the sections. Compilers' files need less than two.
const READS_PER_BYTE: u64 = 8;

/// Number of reads that small files may need, too.
const MIN_READS: u64 = 1 << 20;

/// Debug sections of an ELF file.
#[derive(Debug)]
pub struct LineInfo {
    /// Build ID; empty if the file has none.
    pub build_id: Vec<u8>,
    sections: DwarfSections<Vec<u8>>,
    /// Size of all sections in bytes.
    size: u64,
    /// Whether there are no lines.
    pub is_empty: bool,
    endian: RunTimeEndian,
}

impl LineInfo {
    /// Reads an ELF file; `None` if it is not one, if `is_wanted` is false for its build ID, or if there is no memory for it.
    pub fn read_if<'a>(
        file: impl ReadRef<'a>,
        memory: &FileMemory<'_>,
        is_wanted: impl FnOnce(Option<&[u8]>) -> bool,
    ) -> Option<Self> {
        let (file, build_id) = parse_if(file, is_wanted)?;
        const NEEDED: [&str; 9] = [
            ".debug_abbrev",
            ".debug_addr",
            ".debug_info",
            ".debug_line",
            ".debug_line_str",
            ".debug_ranges",
            ".debug_rnglists",
            ".debug_str",
            ".debug_str_offsets",
        ];
        let (mut size, mut is_empty) = (0_u64, true);
        let section = |id: gimli::SectionId| {
            let name = Some(id.name()).filter(|name| NEEDED.contains(name));
            let content = match name.and_then(|name| file.section_by_name(name)) {
                Some(section) => section_content(&section, memory).ok_or(())?,
                None => Vec::new(),
            };
            size = size.saturating_add(content.len() as u64);
            is_empty &= id != gimli::SectionId::DebugInfo || content.is_empty();
            Ok::<_, ()>(content)
        };
        Some(Self {
            build_id,
            sections: DwarfSections::load(section).ok()?,
            size,
            is_empty,
            endian: match file.is_little_endian() {
                true => RunTimeEndian::Little,
                false => RunTimeEndian::Big,
            },
        })
    }

    /// Returns the lines and inlined calls of the functions at linked addresses, which must ascend, and the number of damaged
    /// compile units; `None` if that takes too long.
    pub fn functions(&self, wanted: &[AddressRange]) -> Option<(Vec<DebugInfo<'_>>, u64)> {
        let left = Cell::new(self.size.saturating_mul(READS_PER_BYTE).saturating_add(MIN_READS));
        let dwarf = self
            .sections
            .borrow(|section| CountedReader::new(section, self.endian, &left));
        let mut search = FunctionSearch::new(&dwarf, &left, wanted);
        let mut units = dwarf.units();
        let mut damaged = 0u64;
        loop {
            match units.next() {
                Ok(None) => break,
                // A damaged unit has as many lines as were read of it.
                Ok(Some(header)) => damaged = damaged.saturating_add(search.add_unit(header).is_err().into()),
                Err(_) => {
                    damaged = damaged.saturating_add(1);
                    break;
                }
            }
        }
        (left.get() > 0).then(|| (search.finish(), damaged))
    }
}
