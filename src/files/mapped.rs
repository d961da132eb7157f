//! A file's bytes, mapped into memory.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use memmap2::Mmap;
use rustix::fs::OFlags;
use rustix::process::geteuid;

use crate::files::shrinking::Watch;

/// A regular file, mapped read-only.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    /// `None` for an empty file, which can't be mapped.
    map: Option<Map>,
    /// Device and inode.
    number: (u64, u64),
    owner: u32,
    modified: SystemTime,
}

/// How many files are mapped now.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
struct Map {
    /// First, so that it is gone before the map is.
    watch: Watch,
    bytes: Mmap,
}

impl Drop for Map {
    fn drop(&mut self) {
        MAPPED.fetch_sub(1, Ordering::Relaxed);
    }
}

impl MappedFile {
    /// How many files this process has mapped now. The kernel allows 65,530 maps (vm.max_map_count), those of memory
    /// included.
    pub fn mapped_now() -> usize {
        MAPPED.load(Ordering::Relaxed)
    }

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

    /// Whether it has got shorter since it was opened, so that some of the bytes may have been read as zeros, as
    /// far as can be told: what is read from a pipe's file descriptor can't be found again.
    pub fn has_shrunk(&self) -> bool {
        let is_torn = self.map.as_ref().is_some_and(|map| map.watch.is_torn());
        // Up to the end of its last page, what is cut off is zeros without further ado.
        let is_shorter = || {
            let found = fs::metadata(&self.path);
            found.is_ok_and(|found| {
                (found.dev(), found.ino()) == self.number && found.len() < self.len() as u64
            })
        };
        is_torn || is_shorter()
    }

    /// The user whom it belongs to.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Whether it belongs to the user who runs this, or to root: others could have made it for them to read.
    pub fn is_trusted(&self) -> bool {
        is_trusted(self.owner)
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
        self.map.as_ref().map(|map| &map.bytes[..]).unwrap_or_default()
    }
}

/// Whether a user is the one who runs this, or root.
pub fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw()
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

#[expect(unsafe_code, reason = "maps a file that others may write to")]
fn map(file: &File) -> io::Result<Map> {
    // SAFETY: The bytes may change while they are looked at, if somebody writes to the file. They are only
    // ever read as bytes, each length in them is checked where it is used, and no decision relies on reading
    // the same bytes twice. What is cut off is watched over.
    let bytes = unsafe { Mmap::map(file)? };
    MAPPED.fetch_add(1, Ordering::Relaxed);
    Ok(Map {
        watch: Watch::over(&bytes),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const PAGE: usize = 1 << 16;

    fn file(pages: usize) -> (tempfile::NamedTempFile, MappedFile) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![7; pages * PAGE]).unwrap();
        let mapped = MappedFile::open(file.path()).unwrap();
        (file, mapped)
    }

    #[test]
    fn what_is_cut_off_is_read_as_zeros() {
        for left in [0, 1, PAGE, PAGE + 1, 3 * PAGE] {
            let (file, mapped) = file(4);
            assert!(!mapped.has_shrunk());
            file.as_file().set_len(left as u64).unwrap();
            // from the end on, each page by itself
            for at in (0..4 * PAGE).rev() {
                let expected = if at < left { 7 } else { 0 };
                assert_eq!(mapped[at], expected, "{at} of {left}");
            }
            assert!(mapped.has_shrunk());
        }
    }

    #[test]
    fn a_file_that_is_cut_inside_its_last_page_has_shrunk() {
        let (file, mapped) = file(1);
        file.as_file().set_len(PAGE as u64 - 1).unwrap();
        assert_eq!(mapped[PAGE - 1], 0);
        assert!(mapped.has_shrunk());
    }

    /// Maps come and go while others are cut off.
    #[test]
    fn threads_do_not_disturb_each_other() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let (cut, mapped) = file(2);
                        let (_whole, other) = file(1);
                        cut.as_file().set_len(PAGE as u64).unwrap();
                        assert!(mapped[..PAGE].iter().all(|&byte| byte == 7));
                        assert!(mapped[PAGE..].iter().all(|&byte| byte == 0));
                        assert!(mapped.has_shrunk() && !other.has_shrunk());
                        assert!(other.iter().all(|&byte| byte == 7));
                    }
                });
            }
        });
    }
}
