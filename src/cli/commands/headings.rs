//! Headings of options in `--help`.

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
