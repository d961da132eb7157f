//! What is read of the files of modules: symbols, unwinding tables.

use std::fmt::Debug;
use std::fs::File;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use object::read::ReadCache;

use crate::collections::hash::HashMap;
use crate::collections::indexed_table::IndexedTable;
use crate::elf::limited_reads::LimitedReads;
use crate::files::OpenFile;
use crate::native::files::{NativeFiles, is_same_build};
use crate::native::modules::{Module, ModuleIndex, Modules};

/// Maximum number of modules whose files are read. Profiles of a whole machine have some 1,000.
const MAX_MODULES: u32 = 4096;

/// Number of bytes that are read of one file. What the largest browsers have is smaller; damaged files may claim more.
const MAX_BYTES: u64 = 1 << 29;

/// An ELF file, of which a limited number of bytes is read.
pub type ElfReads<'c, 'f> = LimitedReads<'c, &'f File>;

/// Reads one kind of content.
pub trait ContentReader: Debug {
    /// The content.
    type Content: Debug;

    /// Reads the content of a file; `None` if it has none, or if `is_wanted` is false for its build ID.
    fn read(
        &self,
        file: &ElfReads<'_, '_>,
        is_wanted: &dyn Fn(Option<&[u8]>) -> bool,
    ) -> Option<Self::Content>;

    /// Returns the build ID of the file with a content; empty if it has none.
    fn build_id<'c>(&self, content: &'c Self::Content) -> &'c [u8];

    /// Whether a separate debug file may have more.
    fn is_incomplete(&self, content: &Self::Content) -> bool;

    /// Returns the content of a module that is in no file.
    fn without_file(&self, module: &Module) -> Option<Self::Content>;
}

/// One kind of content of all modules, read when it is first asked for.
#[derive(Debug)]
pub struct Contents<'a, R: ContentReader> {
    reader: R,
    modules: &'a Modules,
    found: IndexedTable<ModuleIndex, OnceLock<Option<ModuleContent<R::Content>>>>,
    files: &'a NativeFiles,
    /// Contents by the device and inode of their file, which several modules may share.
    read: Mutex<FileContents<R::Content>>,
}

type FileContents<C> = HashMap<(u64, u64), Arc<C>>;

/// What the files of a module have.
#[derive(Debug)]
pub struct ModuleContent<C> {
    /// The module's own file.
    pub file: Arc<C>,
    /// Its separate debug file, if that has more.
    pub debug: Option<Arc<C>>,
}

impl<'a, R: ContentReader> Contents<'a, R> {
    /// Prepares reading.
    pub fn new(modules: &'a Modules, files: &'a NativeFiles, reader: R) -> Self {
        Self {
            reader,
            modules,
            found: modules.all.map(|_| OnceLock::new()),
            files,
            read: Mutex::default(),
        }
    }

    /// Returns what the files of a module have; `None` if this machine has none of its build.
    pub fn of(&self, module: ModuleIndex) -> Option<&ModuleContent<R::Content>> {
        if module.0 >= MAX_MODULES {
            return None;
        }
        let find = || self.find(&self.modules.all[module]);
        self.found[module].get_or_init(find).as_ref()
    }

    fn find(&self, module: &Module) -> Option<ModuleContent<R::Content>> {
        let build_id = module.build_id.as_deref();
        let mut found = self.files.of(module);
        let file = found.find_map(|file| self.read_file(&file, build_id));
        let file = file.or_else(|| self.reader.without_file(module).map(Arc::new))?;
        let debug = build_id
            .filter(|_| self.reader.is_incomplete(&file))
            .and_then(|build_id| {
                let mut found = self.files.debug_files(build_id);
                found.find_map(|file| self.read_file(&file, Some(build_id)))
            });
        Some(ModuleContent { file, debug })
    }

    fn read_file(&self, file: &OpenFile, build_id: Option<&[u8]>) -> Option<Arc<R::Content>> {
        let lock = || self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&file.file_id()).cloned();
        if let Some(known) = known {
            return is_same_build(build_id, self.reader.build_id(&known)).then_some(known);
        }
        let cache = ReadCache::new(file.file());
        let reads = LimitedReads::new(&cache, MAX_BYTES);
        let is_wanted = |found: Option<&[u8]>| is_same_build(build_id, found.unwrap_or_default());
        let content = Arc::new(self.reader.read(&reads, &is_wanted)?);
        lock().insert(file.file_id(), content.clone());
        Some(content)
    }
}
