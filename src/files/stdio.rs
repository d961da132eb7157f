//! Standard output, which may be closed.

use std::sync::atomic::{AtomicBool, Ordering};

static OUTPUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed when the program started. Rust opens `/dev/null` in its place then, and
/// what is written there would be lost without anybody being told.
pub fn output_was_closed() -> bool {
    OUTPUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// ScanBudget before Rust does.
extern "C" fn look() {
    // SAFETY: It is only asked whether that number is an open file; if it is none, nothing else happens.
    #[expect(unsafe_code, reason = "asks for a number that need not be an open file")]
    let result = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    OUTPUT_WAS_CLOSED.store(result < 0, Ordering::Relaxed);
}

// SAFETY: The functions that this section lists are called before `main`, one after another and with the C
// library ready, and this one needs nothing of Rust's own runtime.
#[expect(unsafe_code, reason = "is called before Rust opens what is closed")]
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;
