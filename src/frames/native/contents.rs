//! What is read of the files of modules: symbols, unwinding tables.

use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use object::read::ReadCache;

use crate::collections::hash::HashMap;
use crate::collections::indexed_table::IndexedTable;
use crate::elf::limited_reads::{FileMemory, LimitedReads};
use crate::files::OpenFile;
use crate::frames::native::files::{NativeFiles, is_same_build};
use crate::frames::native::modules::{Module, ModuleIndex, Modules};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::threads::lock;

/// Maximum number of modules whose files are read. Profiles of a whole machine have some 1,000.
const MAX_MODULES: u32 = 4096;

/// Maximum bytes of holes in a file. Linkers leave at most some between segments, and reading a hole takes time and memory.
const MAX_HOLES: u64 = 16 << 20;

/// Maximum number of times that a file is read. With links, any number of modules can be one file, of which
/// [`ModuleContents::read_once`] keeps nothing.
const MAX_READS: u32 = 64;

/// An ELF file that is read as far as there is memory.
pub type ElfReads<'c, 'f> = LimitedReads<'c, &'f File>;

/// Reads one kind of content.
pub trait ContentReader: Debug {
    /// The content.
    type Content: Debug;

    /// Reads the content of a file; `None` if it has none, if `is_wanted` is false for its build ID, or if there is no memory
    /// for it.
    fn read(
        &self,
        file: &ElfReads<'_, '_>,
        memory: &FileMemory<'_>,
        is_wanted: &dyn Fn(Option<&[u8]>) -> bool,
    ) -> Option<Self::Content>;

    /// Returns the build ID of the file with a content; empty if it has none.
    fn build_id<'c>(&self, content: &'c Self::Content) -> &'c [u8];

    /// Returns the size of a content in memory in bytes.
    fn memory_size(&self, content: &Self::Content) -> u64;

    /// Whether a separate debug file may have more.
    fn is_incomplete(&self, content: &Self::Content) -> bool;

    /// Returns the content of a module that is in no file.
    fn without_file(&self, _: &Module) -> Option<Self::Content> {
        None
    }
}

/// One kind of content of all modules, read when it is first asked for.
#[derive(Debug)]
pub struct ModuleContents<'a, R: ContentReader> {
    reader: R,
    modules: &'a Modules,
    found: IndexedTable<ModuleIndex, OnceLock<Option<ModuleContent<R::Content>>>>,
    files: &'a NativeFiles,
    /// Contents that are kept, by their file, which several modules may share.
    read: Mutex<HashMap<FileId, Arc<R::Content>>>,
    /// How often each file was read.
    reads: Mutex<HashMap<FileId, FileReads>>,
    /// Number of files that are sparse, too many, or need too much memory.
    refused: AtomicU64,
}

/// Device and inode.
type FileId = (u64, u64);

/// What became of the attempts to read a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FileReads {
    /// It was read so often.
    Done(u32),
    /// It is not read any more.
    Refused,
}

/// What the files of a module have.
#[derive(Debug)]
pub struct ModuleContent<C> {
    /// The module's own file.
    pub file: Arc<C>,
    /// The same, unless it is in no file.
    id: Option<FileId>,
    /// Its separate debug file, if that has more.
    pub debug: Option<Arc<C>>,
    /// Path of the debug file, or else of the module's own file.
    pub path: PathBuf,
    /// User who wrote that file, if that is certain.
    pub author: Option<u32>,
}

/// What one file of a module has, as in [`ModuleContent`].
struct FileContent<C> {
    content: Arc<C>,
    id: Option<FileId>,
    author: Option<u32>,
    path: PathBuf,
}

impl<'a, R: ContentReader> ModuleContents<'a, R> {
    /// Prepares reading.
    pub fn new(modules: &'a Modules, files: &'a NativeFiles, reader: R) -> Self {
        Self {
            reader,
            modules,
            found: modules.all.map(|_| OnceLock::new()),
            files,
            read: Mutex::default(),
            reads: Mutex::default(),
            refused: AtomicU64::new(0),
        }
    }

    /// Returns what the files of a module have; `None` if this machine has none of its build.
    pub fn of(&self, module: ModuleIndex) -> Option<&ModuleContent<R::Content>> {
        self.found[module]
            .get_or_init(|| self.read_module(module))
            .as_ref()
    }

    /// Reads the same, and keeps nothing of it.
    pub fn read_once(&self, module: ModuleIndex) -> Option<ModuleContent<R::Content>> {
        let found = self.read_module(module);
        lock(&self.read).clear();
        found
    }

    /// Reads another file with a build ID, if it has to have one, and keeps nothing of it.
    pub fn read_other_once(&self, file: &OpenFile, build_id: Option<&[u8]>) -> Option<Arc<R::Content>> {
        let found = self.read_file(file, build_id);
        lock(&self.read).clear();
        found
    }

    /// Reads bytes of a module's own file, the one that has its content; `None` if it is gone. The caller limits `size`.
    pub fn bytes(&self, module: ModuleIndex, offset: u64, size: usize) -> Option<Vec<u8>> {
        let id = self.of(module)?.id?;
        let mut found = self.files.of(&self.modules.all[module]);
        let file = found.find(|file| file.file_id() == id)?;
        let mut bytes = vec![0; size];
        file.file().read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// Counts a file that was read and is not used.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns what to report of files that were not used; `content` says what of them.
    pub fn refused(&self, content: &str) -> Option<Diagnostic> {
        let refused = self.refused.load(Ordering::Relaxed);
        let diagnostic = || Diagnostic::new(Issue::ModulesTooLarge).times(refused);
        (refused > 0).then(|| diagnostic().with("content", content))
    }

    /// Reads a module's own file, and its debug file if that has more; `None` if there is none, or no room for it.
    fn read_module(&self, module: ModuleIndex) -> Option<ModuleContent<R::Content>> {
        if module.0 >= MAX_MODULES {
            self.refuse();
            return None;
        }
        let module = &self.modules.all[module];
        let build_id = module.build_id.as_deref();
        let read = |file: OpenFile, build_id| {
            Some(FileContent {
                content: self.read_file(&file, build_id)?,
                id: Some(file.file_id()),
                author: self.files.author(&file),
                path: file.path().to_owned(),
            })
        };
        let without_file = || {
            Some(FileContent {
                content: Arc::new(self.reader.without_file(module)?),
                id: None,
                author: None,
                path: PathBuf::new(),
            })
        };
        let in_file = self.files.of(module).find_map(|file| read(file, build_id));
        let own = in_file.or_else(without_file)?;
        // Pipes, compressed and unfinished profiles have no build IDs; the file at the path has its own.
        let own_build_id = self.reader.build_id(&own.content);
        let debug = build_id
            .or((!own_build_id.is_empty()).then_some(own_build_id))
            .filter(|_| self.reader.is_incomplete(&own.content))
            .and_then(|build_id| {
                let mut files = self.files.debug_files(build_id);
                files.find_map(|file| read(file, Some(build_id)))
            });
        let last = debug.as_ref().unwrap_or(&own);
        Some(ModuleContent {
            path: last.path.clone(),
            author: last.author,
            file: own.content,
            id: own.id,
            debug: debug.map(|debug| debug.content),
        })
    }

    /// Returns what a file has, from memory if it was kept there; `None` if it is of another build, or refused.
    fn read_file(&self, file: &OpenFile, build_id: Option<&[u8]>) -> Option<Arc<R::Content>> {
        let id = file.file_id();
        let known = lock(&self.read).get(&id).cloned();
        if let Some(known) = known {
            return is_same_build(build_id, self.reader.build_id(&known)).then_some(known);
        }
        let reads = lock(&self.reads).get(&id).copied();
        let reads = match reads.unwrap_or(FileReads::Done(0)) {
            FileReads::Done(reads) => reads,
            FileReads::Refused => return None,
        };
        let memory = self.files.memory.file();
        let is_refused = reads >= MAX_READS || file.refuse_holes(MAX_HOLES).is_err();
        let read = || {
            let cache = ReadCache::new(file.file());
            let is_wanted = |found: Option<&[u8]>| is_same_build(build_id, found.unwrap_or_default());
            let file = LimitedReads::new(&cache, &memory);
            self.reader.read(&file, &memory, &is_wanted)
        };
        let content = (!is_refused).then(read).flatten();
        if is_refused || memory.is_exceeded() {
            let before = lock(&self.reads).insert(id, FileReads::Refused);
            // Another thread may have refused it meanwhile.
            if before != Some(FileReads::Refused) {
                self.refuse();
            }
            return None;
        }
        let content = Arc::new(content?);
        memory.keep(self.reader.memory_size(&content));
        lock(&self.reads).insert(id, FileReads::Done(reads.saturating_add(1)));
        lock(&self.read).insert(id, content.clone());
        Some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LoadOptions;

    /// A content of every file and module.
    #[derive(Debug)]
    struct Anything;

    impl ContentReader for Anything {
        type Content = ();

        fn read(
            &self,
            _: &ElfReads<'_, '_>,
            _: &FileMemory<'_>,
            _: &dyn Fn(Option<&[u8]>) -> bool,
        ) -> Option<()> {
            Some(())
        }

        fn build_id<'c>(&self, _: &'c ()) -> &'c [u8] {
            &[]
        }

        fn memory_size(&self, _: &()) -> u64 {
            0
        }

        fn is_incomplete(&self, _: &()) -> bool {
            false
        }

        fn without_file(&self, _: &Module) -> Option<()> {
            Some(())
        }
    }

    #[test]
    fn modules_after_the_first_4096_have_no_content_and_are_counted() {
        let module = |at: u32| Module {
            path: format!("[{at}]").into_bytes(),
            build_id: None,
        };
        let mut modules = Modules::default();
        modules.all.extend((0..4097).map(module));
        let files = NativeFiles::new(&LoadOptions::default());
        for (at, has_content) in [(4095, true), (4096, false)] {
            let contents = ModuleContents::new(&modules, &files, Anything);
            for _ in 0..2 {
                assert_eq!(contents.of(ModuleIndex(at)).is_some(), has_content, "{at}");
            }
            assert_eq!(contents.refused("symbols").is_none(), has_content, "{at}");
            assert_eq!(contents.read_once(ModuleIndex(at)).is_some(), has_content, "{at}");
        }
    }

    /// The file may be a large one, and need not be parsed again.
    #[test]
    fn bytes_are_those_of_the_file_that_has_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["a.so", "b.so"].map(|name| folder.path().join(name));
        std::fs::write(&path, "0123456789").unwrap();
        std::fs::write(&other, "abcdefghij").unwrap();
        let mut modules = Modules::default();
        for path in [path.to_str().unwrap(), "[vdso]"] {
            modules.all.push(Module {
                path: path.into(),
                build_id: None,
            });
        }
        let files = NativeFiles::new(&LoadOptions::default());
        let contents = ModuleContents::new(&modules, &files, Anything);
        let bytes = |offset, size| contents.bytes(ModuleIndex(0), offset, size);
        assert_eq!(bytes(3, 4), Some(b"3456".to_vec()));
        assert_eq!(bytes(7, 4), None);
        assert_eq!(contents.bytes(ModuleIndex(1), 0, 1), None);
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(bytes(3, 4), None);
    }

    #[test]
    fn files_are_read_with_holes_of_up_to_16_mebibytes() {
        let folder = tempfile::tempdir().unwrap();
        let modules = Modules::default();
        let files = NativeFiles::new(&LoadOptions::default());
        let contents = ModuleContents::new(&modules, &files, Anything);
        for (size, is_read) in [(16 << 20, true), ((16 << 20) + 1, false)] {
            let path = folder.path().join(format!("{size}.so"));
            File::create(&path).unwrap().set_len(size).unwrap();
            let file = OpenFile::open(&path).unwrap();
            // A file that is refused is counted once, however many modules it is.
            for _ in 0..2 {
                assert_eq!(contents.read_file(&file, None).is_some(), is_read, "{size}");
            }
            let refused = contents.refused("symbols").map(|refused| refused.count);
            assert_eq!(refused, (!is_read).then_some(1), "{size}");
        }
    }

    #[test]
    fn a_file_of_which_nothing_is_kept_is_read_for_64_modules() {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..66).map(|at| folder.path().join(format!("{at}.so"))).collect();
        File::create(&paths[0]).unwrap();
        let mut modules = Modules::default();
        for path in &paths {
            if *path != paths[0] {
                std::fs::hard_link(&paths[0], path).unwrap();
            }
            modules.all.push(Module {
                path: path.to_str().unwrap().into(),
                build_id: None,
            });
        }
        let files = NativeFiles::new(&LoadOptions::default());
        let contents = ModuleContents::new(&modules, &files, Anything);
        for at in 0..66 {
            contents.read_once(ModuleIndex(at));
            let refused = contents.refused("lines").map(|refused| refused.count);
            assert_eq!(refused, (at >= 64).then_some(1), "{at}");
        }
        // Contents that are kept are read once.
        let contents = ModuleContents::new(&modules, &files, Anything);
        let has_content = |at| contents.of(ModuleIndex(at)).is_some();
        assert!((0..66).all(has_content) && contents.refused("symbols").is_none());
    }
}
