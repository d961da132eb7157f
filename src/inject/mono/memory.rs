//! The code of functions that a core file has, which logs of Mono's profiler have not.

use std::cell::Cell;
use std::path::Path;

use object::read::ReadCache;

use crate::elf::core_file::CoreFile;
use crate::files::OpenFile;
use crate::inject::Error;
use crate::inject::input::read_error;
use crate::units::AddressRange;

/// A core file, of which only what is asked for is read: most are larger than all else, and full of holes.
#[derive(Debug)]
pub struct Memory {
    file: OpenFile,
    core: CoreFile,
    /// How many more bytes are read: as many as the file has. Functions of damaged logs may overlap.
    room: Cell<u64>,
}

impl Memory {
    /// Opens a core file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenFile::open(path).map_err(|cause| read_error(path, cause))?;
        let core = CoreFile::parse(&ReadCache::new(file.file())).map_err(|cause| Error::Core {
            path: path.to_owned(),
            cause,
        })?;
        Ok(Self {
            room: Cell::new(file.len()),
            core,
            file,
        })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// What was at some addresses, if the file has all of it.
    pub fn bytes(&self, range: AddressRange) -> Option<Vec<u8>> {
        let offset = self.core.offset(range)?;
        let room = self.room.get().checked_sub(range.size())?;
        let bytes = self.file.read_part(offset, range.size()).ok()?;
        self.room.set(room);
        (bytes.len() as u64 == range.size()).then_some(bytes)
    }
}
