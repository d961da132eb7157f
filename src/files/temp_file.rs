//! Buffers streams of bytes in temporary files without a name.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;

use rustix::pipe::SpliceFlags;

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
    let mut piece = Vec::new();
    copy_piece(&mut from, START_SIZE, to, &mut piece)?;
    if accepts(&piece) {
        copy_rest(from, to, piece)
    } else {
        Ok(())
    }
}

/// Copies the next bytes of a stream, which are then in `piece`.
fn copy_piece(from: impl Read, size: u64, to: &mut impl Write, piece: &mut Vec<u8>) -> Result<(), CopyError> {
    piece.clear();
    from.take(size).read_to_end(piece).map_err(CopyError::Read)?;
    to.write_all(piece).map_err(CopyError::Write)
}

/// Copies the rest of a stream. `piece` is memory to use.
fn copy_rest(mut from: impl Read, to: &mut impl Write, mut piece: Vec<u8>) -> Result<(), CopyError> {
    loop {
        copy_piece(&mut from, COPY_SIZE, to, &mut piece)?;
        if piece.is_empty() {
            return Ok(());
        }
    }
}

/// Copies the rest of a pipe within the kernel, which takes half the time. Returns whether the end was reached: the kernel
/// cannot do this with all streams, and errors are left to whoever copies the rest.
fn splice_rest(from: &File, to: &File) -> bool {
    loop {
        match rustix::pipe::splice(from, None, to, None, COPY_SIZE as usize, SpliceFlags::empty()) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
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

    /// Appends a whole stream if `accepts` returns true for its first bytes, otherwise only these, as [`copy_if`] does.
    pub fn append_if(&mut self, from: &File, accepts: impl FnOnce(&[u8]) -> bool) -> Result<(), CopyError> {
        let mut piece = Vec::new();
        copy_piece(from, START_SIZE, self, &mut piece)?;
        if !accepts(&piece) {
            return Ok(());
        }
        // The kernel writes to the file itself, behind what is still buffered.
        self.flush().map_err(CopyError::Write)?;
        if splice_rest(from, self.file.get_ref()) {
            Ok(())
        } else {
            copy_rest(from, self, piece)
        }
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
    use std::io::Seek;
    use std::os::fd::OwnedFd;
    use std::path::Path;

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

    /// Returns a stream of bytes that another thread writes to a pipe.
    fn pipe(bytes: Vec<u8>) -> File {
        let (from, mut to) = io::pipe().unwrap();
        // Ends with an error if the stream is not read to its end.
        std::thread::spawn(move || to.write_all(&bytes));
        File::from(OwnedFd::from(from))
    }

    #[test]
    fn streams_of_all_kinds_and_sizes_are_appended() {
        for size in [0, 1, START_SIZE as usize, START_SIZE as usize + 1, 3_000_001] {
            let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let mut regular = tempfile::tempfile().unwrap();
            regular.write_all(&bytes).unwrap();
            regular.rewind().unwrap();
            for stream in [pipe(bytes.clone()), regular] {
                let mut file = TempFile::create().unwrap();
                file.write_all(b"before").unwrap();
                file.append_if(&stream, |start| start == &bytes[..size.min(START_SIZE as usize)])
                    .unwrap();
                file.write_all(b"after").unwrap();
                let read = file.map(Path::new("stream")).unwrap();
                assert!(read[..] == [b"before", &bytes[..], b"after"].concat(), "{size}");
            }
        }
        let stream = pipe(vec![0; 3_000_001]);
        let mut file = TempFile::create().unwrap();
        file.append_if(&stream, |_| false).unwrap();
        assert_eq!(file.map(Path::new("stream")).unwrap().len() as u64, START_SIZE);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_the_side_that_failed() {
        for size in [1 << 10, 3 << 20] {
            let full = File::options().write(true).open("/dev/full").unwrap();
            let mut file = TempFile {
                file: BufWriter::new(full),
            };
            let copied = file.append_if(&pipe(vec![0; size]), |_| true);
            assert!(matches!(copied, Err(CopyError::Write(_))), "{copied:?}");
        }
    }
}
