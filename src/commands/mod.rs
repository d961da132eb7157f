//! The commands: arguments and implementation of each.

pub mod check;
pub mod compare;
pub mod completions;
pub mod dump;
pub mod explain;
pub mod inject;
mod input;
pub mod man;
pub mod record;
mod runtime_files;
mod source_files;
pub mod timeline;

/// Headings of options in `--help`.
pub mod headings {
    /// Input of a command.
    pub const INPUT: &str = "Input";
    /// Output of a command.
    pub const OUTPUT: &str = "Output";
    /// Names and source positions.
    pub const SYMBOLS: &str = "Symbols and lines";
    /// Mono logs and XRay traces.
    pub const LOGS: &str = "Mono and XRay";
    /// What is recorded, and how.
    pub const RECORDING: &str = "Recording";
    /// Runtimes of the recorded program.
    pub const RUNTIMES: &str = "Runtimes";
    /// Continuous integration.
    pub const CI: &str = "CI";
    /// Messages.
    pub const MESSAGES: &str = "Messages";
}
