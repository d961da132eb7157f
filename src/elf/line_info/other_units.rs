//! Units to which entries of other units refer.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{Abbreviations, Dwarf, Result, Unit, UnitHeader};

use crate::collections::hash::HashMap;
use crate::elf::line_info::counted_reader::{CountedReader, READS_PER_ITEM, count};
use crate::elf::line_info::debug_files::{DebugFile, LineProgram, UnitIn};
use crate::elf::line_info::wanted::EntryId;

/// Fewest reads of an abbreviation.
const READS_OF_ABBREVIATION: u64 = 5;

/// A unit.
pub struct OtherUnit<'a, 'c> {
    /// The unit, without its line program.
    unit: Unit<CountedReader<'a, 'c>>,
    line_program: Option<Rc<LineProgram<'a, 'c>>>,
}

impl<'a, 'c> OtherUnit<'a, 'c> {
    /// Returns the unit with its file.
    pub fn in_file<'u>(
        &'u self,
        file: DebugFile,
        dwarf: &'u Dwarf<CountedReader<'a, 'c>>,
    ) -> UnitIn<'u, 'a, 'c> {
        UnitIn {
            file,
            unit: self.unit.unit_ref(dwarf),
            line_program: self.line_program.as_deref(),
        }
    }
}

/// The units that were referred to. All that is kept counts as reads, so that it takes no more memory than its size justifies.
#[derive(Default)]
pub struct OtherUnits<'a, 'c> {
    /// Headers of all units of a file by their offsets, once they are needed.
    headers: HashMap<DebugFile, Vec<UnitHeader<CountedReader<'a, 'c>>>>,
    /// Units by their offsets.
    units: HashMap<(DebugFile, usize), Rc<OtherUnit<'a, 'c>>>,
    /// Abbreviations by their offsets. Many units can share them, as those of dwz do.
    abbreviations: HashMap<(DebugFile, usize), Arc<Abbreviations>>,
    /// Line programs by their offsets, which are shared, too.
    line_programs: HashMap<(DebugFile, usize), Rc<LineProgram<'a, 'c>>>,
}

impl<'a, 'c> OtherUnits<'a, 'c> {
    /// Returns the unit with an entry. `dwarf` are the sections of the entry's file, and `left` is the number of reads that are
    /// left.
    pub fn at(
        &mut self,
        entry: EntryId,
        dwarf: &Dwarf<CountedReader<'a, 'c>>,
        left: &Cell<u64>,
    ) -> Result<Rc<OtherUnit<'a, 'c>>> {
        let headers = match self.headers.entry(entry.file) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let mut all = Vec::new();
                let mut units = dwarf.units();
                while let Some(header) = units.next()? {
                    count(left, READS_PER_ITEM)?;
                    all.push(header);
                }
                unknown.insert(all)
            }
        };
        let start = |header: &UnitHeader<_>| header.debug_info_offset().map_or(usize::MAX, |start| start.0);
        let after = headers.partition_point(|header| start(header) <= entry.offset);
        let header = after.checked_sub(1).and_then(|last| headers.get(last));
        let header = *header.ok_or(gimli::Error::MissingUnitDie)?;
        let key = (entry.file, start(&header));
        if let Some(known) = self.units.get(&key) {
            return Ok(known.clone());
        }
        count(left, READS_PER_ITEM)?;
        let abbreviations = self.abbreviations(entry.file, &header, dwarf, left)?;
        let mut unit = Unit::new_with_abbreviations(dwarf, header, abbreviations)?;
        let line_program = match unit.line_program.take() {
            Some(program) => Some(self.line_program(entry.file, program, left)?),
            None => None,
        };
        let unit = Rc::new(OtherUnit { unit, line_program });
        self.units.insert(key, unit.clone());
        Ok(unit)
    }

    /// Returns the abbreviations of a unit.
    fn abbreviations(
        &mut self,
        file: DebugFile,
        unit: &UnitHeader<CountedReader<'a, 'c>>,
        dwarf: &Dwarf<CountedReader<'a, 'c>>,
        left: &Cell<u64>,
    ) -> Result<Arc<Abbreviations>> {
        match self.abbreviations.entry((file, unit.debug_abbrev_offset().0)) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(unknown) => {
                let before = left.get();
                let read = dwarf.abbreviations(unit)?;
                let most = before.saturating_sub(left.get()) / READS_OF_ABBREVIATION;
                count(left, most.saturating_mul(READS_PER_ITEM))?;
                Ok(unknown.insert(read).clone())
            }
        }
    }

    /// Returns a line program, the one that is kept.
    fn line_program(
        &mut self,
        file: DebugFile,
        read: LineProgram<'a, 'c>,
        left: &Cell<u64>,
    ) -> Result<Rc<LineProgram<'a, 'c>>> {
        let (offset, size) = (read.header().offset().0, read.header().header_length());
        match self.line_programs.entry((file, offset)) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(unknown) => {
                // Its tables have an entry for each byte, at most.
                count(left, (size as u64).saturating_mul(READS_PER_ITEM))?;
                Ok(unknown.insert(Rc::new(read)).clone())
            }
        }
    }
}
