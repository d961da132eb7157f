//! Directories for the output of the runs.

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

/// Creates directories for each run, and keeps replaced ones until the end.
///
/// ext4 does not reuse inodes that were freed in the last minutes, and skips all of them for each new file nearby,
/// which takes ten times as long. So directories with many files are not removed between runs, and each new
/// directory gets a disk region of its own (`FS_TOPDIR_FL`).
pub struct Folders {
    root: PathBuf,
    count: Cell<u64>,
}

impl Folders {
    pub fn new(root: &Path) -> Self {
        fs::create_dir_all(root).unwrap();
        let root = tempfile::Builder::new().tempdir_in(root).unwrap().keep();
        let root = fs::canonicalize(root).unwrap();
        let folder = File::open(&root).unwrap();
        // Other file systems do not support the flag.
        if let Ok(flags) = ioctl_getflags(&folder) {
            let _ = ioctl_setflags(&folder, flags | IFlags::TOPDIR);
        }
        let count = Cell::new(0);
        Self { root, count }
    }

    fn next_path(&self) -> PathBuf {
        self.count.set(self.count.get() + 1);
        self.root.join(format!("folder-{}", self.count.get()))
    }

    /// Creates an empty directory, replacing what was there.
    pub fn make(&self, path: &Path) {
        self.discard(path);
        let new = self.next_path();
        fs::create_dir(&new).unwrap();
        if fs::rename(&new, path).is_err() {
            // It is on another file system, which is not measured.
            fs::create_dir(path).unwrap();
        }
    }

    /// Removes a directory, if it exists. Moves it away instead if it has many files.
    pub fn discard(&self, path: &Path) {
        /// Maximum number of files in a directory that is removed immediately.
        const FEW: usize = 100;
        if !path.exists() {
            return;
        }
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let (folders, files): (Vec<_>, Vec<_>) =
            entries.partition(|path| path.is_dir() && !path.is_symlink());
        if files.len() > FEW && fs::rename(path, self.next_path()).is_ok() {
            return;
        }
        files.iter().for_each(|file| fs::remove_file(file).unwrap());
        folders.iter().for_each(|folder| self.discard(folder));
        fs::remove_dir(path).unwrap();
    }

    /// Creates the directory of a case.
    pub fn case(&self, name: &str) -> PathBuf {
        let path = self.root.join(name);
        self.make(&path);
        path
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        // Nothing can be done if the removal fails.
        let _ = fs::remove_dir_all(&self.root);
    }
}
