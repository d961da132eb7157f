//! Bytes on their way, kept in a file that has no name.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::files::MappedFile;

/// A temporary file. It goes with the program, whatever becomes of it.
#[derive(Debug)]
pub struct Spool {
    file: BufWriter<File>,
}

impl Spool {
    /// Where temporary files lie: in `TMPDIR`, else in `/var/tmp`, which unlike `/tmp` is not in memory.
    pub fn folder() -> PathBuf {
        match std::env::var_os("TMPDIR") {
            Some(folder) if !folder.is_empty() => folder.into(),
            _ => PathBuf::from("/var/tmp"),
        }
    }

    /// Starts an empty file.
    pub fn create() -> io::Result<Self> {
        let file = tempfile::tempfile_in(Self::folder())?;
        Ok(Self {
            file: BufWriter::with_capacity(1 << 20, file),
        })
    }

    /// Maps what was written. `path` is what to call it.
    pub fn map(self, path: &Path) -> io::Result<MappedFile> {
        MappedFile::of_own(&self.into_file()?, path)
    }

    /// The file, with all that was written.
    pub(super) fn into_file(self) -> io::Result<File> {
        self.file.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
