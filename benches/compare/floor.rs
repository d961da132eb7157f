//! Lower bounds: the time that copying or writing the same files takes.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags, openat};

/// Returns a command that copies files and directories into a directory.
pub fn copy(from: &[&Path], to: &Path) -> Command {
    let mut command = Command::new("cp");
    command.arg("-r").args(from).arg(to);
    command
}

/// Returns a command that writes files of the same sizes as those in a directory to another one; `sizes` is a
/// temporary file for the sizes.
pub fn write(like: &Path, sizes: &Path, to: &Path) -> Command {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(like).unwrap() {
        let metadata = entry.unwrap().metadata().unwrap();
        if metadata.is_file() {
            bytes.extend_from_slice(&metadata.len().to_le_bytes());
        }
    }
    fs::write(sizes, bytes).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--write-files").args([sizes, to]);
    command
}

/// Implements that command.
pub fn write_files(sizes: &Path, folder: &Path) {
    let folder = openat(CWD, folder, OFlags::DIRECTORY, Mode::empty()).unwrap();
    let sizes = fs::read(sizes).unwrap();
    let sizes = sizes
        .chunks_exact(8)
        .map(|size| u64::from_le_bytes(size.try_into().unwrap()));
    let content = vec![0x5a; 1 << 20];
    for (number, size) in sizes.enumerate() {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = openat(&folder, format!("file-{number}"), flags, Mode::from(0o666)).unwrap();
        let mut file = File::from(file);
        let mut left = size as usize;
        while left > 0 {
            let part = left.min(content.len());
            file.write_all(&content[..part]).unwrap();
            left -= part;
        }
    }
}
