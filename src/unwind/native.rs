//! Unwinding tables of executables and libraries.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use object::read::ReadCache;

use crate::elf::call_frames::{RuleRoom, Rules};
use crate::elf::limited_reads::LimitedReads;
use crate::elf::unwind_sections::UnwindSections;
use crate::files::OpenFile;
use crate::hash::HashMap;
use crate::indexed_table::IndexedTable;
use crate::native::files::{NativeFiles, VDSO, is_same_build};
use crate::native::modules::{Module, ModuleIndex, Modules};
use crate::native::vdso;
use crate::unwind::registers::Target;

/// Maximum number of modules with tables. Profiles of a whole machine have some 1,000.
const MAX_MODULES: u32 = 4096;

/// Tables of all modules, each read when it is first asked for.
#[derive(Debug)]
pub struct NativeTables<'a> {
    modules: IndexedTable<ModuleIndex, (&'a Module, OnceLock<Option<ModuleTables>>)>,
    files: &'a NativeFiles,
    target: Target,
    room: &'a RuleRoom,
    /// Tables by the device and inode of their file, which several modules may share.
    read: Mutex<HashMap<(u64, u64), Arc<UnwindSections>>>,
}

/// Tables of a module.
#[derive(Debug)]
struct ModuleTables {
    /// The module's own file.
    file: Arc<UnwindSections>,
    /// Its separate debug file.
    debug: Option<Arc<UnwindSections>>,
}

/// What a module says about an address.
#[derive(Clone, Copy, Debug)]
pub enum NativeRules<'r> {
    /// This machine does not have the module.
    NoFile,
    /// It has no table for the address.
    NoRules,
    /// The rules.
    Rules(Rules<'r>),
}

impl<'a> NativeTables<'a> {
    /// Prepares reading the tables of modules.
    pub fn new(modules: &'a Modules, files: &'a NativeFiles, target: Target, room: &'a RuleRoom) -> Self {
        let modules = modules.all.iter().map(|module| (module, OnceLock::new()));
        Self {
            modules: modules.collect(),
            files,
            target,
            room,
            read: Mutex::default(),
        }
    }

    /// Returns the rules for an offset in a module's file.
    pub fn at(&self, module: ModuleIndex, file_offset: u64) -> NativeRules<'_> {
        if module.0 >= MAX_MODULES {
            return NativeRules::NoFile;
        }
        let (module, tables) = &self.modules[module];
        let Some(tables) = tables.get_or_init(|| self.read(module)) else {
            return NativeRules::NoFile;
        };
        let Some(address) = tables.file.address(file_offset) else {
            return NativeRules::NoRules;
        };
        let files = [Some(&tables.file), tables.debug.as_ref()].into_iter().flatten();
        let mut sections = files.flat_map(|file| &file.tables);
        let rules = sections.find_map(|section| section.at(address, self.room));
        rules.map_or(NativeRules::NoRules, NativeRules::Rules)
    }

    fn read(&self, module: &Module) -> Option<ModuleTables> {
        let build_id = module.build_id.as_deref();
        let mut found = self.files.of(module);
        let file = found.find_map(|file| self.read_file(&file, build_id));
        let file = file.or_else(|| self.read_vdso(module))?;
        let debug = build_id.and_then(|build_id| {
            let mut found = self.files.debug_files(build_id);
            found.find_map(|file| self.read_file(&file, Some(build_id)))
        });
        Some(ModuleTables { file, debug })
    }

    /// Reads the code that the running kernel maps into processes, if it is that of the recorded one.
    fn read_vdso(&self, module: &Module) -> Option<Arc<UnwindSections>> {
        let build_id = module.build_id.as_deref()?;
        if module.path != VDSO || self.files.is_confined() {
            return None;
        }
        let bytes = vdso::read()?;
        let is_wanted = |found: Option<&[u8]>| is_same_build(Some(build_id), found.unwrap_or_default());
        UnwindSections::read_if(&bytes[..], self.target.machine(), is_wanted).map(Arc::new)
    }

    fn read_file(&self, file: &OpenFile, build_id: Option<&[u8]>) -> Option<Arc<UnwindSections>> {
        /// Number of bytes of one file. The tables of the largest browsers are smaller; damaged files may claim more.
        const MAX_BYTES: u64 = 1 << 29;
        let lock = || self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&file.file_id()).cloned();
        if let Some(known) = known {
            return is_same_build(build_id, &known.build_id).then_some(known);
        }
        let cache = ReadCache::new(file.file());
        let reads = LimitedReads::new(&cache, MAX_BYTES);
        let is_wanted = |found: Option<&[u8]>| is_same_build(build_id, found.unwrap_or_default());
        let tables = Arc::new(UnwindSections::read_if(&reads, self.target.machine(), is_wanted)?);
        lock().insert(file.file_id(), tables.clone());
        Some(tables)
    }
}
