//! Buffers streams of bytes in temporary files without a name.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;

use crate::results::diagnostics::{Diagnostic, Issue};

/// Bytes at the start of a stream that are read to recognize it: far more than any format needs.
const START_SIZE: u64 = 64 << 10;

/// Bytes that are copied at a time.
const COPY_SIZE: u64 = 1 << 20;

/// Which side of a copy failed.
#[derive(Debug)]
pub enum CopyError {
    /// Reading failed.
    Read(io::Error),
    /// Writing failed.
    Write(io::Error),
}

impl From<CopyError> for io::Error {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Read(error) | CopyError::Write(error) => error,
        }
    }
}

/// Copies a whole stream if `accepts` returns true for its first bytes, otherwise only these: the stream may be
/// endless.
pub fn copy_if(
    mut from: impl Read,
    to: &mut impl Write,
    accepts: impl FnOnce(&[u8]) -> bool,
) -> Result<(), CopyError> {
    let mut buffer = Vec::new();
    let mut read = |buffer: &mut Vec<u8>, size| {
        buffer.clear();
        from.by_ref()
            .take(size)
            .read_to_end(buffer)
            .map_err(CopyError::Read)
    };
    read(&mut buffer, START_SIZE)?;
    to.write_all(&buffer).map_err(CopyError::Write)?;
    if !accepts(&buffer) {
        return Ok(());
    }
    while read(&mut buffer, COPY_SIZE)? > 0 {
        to.write_all(&buffer).map_err(CopyError::Write)?;
    }
    Ok(())
}

/// A temporary file. It is gone when the program ends, however that happens.
#[derive(Debug)]
pub struct TempFile {
    file: BufWriter<File>,
}

/// Returns the diagnostic for a failed temporary file.
pub fn temp_file_error(cause: io::Error) -> Diagnostic {
    let folder = TempFile::folder();
    Diagnostic::new(Issue::TemporaryFiles)
        .in_file(&folder)
        .with("cause", cause)
}

impl TempFile {
    /// Returns the directory for temporary files: `TMPDIR`, else `/var/tmp`, which unlike `/tmp` is not in
    /// memory.
    pub fn folder() -> PathBuf {
        match std::env::var_os("TMPDIR") {
            Some(folder) if !folder.is_empty() => folder.into(),
            _ => PathBuf::from("/var/tmp"),
        }
    }

    /// Creates an empty file.
    pub fn create() -> io::Result<Self> {
        let file = tempfile::tempfile_in(Self::folder())?;
        Ok(Self {
            file: BufWriter::with_capacity(1 << 20, file),
        })
    }

    /// Returns the file after writing buffered bytes.
    pub(super) fn into_file(self) -> io::Result<File> {
        self.file.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl Write for TempFile {
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
    fn unaccepted_streams_are_not_read_to_their_end() {
        let mut copied = Vec::new();
        copy_if(io::repeat(0), &mut copied, |start| start.contains(&1)).unwrap();
        assert_eq!(copied.len() as u64, START_SIZE);
        for size in [0, 1, START_SIZE, START_SIZE + 1, 3 * START_SIZE] {
            let mut copied = Vec::new();
            let stream = io::repeat(1).take(size);
            copy_if(stream, &mut copied, |start| start.iter().all(|&byte| byte == 1)).unwrap();
            assert_eq!(copied, vec![1; size as usize]);
        }
    }
}
