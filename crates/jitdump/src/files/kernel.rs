//! Reads files of the kernel, in `/proc` and `/sys`: nobody else can put files there.

#![expect(clippy::disallowed_methods, reason = "files of the kernel only")]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Reads a file.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    kernel_path(path.as_ref()).and_then(fs::read)
}

/// Reads a file of UTF-8 text.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    kernel_path(path.as_ref()).and_then(fs::read_to_string)
}

/// Returns the text of a link.
pub fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    kernel_path(path.as_ref()).and_then(fs::read_link)
}

/// Opens a file for reading.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    kernel_path(path.as_ref()).and_then(File::open)
}

/// Rejects paths elsewhere.
fn kernel_path(path: &Path) -> io::Result<&Path> {
    match path.starts_with("/proc") || path.starts_with("/sys") {
        true => Ok(path),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_not_read() {
        assert!(read_text("/proc/self/status").unwrap().contains("Pid:"));
        assert!(read_link("/proc/self/exe").is_ok() && open("/proc/self/maps").is_ok());
        assert!(read("/etc/passwd").is_err());
    }
}
