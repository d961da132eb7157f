//! Symbols of executables and libraries, from files that this machine has.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use object::read::ReadCache;

use crate::elf::limited_reads::LimitedReads;
use crate::elf::symbols::FunctionSymbols;
use crate::files::OpenFile;
use crate::hash::HashMap;
use crate::indexed_table::IndexedTable;
use crate::native::files::{NativeFiles, is_same_build};
use crate::native::modules::{Module, ModuleIndex, Modules};

/// Maximum number of modules with symbols. Profiles of a whole machine have some 1,000.
const MAX_MODULES: u32 = 4096;

/// Symbols of all modules, each read when it is first asked for.
#[derive(Debug)]
pub struct NativeSymbols<'a> {
    modules: IndexedTable<ModuleIndex, (&'a Module, OnceLock<Option<ModuleSymbols>>)>,
    found: &'a NativeFiles,
    /// Symbols by the device and inode of their file, which several modules may share.
    files: Mutex<HashMap<(u64, u64), Arc<FunctionSymbols>>>,
}

/// Symbols of a module.
#[derive(Debug)]
struct ModuleSymbols {
    /// The module's own file.
    file: Arc<FunctionSymbols>,
    /// Its separate debug file, if only that has all symbols.
    debug: Option<Arc<FunctionSymbols>>,
}

impl ModuleSymbols {
    fn best(&self) -> &FunctionSymbols {
        self.debug.as_ref().unwrap_or(&self.file)
    }
}

impl<'a> NativeSymbols<'a> {
    /// Prepares reading the symbols of modules.
    pub fn new(modules: &'a Modules, found: &'a NativeFiles) -> Self {
        Self {
            modules: modules
                .all
                .iter()
                .map(|module| (module, OnceLock::new()))
                .collect(),
            found,
            files: Mutex::default(),
        }
    }

    /// Returns the index of the symbol at an offset in a module's file.
    pub fn at(&self, module: ModuleIndex, file_offset: u64) -> Option<u32> {
        let symbols = self.of(module)?;
        symbols.best().at(symbols.file.address(file_offset)?)
    }

    /// Returns the name and the size in bytes of a symbol.
    pub fn symbol(&self, module: ModuleIndex, symbol: u32) -> Option<(String, u64)> {
        let symbols = self.of(module)?.best();
        Some((symbols.name(symbol)?.into_owned(), symbols.size(symbol)?))
    }

    fn of(&self, module: ModuleIndex) -> Option<&ModuleSymbols> {
        if module.0 >= MAX_MODULES {
            return None;
        }
        let (module, symbols) = &self.modules[module];
        symbols.get_or_init(|| self.read(module)).as_ref()
    }

    /// Reads the symbols of a module.
    fn read(&self, module: &Module) -> Option<ModuleSymbols> {
        if !module.path.starts_with(b"/") {
            return None;
        }
        let build_id = module.build_id.as_deref();
        let mut found = self.found.of(module);
        let file = found.find_map(|file| self.read_file(&file, build_id))?;
        let debug = match build_id {
            Some(build_id) if !file.is_complete => {
                let mut found = self.found.debug_files(build_id);
                found.find_map(|file| self.read_file(&file, Some(build_id)))
            }
            _ => None,
        };
        Some(ModuleSymbols { file, debug })
    }

    fn read_file(&self, file: &OpenFile, build_id: Option<&[u8]>) -> Option<Arc<FunctionSymbols>> {
        let known = |files: &HashMap<_, Arc<FunctionSymbols>>| files.get(&file.file_id()).cloned();
        let lock = || self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known(&lock()) {
            return is_same_build(build_id, &known.build_id).then_some(known);
        }
        let symbols = Arc::new(read_symbols(file, build_id)?);
        lock().insert(file.file_id(), symbols.clone());
        Some(symbols)
    }
}

/// Reads the symbols of a file if it is the expected build.
fn read_symbols(file: &OpenFile, build_id: Option<&[u8]>) -> Option<FunctionSymbols> {
    /// Number of bytes of one file. The symbols of the largest browsers are smaller; damaged files may claim more.
    const MAX_BYTES: u64 = 1 << 29;
    let cache = ReadCache::new(file.file());
    let reads = LimitedReads::new(&cache, MAX_BYTES);
    FunctionSymbols::read_if(&reads, |found| is_same_build(build_id, found.unwrap_or_default()))
}
