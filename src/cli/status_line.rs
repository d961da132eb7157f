//! The line that shows the state of a recording.

use std::io::stderr;

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jitinject::internals::record::Status;
use jitinject::internals::results::summary::count;
use rustix::termios::{LocalModes, tcgetattr};

/// A line on the terminal; nothing if standard error is no terminal.
pub struct StatusLine {
    line: ProgressBar,
}

impl StatusLine {
    /// Creates a line that has no text yet, and never has one if `is_quiet`.
    pub fn new(is_quiet: bool) -> Self {
        let line = ProgressBar::no_length();
        line.set_draw_target(ProgressDrawTarget::hidden());
        if !is_quiet && is_line_terminal() {
            line.set_draw_target(ProgressDrawTarget::stderr());
        }
        line.set_style(ProgressStyle::with_template("{msg}").unwrap_or(ProgressStyle::default_spinner()));
        Self { line }
    }

    /// Shows the state.
    pub fn show(&self, status: &Status) {
        if !is_line_terminal() {
            // The program draws on the screen itself.
            self.line.set_draw_target(ProgressDrawTarget::hidden());
            return;
        }
        let (seconds, size) = (status.elapsed.as_secs(), HumanBytes(status.profile_size));
        let recorded = match status.samples {
            Some(samples) => format!("{} ({size})", count(samples, "sample")),
            None => size.to_string(),
        };
        let mut text = format!("jitinject: recording, {seconds} s, {recorded}");
        if status.dumps > 0 {
            let (dumps, size) = (count(status.dumps as u64, "dump"), HumanBytes(status.dump_size));
            text.push_str(&format!(", {dumps} of the JIT code ({size})"));
        }
        self.line.set_message(text);
        self.line.tick();
    }

    /// Prints something above the line.
    pub fn print(&self, print: impl FnOnce()) {
        self.line.suspend(print);
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

/// Whether standard error is a terminal that programs write lines to, as opposed to editors and the like.
fn is_line_terminal() -> bool {
    tcgetattr(stderr()).is_ok_and(|terminal| terminal.local_modes.contains(LocalModes::ICANON))
}
