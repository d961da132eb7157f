//! Lines and inlined calls of executables and libraries, from files that this machine has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jitdump::AddressRange;

use crate::elf::limited_reads::FileMemory;
use crate::elf::line_info::LineInfo;
use crate::frames::native::contents::{ContentReader, ElfReads, ModuleContents};
use crate::frames::native::files::NativeFiles;
use crate::frames::native::modules::{ModuleIndex, Modules};
use crate::frames::stream::lines::{NOBODY, RecordedLines};
use crate::results::diagnostics::{Diagnostic, Issue};

/// Reads the lines of modules.
#[derive(Debug)]
pub struct NativeLines<'a> {
    modules: &'a Modules,
    sections: ModuleContents<'a, LineReader>,
    /// Number of damaged compile units.
    damaged: AtomicU64,
}

#[derive(Debug)]
struct LineReader;

/// Lines of a module.
#[derive(Debug)]
pub struct ModuleLines {
    lines: Arc<LineInfo>,
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

    /// They are dropped before the next file is read.
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
            sections: ModuleContents::new(modules, files, LineReader),
            damaged: AtomicU64::new(0),
        }
    }

    /// Reads the sections of a module; `None` if this machine has none of its build.
    pub fn read(&self, module: ModuleIndex) -> Option<ModuleLines> {
        let is_file = self.modules.all[module].path.starts_with(b"/");
        let found = is_file.then(|| self.sections.read_once(module)).flatten()?;
        let lines = Some(found.debug.unwrap_or(found.file)).filter(|lines| !lines.is_empty)?;
        // Objects have the paths of a runtime's file, which may be another user's.
        let is_object = self.modules.has_jit_code(module);
        Some(ModuleLines {
            lines,
            author: found.author.filter(|_| !is_object),
        })
    }

    /// Returns the lines and inlined calls of functions at linked addresses, which must ascend.
    pub fn functions<'l>(&self, module: &'l ModuleLines, wanted: &[AddressRange]) -> Vec<RecordedLines<'l>> {
        let found = module.lines.functions(wanted);
        if found.is_none() {
            self.sections.refuse();
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
        self.sections.refused("lines").into_iter().chain(damaged)
    }
}
