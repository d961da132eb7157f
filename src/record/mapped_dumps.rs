//! Jitdumps that running processes have mapped, wherever they are: in other mounts, and removed ones.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use jitdump::internals::format::marker::dump_path;
use rustix::process::geteuid;

use super::process_files::{has_same_root, maps_of};
use crate::files::OpenFile;
use crate::load::running_processes::{OpenFiles, open_files_of, process_folder};
use crate::units::Pid;

/// A mapping of a jitdump.
#[derive(PartialEq, Eq, Debug)]
pub struct DumpMapping {
    /// First address, and the one after the last.
    addresses: (u64, u64),
    /// Inode of the file.
    pub inode: u64,
    /// Path of the file, as this process sees it.
    pub path: PathBuf,
}

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
        for DumpMapping { inode, path, .. } in mapped_dumps(maps) {
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

    /// Returns the jitdump with an inode of a process, if it was seen.
    pub fn of(&self, pid: Pid, inode: u64) -> Option<&SeenDump> {
        self.by_process.get(&(pid.0, inode))
    }
}

/// Returns the jitdumps in a list of mappings.
pub fn mapped_dumps(maps: &[u8]) -> impl Iterator<Item = DumpMapping> {
    maps.split(|&byte| byte == b'\n').filter_map(|line| {
        let (fields, path) = line.split_at_checked(memchr::memchr(b'/', line)?)?;
        let path = PathBuf::from(OsStr::from_bytes(dump_path(path)?));
        let mut fields = std::str::from_utf8(fields).ok()?.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        Some(DumpMapping {
            addresses: (address(start)?, address(end)?),
            // After permissions, offset and device.
            inode: fields.nth(3)?.parse().ok()?,
            path,
        })
    })
}

/// Returns the files in which a running process may have its jitdumps, by inode: its open files or, for root, the mapped ones. A
/// program with the rights of root may have a descriptor of a file that the user who started it cannot read (`O_PATH`).
pub fn files_in_use(pid: Pid) -> OpenFiles {
    if !geteuid().is_root() {
        return open_files_of(pid);
    }
    let folder = process_folder(pid).join("map_files");
    let mut mapped = OpenFiles::default();
    for DumpMapping { addresses, inode, .. } in mapped_dumps(&maps_of(pid.0)) {
        let (start, end) = addresses;
        let link = folder.join(format!("{start:x}-{end:x}"));
        mapped.entry(inode).or_default().push(link);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_of_a_jitdump_has_its_inode_and_path() {
        let maps = b"00400000-00401000 r-xp 00000000 08:01 7  /a b/jit-17.dump (deleted)\n\
            7f01-7f02 r-xp 00000000 08:01 8  /usr/lib/libc.so.6\n7f03-7f04 rw-p 00000000 00:00 0  [heap]\n";
        let dumps: Vec<DumpMapping> = mapped_dumps(maps).collect();
        let dump = DumpMapping {
            addresses: (0x40_0000, 0x40_1000),
            inode: 7,
            path: "/a b/jit-17.dump".into(),
        };
        assert_eq!(dumps, [dump]);
    }
}
