//! Progress bar for long operations.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jitinject::internals::threads;
use jitinject::{Diagnostic, Issue, Progress};

use crate::cli::interrupt::{self, FirstInterrupt};
use crate::cli::terminal::report;

/// Time after which the bar appears.
const DELAY: Duration = Duration::from_secs(1);

/// Maximum number of steps between two updates of the bar.
const STRIDE: u64 = 1 << 16;

/// A progress bar on the terminal. It appears after one second, and only if standard error is a terminal.
pub struct Bar {
    bar: ProgressBar,
    started: Instant,
    /// Steps since the start of the operation.
    steps: u64,
    /// Number of steps at which the bar is updated next, and steps per update.
    next_update: u64,
    stride: u64,
    is_shown: bool,
    is_quiet: bool,
    interrupt: FirstInterrupt,
}

impl Bar {
    /// Starts worker threads and signal handling, and creates a bar that appears later, unless `is_quiet`. The first Ctrl-C is
    /// ignored until [`Progress::input_ended`], if `reads_stream`.
    pub fn begin(is_quiet: bool, is_verbose: bool, reads_stream: bool) -> Result<Self, Diagnostic> {
        let interrupt = interrupt::handle_signals(reads_stream)
            .map_err(|cause| Diagnostic::new(Issue::Signals).caused_by(&cause))?;
        if let Err(cause) = threads::start()
            && is_verbose
        {
            report(&Diagnostic::new(Issue::OneThread).with("cause", cause));
        }
        Ok(Self {
            bar: ProgressBar::hidden(),
            started: Instant::now(),
            steps: 0,
            next_update: STRIDE,
            stride: STRIDE,
            is_shown: false,
            is_quiet,
            interrupt,
        })
    }
}

impl Progress for Bar {
    fn input_ended(&mut self) {
        self.interrupt.stop_ignoring();
    }

    fn start(&mut self, what: &'static str, total: u64) {
        self.steps = 0;
        self.stride = (total / 1000).clamp(1, STRIDE);
        self.next_update = self.stride;
        self.bar.set_length(total);
        self.bar.set_position(0);
        self.bar.set_message(what);
    }

    fn advance(&mut self, steps: u64) {
        self.steps += steps;
        if self.steps < self.next_update || self.is_quiet {
            return;
        }
        self.next_update = self.steps + self.stride;
        if !self.is_shown {
            if self.started.elapsed() <= DELAY {
                return;
            }
            self.is_shown = true;
            let style = ProgressStyle::with_template("{msg} [{wide_bar}] {percent} %");
            self.bar.set_style(style.unwrap_or(ProgressStyle::default_bar()));
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(self.steps);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
