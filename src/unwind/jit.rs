//! Unwinding tables of JIT-compiled code, as its runtime wrote them.

use std::sync::OnceLock;

use crate::code::timeline::{FileIndex, MappingIndex, Timeline};
use crate::elf::call_frames::{EntryRows, RuleRoom, Rules};
use crate::elf::eh_frame::{EhFrame, FdeIndex};
use crate::hash::HashMap;
use crate::indexed_table::{IndexedTable, table_index};
use crate::load::{UsedFile, function_of};
use crate::units::Address;
use crate::unwind::prologue::pushed_words;
use crate::unwind::registers::Target;

table_index! {
    /// Index of a table.
    JitTableIndex
}

/// Tables of all functions.
#[derive(Debug)]
pub struct JitTables<'a> {
    files: &'a IndexedTable<FileIndex, UsedFile<'a>>,
    timeline: &'a Timeline,
    target: Target,
    room: &'a RuleRoom,
    /// Table of each mapping of a function.
    of_mappings: IndexedTable<MappingIndex, Option<JitTableIndex>>,
    tables: IndexedTable<JitTableIndex, JitTable<'a>>,
}

/// An `.eh_frame` of a runtime, for one function or many.
#[derive(Debug)]
struct JitTable<'a> {
    frame: EhFrame<'a>,
    /// Its entries, read on first use.
    entries: OnceLock<Entries<'a>>,
}

#[derive(Debug)]
struct Entries<'a> {
    index: FdeIndex<'a>,
    /// Rows of each entry, evaluated on first use.
    rows: Vec<OnceLock<Option<EntryRows>>>,
}

impl<'a> JitTables<'a> {
    /// Finds the tables of all functions of a timeline.
    pub fn new(
        files: &'a IndexedTable<FileIndex, UsedFile<'a>>,
        timeline: &'a Timeline,
        target: Target,
        room: &'a RuleRoom,
    ) -> Self {
        let mut known: HashMap<(usize, Address), JitTableIndex> = HashMap::default();
        let mut tables = IndexedTable::default();
        let of_mappings = timeline.mappings().map(|mapping| {
            let file = &files[mapping.function.file].code;
            let machine = file.machine();
            let unwinding = file.unwinding(mapping.function.function)?;
            if Target::of(machine) != Some(target) {
                return None;
            }
            let address = unwinding.address(file.range(mapping.function.function)?);
            let key = (unwinding.eh_frame.as_ptr() as usize, address);
            let new = || {
                tables.push(JitTable {
                    frame: EhFrame {
                        section: unwinding.eh_frame,
                        address,
                        endian: machine.endian,
                        address_size: machine.address_size(),
                    },
                    entries: OnceLock::new(),
                })
            };
            Some(*known.entry(key).or_insert_with(new))
        });
        Self {
            files,
            timeline,
            target,
            room,
            of_mappings,
            tables,
        }
    }

    /// Returns the rules for an address in a mapping of a function.
    pub fn at(&self, mapping: MappingIndex, address: Address) -> Option<Rules<'_>> {
        let table = &self.tables[self.of_mappings[mapping]?];
        let entries = table.entries.get_or_init(|| Entries::read(table.frame));
        // Tables are for the address at which the function was loaded.
        let mapped = &self.timeline.mappings()[mapping];
        let loaded = self.files[mapped.function.file]
            .code
            .range(mapped.function.function)?;
        let offset = address.0.wrapping_sub(mapped.range.start.0);
        let address = Address(loaded.start.0.wrapping_add(offset));
        let (position, entry) = entries.index.at(address)?;
        let rows = entries.rows.get(position)?;
        let rows = rows.get_or_init(|| EntryRows::of_fde(entry, self.room));
        rows.as_ref()?.at(address)
    }

    /// Returns the number of words that the function of a mapping has pushed at an address, if it has no frame there
    /// yet. For functions without tables.
    pub fn pushed_words(&self, mapping: MappingIndex, address: Address) -> Option<u64> {
        let mapped = &self.timeline.mappings()[mapping];
        let view = function_of(self.files, mapped.function)?;
        let offset = address.0.wrapping_sub(mapped.range.start.0);
        pushed_words(self.target, view.code?, offset)
    }
}

impl<'a> Entries<'a> {
    fn read(frame: EhFrame<'a>) -> Self {
        let index = FdeIndex::read(frame);
        Self {
            rows: (0..index.len()).map(|_| OnceLock::new()).collect(),
            index,
        }
    }
}
