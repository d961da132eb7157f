//! What is no longer needed.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder for folders with many files, to be removed at the end: ext4 does not use the numbers of files again
/// that were removed a short time ago, and takes long to find others.
pub struct Trash {
    folder: PathBuf,
    count: Cell<u64>,
}

impl Trash {
    pub fn new(folder: PathBuf) -> Self {
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        let count = Cell::new(0);
        Self { folder, count }
    }

    /// Takes what is at a path away, if there is anything.
    pub fn put(&self, path: &Path) {
        /// Files of a folder that can well be removed at once.
        const FEW: usize = 100;
        if !path.is_dir() {
            if path.exists() {
                fs::remove_file(path).unwrap();
            }
            return;
        }
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let entries: Vec<PathBuf> = entries.collect();
        self.count.set(self.count.get() + 1);
        let target = self.folder.join(self.count.get().to_string());
        // Another file system is not the one that is measured.
        if entries.len() > FEW && fs::rename(path, target).is_ok() {
            return;
        }
        entries.iter().for_each(|entry| self.put(entry));
        fs::remove_dir(path).unwrap();
    }
}

impl Drop for Trash {
    fn drop(&mut self) {
        // Nothing more can be done about a folder that can't be removed.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
