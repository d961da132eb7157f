//! The program, which writes the number of blocks of the library's code that it has passed to the file in the
//! environment variable `COUNT`.

#![allow(clippy::disallowed_methods)]

#[path = "../../../src/cli/mod.rs"]
mod cli;
#[path = "../../../src/commands/mod.rs"]
mod commands;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

static PASSED: AtomicU64 = AtomicU64::new(0);

/// Called by each block of the library's code.
#[unsafe(no_mangle)]
pub extern "C" fn __sanitizer_cov_trace_pc() {
    PASSED.fetch_add(1, Ordering::Relaxed);
}

fn main() -> ExitCode {
    let status = commands::run();
    if let Some(path) = std::env::var_os("COUNT") {
        std::fs::write(path, PASSED.load(Ordering::Relaxed).to_string()).unwrap();
    }
    status
}
