//! Processes that still run: what the kernel shows of them in `/proc`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::hash::HashMap;
use crate::units::Pid;

/// The paths of a process's open files, by inode.
pub type OpenFiles = HashMap<u64, Vec<PathBuf>>;

/// The folder that the kernel has for a process as long as it runs.
pub fn process_folder(pid: Pid) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// The files that a process has open, if it still runs.
pub fn open_files_of(pid: Pid) -> OpenFiles {
    let mut open = OpenFiles::default();
    let files = fs::read_dir(process_folder(pid).join("fd"));
    for file in files.into_iter().flatten().filter_map(Result::ok) {
        let path = file.path();
        if let Ok(metadata) = fs::metadata(&path) {
            open.entry(metadata.ino()).or_default().push(path);
        }
    }
    open
}
