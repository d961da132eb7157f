//! The entries of a directory, so that only these are deleted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Paths of the files and subdirectories of a directory, relative to it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FolderContents {
    files: Vec<PathBuf>,
    /// Subdirectories, each before those inside it.
    folders: Vec<PathBuf>,
}

impl FolderContents {
    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.folders.is_empty()
    }

    /// Adds a file.
    pub fn add_file(&mut self, path: PathBuf) {
        self.files.push(path);
    }

    /// Adds a subdirectory. It must be added before those inside it.
    pub fn add_folder(&mut self, path: PathBuf) {
        self.folders.push(path);
    }

    /// Keeps only the entries for which `is_kept` returns `true`. Returns whether these are all.
    pub fn retain(&mut self, is_kept: impl Fn(&Path) -> bool) -> bool {
        let count = self.files.len() + self.folders.len();
        self.files.retain(|path| is_kept(path));
        self.folders.retain(|path| is_kept(path));
        self.files.len() + self.folders.len() == count
    }

    /// Removes all entries, and then the directory itself if `with_folder` is set. Other files that were put there are
    /// kept, with the directories they are in; this then fails with [`io::ErrorKind::DirectoryNotEmpty`].
    pub fn remove(&self, folder: &Path, with_folder: bool) -> io::Result<()> {
        let mut removed = Ok(());
        for file in &self.files {
            removed = removed.and(fs::remove_file(folder.join(file)));
        }
        for below in self.folders.iter().rev() {
            removed = removed.and(fs::remove_dir(folder.join(below)));
        }
        match with_folder {
            true => removed.and(fs::remove_dir(folder)),
            false => removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_files_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        let mut contents = FolderContents::default();
        contents.add_folder("a".into());
        contents.add_folder("a/b".into());
        for name in ["one", "a/two", "a/b/three", "a/b/other"] {
            fs::write(root.join(name), name).unwrap();
        }
        for name in ["one", "a/two", "a/b/three"] {
            contents.add_file(name.into());
        }
        let error = contents.remove(&root, true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
        assert!(!root.join("one").exists() && !root.join("a/b/three").exists());
        fs::remove_file(root.join("a/b/other")).unwrap();
        // Missing entries do not stop the removal.
        contents.remove(&root, true).unwrap_err();
        assert!(!root.exists());
    }
}
