//! Opening of runtime files.

use std::io;

use crate::files::{CompressionFormat, InputFile, OpenFile};
use crate::results::diagnostics::{Diagnostic, Issue};

/// Maximum number of files in use when another runtime file is opened: more than the processes on any
/// machine, and few enough to search in seconds.
pub const MAX_FILES: usize = 50_000;

/// Returns an opened runtime file, if it is not compressed and `check` accepts its first bytes.
pub fn accept_if(
    opened: io::Result<OpenFile>,
    check: impl FnOnce(&[u8]) -> Result<(), Diagnostic>,
) -> Result<OpenFile, Diagnostic> {
    check_count(InputFile::live_count())?;
    let file = opened.map_err(|cause| Diagnostic::unusable(&cause))?;
    let start = file.read_start().map_err(|cause| Diagnostic::unusable(&cause))?;
    if let Some(format) = CompressionFormat::detect(&start) {
        return Err(Diagnostic::new(Issue::FileCompressed).with("program", format.program()));
    }
    check(&start).map_err(Diagnostic::as_unused)?;
    Ok(file)
}

/// Fails if no more files may be opened while so many are in use.
fn check_count(in_use: usize) -> Result<(), Diagnostic> {
    if in_use < MAX_FILES {
        Ok(())
    } else {
        Err(Diagnostic::new(Issue::TooManyFiles).with("limit", MAX_FILES))
    }
}

/// Reads an opened runtime file; see [`accept_if`].
pub fn read_if(
    opened: io::Result<OpenFile>,
    check: impl FnOnce(&[u8]) -> Result<(), Diagnostic>,
) -> Result<InputFile, Diagnostic> {
    let file = accept_if(opened, check)?;
    InputFile::read(&file).map_err(|cause| Diagnostic::unusable(&cause))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_file_that_was_removed_since_its_folder_was_listed_is_missing() {
        let removed = OpenFile::open(Path::new("/nowhere/at/all"));
        let error = accept_if(removed, |_| Ok(())).unwrap_err();
        assert_eq!(error.issue, Issue::FileMissing);
    }

    #[test]
    fn up_to_fifty_thousand_files_are_in_use() {
        assert_eq!(check_count(49_999), Ok(()));
        let error = check_count(50_000).unwrap_err();
        assert_eq!(error.issue, Issue::TooManyFiles);
        assert!(error.message().contains("50000"), "{}", error.message());
    }
}
