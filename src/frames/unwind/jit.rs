//! Unwinding tables of JIT-compiled code, as its runtime wrote them.

use std::sync::{Arc, Mutex, OnceLock};

use jitdump::Address;

use crate::code::timeline::{FileIndex, FunctionId, MappingIndex, Timeline};
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::IndexedTable;
use crate::elf::call_frames::{EntryRows, RuleRoom, Rules};
use crate::elf::eh_frame::{EhFrame, FdeIndex};
use crate::frames::unwind::frameless::Tops;
use crate::frames::unwind::known_address::KnownTop;
use crate::frames::unwind::registers::Target;
use crate::frames::unwind::x86_64_code;
use crate::load::{UsedFile, function_of};
use crate::threads::lock;

/// Tables of all functions, each read when it is first asked for.
#[derive(Debug)]
pub struct JitTables<'a> {
    files: &'a IndexedTable<FileIndex, UsedFile<'a>>,
    timeline: &'a Timeline,
    target: Target,
    room: &'a RuleRoom,
    /// Table of each mapping of a function.
    of_mappings: IndexedTable<MappingIndex, OnceLock<Option<Arc<JitTable<'a>>>>>,
    /// Tables by their file, their offset in it and their address; functions may share them.
    tables: Mutex<SharedTables<'a>>,
    /// What functions without tables have on top of the stack; `None` if there is no room.
    tops: Mutex<HashMap<FunctionId, Option<Tops>>>,
}

type SharedTables<'a> = HashMap<(FileIndex, u64, Address), Arc<JitTable<'a>>>;

/// An `.eh_frame` of a runtime, for one function or many.
#[derive(Debug)]
struct JitTable<'a> {
    index: FdeIndex<'a>,
    /// Rows of each entry, evaluated on first use.
    rows: Vec<OnceLock<Option<EntryRows>>>,
}

impl<'a> JitTables<'a> {
    /// Prepares reading the tables of the functions of a timeline.
    pub fn new(
        files: &'a IndexedTable<FileIndex, UsedFile<'a>>,
        timeline: &'a Timeline,
        target: Target,
        room: &'a RuleRoom,
    ) -> Self {
        Self {
            files,
            timeline,
            target,
            room,
            of_mappings: timeline.mappings.map(|_| OnceLock::new()),
            tables: Mutex::default(),
            tops: Mutex::default(),
        }
    }

    /// Returns the rules for an address in a mapping of a function.
    pub fn at(&self, mapping: MappingIndex, address: Address) -> Option<Rules<'_>> {
        let table = self.of_mappings[mapping].get_or_init(|| self.table(mapping));
        let table = table.as_ref()?;
        // Tables are for the address at which the function was loaded.
        let mapped = &self.timeline.mappings[mapping];
        let loaded = self.files[mapped.function.file]
            .code
            .range(mapped.function.function)?;
        let offset = address.0.wrapping_sub(mapped.range.start.0);
        let address = Address(loaded.start.0.wrapping_add(offset));
        let (position, entry) = table.index.at(address)?;
        let rows = table.rows.get(position)?;
        let rows = rows.get_or_init(|| EntryRows::of_fde(entry, self.room));
        rows.as_ref()?.at(address)
    }

    /// Returns the table of a mapping of a function; `None` if it has none, or its file is of another machine.
    fn table(&self, mapping: MappingIndex) -> Option<Arc<JitTable<'a>>> {
        let function = self.timeline.mappings[mapping].function;
        let file = &self.files[function.file].code;
        let machine = file.machine();
        if Target::of(machine) != Some(self.target) {
            return None;
        }
        let (offset, unwinding) = file.unwinding(function.function)?;
        let address = unwinding.address(file.range(function.function)?);
        let read = || {
            let index = FdeIndex::read(EhFrame {
                section: unwinding.eh_frame,
                address,
                endian: machine.endian,
                address_size: machine.address_size(),
            });
            let rows = (0..index.len()).map(|_| OnceLock::new()).collect();
            Arc::new(JitTable { index, rows })
        };
        let key = (function.file, offset, address);
        let mut tables = lock(&self.tables);
        Some(tables.entry(key).or_insert_with(read).clone())
    }

    /// Returns what the function of a mapping, which has no tables, has on top of the stack at an address.
    pub fn top(&self, mapping: MappingIndex, address: Address) -> Option<KnownTop> {
        let (code, offset) = self.code_at(mapping, address)?;
        let function = self.timeline.mappings[mapping].function;
        let mut tops = lock(&self.tops);
        let read = || {
            let tops = Tops::of(self.target, code);
            self.room.take(tops.rows.len()).map(|()| tops)
        };
        let tops = tops.entry(function).or_insert_with(read).as_ref()?;
        Some(KnownTop::of(self.target, tops, offset))
    }

    /// Whether an address in a mapping of a function is right after a call.
    pub fn is_after_call(&self, mapping: MappingIndex, address: Address) -> bool {
        let found = self.code_at(mapping, address);
        found.is_some_and(|(code, offset)| x86_64_code::is_after_call(code, offset))
    }

    /// Returns the code of the function of a mapping, and the offset of an address in it.
    fn code_at(&self, mapping: MappingIndex, address: Address) -> Option<(&'a [u8], usize)> {
        let mapped = &self.timeline.mappings[mapping];
        let offset = usize::try_from(address.0.wrapping_sub(mapped.range.start.0)).ok()?;
        Some((function_of(self.files, mapped.function)?.code?, offset))
    }
}
