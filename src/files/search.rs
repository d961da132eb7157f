//! Finds the files in a directory, which may contain anything.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::results::diagnostics::{Diagnostic, Issue};

/// Returns the folder of a path; `.` if it names none.
pub fn folder_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Returns the absolute path without links of a path that the user named, for paths that are written or compared. Only what
/// [`walk`](crate::files::walk) opens may be believed.
#[expect(clippy::disallowed_methods, reason = "nothing is opened")]
pub fn without_links(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// Maximum depth of the search, in directories.
const MAX_DEPTH: usize = 64;

/// Returns all entries below a directory except directories, sorted by name. Adds a note for each directory
/// that was not searched.
pub fn files_below(folder: &Path, diagnostics: &mut Vec<Diagnostic>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    add_files(folder, MAX_DEPTH, &mut files, diagnostics);
    files
}

/// Adds the files in a folder, and those in its folders, which are up to `depth` levels below.
fn add_files(folder: &Path, depth: usize, files: &mut Vec<PathBuf>, diagnostics: &mut Vec<Diagnostic>) {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(error) => {
            let failed = Diagnostic::new(Issue::CannotSearch).in_file(folder);
            return diagnostics.push(failed.caused_by(&error));
        }
    };
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        // Links to directories are not followed, since they may form cycles.
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files.push(entry.path());
        } else if depth > 0 {
            add_files(&entry.path(), depth - 1, files, diagnostics);
        } else {
            let deep = Diagnostic::new(Issue::FolderTooDeep).in_file(&entry.path());
            diagnostics.push(deep.with("limit", MAX_DEPTH));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_searched_to_a_limited_depth() {
        let root = tempfile::tempdir().unwrap();
        let mut folder = root.path().to_owned();
        let mut expected = vec![folder.join("file")];
        for depth in 1..=64 + 2 {
            fs::write(folder.join("file"), "").unwrap();
            folder.push("a");
            fs::create_dir(&folder).unwrap();
            if depth <= 64 {
                expected.push(folder.join("file"));
            }
        }
        // Directories are before the files next to them.
        expected.reverse();
        let mut diagnostics = Vec::new();
        assert_eq!(files_below(root.path(), &mut diagnostics), expected);
        let issues: Vec<Issue> = diagnostics.iter().map(|it| it.issue).collect();
        assert_eq!(issues, [Issue::FolderTooDeep]);
        assert!(
            diagnostics[0]
                .file
                .as_ref()
                .is_some_and(|file| file.ends_with("/a"))
        );
    }
}
