//! Setup for commands that may run for long.

use jitinject::internals::threads;
use jitinject::{Diagnostic, Issue};

use crate::cli::interrupt::{self, FirstInterrupt};
use crate::cli::terminal::report;

/// Starts worker threads and signal handling. The first Ctrl-C is ignored while input is read, if `reads_stream`.
pub fn start_long_work(is_verbose: bool, reads_stream: bool) -> Result<FirstInterrupt, Diagnostic> {
    let interrupt = interrupt::handle_signals(reads_stream)
        .map_err(|cause| Diagnostic::new(Issue::Signals).caused_by(&cause))?;
    if let Err(cause) = threads::start()
        && is_verbose
    {
        report(&Diagnostic::new(Issue::OneThread).with("cause", cause));
    }
    Ok(interrupt)
}
