//! The end of memory, which leaves nothing unfinished behind.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::files::cleanup;

/// The system's allocator, but that it ends the program with status 1 when there is no memory left. Without it,
/// Rust would abort the program, as for a mistake in it, and leave what is unfinished.
#[derive(Debug)]
pub struct CleanupOnOom;

// SAFETY: Everything is left to the system's allocator; what comes from it is returned unless it is null, and
// then nothing is returned.
#[expect(unsafe_code, reason = "an allocator can't be written without it")]
unsafe impl GlobalAlloc for CleanupOnOom {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: The caller's promises are those that are asked for, here and below.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: As above.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: As above.
        checked(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: As above.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn checked(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null() {
        give_up(size);
    }
    memory
}

/// Says what happened, removes what is unfinished and ends the program. Whatever needs memory for that and gets
/// none either is left undone.
#[cold]
fn give_up(size: usize) -> ! {
    static IS_GIVING_UP: AtomicBool = AtomicBool::new(false);
    thread_local! {
        static IS_THIS_THREAD: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_GIVING_UP.swap(true, Ordering::SeqCst) {
        IS_THIS_THREAD.set(true);
        // A closed standard error can't be told about.
        let _ = writeln!(
            io::stderr(),
            "jitinject: error: out of memory: {size} bytes more could not be had; what was there before is unchanged"
        );
        cleanup::try_remove();
    } else if !IS_THIS_THREAD.get() {
        // Another thread is about to end the program.
        thread::sleep(Duration::from_secs(5));
    }
    // SAFETY: It ends the program at once, with nothing of it being used any more.
    #[expect(unsafe_code, reason = "ends the program without what runs at its end")]
    unsafe {
        libc::_exit(1)
    }
}
