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
        }
    }
}
