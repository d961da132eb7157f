//! Reads files that others wrote into private memory.
//!
//! Anyone who can write to a file can change it while it is read. A mapping of such a file cannot be a
//! `&[u8]`: text could change after it was checked to be UTF-8, and numbers after they were compared with a
//! limit. Each file is therefore copied first. Only copies are mapped, and these have no name by which others
//! could open them.
//!
//! The memory is allocated at once, and all threads read. Files that together exceed an eighth of the
//! memory of the machine or the control group are copied to a temporary file without a name, whose mapped
//! pages the system can evict. Small files are always read into memory, because the number of mappings is
//! limited.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek};
use std::ops::Deref;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

use memmap2::{Advice, Mmap, MmapMut};
use rustix::process::geteuid;

use crate::files::TempFile;
use crate::files::open_file::{is_trusted, read_at};
use crate::files::{FileOrigin, OpenFile, kernel};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::threads;

/// Fraction of the memory that file contents may fill: one in this many bytes. Further files are copied to
/// disk, from where the system can evict them.
const MEMORY_FRACTION: u64 = 8;

/// Files of up to this many bytes are always in memory, because a mapping takes more.
pub const MAX_SMALL_FILE: u64 = 1 << 20;

/// Bytes that a thread reads at a time.
const READ_SIZE: usize = 8 << 20;

/// Bytes of file contents in memory.
static BYTES_IN_MEMORY: AtomicU64 = AtomicU64::new(0);

/// Number of files in use.
static LIVE_FILES: AtomicUsize = AtomicUsize::new(0);

/// The contents of a regular file when it was read.
#[derive(Debug)]
pub struct InputFile {
    origin: FileOrigin,
    bytes: Bytes,
    is_truncated: bool,
    modified: SystemTime,
    created: Option<SystemTime>,
}

/// A copy of a file's bytes.
#[derive(Debug)]
enum Bytes {
    /// At most [`MAX_SMALL_FILE`] bytes.
    Small(Vec<u8>),
    /// The first `len` bytes of private memory.
    InMemory { memory: MmapMut, len: usize },
    /// A mapping of a file without a name.
    OnDisk(Mmap),
}

impl Drop for InputFile {
    fn drop(&mut self) {
        LIVE_FILES.fetch_sub(1, Ordering::Relaxed);
        BYTES_IN_MEMORY.fetch_sub(self.bytes.in_memory(), Ordering::Relaxed);
    }
}

impl InputFile {
    /// Reads a whole open file, up to its size when it was opened.
    pub fn read(file: &OpenFile) -> io::Result<Self> {
        let len = file.size();
        file.refuse_sparse()?;
        if len <= MAX_SMALL_FILE {
            let bytes = Bytes::Small(file.read_part(0, len)?);
            return Self::new(bytes, file.origin().clone(), file.metadata());
        }
        let in_memory = || read_to_memory(file.file(), len);
        let is_small =
            BYTES_IN_MEMORY.load(Ordering::Relaxed).saturating_add(len) <= memory_size() / MEMORY_FRACTION;
        let bytes = if is_small {
            in_memory().or_else(|_| copy_to_disk(file.file(), len))
        } else {
            // The disk may be full.
            copy_to_disk(file.file(), len).or_else(|_| in_memory())
        };
        Self::new(bytes?, file.origin().clone(), file.metadata())
    }

    /// Returns the number of files that this process has read and still uses.
    pub fn live_count() -> usize {
        LIVE_FILES.load(Ordering::Relaxed)
    }

    /// Opens and reads a file; see [`OpenFile::open`].
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::read(&OpenFile::open(path)?)
    }

    /// Maps a file that only this process can open and that nothing writes to any more. `path` is its name in
    /// messages.
    pub(super) fn map_private(file: &File, path: &Path) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Self::new(
            Bytes::map_private(file, metadata.len())?,
            FileOrigin::new(path, &metadata),
            &metadata,
        )
    }

    /// Takes the bytes of a file, which are fewer than its metadata says if it was truncated meanwhile.
    fn new(bytes: Bytes, origin: FileOrigin, metadata: &Metadata) -> io::Result<Self> {
        let modified = metadata.modified()?;
        LIVE_FILES.fetch_add(1, Ordering::Relaxed);
        BYTES_IN_MEMORY.fetch_add(bytes.in_memory(), Ordering::Relaxed);
        Ok(Self {
            is_truncated: (bytes.len() as u64) < metadata.len(),
            bytes,
            origin,
            modified,
            created: metadata.created().ok(),
        })
    }

    /// Returns what identifies the file.
    pub fn origin(&self) -> &FileOrigin {
        &self.origin
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.origin.path
    }

    /// Returns device and inode, which are equal if two paths lead to the same file.
    pub fn file_id(&self) -> (u64, u64) {
        self.origin.file_id
    }

    /// Returns when the file was created, if the file system has it.
    pub fn created(&self) -> Option<SystemTime> {
        self.created
    }

    /// Whether the file became shorter while it was read, so that its end is missing.
    pub fn has_shrunk(&self) -> bool {
        self.is_truncated
    }

    /// Reports a file of a runtime that became shorter while it was read.
    pub fn shrunk(&self) -> Option<Diagnostic> {
        let shrunk = || Diagnostic::new(Issue::FileShrunk).in_file(self.path());
        self.has_shrunk().then(shrunk)
    }

    /// Returns the user ID of the owner.
    pub fn owner(&self) -> u32 {
        self.origin.owner
    }

    /// Whether the file belongs to the current user or to root. Other users could have made it for this
    /// program to read.
    pub fn is_trusted(&self) -> bool {
        is_trusted(self.origin.owner)
    }

    /// Whether the file belongs to the current user.
    pub fn is_owned_by_user(&self) -> bool {
        self.origin.owner == geteuid().as_raw()
    }

    /// Returns the time of the last modification.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }
}

impl TempFile {
    /// Maps the bytes written. `path` is the name of the result in messages.
    pub fn map(self, path: &Path) -> io::Result<InputFile> {
        InputFile::map_private(&self.into_file()?, path)
    }
}

impl Deref for InputFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bytes {
    /// Maps a private file.
    #[expect(unsafe_code, reason = "maps a file")]
    fn map_private(file: &File, len: u64) -> io::Result<Self> {
        if len == 0 {
            // An empty file cannot be mapped.
            return Ok(Self::Small(Vec::new()));
        }
        // SAFETY: Nobody else can modify the file: it never had a name by which others could have opened it,
        // or its name is gone and only this user could open it. This process no longer writes to it.
        Ok(Self::OnDisk(unsafe { Mmap::map(file)? }))
    }

    /// Returns the bytes in memory that the system cannot write to disk.
    fn in_memory(&self) -> u64 {
        match self {
            Self::Small(bytes) => bytes.len() as u64,
            Self::InMemory { memory, .. } => memory.len() as u64,
            Self::OnDisk(_) => 0,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Small(bytes) => bytes,
            Self::InMemory { memory, len } => memory.get(..*len).unwrap_or_default(),
            Self::OnDisk(map) => map,
        }
    }
}

/// Reads the first `len` bytes of a file in several threads.
fn read_to_memory(file: &File, len: u64) -> io::Result<Bytes> {
    let len = usize::try_from(len).map_err(io::Error::other)?;
    let mut memory = MmapMut::map_anon(len)?;
    let starts: Vec<usize> = (0..len).step_by(READ_SIZE).collect();
    // Populating all pages of a piece at once takes half the time of doing so one by one. Huge pages take
    // even less if some are free, but far more if the system must make room for them first.
    threads::map(&starts, |&start| {
        let size = READ_SIZE.min(len.saturating_sub(start));
        // Linux before 5.14 does not support this, and populates the pages when they are read into.
        let _ = memory.advise_range(Advice::PopulateWrite, start, size);
    });
    let offsets = (0..).step_by(READ_SIZE);
    let mut pieces: Vec<(u64, &mut [u8])> = offsets.zip(memory.chunks_mut(READ_SIZE)).collect();
    let read = threads::map_mut(&mut pieces, |(offset, piece)| {
        Ok((read_at(file, piece, *offset)?, piece.len()))
    });
    let read: Vec<(usize, usize)> = read.into_iter().collect::<io::Result<_>>()?;
    let whole = read.iter().take_while(|(read, size)| read == size).count();
    let len = read
        .iter()
        .take(whole.saturating_add(1))
        .map(|(read, _)| read)
        .sum();
    Ok(Bytes::InMemory { memory, len })
}

/// Copies the first `len` bytes of a file to a private file. Some file systems share the blocks of both.
fn copy_to_disk(file: &File, len: u64) -> io::Result<Bytes> {
    let mut copy = TempFile::create()?.into_file()?;
    let mut from = file;
    from.rewind()?;
    let copied = io::copy(&mut from.take(len), &mut copy)?;
    Bytes::map_private(&copy, copied)
}

/// Returns the bytes of memory of the machine, or of this process' control group if that has fewer
/// (cgroups(7), version 2).
pub fn memory_size() -> u64 {
    static MEMORY: OnceLock<u64> = OnceLock::new();
    *MEMORY.get_or_init(|| {
        let machine = rustix::system::sysinfo();
        #[allow(clippy::useless_conversion, reason = "it has 32 bits on some machines")]
        let bytes = u64::from(machine.totalram).saturating_mul(machine.mem_unit.into());
        let groups = kernel::read_text("/proc/self/cgroup").unwrap_or_default();
        let group = groups
            .lines()
            .find_map(|line| line.strip_prefix("0::/"))
            .unwrap_or_default();
        let limits = Path::new("/sys/fs/cgroup").join(group);
        // Limits of the parent groups also apply.
        let limits = limits.ancestors().filter_map(|group| {
            let limit = kernel::read_text(group.join("memory.max")).ok()?;
            limit.trim().parse::<u64>().ok()
        });
        limits.fold(bytes, u64::min)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::open_file::START_SIZE;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn contents_do_not_change_with_the_file() {
        let file = file(&[7; 100_000]);
        let read = InputFile::open(file.path()).unwrap();
        file.as_file().write_all_at(&[8; 200_000], 0).unwrap();
        assert_eq!(read[..], [7; 100_000]);
        file.as_file().set_len(10).unwrap();
        assert_eq!(read[..], [7; 100_000]);
        assert!(!read.has_shrunk());
    }

    #[test]
    fn a_file_truncated_while_it_is_read_ends_there() {
        for left in [0, 1, 5_000] {
            let file = file(&[7; 100_000]);
            let open = OpenFile::open(file.path()).unwrap();
            assert_eq!(open.read_start().unwrap(), [7; START_SIZE as usize]);
            file.as_file().set_len(left).unwrap();
            let read = InputFile::read(&open).unwrap();
            assert_eq!(read[..], vec![7; left as usize]);
            assert!(read.has_shrunk());
        }
    }

    #[test]
    fn a_copy_on_disk_has_the_same_bytes() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|file_id| (file_id % 251) as u8).collect();
        let file = file(&bytes);
        let copy = |len: usize| copy_to_disk(file.as_file(), len as u64).unwrap();
        assert_eq!(copy(bytes.len())[..], bytes);
        assert_eq!(copy(2_000_001)[..], bytes[..2_000_001]);
        assert!(copy(0).is_empty());
        // Longer than the file.
        assert_eq!(copy(bytes.len() + 1)[..], bytes);
    }

    #[test]
    fn several_threads_read_the_same_bytes() {
        let bytes: Vec<u8> = (0..3 * READ_SIZE as u32 - 5)
            .map(|file_id| (file_id % 251) as u8)
            .collect();
        let file = file(&bytes);
        let read = |len: usize| read_to_memory(file.as_file(), len as u64).unwrap();
        assert!(read(bytes.len())[..] == bytes);
        assert!(read(2 * READ_SIZE)[..] == bytes[..2 * READ_SIZE]);
        // Longer than the file.
        assert!(read(bytes.len() + 2 * READ_SIZE)[..] == bytes);
    }
}
