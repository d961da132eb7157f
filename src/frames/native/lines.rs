//! Lines and inlined calls of executables and libraries, from files that this machine has.

use std::sync::Arc;

use jitdump::AddressRange;
use jitdump::debug_info::DebugInfo;

use crate::elf::limited_reads::FileMemory;
use crate::elf::line_info::LineInfo;
use crate::frames::native::contents::{ContentReader, Contents, ElfReads};
use crate::frames::native::files::NativeFiles;
use crate::frames::native::modules::{Module, ModuleIndex, Modules};
use crate::results::diagnostics::Diagnostic;

/// Reads the lines of modules.
#[derive(Debug)]
pub struct NativeLines<'a> {
    modules: &'a Modules,
    sections: Contents<'a, LineReader>,
}

#[derive(Debug)]
struct LineReader;

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

    fn without_file(&self, _: &Module) -> Option<LineInfo> {
        None
    }
}

impl<'a> NativeLines<'a> {
    /// Prepares reading.
    pub fn new(modules: &'a Modules, files: &'a NativeFiles) -> Self {
        Self {
            modules,
            sections: Contents::new(modules, files, LineReader),
        }
    }

    /// Reads the sections of a module; `None` if this machine has none of its build.
    pub fn read(&self, module: ModuleIndex) -> Option<Arc<LineInfo>> {
        let is_file = self.modules.all[module].path.starts_with(b"/");
        let found = is_file.then(|| self.sections.read_once(module)).flatten()?;
        Some(found.debug.unwrap_or(found.file)).filter(|lines| !lines.is_empty)
    }

    /// Returns the lines and inlined calls of functions at linked addresses, which must ascend.
    pub fn functions<'l>(&self, lines: &'l LineInfo, wanted: &[AddressRange]) -> Vec<DebugInfo<'l>> {
        let found = lines.functions(wanted);
        if found.is_none() {
            self.sections.refuse();
        }
        found.unwrap_or_default()
    }

    /// Returns what to report of files whose lines were not read.
    pub fn refused(&self) -> Option<Diagnostic> {
        self.sections.refused("lines")
    }
}
