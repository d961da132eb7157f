//! The entries of a directory, so that only these are deleted.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::folder::{Folder, NameInFolder};

/// Paths of the files and subdirectories of a directory, relative to it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FolderContents {
    /// Each with whether it is a subdirectory, which precedes what is in it.
    entries: Vec<(PathBuf, bool)>,
}

impl FolderContents {
    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a file or subdirectory. A subdirectory must be added before what is in it.
    pub fn add(&mut self, path: PathBuf, is_folder: bool) {
        self.entries.push((path, is_folder));
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keeps only the entries for which `is_kept` returns `true`.
    pub fn retain(&mut self, is_kept: impl Fn(&Path) -> bool) {
        self.entries.retain(|(path, _)| is_kept(path));
    }

    /// Removes all entries. Other files that were put there are kept, with the directories they are in; this then fails with
    /// [`io::ErrorKind::DirectoryNotEmpty`].
    pub fn remove(&self, folder: &Folder) -> io::Result<()> {
        let remove = |(path, is_folder): &(PathBuf, bool)| {
            let place = folder.inside(path)?;
            if *is_folder {
                place.remove_folder()
            } else {
                place.remove()
            }
        };
        let removed = self.entries.iter().rev().map(remove);
        removed.fold(Ok(()), Result::and)
    }

    /// As [`remove`](Self::remove), and then removes the directory itself.
    pub fn remove_with(&self, folder: &NameInFolder) -> io::Result<()> {
        let removed = self.remove(&folder.open_folder()?);
        removed.and(folder.remove_folder())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn unlisted_files_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        let mut contents = FolderContents::default();
        contents.add("a".into(), true);
        contents.add("a/b".into(), true);
        for name in ["one", "a/two", "a/b/three", "a/b/other"] {
            fs::write(root.join(name), name).unwrap();
        }
        for name in ["one", "a/two", "a/b/three"] {
            contents.add(name.into(), false);
        }
        let error = contents
            .remove_with(&NameInFolder::of(&root).unwrap())
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
        assert!(!root.join("one").exists() && !root.join("a/b/three").exists());
        fs::remove_file(root.join("a/b/other")).unwrap();
        // Missing entries do not stop the removal.
        contents
            .remove_with(&NameInFolder::of(&root).unwrap())
            .unwrap_err();
        assert!(!root.exists());
    }
}
