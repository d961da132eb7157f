//! A file's bytes, mapped into memory.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memmap2::Mmap;
use rustix::fs::OFlags;
use rustix::process::geteuid;

/// A regular file, mapped read-only.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    /// `None` for an empty file, which can't be mapped.
    map: Option<Mmap>,
    /// Device and inode.
    number: (u64, u64),
    owner: u32,
    modified: SystemTime,
}

impl MappedFile {
    /// Opens and maps a file. What is not a regular file is refused, as far as can be without opening it,
    /// which does things to some devices; and opening never waits: a FIFO could make it wait for ever.
    pub fn open(path: &Path) -> io::Result<Self> {
        refuse_irregular(&fs::metadata(path)?)?;
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(path)?;
        Self::of(&file, path)
    }

    /// Maps a file that is open already. `path` is what to call it.
    pub fn of(file: &File, path: &Path) -> io::Result<Self> {
        let metadata = file.metadata()?;
        refuse_irregular(&metadata)?;
        Ok(Self {
            path: path.to_owned(),
            map: (metadata.len() > 0).then(|| map(file)).transpose()?,
            number: (metadata.dev(), metadata.ino()),
            owner: metadata.uid(),
            modified: metadata.modified()?,
        })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Device and inode, which tell whether two paths lead to the same file.
    pub fn number(&self) -> (u64, u64) {
        self.number
    }

    /// Whether it belongs to the user who runs this, or to root: others could have made it for them to read.
    pub fn is_trusted(&self) -> bool {
        self.owner == 0 || self.is_own()
    }

    /// Whether it belongs to the user who runs this.
    pub fn is_own(&self) -> bool {
        self.owner == geteuid().as_raw()
    }

    /// When it was written to last.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

fn refuse_irregular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    Ok(())
}

#[allow(unsafe_code)]
fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: The bytes may change while they are looked at, if somebody writes to the file. They are only
    // ever read as bytes, each length in them is checked where it is used, and no decision relies on reading
    // the same bytes twice.
    unsafe { Mmap::map(file) }
}
