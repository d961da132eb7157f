//! Files that have the debug information of one file: itself, its supplementary file (`dwz -m`), and those of compile units
//! (`-gsplit-dwarf`).

use std::ops::Deref;

use gimli::{Dwarf, DwoId, IncompleteLineProgram, Result, Unit, UnitRef};

use crate::elf::line_info::counted_reader::CountedReader;

/// A file with entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DebugFile {
    /// The file itself.
    Own,
    /// What it has in common with others.
    Supplementary,
    /// The one of a compile unit, by its index.
    Split(usize),
}

/// Where the debug information of a file is.
pub struct DebugFiles<'a, 'c> {
    /// In the file itself, and in its supplementary file.
    pub own: Dwarf<CountedReader<'a, 'c>>,
    /// In files of compile units, by their IDs.
    pub split: Vec<(DwoId, Dwarf<CountedReader<'a, 'c>>)>,
}

impl<'a, 'c> DebugFiles<'a, 'c> {
    /// Returns the file of a unit of the file itself whose entries are elsewhere, and the unit there; `None` if it was not read.
    /// Its source files are those of the line program of `skeleton`.
    pub fn split(&self, skeleton: &Unit<CountedReader<'a, 'c>>) -> Result<Option<SplitEntries<'_, 'a, 'c>>> {
        let Some(id) = skeleton.dwo_id else {
            return Ok(None);
        };
        let Ok(index) = self.split.binary_search_by_key(&id.0, |(id, _)| id.0) else {
            return Ok(None);
        };
        let Some((_, dwarf)) = self.split.get(index) else {
            return Ok(None);
        };
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            let mut unit = dwarf.unit(header)?;
            if unit.dwo_id == Some(id) {
                unit.copy_relocated_attributes(skeleton);
                unit.line_program.clone_from(&skeleton.line_program);
                unit.comp_dir = skeleton.comp_dir;
                return Ok(Some((DebugFile::Split(index), dwarf, unit)));
            }
        }
        Ok(None)
    }

    /// Returns the sections of a file.
    pub fn dwarf(&self, file: DebugFile) -> Option<&Dwarf<CountedReader<'a, 'c>>> {
        match file {
            DebugFile::Own => Some(&self.own),
            DebugFile::Supplementary => self.own.sup(),
            DebugFile::Split(index) => Some(&self.split.get(index)?.1),
        }
    }
}

/// A unit in a file of its own, with the sections there.
pub type SplitEntries<'f, 'a, 'c> = (
    DebugFile,
    &'f Dwarf<CountedReader<'a, 'c>>,
    Unit<CountedReader<'a, 'c>>,
);

/// A unit of one of the files.
#[derive(Clone, Copy)]
pub struct UnitIn<'u, 'a, 'c> {
    /// The file.
    pub file: DebugFile,
    /// The unit.
    pub unit: UnitRef<'u, CountedReader<'a, 'c>>,
    /// Its line program.
    pub line_program: Option<&'u LineProgram<'a, 'c>>,
}

/// A line program that has not run.
pub type LineProgram<'a, 'c> = IncompleteLineProgram<CountedReader<'a, 'c>>;

impl<'u, 'a, 'c> UnitIn<'u, 'a, 'c> {
    /// Combines a unit with its file.
    pub fn new(
        file: DebugFile,
        dwarf: &'u Dwarf<CountedReader<'a, 'c>>,
        unit: &'u Unit<CountedReader<'a, 'c>>,
    ) -> Self {
        Self {
            file,
            unit: unit.unit_ref(dwarf),
            line_program: unit.line_program.as_ref(),
        }
    }
}

impl<'u, 'a, 'c> Deref for UnitIn<'u, 'a, 'c> {
    type Target = UnitRef<'u, CountedReader<'a, 'c>>;

    fn deref(&self) -> &Self::Target {
        &self.unit
    }
}

/// A compile unit in a file of its own.
#[derive(Clone, Debug)]
pub struct SplitUnit {
    /// ID in both files.
    pub id: DwoId,
    /// Path of the file, absolute unless the compiler's folder is unknown.
    pub path: Vec<u8>,
}
