//! Jitdumps that running processes have mapped, wherever they are: in other mounts, and removed ones.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use jitdump::internals::format::marker::is_dump_name;
use rustix::process::geteuid;

use super::process_files::{has_same_root, maps_of};
use crate::bytes::base_name;
use crate::files::OpenFile;
use crate::files::kernel::{MappedFile, mapped_files};
use crate::load::running_processes::{OpenFiles, open_files_of};
use crate::units::Pid;

/// Maximum number of files that are kept open, of the 1,024 that a program may have.
const MAX_KEPT: usize = 128;

/// A jitdump that a process had mapped while it ran.
#[derive(Debug)]
pub struct SeenDump {
    /// Path of the file, as this process sees it.
    pub path: PathBuf,
    /// The file, if it is not at that path: it may be gone when its process has ended.
    pub file: Option<OpenFile>,
}

/// Jitdumps that processes had mapped while they ran.
#[derive(Debug, Default)]
pub struct SeenDumps {
    /// By process ID and inode.
    by_process: BTreeMap<(u32, u64), SeenDump>,
    /// Number of files that are kept open.
    kept: usize,
}

impl SeenDumps {
    /// Adds those of a process with these mappings.
    pub fn add(&mut self, pid: u32, maps: &[u8]) {
        let mut in_use = None;
        for MappedFile { inode, path, .. } in mapped_dumps(maps) {
            let path = PathBuf::from(OsStr::from_bytes(path));
            if self.by_process.contains_key(&(pid, inode)) {
                continue;
            }
            let is_here = fs::metadata(&path).is_ok_and(|found| found.ino() == inode) && has_same_root(pid);
            let mut file = None;
            if !is_here && self.kept < MAX_KEPT {
                let in_use = in_use.get_or_insert_with(|| files_in_use(Pid(pid)));
                file = open_in_use(in_use, inode).ok();
            }
            self.kept += usize::from(file.is_some());
            self.by_process.insert((pid, inode), SeenDump { path, file });
        }
    }

    /// Iterates over the jitdumps, each with its process and inode.
    pub fn all(&self) -> impl Iterator<Item = (Pid, u64, &SeenDump)> {
        let all = self.by_process.iter();
        all.map(|(&(pid, inode), dump)| (Pid(pid), inode, dump))
    }

    /// Returns the jitdump with an inode of a process, if it was seen.
    pub fn of(&self, pid: Pid, inode: u64) -> Option<&SeenDump> {
        self.by_process.get(&(pid.0, inode))
    }
}

/// Returns the jitdumps in a list of mappings.
fn mapped_dumps(maps: &[u8]) -> impl Iterator<Item = MappedFile<'_>> {
    mapped_files(maps).filter(|file| is_dump_name(base_name(file.path)))
}

/// Returns the files in which a running process may have its jitdumps, by inode: its open files or, for root, the mapped ones. A
/// program with the rights of root may have a descriptor of a file that the user who started it cannot read (`O_PATH`).
pub fn files_in_use(pid: Pid) -> OpenFiles {
    if !geteuid().is_root() {
        return open_files_of(pid);
    }
    let mut mapped = OpenFiles::default();
    for file in mapped_dumps(&maps_of(pid.0)) {
        mapped.entry(file.inode).or_default().push(file.link(pid.0));
    }
    mapped
}

/// Opens the file with an inode.
pub fn open_in_use(files: &OpenFiles, inode: u64) -> io::Result<OpenFile> {
    let mut result = Err(ErrorKind::NotFound.into());
    for path in files.get(&inode).into_iter().flatten() {
        result = OpenFile::open(path);
        if result.is_ok() {
            break;
        }
    }
    result
}
