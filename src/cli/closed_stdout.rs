//! Notices a closed standard output before Rust opens `/dev/null` in its place.

use jitinject::internals::files::stdio;

extern "C" fn check_stdout() {
    // SAFETY: The call only checks whether the file descriptor is open. A closed one has no effect.
    #[expect(unsafe_code, reason = "asks for a number that need not be an open file")]
    let result = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    if result < 0 {
        stdio::note_closed_stdout();
    }
}

// SAFETY: The functions in this section are called before `main`, one at a time and after the C library was
// initialized. This one does not use Rust's runtime.
#[expect(unsafe_code, reason = "is called before Rust opens what is closed")]
#[unsafe(link_section = ".init_array")]
#[used]
static CHECK_STDOUT: extern "C" fn() = check_stdout;
