//! Removes unfinished output when memory runs out.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, TryLockError};
use std::thread;
use std::time::Duration;

use memmap2::MmapMut;

use jitinject::internals::files::cleanup;

/// The system's allocator, except that it exits with status 1 when memory runs out. Rust would abort the
/// program, as for a bug, and leave unfinished output.
#[derive(Debug)]
pub struct CleanupOnOom;

// SAFETY: The system's allocator does all the work. Its result is returned unless it is null, in which case
// the function does not return.
#[expect(unsafe_code, reason = "an allocator can't be written without it")]
unsafe impl GlobalAlloc for CleanupOnOom {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: The caller's guarantees are those that the system's allocator requires, here and below.
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

/// Memory in bytes that removing unfinished folders takes, with room for what other threads take at the same time.
const RESERVE_SIZE: usize = 1 << 20;

/// Address space that is freed when there is no other. The allocator could not give memory of its own to all threads.
static RESERVE: Mutex<Option<MmapMut>> = Mutex::new(None);

/// Sets memory aside for the removal of unfinished output.
pub fn keep_reserve() {
    if let Ok(mut reserve) = RESERVE.lock()
        && reserve.is_none()
    {
        *reserve = MmapMut::map_anon(RESERVE_SIZE).ok();
    }
}

fn free_reserve() {
    match RESERVE.try_lock() {
        Ok(mut reserve) => *reserve = None,
        Err(TryLockError::Poisoned(poisoned)) => *poisoned.into_inner() = None,
        // There is none yet.
        Err(TryLockError::WouldBlock) => {}
    }
}

fn checked(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null() {
        give_up(size);
    }
    memory
}

/// Prints an error, removes unfinished output and exits. Steps that need memory and get none are left out.
#[cold]
fn give_up(size: usize) -> ! {
    static IS_GIVING_UP: AtomicBool = AtomicBool::new(false);
    thread_local! {
        static IS_THIS_THREAD: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_GIVING_UP.swap(true, Ordering::SeqCst) {
        IS_THIS_THREAD.set(true);
        // Nothing can be done if standard error is closed.
        let _ = writeln!(
            io::stderr(),
            "jitinject: error: out of memory: {size} bytes more could not be had; what was there before is unchanged"
        );
        free_reserve();
        cleanup::try_remove_all();
    } else if !IS_THIS_THREAD.get() {
        // Another thread is about to exit.
        thread::sleep(Duration::from_secs(5));
    }
    // SAFETY: The program exits immediately and uses nothing afterwards.
    #[expect(unsafe_code, reason = "ends the program without what runs at its end")]
    unsafe {
        libc::_exit(1)
    }
}
