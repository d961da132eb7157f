//! Standard input and output.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether a path is `-`, which means standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Whether standard output was closed when the program started. Rust opens `/dev/null` in its place, so
/// output would be lost without an error.
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Runs before Rust opens `/dev/null`.
extern "C" fn check_stdout() {
    // SAFETY: The call only checks whether the file descriptor is open. A closed one has no effect.
    #[expect(unsafe_code, reason = "asks for a number that need not be an open file")]
    let result = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    STDOUT_WAS_CLOSED.store(result < 0, Ordering::Relaxed);
}

// SAFETY: The functions in this section are called before `main`, one at a time and after the C library was
// initialized. This one does not use Rust's runtime.
#[expect(unsafe_code, reason = "is called before Rust opens what is closed")]
#[unsafe(link_section = ".init_array")]
#[used]
static CHECK_STDOUT: extern "C" fn() = check_stdout;
