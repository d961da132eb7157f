//! The program, which writes to the file in the environment variable `COUNT` the number of blocks of the library's code that it
//! has passed, and the most bytes of memory that it had at a time.

#![allow(clippy::disallowed_methods)]

#[path = "../../../src/cli/mod.rs"]
mod cli;

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

static PASSED: AtomicU64 = AtomicU64::new(0);

/// Called by each block of the library's code.
#[unsafe(no_mangle)]
pub extern "C" fn __sanitizer_cov_trace_pc() {
    PASSED.fetch_add(1, Ordering::Relaxed);
}

static BYTES: AtomicUsize = AtomicUsize::new(0);
static MOST_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn add_bytes(size: usize) {
    let bytes = BYTES.fetch_add(size, Ordering::Relaxed) + size;
    MOST_BYTES.fetch_max(bytes, Ordering::Relaxed);
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add_bytes(layout.size());
        // SAFETY: the caller's promises are those that are asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        add_bytes(size);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let status = cli::commands::run();
    if let Some(path) = std::env::var_os("COUNT") {
        let counts = [
            PASSED.load(Ordering::Relaxed),
            MOST_BYTES.load(Ordering::Relaxed) as u64,
        ];
        std::fs::write(path, counts.map(|count| count.to_string()).join(" ")).unwrap();
    }
    status
}
