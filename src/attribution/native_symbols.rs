//! Symbols of executables and libraries, from files that this machine has.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use object::read::ReadCache;

use crate::attribution::modules::{Module, ModuleIndex, Modules};
use crate::bytes::hex_digits;
use crate::elf::build_id_cache;
use crate::elf::limited_reads::LimitedReads;
use crate::elf::symbols::FunctionSymbols;
use crate::files::OpenFile;
use crate::hash::HashMap;
use crate::indexed_table::IndexedTable;
use crate::load::Reach;

/// Maximum number of modules with symbols. Profiles of a whole machine have some 1,000.
const MAX_MODULES: u32 = 4096;

/// Symbols of all modules, each read when it is first asked for.
#[derive(Debug)]
pub struct NativeSymbols<'a> {
    modules: IndexedTable<ModuleIndex, (&'a Module, OnceLock<Option<ModuleSymbols>>)>,
    reach: &'a Reach,
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
    /// Prepares reading the symbols of modules, from files within reach.
    pub fn new(modules: &'a Modules, reach: &'a Reach) -> Self {
        Self {
            modules: modules
                .all
                .iter()
                .map(|module| (module, OnceLock::new()))
                .collect(),
            reach,
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

    /// Reads the symbols of a module: of the file at its path, if that is still the same one, else of the copy in
    /// perf's build-id cache.
    fn read(&self, module: &Module) -> Option<ModuleSymbols> {
        if !module.path.starts_with(b"/") {
            return None;
        }
        let build_id = module.build_id.as_deref();
        let path = Path::new(OsStr::from_bytes(&module.path));
        let at_path = || self.read_file(path, build_id);
        let cached = || {
            let cache = build_id_cache::default_folder()?;
            let path = build_id_cache::object_path(&cache, build_id?)?;
            self.read_file(&path, build_id)
        };
        let file = at_path().or_else(cached)?;
        let debug = match build_id {
            Some(build_id) if !file.is_complete => debug_files(build_id)
                .iter()
                .find_map(|path| self.read_file(path, Some(build_id))),
            _ => None,
        };
        Some(ModuleSymbols { file, debug })
    }

    fn read_file(&self, path: &Path, build_id: Option<&[u8]>) -> Option<Arc<FunctionSymbols>> {
        let opened = self.reach.open_recorded(path).ok()?;
        let known = |files: &HashMap<_, Arc<FunctionSymbols>>| files.get(&opened.file_id()).cloned();
        let lock = || self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known(&lock()) {
            return is_same_build(build_id, &known.build_id).then_some(known);
        }
        let symbols = Arc::new(read_symbols(&opened, build_id)?);
        lock().insert(opened.file_id(), symbols.clone());
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

/// Whether a file with the build ID `found` can be the one that was profiled.
fn is_same_build(recorded: Option<&[u8]>, found: &[u8]) -> bool {
    /// The kernel records at most that many bytes.
    const MAX_RECORDED: usize = 20;
    recorded.is_none_or(|recorded| found.get(..MAX_RECORDED).unwrap_or(found) == recorded)
}

/// Returns the paths of a separate debug file: where distributions install it, and where debuginfod downloads it.
fn debug_files(build_id: &[u8]) -> Vec<PathBuf> {
    let digits = hex_digits(build_id);
    let Some((first, rest)) = digits.split_at_checked(2) else {
        return Vec::new();
    };
    let installed = Path::new("/usr/lib/debug/.build-id")
        .join(first)
        .join(format!("{rest}.debug"));
    let cache = env::var_os("DEBUGINFOD_CACHE_PATH")
        .map(PathBuf::from)
        .or_else(|| {
            let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
            Some(cache?.join("debuginfod_client"))
        });
    let downloaded = cache.map(|cache| cache.join(&digits).join("debuginfo"));
    [installed].into_iter().chain(downloaded).collect()
}
