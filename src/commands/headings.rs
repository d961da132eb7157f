//! Headings of options in `--help`.

/// Input of a command.
pub const INPUT: &str = "Input";
/// Output of a command.
pub const OUTPUT: &str = "Output";
/// Names and source positions.
pub const SYMBOLS: &str = "Symbols and lines";
/// Logs and traces with more than code.
pub const LOGS: &str = "Mono and XRay";
/// Continuous integration.
pub const CI: &str = "CI";
/// Messages.
pub const MESSAGES: &str = "Messages";
