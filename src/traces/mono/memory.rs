//! Code bytes from a core file: logs of Mono's profiler have none.

use std::cell::Cell;
use std::path::Path;

use jitdump::AddressRange;
use object::read::ReadCache;

use crate::elf::core_file::CoreFile;
use crate::files::OpenFile;
use crate::results::diagnostics::Diagnostic;
use crate::results::diagnostics::issues::CHECK_PATH;

/// A core file. Only requested ranges are read, since core files are large and sparse.
#[derive(Debug)]
pub struct MonoMemory {
    file: OpenFile,
    core: CoreFile,
    /// Number of bytes that may still be read, at first the file's size: functions of damaged logs may overlap.
    room: Cell<u64>,
}

impl MonoMemory {
    /// Opens a core file.
    pub fn open(path: &Path) -> Result<Self, Diagnostic> {
        let file =
            OpenFile::open(path).map_err(|cause| Diagnostic::cannot_read_named(path, &cause, CHECK_PATH))?;
        let core = CoreFile::parse(&ReadCache::new(file.file())).map_err(|error| error.in_file(path))?;
        Ok(Self {
            room: Cell::new(file.size()),
            core,
            file,
        })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the bytes at some addresses, if the file has all of them.
    pub fn bytes(&self, range: AddressRange) -> Option<Vec<u8>> {
        let offset = self.core.file_offset(range)?;
        let room = self.room.get().checked_sub(range.size())?;
        let bytes = self.file.read_part(offset, range.size()).ok()?;
        self.room.set(room);
        (bytes.len() as u64 == range.size()).then_some(bytes)
    }
}
