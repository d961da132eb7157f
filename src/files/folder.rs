//! Creates files in a directory that others may write to.
//!
//! Nothing is created outside the directory, whatever others put there: subdirectories are opened one by one,
//! and links are not followed. Files appear atomically, and existing ones are not replaced.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::files::staged::{FILE_MODE, FOLDER_MODE, NEW_FILE_FLAGS, create_beside, ignore_existing};
use crate::files::{CommitGuard, InputFile, cleanup};

/// Flags for opening directories.
const FOLDER_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open directory.
#[derive(Debug)]
pub struct SharedFolder {
    path: PathBuf,
    handle: OwnedFd,
}

impl SharedFolder {
    /// Opens the directory that the user named, through any links. Creates it and its parents if they are
    /// missing.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(FOLDER_MODE.bits()).create(path)?;
        Ok(Self {
            path: path.to_owned(),
            handle: rustix::fs::openat(CWD, path, FOLDER_FLAGS, Mode::empty())?,
        })
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a subdirectory, and creates it if it is missing. Does not follow a link.
    pub fn open_subfolder(&self, name: &OsStr) -> io::Result<Self> {
        let flags = FOLDER_FLAGS.union(OFlags::NOFOLLOW);
        let open = || rustix::fs::openat(&self.handle, name, flags, Mode::empty());
        let opened = match open() {
            Err(Errno::NOENT) => {
                // Another process may just have created it.
                ignore_existing(rustix::fs::mkdirat(&self.handle, name, FOLDER_MODE))?;
                open()
            }
            other => other,
        };
        Ok(Self {
            path: self.path.join(name),
            handle: opened?,
        })
    }

    /// Puts a file into the directory under a new name, unless the name is taken.
    ///
    /// Uses a hard link if possible, which takes no space. Otherwise copies the file, as it does if the file
    /// belongs to another user, who could change it later.
    pub fn add_file(&self, name: &str, file: &InputFile) -> io::Result<()> {
        let link = || rustix::fs::linkat(CWD, file.path(), &self.handle, name, AtFlags::empty());
        // File systems without hard links, or that reject this one, return various errors.
        if file.is_owned_by_user() && ignore_existing(link()).is_ok() {
            return Ok(());
        }
        self.write_copy(name, file)
    }

    fn write_copy(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let _guard = CommitGuard::begin();
        let make = |path: &Path| rustix::fs::openat(&self.handle, path, NEW_FILE_FLAGS, FILE_MODE);
        let (staged, copy) = create_beside(Path::new(name), make)?;
        let written = File::from(copy).write_all(content).and_then(|()| {
            let linked = rustix::fs::linkat(&self.handle, &staged, &self.handle, name, AtFlags::empty());
            Ok(ignore_existing(linked)?)
        });
        let removed = rustix::fs::unlinkat(&self.handle, &staged, AtFlags::empty());
        cleanup::unregister(&staged);
        written.and(removed.map_err(io::Error::from))
    }

    /// Creates a symbolic link, unless the name is taken.
    pub fn create_symlink(&self, name: &str, target: &Path) -> io::Result<()> {
        let created = rustix::fs::symlinkat(target, &self.handle, name);
        Ok(ignore_existing(created)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn folder_and_file(dir: &Path) -> (SharedFolder, InputFile) {
        fs::write(dir.join("file"), "content").unwrap();
        let folder = SharedFolder::create(&dir.join("a/b")).unwrap();
        (folder, InputFile::open(&dir.join("file")).unwrap())
    }

    #[test]
    fn files_are_linked_or_copied() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, file) = folder_and_file(dir.path());
        folder.add_file("same", &file).unwrap();
        folder.write_copy("copy", &file).unwrap();
        for (name, links) in [("same", 2), ("copy", 1)] {
            let path = dir.path().join("a/b").join(name);
            assert_eq!(fs::read(&path).unwrap(), b"content");
            assert_eq!(fs::metadata(&path).unwrap().nlink(), links, "{name}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn existing_files_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, file) = folder_and_file(dir.path());
        let other = dir.path().join("other");
        fs::write(&other, "somebody else's").unwrap();
        symlink(&other, folder.path().join("linked")).unwrap();
        symlink("nowhere", folder.path().join("dangling")).unwrap();
        for name in ["linked", "dangling"] {
            folder.add_file(name, &file).unwrap();
            folder.write_copy(name, &file).unwrap();
            folder.create_symlink(name, Path::new("elsewhere")).unwrap();
        }
        assert_eq!(fs::read(&other).unwrap(), b"somebody else's");
        let target = fs::read_link(folder.path().join("dangling")).unwrap();
        assert_eq!(target, Path::new("nowhere"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn links_are_not_entered() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, _) = folder_and_file(dir.path());
        symlink(dir.path(), folder.path().join("link")).unwrap();
        assert!(folder.open_subfolder(OsStr::new("link")).is_err());
        assert!(folder.open_subfolder(OsStr::new("new")).is_ok());
        assert!(folder.open_subfolder(OsStr::new("new")).is_ok());
    }
}
