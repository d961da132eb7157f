//! Reports of files that are not in a recording.

use std::io;
use std::path::Path;

use crate::results::diagnostics::{Diagnostic, Issue};

/// What to do about a jitdump that may be somebody else's.
const COPY_TO_DUMPS: &str =
    "If the program wrote it, copy it to dumps/ in the directory of the recording, which keeps its names.";

/// Reports a file that is not in the recording, or not in its archive.
pub fn left_out(path: &Path, cause: &io::Error) -> Diagnostic {
    Diagnostic::new(Issue::NotCollected)
        .in_file(path)
        .caused_by(cause)
}

/// Reports a jitdump that may be somebody's whom its process reads.
pub fn of_other_user(path: &Path) -> Diagnostic {
    let cause = io::Error::other("it belongs to another user than its process");
    left_out(path, &cause).with_remedy(COPY_TO_DUMPS)
}
