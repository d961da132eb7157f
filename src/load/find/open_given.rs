//! Opening of the logs and traces that the user named, and those in named folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::printable_path;
use crate::collections::hash::HashSet;
use crate::files::InputFile;
use crate::files::search::files_below;
use crate::load::find::access::Access;
use crate::results::diagnostics::issues::CHECK_PATH;
use crate::results::diagnostics::{Diagnostic, Issue};

/// Opens the files that the user named, and files in named folders if their first bytes are `wanted` and
/// their owners are trusted. Adds notes about the others that are `wanted` or unreadable.
///
/// Skips duplicates, and the file that was `opened` before.
pub fn open_given(
    paths: &[PathBuf],
    opened: Option<&InputFile>,
    wanted: impl Fn(&[u8]) -> bool,
    access: &Access,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<Vec<Arc<InputFile>>, Diagnostic> {
    let mut files = Vec::new();
    let mut known: HashSet<(u64, u64)> = opened.into_iter().map(InputFile::file_id).collect();
    let mut add = |file: InputFile| {
        if known.insert(file.file_id()) {
            files.push(Arc::new(file));
        }
    };
    for path in paths {
        let error = |cause| Diagnostic::cannot_read_named(path, &cause, CHECK_PATH);
        if !fs::metadata(path).map_err(error)?.is_dir() {
            let file = access
                .reach
                .open_named(path, path)
                .and_then(|file| InputFile::read(&file));
            add(file.map_err(error)?);
            continue;
        }
        let mut unread = Unread::default();
        for found in files_below(path, diagnostics) {
            let file = access.reach.open_named(path, &found).and_then(|file| {
                let is_wanted = wanted(&file.read_start()?);
                is_wanted.then(|| InputFile::read(&file)).transpose()
            });
            let file = match file {
                Ok(Some(file)) => file,
                Ok(None) => continue,
                Err(error) => {
                    unread.add(&found, error);
                    continue;
                }
            };
            match access.check(file.origin(), None) {
                Ok(()) => add(file),
                Err(rejected) => diagnostics.push(rejected.in_file(&found)),
            }
        }
        diagnostics.extend(unread.diagnostic(path));
    }
    Ok(files)
}

/// Files of a folder that cannot be read, so that their type is unknown.
#[derive(Debug, Default)]
struct Unread {
    count: u64,
    /// The first one and the error.
    first: Option<(PathBuf, io::Error)>,
}

impl Unread {
    fn add(&mut self, path: &Path, error: io::Error) {
        self.count = self.count.saturating_add(1);
        self.first.get_or_insert_with(|| (path.to_owned(), error));
    }

    fn diagnostic(self, folder: &Path) -> Option<Diagnostic> {
        let (path, cause) = self.first?;
        let unread = Diagnostic::new(Issue::FilesUnreadable)
            .in_file(folder)
            .times(self.count);
        Some(unread.with("first", printable_path(&path)).caused_by(&cause))
    }
}
