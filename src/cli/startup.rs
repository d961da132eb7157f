//! Setup for commands that may run for long.

use jitinject::diagnostics::{Diagnostic, Issue};
use jitinject::threads;

use crate::cli::interrupt::{self, FirstInterrupt};
use crate::cli::terminal::report;

/// Starts worker threads and signal handling.
pub fn start_long_work(is_verbose: bool) -> Result<FirstInterrupt, Diagnostic> {
    let interrupt =
        interrupt::handle_signals().map_err(|cause| Diagnostic::new(Issue::Signals).caused_by(&cause))?;
    if let Err(cause) = threads::start()
        && is_verbose
    {
        report(&Diagnostic::new(Issue::OneThread).with("cause", cause));
    }
    Ok(interrupt)
}
