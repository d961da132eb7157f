//! Start of commands that take long.

use jitinject::diagnostics::{Diagnostic, Issue};
use jitinject::threads;

use crate::cli::interrupt::{self, FirstInterrupt};
use crate::cli::terminal::report;

/// Starts threads and signal handling for long work.
pub fn start_long_work(is_verbose: bool) -> Result<FirstInterrupt, Diagnostic> {
    let interrupt = interrupt::listen().map_err(|cause| Diagnostic::new(Issue::Signals).caused_by(&cause))?;
    if let Err(cause) = threads::start()
        && is_verbose
    {
        report(&Diagnostic::new(Issue::OneThread).with("cause", cause));
    }
    Ok(interrupt)
}
