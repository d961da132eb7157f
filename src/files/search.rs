//! Finding the files in a folder, in which anything may lie.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::bytes::printable;

/// How deep folders are searched.
const MAX_DEPTH: usize = 64;

/// A path without what could steer a terminal.
pub fn shown(path: &Path) -> String {
    printable(path.as_os_str().as_bytes())
}

/// All in a folder and below that is no folder, in the order of the names; notes what could not be searched.
pub fn files_below(folder: &Path, notes: &mut Vec<String>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    add_files(folder, MAX_DEPTH, &mut files, notes);
    files
}

fn add_files(folder: &Path, depth: usize, files: &mut Vec<PathBuf>, notes: &mut Vec<String>) {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(error) => {
            let note = format!("cannot search {}: {error}", shown(folder));
            return notes.push(note);
        }
    };
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        // Links to folders are not followed: they may lead in circles.
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files.push(entry.path());
        } else if depth > 0 {
            add_files(&entry.path(), depth - 1, files, notes);
        } else {
            let folder = shown(&entry.path());
            notes.push(format!(
                "{folder} is not searched: it is more than {MAX_DEPTH} folders deep"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_searched_to_a_depth_and_what_is_deeper_is_told() {
        let root = tempfile::tempdir().unwrap();
        let mut folder = root.path().to_owned();
        let mut expected = vec![folder.join("file")];
        for depth in 1..=MAX_DEPTH + 2 {
            fs::write(folder.join("file"), "").unwrap();
            folder.push("a");
            fs::create_dir(&folder).unwrap();
            if depth <= MAX_DEPTH {
                expected.push(folder.join("file"));
            }
        }
        // A folder stands before the file beside it.
        expected.reverse();
        let mut notes = Vec::new();
        assert_eq!(files_below(root.path(), &mut notes), expected);
        assert_eq!(notes.len(), 1);
        assert!(
            notes[0].ends_with("/a is not searched: it is more than 64 folders deep"),
            "{notes:?}"
        );
    }
}
