//! Folders for what the runs write.

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

/// Makes folders anew for each run, and keeps what they replace until the end.
///
/// ext4 does not use the numbers of files again that were removed in the last minutes, and goes through all of
/// them for each file that is made near them: it then takes ten times as long. So nothing that has many files
/// is removed between runs, and each new folder gets a region of the disk to itself (`FS_TOPDIR_FL`).
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
        // Other file systems have no such flag.
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

    /// Makes a folder with nothing in it, whatever was there before.
    pub fn make(&self, path: &Path) {
        self.discard(path);
        let new = self.next_path();
        fs::create_dir(&new).unwrap();
        if fs::rename(&new, path).is_err() {
            // Another file system is not the one that is measured.
            fs::create_dir(path).unwrap();
        }
    }

    /// Takes a folder away, if it is there: what is in it for long if that is much.
    pub fn discard(&self, path: &Path) {
        /// Files of a folder that can well be removed at once.
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

    /// A folder for a case.
    pub fn case(&self, name: &str) -> PathBuf {
        let path = self.root.join(name);
        self.make(&path);
        path
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        // Nothing more can be done about a folder that can't be removed.
        let _ = fs::remove_dir_all(&self.root);
    }
}
