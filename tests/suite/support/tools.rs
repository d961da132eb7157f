//! Other people's programs.

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a program and returns what it printed, standard error behind standard output. A program that can't be started fails the test; its own exit
/// status is not looked at, since linters report through it.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; scripts/test installs it"));
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
