//! Unwinding tables of executables and libraries.

use crate::elf::call_frames::{RuleRoom, Rules};
use crate::elf::limited_reads::{FileMemory, MemoryRoom};
use crate::elf::unwind_sections::UnwindSections;
use crate::frames::native::contents::{ContentReader, ElfReads, ModuleContents};
use crate::frames::native::files::{NativeFiles, VDSO, is_same_build};
use crate::frames::native::modules::{Module, ModuleIndex, Modules};
use crate::frames::unwind::registers::Target;
use crate::frames::unwind::vdso;
use crate::results::diagnostics::Diagnostic;

/// Tables of all modules, each read when it is first asked for.
#[derive(Debug)]
pub struct NativeTables<'a> {
    tables: ModuleContents<'a, TableReader>,
    room: &'a RuleRoom,
}

/// What a module says about an address.
#[derive(Clone, Copy, Debug)]
pub enum NativeRules<'r> {
    /// This machine does not have the module.
    NoFile,
    /// It has no table for the address.
    NoRules,
    /// It has none, and the address is in the code by which the module calls functions of others.
    Linkage,
    /// The rules.
    Rules(Rules<'r>),
}

#[derive(Debug)]
struct TableReader {
    target: Target,
    /// Whether the code may be used that the running kernel maps into processes.
    has_vdso: bool,
}

impl ContentReader for TableReader {
    type Content = UnwindSections;

    fn read(
        &self,
        file: &ElfReads<'_, '_>,
        memory: &FileMemory<'_>,
        is_wanted: &dyn Fn(Option<&[u8]>) -> bool,
    ) -> Option<UnwindSections> {
        UnwindSections::read_if(file, memory, self.target.machine(), is_wanted)
    }

    fn build_id<'c>(&self, tables: &'c UnwindSections) -> &'c [u8] {
        &tables.build_id
    }

    fn memory_size(&self, tables: &UnwindSections) -> u64 {
        tables.size()
    }

    fn is_incomplete(&self, _: &UnwindSections) -> bool {
        true
    }

    /// Reads the code that the running kernel maps into processes, if it is that of the recorded one.
    fn without_file(&self, module: &Module) -> Option<UnwindSections> {
        let build_id = module.build_id.as_deref()?;
        if module.path != VDSO || !self.has_vdso {
            return None;
        }
        let bytes = vdso::read()?;
        let is_wanted = |found: Option<&[u8]>| is_same_build(Some(build_id), found.unwrap_or_default());
        let memory = MemoryRoom::default();
        UnwindSections::read_if(&bytes[..], &memory.file(), self.target.machine(), is_wanted)
    }
}

impl<'a> NativeTables<'a> {
    /// Prepares reading the tables of modules.
    pub fn new(modules: &'a Modules, files: &'a NativeFiles, target: Target, room: &'a RuleRoom) -> Self {
        let reader = TableReader {
            target,
            has_vdso: !files.is_confined(),
        };
        Self {
            tables: ModuleContents::new(modules, files, reader),
            room,
        }
    }

    /// Returns what to report of files whose tables were not read.
    pub fn refused(&self) -> Option<Diagnostic> {
        self.tables.refused("unwinding tables")
    }

    /// Returns the rules for an offset in a module's file.
    pub fn at(&self, module: ModuleIndex, file_offset: u64) -> NativeRules<'_> {
        let Some(tables) = self.tables.of(module) else {
            return NativeRules::NoFile;
        };
        let Some(address) = tables.file.segments.address(file_offset) else {
            return NativeRules::NoRules;
        };
        let files = [Some(&tables.file), tables.debug.as_ref()].into_iter().flatten();
        let mut sections = files.flat_map(|file| &file.tables);
        let rules = sections.find_map(|section| section.at(address, self.room));
        match rules {
            Some(rules) => NativeRules::Rules(rules),
            None if tables.file.is_linkage(address) => NativeRules::Linkage,
            None => NativeRules::NoRules,
        }
    }
}
