//! Files that are read in blocks, several times, without being kept in memory.
//!
//! Others can change such a file between two reads, so the checksum of each block is kept when it is first read, and
//! compared later. A change is an error: everything else would mix two states of the file.
//!
//! Each block is copied into a window before it is parsed, so borrowed bytes do not change. Temporary
//! files, which nobody else can open, need no checksums.

use std::hash::BuildHasher;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::bytes::{BLOCK_SIZE, BlockFile};
use crate::collections::hash::RandomState;
use crate::files::open_file::read_at;
use crate::files::{FileOrigin, InputFile, OpenFile, TempFile};
use crate::results::diagnostics::{Diagnostic, Issue};

/// A regular file that is read in blocks.
#[derive(Debug)]
pub struct StreamedFile {
    file: OpenFile,
    /// Checksums of blocks, 0 for those not read yet; `None` if nobody else can change the file.
    checksums: Option<Checksums>,
    fault: OnceLock<Fault>,
}

#[derive(Debug)]
struct Checksums {
    of_blocks: Box<[AtomicU64]>,
    hash: RandomState,
}

/// Why bytes of a file are missing or wrong.
#[derive(Debug)]
enum Fault {
    /// The file became shorter.
    Shrunk,
    /// A block has changed.
    Changed,
    /// Reading failed.
    Unreadable(io::Error),
}

impl StreamedFile {
    /// Reads from a file that others may change.
    pub fn of(file: OpenFile) -> io::Result<Self> {
        file.refuse_sparse()?;
        let blocks = usize::try_from(file.size().div_ceil(BLOCK_SIZE)).map_err(io::Error::other)?;
        Ok(Self {
            file,
            checksums: Some(Checksums {
                of_blocks: std::iter::repeat_with(AtomicU64::default).take(blocks).collect(),
                hash: RandomState::default(),
            }),
            fault: OnceLock::new(),
        })
    }

    /// Reads from a file that only this process can open and that nothing writes to any more.
    fn of_private(file: OpenFile) -> Self {
        Self {
            file,
            checksums: None,
            fault: OnceLock::new(),
        }
    }

    /// Returns what identifies the file.
    pub fn origin(&self) -> &FileOrigin {
        self.file.origin()
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the time of the last modification.
    pub fn modified(&self) -> io::Result<SystemTime> {
        self.file.metadata().modified()
    }

    /// Reads the whole file, as it is now.
    pub fn read_whole(&self) -> io::Result<InputFile> {
        match self.checksums {
            Some(_) => InputFile::read(&self.file),
            None => InputFile::map_private(self.file.file(), self.path()),
        }
    }

    /// Fails if not all bytes could be read as they were first, or if the file is shorter than when it was opened.
    pub fn check(&self) -> Result<(), Diagnostic> {
        let path = self.path();
        match self.file.file().metadata() {
            Ok(now) if now.len() < self.file.size() => self.fail(Fault::Shrunk),
            Ok(_) => {}
            Err(error) => self.fail(Fault::Unreadable(error)),
        }
        match self.fault.get() {
            None => Ok(()),
            Some(Fault::Shrunk) => Err(Diagnostic::new(Issue::ProfileShrunk).in_file(path)),
            Some(Fault::Changed) => Err(Diagnostic::new(Issue::ProfileChanged).in_file(path)),
            Some(Fault::Unreadable(cause)) => Err(Diagnostic::cannot_read(path, cause)),
        }
    }

    fn fail(&self, fault: Fault) {
        // The first one may be the cause of the others.
        let _ = self.fault.set(fault);
    }
}

impl TempFile {
    /// Returns the bytes written, to be read in blocks. `path` is the name of the result in messages.
    pub fn into_streamed(self, path: &Path) -> io::Result<StreamedFile> {
        OpenFile::from_file(self.into_file()?, path).map(StreamedFile::of_private)
    }
}

impl Checksums {
    /// Whether a block has the bytes that it had when it was first read.
    fn is_same(&self, block: u64, bytes: &[u8]) -> bool {
        let block = usize::try_from(block).ok();
        let Some(known) = block.and_then(|block| self.of_blocks.get(block)) else {
            return false;
        };
        let checksum = self.hash.hash_one(bytes) | 1;
        let first = known.compare_exchange(0, checksum, Ordering::Relaxed, Ordering::Relaxed);
        first.map_or_else(|first| first == checksum, |_| true)
    }
}

impl BlockFile for StreamedFile {
    fn size(&self) -> u64 {
        self.file.size()
    }

    fn read_blocks(&self, offset: u64, into: &mut [u8]) -> usize {
        let read = match read_at(self.file.file(), into, offset) {
            Ok(read) => read,
            Err(error) => {
                self.fail(Fault::Unreadable(error));
                return 0;
            }
        };
        let Some(bytes) = into.get(..read).filter(|bytes| bytes.len() == into.len()) else {
            self.fail(Fault::Shrunk);
            return read;
        };
        if let Some(checksums) = &self.checksums {
            let blocks = (offset / BLOCK_SIZE..).zip(bytes.chunks(BLOCK_SIZE as usize));
            if !blocks
                .into_iter()
                .all(|(block, bytes)| checksums.is_same(block, bytes))
            {
                self.fail(Fault::Changed);
            }
        }
        read
    }

    fn send(&self, offset: u64, size: u64, to: BorrowedFd<'_>) -> u64 {
        // Checksums need the bytes.
        if self.checksums.is_some() {
            return 0;
        }
        let mut offset = offset;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let sent = rustix::fs::sendfile(to, self.file.file(), Some(&mut offset), size);
        sent.map_or(0, |sent| sent as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    const SIZE: usize = 5 * BLOCK_SIZE as usize + 100;

    fn file() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
        file.as_file().write_all_at(&bytes, 0).unwrap();
        file
    }

    fn open(file: &tempfile::NamedTempFile) -> StreamedFile {
        StreamedFile::of(OpenFile::open(file.path()).unwrap()).unwrap()
    }

    /// Returns the code of what is wrong.
    fn fault(file: &StreamedFile) -> Option<&'static str> {
        file.check().err().map(|error| error.issue.id())
    }

    #[test]
    fn a_block_that_changes_after_it_was_read_is_an_error() {
        let file = file();
        let streamed = open(&file);
        let mut bytes = vec![0; SIZE];
        // What was not read yet may change.
        file.as_file().write_all_at(&[1], SIZE as u64 - 1).unwrap();
        for _ in 0..2 {
            assert_eq!(streamed.read_blocks(0, &mut bytes), SIZE);
            assert_eq!((bytes[SIZE - 1], fault(&streamed)), (1, None));
        }
        file.as_file().write_all_at(&[2], 2 * BLOCK_SIZE + 7).unwrap();
        let rest = &mut bytes[3 * BLOCK_SIZE as usize..];
        streamed.read_blocks(3 * BLOCK_SIZE, rest);
        assert_eq!(fault(&streamed), None);
        let third = &mut bytes[..BLOCK_SIZE as usize];
        assert_eq!(streamed.read_blocks(2 * BLOCK_SIZE, third), BLOCK_SIZE as usize);
        assert_eq!(fault(&streamed), Some(Issue::ProfileChanged.id()));
    }

    #[test]
    fn bytes_are_sent_unless_others_can_change_them() {
        let file = file();
        let mut copy = TempFile::create().unwrap();
        io::copy(&mut file.as_file(), &mut copy).unwrap();
        let private = copy.into_streamed(Path::new("private")).unwrap();
        let mut target = tempfile::tempfile().unwrap();
        assert_eq!(open(&file).send(0, 10, target.as_fd()), 0);
        assert_eq!(private.send(3, 200_000, target.as_fd()), 200_000);
        assert_eq!(private.send(SIZE as u64 - 5, 100, target.as_fd()), 5);
        assert_eq!(private.send(SIZE as u64, 100, target.as_fd()), 0);
        target.rewind().unwrap();
        let mut sent = Vec::new();
        target.read_to_end(&mut sent).unwrap();
        let of = |at: usize| (at % 251) as u8;
        assert!(sent.into_iter().eq((3..200_003).chain(SIZE - 5..SIZE).map(of)));
        // A pipe without a reader, as writing shows.
        let (_, closed) = io::pipe().unwrap();
        assert_eq!(private.send(0, 10, closed.as_fd()), 0);
    }

    #[test]
    fn a_file_that_becomes_shorter_is_an_error() {
        let file = file();
        let streamed = open(&file);
        file.as_file().set_len(100).unwrap();
        let mut bytes = vec![0; BLOCK_SIZE as usize];
        assert_eq!(streamed.read_blocks(0, &mut bytes), 100);
        assert_eq!(fault(&streamed), Some(Issue::ProfileShrunk.id()));
    }
}
