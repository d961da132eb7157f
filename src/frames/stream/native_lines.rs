//! Lines and inlined calls of executables and libraries, from files that this machine has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use gimli::DwoId;
use jitdump::AddressRange;

use crate::collections::hash::HashMap;
use crate::elf::limited_reads::FileMemory;
use crate::elf::line_info::{Companions, LineInfo, SupplementaryFile};
use crate::files::OpenFile;
use crate::files::open_file::is_trusted;
use crate::frames::native::contents::{ContentReader, ElfReads, ModuleContents};
use crate::frames::native::files::NativeFiles;
use crate::frames::native::modules::{Module, ModuleIndex, Modules};
use crate::frames::stream::lines::{NOBODY, RecordedLines};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::threads::lock;

/// Maximum size of the sections of all files that the file of a module refers to, in bytes.
const MAX_COMPANIONS: u64 = 1 << 29;

/// Maximum number of compile units of a file that are in files of their own. Browsers have some 20,000, most of them not sampled.
const MAX_SPLIT_UNITS: usize = 1 << 14;

/// Reads the lines of modules.
#[derive(Debug)]
pub struct NativeLines<'a> {
    modules: &'a Modules,
    files: &'a NativeFiles,
    contents: ModuleContents<'a, LineReader>,
    /// Number of damaged compile units.
    damaged: AtomicU64,
    /// Files of other users that were not used, by their paths.
    rejected: Mutex<BTreeMap<PathBuf, Diagnostic>>,
}

#[derive(Debug)]
struct LineReader;

/// Lines of a module.
#[derive(Debug)]
pub struct ModuleLines {
    lines: Arc<LineInfo>,
    companions: Companions,
    /// Functions whose lines are wanted.
    wanted: Vec<AddressRange>,
    author: Option<u32>,
}

impl ContentReader for LineReader {
    type Content = LineInfo;

    fn read(
        &self,
        file: &ElfReads<'_, '_>,
        memory: &FileMemory<'_>,
        is_wanted: &dyn Fn(Option<&[u8]>) -> bool,
    ) -> Option<LineInfo> {
        LineInfo::read_if(file, memory, is_wanted)
    }

    fn build_id<'c>(&self, lines: &'c LineInfo) -> &'c [u8] {
        &lines.build_id
    }

    /// They are dropped before those of the next module are read.
    fn memory_size(&self, _: &LineInfo) -> u64 {
        0
    }

    fn is_incomplete(&self, lines: &LineInfo) -> bool {
        lines.is_empty
    }
}

impl<'a> NativeLines<'a> {
    /// Prepares reading.
    pub fn new(modules: &'a Modules, files: &'a NativeFiles) -> Self {
        Self {
            modules,
            files,
            contents: ModuleContents::new(modules, files, LineReader),
            damaged: AtomicU64::new(0),
            rejected: Mutex::default(),
        }
    }

    /// Reads the lines of the functions of a module at the linked addresses `wanted`, which must ascend, also from other
    /// files that its own refers to; `None` if this machine has no lines of its build.
    pub fn read(&self, module: ModuleIndex, wanted: Vec<AddressRange>) -> Option<ModuleLines> {
        let own = &self.modules.all[module];
        let is_file = own.path.starts_with(b"/");
        let content = is_file.then(|| self.contents.read_once(module)).flatten()?;
        let lines = content.debug.unwrap_or(content.file);
        if lines.is_empty {
            return None;
        }
        let mut reader = CompanionReader {
            native: self,
            author: content.author,
            room: MAX_COMPANIONS,
            known: HashMap::default(),
        };
        let companions = Companions {
            supplementary: reader.supplementary(&lines, &content.path),
            split: reader.split_units(&lines, own, &wanted),
        };
        // Nobody is the author of an object: its paths are those of a runtime's file, which may be another user's.
        let author = reader.author.filter(|_| !self.modules.has_jit_code(module));
        Some(ModuleLines {
            lines,
            companions,
            wanted,
            author,
        })
    }

    /// Returns the lines and inlined calls of the functions of a module.
    pub fn functions<'l>(&self, module: &'l ModuleLines) -> Vec<RecordedLines<'l>> {
        let found = module.lines.functions(&module.companions, &module.wanted);
        if found.is_none() {
            self.contents.refuse();
        }
        let (found, damaged) = found.unwrap_or_default();
        self.damaged.fetch_add(damaged, Ordering::Relaxed);
        let functions = found.into_iter().map(|info| RecordedLines {
            info,
            generated: None,
            owner: module.author.unwrap_or(NOBODY),
        });
        functions.collect()
    }

    /// Returns what to report of files whose lines were not read, or not all.
    pub fn diagnostics(&self) -> impl Iterator<Item = Diagnostic> {
        let damaged = self.damaged.load(Ordering::Relaxed);
        let damaged = (damaged > 0).then(|| Diagnostic::new(Issue::NativeLinesDamaged).times(damaged));
        let rejected: Vec<Diagnostic> = lock(&self.rejected).values().cloned().collect();
        let refused = self.contents.refused("lines");
        refused.into_iter().chain(damaged).chain(rejected)
    }
}

/// Reads files that a module's own one refers to.
struct CompanionReader<'l, 'a> {
    native: &'l NativeLines<'a>,
    /// User who wrote all of them, with the module's file, if that is certain.
    author: Option<u32>,
    /// Number of bytes that are left for their sections.
    room: u64,
    /// Those that were read, by device and inode; `None` for those that are not used. Many compile units can name one.
    known: HashMap<(u64, u64), Option<Arc<LineInfo>>>,
}

impl CompanionReader<'_, '_> {
    /// Reads the supplementary file that `lines` refer to. `debug_file` is the path of the file that has these.
    fn supplementary(&mut self, lines: &LineInfo, debug_file: &Path) -> Option<Arc<LineInfo>> {
        let SupplementaryFile { path, build_id } = lines.supplementary.as_ref()?;
        let native = self.native;
        let mut files = native.files.supplementary_files(debug_file, path, build_id);
        files.find_map(|file| self.read(&file, Some(build_id)))
    }

    /// Reads the compile units of the functions at `wanted` that are in other files: in the package of the module (`.dwp`),
    /// or else in one file each (`.dwo`).
    fn split_units(
        &mut self,
        lines: &LineInfo,
        module: &Module,
        wanted: &[AddressRange],
    ) -> Vec<(DwoId, Arc<LineInfo>)> {
        let native = self.native;
        let mut units = lines.split_units(wanted);
        if units.is_empty() {
            return Vec::new();
        }
        if units.len() > MAX_SPLIT_UNITS {
            units.truncate(MAX_SPLIT_UNITS);
            native.contents.refuse();
        }
        let package_file = native.files.package(module);
        let package = package_file.and_then(|file| self.read(&file, None));
        let files = units.into_iter().filter_map(|unit| {
            let file = match &package {
                Some(package) => package.clone(),
                None => self.read(&native.files.split_file(&unit.path)?, None)?,
            };
            Some((unit.id, file))
        });
        files.collect()
    }

    /// Reads a file that the author of those before may read, unless a stranger may have put it there.
    fn read(&mut self, file: &OpenFile, build_id: Option<&[u8]>) -> Option<Arc<LineInfo>> {
        let native = self.native;
        if let Err(rejected) = native.files.check_companion(file.origin(), self.author) {
            lock(&native.rejected)
                .entry(file.path().to_owned())
                .or_insert_with(|| rejected.in_file(file.path()));
            return None;
        }
        let author = native.files.author(file);
        if !self.may_read(file, author) {
            return None;
        }
        let lines = match self.known.get(&file.file_id()) {
            Some(known) => known.clone()?,
            None => {
                let lines = self.read_new(file, build_id);
                self.known.insert(file.file_id(), lines.clone());
                lines?
            }
        };
        let is_own = author == self.author;
        self.author = self.author.filter(|_| is_own || author.is_some_and(is_trusted));
        Some(lines)
    }

    /// Reads a file if there is room for its sections.
    fn read_new(&mut self, file: &OpenFile, build_id: Option<&[u8]>) -> Option<Arc<LineInfo>> {
        let contents = &self.native.contents;
        let lines = contents.read_other_once(file, build_id)?;
        let Some(room) = self.room.checked_sub(lines.size) else {
            contents.refuse();
            return None;
        };
        self.room = room;
        Some(lines)
    }

    /// Whether who wrote the files before may read a file, which `author` wrote. If that is uncertain, two of them are not the
    /// same user.
    fn may_read(&self, file: &OpenFile, author: Option<u32>) -> bool {
        let is_own = author.is_some() && author == self.author;
        is_own || self.author.is_some_and(is_trusted) || file.is_public() || self.native.files.is_copy(file)
    }
}

#[cfg(test)]
mod tests {
    use object::{Architecture, BinaryFormat, Endianness, SectionKind, write};

    use super::*;
    use crate::load::LoadOptions;

    #[test]
    fn a_file_that_many_compile_units_name_is_read_and_counted_once() {
        let mut file = write::Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let id = file.add_section(Vec::new(), b".debug_info.dwo".to_vec(), SectionKind::Debug);
        file.append_section_data(id, &[0; 100], 1);
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a.dwo", "b.dwo"].map(|name| folder.path().join(name));
        std::fs::write(&first, file.write().unwrap()).unwrap();
        std::fs::hard_link(&first, &second).unwrap();
        let (modules, files) = (Modules::default(), NativeFiles::new(&LoadOptions::default()));
        let native = NativeLines::new(&modules, &files);
        let mut reader = CompanionReader {
            native: &native,
            author: Some(0),
            room: 150,
            known: HashMap::default(),
        };
        let mut read = |path| reader.read(&OpenFile::open(path).unwrap(), None).unwrap();
        let lines = read(&first);
        for _ in 0..100 {
            assert!(Arc::ptr_eq(&read(&second), &lines));
        }
        assert_eq!(reader.room, 50);
        assert!(native.diagnostics().next().is_none());
    }

    #[test]
    fn files_of_an_unknown_author_lead_to_public_files_only() {
        let private = tempfile::NamedTempFile::new().unwrap();
        let file = OpenFile::open(private.path()).unwrap();
        let (modules, files) = (Modules::default(), NativeFiles::new(&LoadOptions::default()));
        let lines = NativeLines::new(&modules, &files);
        let me = file.origin().owner;
        let other = me + 1;
        for (before, author, is_read) in [
            (Some(me), None, true),
            (Some(other), Some(other), true),
            (Some(other), Some(me), false),
            (Some(other), None, false),
            (None, Some(me), false),
            (None, None, false),
        ] {
            let reader = CompanionReader {
                native: &lines,
                author: before,
                room: 0,
                known: HashMap::default(),
            };
            assert_eq!(reader.may_read(&file, author), is_read, "{before:?} {author:?}");
        }
    }
}
