//! Standard input and output.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether a path is `-`, which means standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Whether standard output was closed when the program started and has [noted](note_closed_stdout) it. Rust opens
/// `/dev/null` in its place, so output would be lost without an error.
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Notes that standard output was closed when the program started. Only code that runs before `main` can see this.
pub fn note_closed_stdout() {
    STDOUT_WAS_CLOSED.store(true, Ordering::Relaxed);
}
