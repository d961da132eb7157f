//! Reads lines and inlined calls of functions in executables, libraries and their separate debug files.
//!
//! Only compile units with wanted functions are read as a whole. Their entries are walked without recursion, because crafted ones
//! can be nested to any depth.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod attributes;
mod counted_reader;
mod debug_files;
mod other_units;
mod search;
mod wanted;

use std::cell::Cell;
use std::sync::Arc;

use gimli::{
    Dwarf, DwarfPackageSections, DwarfSections, DwoId, RunTimeEndian, Section, SectionId, UnitHeader,
};
use jitdump::AddressRange;
use jitdump::debug_info::DebugInfo;
use object::read::{Object, ReadRef};

use crate::elf::limited_reads::{FileMemory, section_content};
use crate::elf::line_info::counted_reader::CountedReader;
use crate::elf::line_info::debug_files::DebugFiles;
use crate::elf::line_info::search::FunctionSearch;
use crate::elf::symbols::parse_if;

pub use crate::elf::line_info::debug_files::SplitUnit;

/// Maximum number of reads for each byte of the sections. Compilers' files need less than two.
const READS_PER_BYTE: u64 = 8;

/// Number of reads that small files may need, too.
const MIN_READS: u64 = 1 << 20;

/// Debug sections of an ELF file.
#[derive(Debug)]
pub struct LineInfo {
    /// Build ID; empty if the file has none.
    pub build_id: Vec<u8>,
    sections: Sections,
    /// Size of all sections in bytes.
    pub size: u64,
    /// Whether there are no lines.
    pub is_empty: bool,
    endian: RunTimeEndian,
    /// The supplementary file that it refers to.
    pub supplementary: Option<SupplementaryFile>,
}

/// Sections, as the kind of file has them.
#[derive(Debug)]
enum Sections {
    /// Of an executable, library or debug file, or of the file of a compile unit (`.dwo`).
    One(DwarfSections<Vec<u8>>),
    /// Of many compile units (`.dwp`).
    Package(DwarfPackageSections<Vec<u8>>),
}

/// A file with what several files have in common, which `dwz -m` has moved there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SupplementaryFile {
    /// Path, which may be relative to the folder of the file that refers to it.
    pub path: Vec<u8>,
    /// Build ID.
    pub build_id: Vec<u8>,
}

/// Other files that have a part of the debug information of a file.
#[derive(Debug, Default)]
pub struct Companions {
    /// The supplementary file.
    pub supplementary: Option<Arc<LineInfo>>,
    /// Files with compile units.
    pub split: Vec<(DwoId, Arc<LineInfo>)>,
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
        let is_split = file.section_by_name(".debug_info.dwo").is_some();
        let is_package = is_split && file.section_by_name(".debug_cu_index").is_some();
        let (mut size, mut is_empty) = (0_u64, true);
        let section = |id: SectionId| {
            let split = id.dwo_name().filter(|_| is_split);
            // Units of a package are a part of each section that it has.
            let name = Some(id.name()).filter(|name| is_package || NEEDED.contains(name));
            let content = match name.and_then(|name| file.section_by_name(split.unwrap_or(name))) {
                Some(section) => section_content(&section, memory).ok_or(gimli::Error::Io)?,
                None => Vec::new(),
            };
            size = size.saturating_add(content.len() as u64);
            is_empty &= id != SectionId::DebugInfo || content.is_empty();
            Ok::<_, gimli::Error>(content)
        };
        let sections = if is_package {
            Sections::Package(DwarfPackageSections::load(section).ok()?)
        } else {
            Sections::One(DwarfSections::load(section).ok()?)
        };
        let supplementary = file.gnu_debugaltlink().ok()?;
        Some(Self {
            build_id,
            sections,
            size,
            is_empty,
            endian: if file.is_little_endian() {
                RunTimeEndian::Little
            } else {
                RunTimeEndian::Big
            },
            supplementary: supplementary.map(|(path, build_id)| SupplementaryFile {
                path: path.to_vec(),
                build_id: build_id.to_vec(),
            }),
        })
    }

    /// Returns the compile units of functions at linked addresses, which must ascend, whose entries are in other files.
    pub fn split_units(&self, wanted: &[AddressRange]) -> Vec<SplitUnit> {
        let left = self.reads(&Companions::default());
        let Some(own) = self
            .own(&left)
            .filter(|own| !own.debug_addr.reader().bytes().is_empty())
        else {
            return Vec::new();
        };
        let files = DebugFiles {
            own,
            split: Vec::new(),
        };
        let search = FunctionSearch::new(&files, &left, wanted);
        let mut found = Vec::new();
        for_each_unit(&files.own, |header| {
            found.extend(search.split_unit(header)?);
            Ok(())
        });
        found
    }

    /// Returns the lines and inlined calls of the functions at linked addresses, which must ascend, and the number of damaged
    /// compile units; `None` if that takes too long.
    pub fn functions<'l>(
        &'l self,
        companions: &'l Companions,
        wanted: &[AddressRange],
    ) -> Option<(Vec<DebugInfo<'l>>, u64)> {
        let left = self.reads(companions);
        let mut own = self.own(&left)?;
        let supplementary = companions.supplementary.as_ref();
        own.sup = supplementary.and_then(|file| file.own(&left)).map(Arc::new);
        let split = companions.split.iter().filter_map(|(id, file)| {
            let mut split = file.split(*id, &own, &left)?;
            // Names of files are those of the line program.
            split.debug_line_str = own.debug_line_str;
            Some((*id, split))
        });
        let mut split: Vec<_> = split.collect();
        split.sort_by_key(|(id, _)| id.0);
        let files = DebugFiles { own, split };
        let mut search = FunctionSearch::new(&files, &left, wanted);
        let damaged = for_each_unit(&files.own, |header| search.add_unit(header));
        (left.get() > 0).then(|| (search.finish(), damaged))
    }

    /// Returns the number of reads that all files may need.
    fn reads(&self, companions: &Companions) -> Cell<u64> {
        // A file can have many compile units.
        let mut split: Vec<&Arc<Self>> = companions.split.iter().map(|(_, file)| file).collect();
        split.sort_unstable_by_key(|&file| Arc::as_ptr(file));
        split.dedup_by(|&mut one, &mut other| Arc::ptr_eq(one, other));
        let others = companions.supplementary.iter().chain(split);
        let size = others.map(|file| file.size).fold(self.size, u64::saturating_add);
        Cell::new(size.saturating_mul(READS_PER_BYTE).saturating_add(MIN_READS))
    }

    /// Returns the sections; `None` if the file is a package.
    fn own<'a, 'c>(&'a self, left: &'c Cell<u64>) -> Option<Dwarf<CountedReader<'a, 'c>>> {
        match &self.sections {
            Sections::One(sections) => {
                Some(sections.borrow(|section| CountedReader::new(section, self.endian, left)))
            }
            Sections::Package(_) => None,
        }
    }

    /// Returns the sections of a compile unit of `parent`; `None` if it is not in this file.
    fn split<'a, 'c>(
        &'a self,
        id: DwoId,
        parent: &Dwarf<CountedReader<'a, 'c>>,
        left: &'c Cell<u64>,
    ) -> Option<Dwarf<CountedReader<'a, 'c>>> {
        let Sections::Package(sections) = &self.sections else {
            let mut split = self.own(left)?;
            split.make_dwo(parent);
            return Some(split);
        };
        let reader = |section| CountedReader::new(section, self.endian, left);
        let package = sections
            .borrow(|section: &'a Vec<u8>| reader(section), reader(&[]))
            .ok()?;
        package.find_cu(id, parent).ok().flatten()
    }
}

/// Calls `read` for the units of a file. Returns the number of damaged ones, of which it has what was read before the damage.
fn for_each_unit<'a, 'c>(
    dwarf: &Dwarf<CountedReader<'a, 'c>>,
    mut read: impl FnMut(UnitHeader<CountedReader<'a, 'c>>) -> gimli::Result<()>,
) -> u64 {
    let mut units = dwarf.units();
    let mut damaged = 0u64;
    loop {
        match units.next() {
            Ok(None) => return damaged,
            Ok(Some(header)) => damaged = damaged.saturating_add(read(header).is_err().into()),
            Err(_) => return damaged.saturating_add(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_once_however_many_units_it_has() {
        let file = |size| LineInfo {
            build_id: Vec::new(),
            sections: Sections::One(DwarfSections::default()),
            size,
            is_empty: false,
            endian: RunTimeEndian::Little,
            supplementary: None,
        };
        let files = [(); 2].map(|()| Arc::new(file(1 << 20)));
        let reads = |units: u64| {
            let companions = Companions {
                supplementary: None,
                split: (0..units).map(DwoId).zip(files.iter().cloned().cycle()).collect(),
            };
            file(0).reads(&companions).get()
        };
        assert!(reads(1) > reads(0) && reads(2) > reads(1));
        assert_eq!(reads(1000), reads(2));
    }
}
