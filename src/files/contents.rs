//! The entries of a folder, so that only these are deleted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The files and folders in a folder, by their paths below it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    files: Vec<PathBuf>,
    /// Each before those in it.
    folders: Vec<PathBuf>,
}

impl Contents {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.folders.is_empty()
    }

    /// Adds a file.
    pub fn add_file(&mut self, path: PathBuf) {
        self.files.push(path);
    }

    /// Adds a folder, before what is in it.
    pub fn add_folder(&mut self, path: PathBuf) {
        self.folders.push(path);
    }

    /// Removes all of it, and then the folder. If anything else was put there, it stays, with the folders that it is in,
    /// and this fails with [`io::ErrorKind::DirectoryNotEmpty`].
    pub fn remove(&self, folder: &Path) -> io::Result<()> {
        let mut removed = Ok(());
        for file in &self.files {
            removed = removed.and(fs::remove_file(folder.join(file)));
        }
        for below in self.folders.iter().rev() {
            removed = removed.and(fs::remove_dir(folder.join(below)));
        }
        removed.and(fs::remove_dir(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_listed_stays() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        let mut contents = Contents::default();
        contents.add_folder("a".into());
        contents.add_folder("a/b".into());
        for name in ["one", "a/two", "a/b/three", "a/b/other"] {
            fs::write(root.join(name), name).unwrap();
        }
        for name in ["one", "a/two", "a/b/three"] {
            contents.add_file(name.into());
        }
        let error = contents.remove(&root).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
        assert!(!root.join("one").exists() && !root.join("a/b/three").exists());
        fs::remove_file(root.join("a/b/other")).unwrap();
        // What is gone already stops nothing.
        contents.remove(&root).unwrap_err();
        assert!(!root.exists());
    }
}
