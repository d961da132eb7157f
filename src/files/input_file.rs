//! Reads files that others wrote into private memory.
//!
//! Anyone who can write to a file can change it while it is read. A mapping of such a file cannot be a
//! `&[u8]`: text could change after it was checked to be UTF-8, and numbers after they were compared with a
//! limit. Each file is therefore copied first. Only copies are mapped, and these have no name by which others
//! could open them.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek};
use std::ops::Deref;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

use memmap2::{Advice, Mmap, MmapMut};
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::files::TempFile;
use crate::threads;

/// Fraction of the memory that file contents may fill: one in this many bytes. Further files are copied to
/// disk, from where the system can evict them.
const MEMORY_FRACTION: u64 = 8;

/// Files of up to this many bytes are always in memory, because a mapping takes more.
pub(super) const MAX_SMALL_FILE: u64 = 1 << 20;

/// Maximum bytes of holes in a file. Files written by programs have none. A hole takes no space on disk, but
/// time to read.
const MAX_HOLES: u64 = 1 << 30;

/// Bytes that a thread reads at a time.
const READ_SIZE: usize = 8 << 20;

/// Bytes at the start of a file that are read to recognize it.
const START_SIZE: u64 = 4 << 10;

/// Bytes of file contents in memory.
static BYTES_IN_MEMORY: AtomicU64 = AtomicU64::new(0);

/// Number of files in use.
static LIVE_FILES: AtomicUsize = AtomicUsize::new(0);

/// What identifies a file that was opened.
#[derive(Clone, Debug)]
pub struct FileOrigin {
    /// Path by which it was opened.
    pub path: PathBuf,
    /// Device and inode, which are equal if two paths lead to the same file.
    pub file_id: (u64, u64),
    /// User ID of the owner.
    pub owner: u32,
}

impl FileOrigin {
    fn new(path: &Path, metadata: &Metadata) -> Self {
        Self {
            path: path.to_owned(),
            file_id: (metadata.dev(), metadata.ino()),
            owner: metadata.uid(),
        }
    }
}

/// The contents of a regular file when it was read.
#[derive(Debug)]
pub struct InputFile {
    origin: FileOrigin,
    bytes: Bytes,
    is_truncated: bool,
    modified: SystemTime,
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

/// A regular file that is open but has not been read.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    origin: FileOrigin,
    metadata: Metadata,
}

impl OpenFile {
    /// Opens a file. Rejects anything but regular files, if possible without opening it, since that has side
    /// effects on some devices. Never blocks, as opening a FIFO could.
    pub fn open(path: &Path) -> io::Result<Self> {
        refuse_irregular(&fs::metadata(path)?)?;
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(path)?;
        Self::from_file(file, path)
    }

    /// Wraps an open file. `path` is its name in messages. Rejects anything but regular files.
    pub fn from_file(file: File, path: &Path) -> io::Result<Self> {
        let metadata = file.metadata()?;
        refuse_irregular(&metadata)?;
        Ok(Self {
            file,
            origin: FileOrigin::new(path, &metadata),
            metadata,
        })
    }

    /// Reads the first 4 KiB of the file, or all of it if it is smaller, to decide whether to read it. Later
    /// reads may return other bytes.
    pub fn read_start(&self) -> io::Result<Vec<u8>> {
        self.read_part(0, START_SIZE)
    }

    /// Returns what identifies the file.
    pub fn origin(&self) -> &FileOrigin {
        &self.origin
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.origin.path
    }

    /// Returns the size in bytes when the file was opened.
    pub fn size(&self) -> u64 {
        self.metadata.len()
    }

    /// Returns the device and inode.
    pub fn file_id(&self) -> (u64, u64) {
        self.origin.file_id
    }

    /// Rejects a file with more holes than any program leaves.
    pub(super) fn refuse_sparse(&self) -> io::Result<()> {
        refuse_sparse(&self.file, &self.metadata)
    }

    /// Returns the file, for callers that read and seek and keep what they have read.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Reads `size` bytes from offset `offset`, or fewer at the end of the file.
    pub fn read_part(&self, offset: u64, size: u64) -> io::Result<Vec<u8>> {
        let size = size.min(self.size().saturating_sub(offset));
        let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
        let read = read_at(&self.file, &mut bytes, offset)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Reads the whole file, up to its size when it was opened.
    pub fn read(self) -> io::Result<InputFile> {
        let len = self.metadata.len();
        self.refuse_sparse()?;
        if len <= MAX_SMALL_FILE {
            let bytes = Bytes::Small(self.read_part(0, len)?);
            return InputFile::new(bytes, self.origin, &self.metadata);
        }
        let in_memory = || read_to_memory(&self.file, len);
        let is_small =
            BYTES_IN_MEMORY.load(Ordering::Relaxed).saturating_add(len) <= memory() / MEMORY_FRACTION;
        let bytes = match is_small {
            true => in_memory().or_else(|_| copy_to_disk(&self.file, len)),
            // The disk may be full.
            false => copy_to_disk(&self.file, len).or_else(|_| in_memory()),
        };
        InputFile::new(bytes?, self.origin, &self.metadata)
    }
}

impl InputFile {
    /// Returns the number of files that this process has read and still uses.
    pub fn live_count() -> usize {
        LIVE_FILES.load(Ordering::Relaxed)
    }

    /// Opens and reads a file; see [`OpenFile::open`].
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenFile::open(path)?.read()
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

    fn new(bytes: Bytes, origin: FileOrigin, metadata: &Metadata) -> io::Result<Self> {
        let modified = metadata.modified()?;
        LIVE_FILES.fetch_add(1, Ordering::Relaxed);
        BYTES_IN_MEMORY.fetch_add(bytes.in_memory(), Ordering::Relaxed);
        Ok(Self {
            is_truncated: (bytes.len() as u64) < metadata.len(),
            bytes,
            origin,
            modified,
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

    /// Whether the file became shorter while it was read, so that its end is missing.
    pub fn has_shrunk(&self) -> bool {
        self.is_truncated
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

/// Fills `bytes` from offset `offset` of a file. Returns the number of bytes read, less than `bytes.len()` at
/// the end of the file.
pub(super) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(read as u64)) {
            Ok(0) => break,
            Ok(count) => read = read.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
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
fn memory() -> u64 {
    static MEMORY: OnceLock<u64> = OnceLock::new();
    *MEMORY.get_or_init(|| {
        let machine = rustix::system::sysinfo();
        #[allow(clippy::useless_conversion, reason = "it has 32 bits on some machines")]
        let bytes = u64::from(machine.totalram).saturating_mul(machine.mem_unit.into());
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = groups
            .lines()
            .find_map(|line| line.strip_prefix("0::/"))
            .unwrap_or_default();
        let limits = Path::new("/sys/fs/cgroup").join(group);
        // Limits of the parent groups also apply.
        let limits = limits.ancestors().filter_map(|group| {
            let limit = fs::read_to_string(group.join("memory.max")).ok()?;
            limit.trim().parse::<u64>().ok()
        });
        limits.fold(bytes, u64::min)
    })
}

/// Whether a user is the current user or root.
pub fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw()
}

fn refuse_irregular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(())
}

/// Rejects a file with more holes than any program leaves.
fn refuse_sparse(file: &File, metadata: &Metadata) -> io::Result<()> {
    /// The unit of `st_blocks`, in bytes.
    const BLOCK: u64 = 512;
    let len = metadata.len();
    // Files compressed by the file system also have fewer blocks.
    let may_be_sparse = metadata.blocks().saturating_mul(BLOCK).saturating_add(MAX_HOLES) < len;
    if may_be_sparse && holes(file, len)? > MAX_HOLES {
        return Err(io::Error::other(format!(
            "is sparse: more than {} GiB of its {len} bytes are holes",
            MAX_HOLES >> 30
        )));
    }
    Ok(())
}

/// Returns the bytes of a file that are in holes. Stops counting above [`MAX_HOLES`].
fn holes(file: &File, len: u64) -> io::Result<u64> {
    let (mut holes, mut at): (u64, u64) = (0, 0);
    while at < len && holes <= MAX_HOLES {
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            // The rest is a hole.
            Err(Errno::NXIO) => len,
            other => other?.min(len),
        };
        holes = holes.saturating_add(data.saturating_sub(at));
        at = match data < len {
            true => rustix::fs::seek(file, SeekFrom::Hole(data))?,
            false => len,
        };
    }
    Ok(holes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

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
            let read = open.read().unwrap();
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

    #[test]
    fn a_file_of_holes_is_refused() {
        let file = file(b"data");
        file.as_file().set_len(MAX_HOLES + (1 << 20)).unwrap();
        let open = || OpenFile::open(file.path()).unwrap();
        assert!(open().read().unwrap_err().to_string().contains("is sparse"));
        file.as_file().set_len(1 << 20).unwrap();
        assert_eq!(open().read().unwrap().len(), 1 << 20);
    }
}
