//! Opens regular files that others may write to.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::files::walk::{self, Scope, Trail};

/// Maximum bytes of holes in a file. Files written by programs have none. A hole takes no space on disk, but
/// time to read.
const MAX_HOLES: u64 = 1 << 30;

/// Bytes at the start of a file that are read to recognize it.
pub const START_SIZE: u64 = 4 << 10;

/// Bytes of two files that are compared at a time.
const COMPARED_SIZE: usize = 64 << 10;

/// What identifies a file that was opened.
#[derive(Clone, Debug)]
pub struct FileOrigin {
    /// Path by which it was opened.
    pub path: PathBuf,
    /// Device and inode, which are equal if two paths lead to the same file.
    pub file_id: (u64, u64),
    /// User ID of the owner.
    pub owner: u32,
    mode: u32,
    /// Links and folders that were passed on the way; none for files that were opened by others.
    pub trail: Trail,
}

impl FileOrigin {
    /// Creates it from the metadata of an open file.
    pub fn new(path: &Path, metadata: &Metadata) -> Self {
        Self {
            path: path.to_owned(),
            file_id: (metadata.dev(), metadata.ino()),
            owner: metadata.uid(),
            mode: metadata.mode(),
            trail: Trail::default(),
        }
    }

    /// Whether everybody may read the file: by its mode, and by those of the folders on the way to it.
    pub fn is_public(&self) -> bool {
        let is_closed = self.trail.is_closed || self.trail.starts_here && walk::is_working_folder_closed();
        self.has_public_mode() && !is_closed
    }

    fn has_public_mode(&self) -> bool {
        self.mode & 0o004 != 0
    }
}

/// A regular file that is open but has not been read.
#[derive(Debug)]
pub struct OpenFile {
    pub(super) file: File,
    pub(super) origin: FileOrigin,
    pub(super) metadata: Metadata,
}

impl OpenFile {
    /// Opens a file by a path that the user or this program has chosen, which may be a link of `/proc`. Rejects anything
    /// but regular files. Never blocks, as opening a FIFO could.
    pub fn open(path: &Path) -> io::Result<Self> {
        walk::open(path, Scope::Named)
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

    /// Returns the metadata when the file was opened.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns what identifies the file.
    pub fn origin(&self) -> &FileOrigin {
        &self.origin
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.origin.path
    }

    /// Whether everybody may read the file: by its mode, and by those of the folders on the way to it.
    pub fn is_public(&self) -> bool {
        self.origin.is_public()
    }

    /// Whether the mode of the file lets everybody read it who gets to its folder.
    pub fn has_public_mode(&self) -> bool {
        self.origin.has_public_mode()
    }

    /// Whether the file belongs to the current user or to root. Other users could have made it for this program to read.
    pub fn is_trusted(&self) -> bool {
        is_trusted(self.origin.owner)
    }

    /// Returns when the file was created, if the file system has it.
    pub fn created(&self) -> Option<SystemTime> {
        self.metadata.created().ok()
    }

    /// Returns the size in bytes when the file was opened.
    pub fn size(&self) -> u64 {
        self.metadata.len()
    }

    /// Returns the device and inode.
    pub fn file_id(&self) -> (u64, u64) {
        self.origin.file_id
    }

    /// Returns the size in bytes now. Fails if the file has more holes than any program leaves.
    pub fn current_size(&self) -> io::Result<u64> {
        let metadata = self.file.metadata()?;
        refuse_sparse(&self.file, &metadata)?;
        Ok(metadata.len())
    }

    /// Fills `into` from offset `offset`, as far as the file goes, and returns the number of bytes read.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        read_at(&self.file, into, offset)
    }

    /// Rejects a file with more holes than any program leaves.
    pub fn refuse_sparse(&self) -> io::Result<()> {
        refuse_sparse(&self.file, &self.metadata)
    }

    /// Whether only this user and root can change the file.
    pub fn is_unchanged_by_others(&self) -> bool {
        /// Write permission of the group and of others.
        const OTHERS: u32 = 0o022;
        is_trusted(self.origin.owner) && self.metadata.mode() & OTHERS == 0
    }

    /// Rejects a file if more than `max_holes` of its bytes are in holes.
    pub fn refuse_holes(&self, max_holes: u64) -> io::Result<()> {
        refuse_holes(&self.file, &self.metadata, max_holes)
    }

    /// Returns the file, for callers that read and seek and keep what they have read.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether both files have the same bytes, and none has become shorter since it was opened. Holes in both cost nothing.
    pub fn has_bytes_of(&self, other: &Self) -> io::Result<bool> {
        let size = self.size();
        if size != other.size() {
            return Ok(false);
        }
        let mut pieces = [Vec::new(), Vec::new()];
        let mut at = 0;
        loop {
            at = next_data(&self.file, at, size)?.min(next_data(&other.file, at, size)?);
            if at >= size {
                return Ok(true);
            }
            let wanted = size.saturating_sub(at).min(COMPARED_SIZE as u64);
            for (file, piece) in [self, other].into_iter().zip(&mut pieces) {
                piece.resize(wanted as usize, 0);
                if read_at(&file.file, piece, at)? < piece.len() {
                    return Ok(false);
                }
            }
            let [own, others] = &pieces;
            if own != others {
                return Ok(false);
            }
            at = at.saturating_add(wanted);
        }
    }

    /// Reads the whole file, up to its size when it was opened. Fails if that is more than `max_size` bytes.
    pub fn read_whole(&self, max_size: u64) -> io::Result<Vec<u8>> {
        match self.size() {
            size if size <= max_size => self.read_part(0, size),
            _ => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }

    /// Reads `size` bytes from offset `offset`, or fewer at the end of the file.
    pub fn read_part(&self, offset: u64, size: u64) -> io::Result<Vec<u8>> {
        let size = size.min(self.size().saturating_sub(offset));
        let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
        let read = read_at(&self.file, &mut bytes, offset)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// Fills `bytes` from offset `offset` of a file. Returns the number of bytes read, less than `bytes.len()` at
/// the end of the file.
pub fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
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
    refuse_holes(file, metadata, MAX_HOLES)
}

/// Fails if more than `max_holes` bytes of a file are in holes.
fn refuse_holes(file: &File, metadata: &Metadata, max_holes: u64) -> io::Result<()> {
    /// The unit of `st_blocks`, in bytes.
    const BLOCK: u64 = 512;
    let len = metadata.len();
    // Files compressed by the file system also have fewer blocks.
    let may_be_sparse = metadata.blocks().saturating_mul(BLOCK).saturating_add(max_holes) < len;
    if may_be_sparse && bytes_in_holes(file, len, max_holes)? > max_holes {
        return Err(io::Error::other(format!(
            "is sparse: more than {} MiB of its {len} bytes are holes",
            max_holes >> 20
        )));
    }
    Ok(())
}

/// Returns how many of the `len` bytes of a file are in holes. Stops counting above `max_holes`.
fn bytes_in_holes(file: &File, len: u64, max_holes: u64) -> io::Result<u64> {
    let (mut holes, mut at): (u64, u64) = (0, 0);
    while at < len && holes <= max_holes {
        let data = next_data(file, at, len)?;
        holes = holes.saturating_add(data.saturating_sub(at));
        at = if data < len {
            rustix::fs::seek(file, SeekFrom::Hole(data))?
        } else {
            len
        };
    }
    Ok(holes)
}

/// Returns the first offset from `at` that is not in a hole; `len` if there is none before.
fn next_data(file: &File, at: u64, len: u64) -> io::Result<u64> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        // The rest is a hole.
        Err(Errno::NXIO) => Ok(len),
        other => Ok(other?.min(len)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_of_holes_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), b"data").unwrap();
        file.as_file().set_len((1 << 30) - (1 << 20)).unwrap();
        assert!(OpenFile::open(file.path()).unwrap().current_size().is_ok());
        file.as_file().set_len((1 << 30) + (1 << 20)).unwrap();
        let checked = || OpenFile::open(file.path()).unwrap().current_size();
        assert!(checked().unwrap_err().to_string().contains("is sparse"));
        file.as_file().set_len(1 << 20).unwrap();
        assert_eq!(checked().unwrap(), 1 << 20);
    }

    #[test]
    fn the_start_of_a_file_has_4_kib() {
        for (size, start) in [(4095, 4095), (4096, 4096), (9000, 4096)] {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(size).unwrap();
            let file = OpenFile::open(file.path()).unwrap();
            assert_eq!(file.read_start().unwrap().len(), start, "{size}");
        }
    }

    #[test]
    fn files_with_holes_are_compared_by_their_bytes() {
        let file = |pieces: &[(u64, &[u8])], len: u64| {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(len).unwrap();
            for &(offset, bytes) in pieces {
                file.as_file().write_all_at(bytes, offset).unwrap();
            }
            file
        };
        let is_same = |one: &tempfile::NamedTempFile, other: &tempfile::NamedTempFile| {
            let [one, other] = [one, other].map(|file| OpenFile::open(file.path()).unwrap());
            let same = one.has_bytes_of(&other).unwrap();
            assert_eq!(other.has_bytes_of(&one).unwrap(), same);
            same
        };
        const LEN: u64 = 10 << 20;
        let sparse = file(&[(0, b"start"), (5_000_000, b"middle")], LEN);
        let mut bytes = vec![0; LEN as usize];
        bytes[..5].copy_from_slice(b"start");
        bytes[5_000_000..5_000_006].copy_from_slice(b"middle");
        assert!(is_same(&sparse, &file(&[(0, &bytes)], LEN)));
        assert!(is_same(&sparse, &sparse));
        assert!(!is_same(
            &sparse,
            &file(&[(0, b"start"), (5_000_000, b"middle")], LEN + 1)
        ));
        assert!(!is_same(
            &sparse,
            &file(&[(0, b"start"), (5_000_000, b"muddle")], LEN)
        ));
        assert!(!is_same(&sparse, &file(&[(0, b"start")], LEN)));
        for at in [0, 6, COMPARED_SIZE as u64 - 1, COMPARED_SIZE as u64, LEN - 1] {
            let changed = file(&[(0, &bytes), (at, b"x")], LEN);
            assert!(!is_same(&sparse, &changed), "{at}");
        }
        assert!(is_same(&file(&[], 0), &file(&[], 0)));
    }

    #[test]
    fn opens_files_in_the_folder_and_follows_no_link() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("folder");
        fs::create_dir_all(folder.join("deep")).unwrap();
        fs::write(folder.join("deep/file"), "inside").unwrap();
        fs::write(scratch.path().join("secret"), "outside").unwrap();
        symlink("deep/file", folder.join("link")).unwrap();
        symlink("deep", folder.join("linked")).unwrap();
        symlink("/proc/self/root", folder.join("root")).unwrap();
        let open = |inside: &str| walk::open(Path::new(inside), Scope::Beneath(&folder));
        for inside in ["deep/file", "deep/../deep/file", "./deep/file"] {
            assert_eq!(open(inside).unwrap().read_start().unwrap(), b"inside", "{inside}");
        }
        let file = open("deep/file").unwrap();
        assert_eq!(file.path(), folder.join("deep/file"));
        let secret = scratch.path().join("secret");
        let outside = ["../secret", "deep/../../secret", secret.to_str().unwrap()];
        let linked = ["link", "linked/file", "root/etc/passwd"];
        for inside in outside.iter().chain(&linked) {
            let error = open(inside).unwrap_err();
            assert_ne!(error.kind(), io::ErrorKind::NotFound, "{inside}: {error}");
        }
        assert_eq!(open("missing").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(open("deep").is_err());
    }
}
