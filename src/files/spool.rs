//! Bytes on their way, kept in a file that has no name.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::files::MappedFile;

/// How many bytes of a stream are looked at before the rest is read: far more than anything is recognised by.
const START: u64 = 64 << 10;

/// How many bytes are copied at a time.
const PIECE: u64 = 1 << 20;

/// Which side of a copy failed.
#[derive(Debug)]
pub enum CopyError {
    /// What is read.
    Read(io::Error),
    /// What is written.
    Write(io::Error),
}

impl From<CopyError> for io::Error {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Read(error) | CopyError::Write(error) => error,
        }
    }
}

/// Copies all of a stream if its first bytes are `wanted`, and else only these: it may be endless.
pub fn copy_if(
    mut from: impl Read,
    to: &mut impl Write,
    wanted: impl FnOnce(&[u8]) -> bool,
) -> Result<(), CopyError> {
    let mut piece = Vec::new();
    let mut read = |piece: &mut Vec<u8>, size| {
        piece.clear();
        from.by_ref()
            .take(size)
            .read_to_end(piece)
            .map_err(CopyError::Read)
    };
    read(&mut piece, START)?;
    to.write_all(&piece).map_err(CopyError::Write)?;
    if !wanted(&piece) {
        return Ok(());
    }
    while read(&mut piece, PIECE)? > 0 {
        to.write_all(&piece).map_err(CopyError::Write)?;
    }
    Ok(())
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_wanted_is_not_read_to_its_end() {
        let mut copied = Vec::new();
        copy_if(io::repeat(0), &mut copied, |start| start.contains(&1)).unwrap();
        assert_eq!(copied.len() as u64, START);
        for size in [0, 1, START, START + 1, 3 * START] {
            let mut copied = Vec::new();
            let stream = io::repeat(1).take(size);
            copy_if(stream, &mut copied, |start| start.iter().all(|&byte| byte == 1)).unwrap();
            assert_eq!(copied, vec![1; size as usize]);
        }
    }
}
