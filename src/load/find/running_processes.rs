//! Information from `/proc` about running processes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::collections::hash::HashMap;
use crate::units::Pid;

/// Paths of the open files of a process, by inode.
pub type OpenFiles = HashMap<u64, Vec<PathBuf>>;

/// Returns the folder of a process in `/proc`, which exists as long as the process runs.
pub fn process_folder(pid: Pid) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Returns the open files of a process, or none if it has exited.
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
