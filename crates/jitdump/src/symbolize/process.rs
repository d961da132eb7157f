//! The jitdumps of a running process.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{ffi::OsStr, io, mem};

use crate::bytes::base_name;
use crate::collections::hash::HashSet;
use crate::error::{Error, ErrorKind};
use crate::files::OpenFile;
use crate::files::kernel::{self, MappedFile, mapped_files};
use crate::files::walk::{self, Scope};
use crate::format::marker;
use crate::symbolize::{Function, Jitdump};
use crate::units::{Address, Time};

/// Maximum number of open jitdumps of a process. Each takes a file descriptor of this program; a process could map any number.
const MAX_DUMPS: usize = 64;

/// Maximum number of files that one call opens. The next one opens the others.
const MAX_OPENED: usize = 1024;

/// A process, with the jitdumps that it has mapped. A runtime maps its jitdump because that is how perf finds it.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    dumps: Vec<Jitdump>,
    /// Files that are not opened again: those that are still mapped, and those of open jitdumps.
    seen: HashSet<FileId>,
    /// Functions that no call has counted yet.
    uncounted: usize,
}

/// Device and inode of a mapped file.
type FileId = (String, u64);

fn id_of(marker: &MappedFile<'_>) -> FileId {
    (marker.device.to_owned(), marker.inode)
}

impl Process {
    /// Creates a process without jitdumps; `pid` is its ID in the caller's PID namespace.
    pub fn new(pid: u32) -> Self {
        Self {
            pid,
            dumps: Vec::new(),
            seen: HashSet::default(),
            uncounted: 0,
        }
    }

    /// Opens the jitdumps that the process has mapped since the last call, and reads the new records of all. Returns
    /// the number of functions that were loaded or moved since the last call that did not fail.
    ///
    /// At most 64 jitdumps of a process are open, those that were found last. Others are closed, and their functions are no longer
    /// found. A call that closes some fails. Of more than 1,024 that are new, the next call opens the others.
    ///
    /// After the end of the process, and if its mappings cannot be read, only open jitdumps are read; without one, the call
    /// fails. Fails if a mapped file cannot be opened or read, or is not a jitdump, once for each such file as long as it is
    /// mapped: of several, the next call fails for the next one. A call that fails also reads the other open jitdumps.
    pub fn update(&mut self) -> Result<usize, Error> {
        let maps = self.read_maps()?;
        let failed = self.open_new(&maps);
        match self.read_open(failed) {
            Some(error) => Err(error),
            None => Ok(mem::take(&mut self.uncounted)),
        }
    }

    /// Reads the list of mappings; empty if that fails while jitdumps are open, which still can be read.
    fn read_maps(&self) -> Result<Vec<u8>, Error> {
        let path = format!("/proc/{}/maps", self.pid);
        match kernel::read(&path) {
            Ok(maps) => Ok(maps),
            // Whoever waits for functions would wait forever.
            Err(cause) if self.dumps.is_empty() => Err(Error::unreadable(Path::new(&path), cause)),
            Err(_) => Ok(Vec::new()),
        }
    }

    /// Opens the jitdumps in a list of mappings that were not seen before. Returns why one of them could not be opened, or why one
    /// was closed.
    fn open_new(&mut self, maps: &[u8]) -> Option<Error> {
        let mapped: HashSet<FileId> = markers(maps).map(|marker| id_of(&marker)).collect();
        let is_open = |inode: u64| self.dumps.iter().any(|dump| dump.file_id().1 == inode);
        self.seen.retain(|file| mapped.contains(file) || is_open(file.1));
        let mut failed = None;
        let mut opened = 0;
        for marker in markers(maps) {
            if opened == MAX_OPENED {
                break;
            }
            if !self.seen.insert(id_of(&marker)) {
                continue;
            }
            opened += 1;
            match open(self.pid, &marker) {
                Ok(file) => {
                    if let Some(closed) = self.add(Jitdump::new(file)) {
                        let cause =
                            format!("closed, because the process has mapped more than {MAX_DUMPS} jitdumps");
                        let closed = Error::unreadable(closed.path(), io::Error::other(cause));
                        failed = failed.or(Some(closed));
                    }
                }
                // The next call looks at the others.
                Err(cause) => {
                    let path = Path::new(OsStr::from_bytes(marker.path));
                    return Some(Error::unreadable(path, cause));
                }
            }
        }
        failed
    }

    /// Reads the new records of all open jitdumps. Closes the first one that fails, unless the call has `failed` already: then it
    /// fails again in the next one. Returns why the call fails.
    fn read_open(&mut self, mut failed: Option<Error>) -> Option<Error> {
        self.dumps.retain_mut(|dump| match dump.update() {
            Ok(events) => {
                self.uncounted = self.uncounted.saturating_add(events);
                true
            }
            Err(_) if failed.is_some() => true,
            Err(error) => {
                if matches!(error.kind(), ErrorKind::Shrunk) {
                    // The runtime has started its log again. The next call opens it.
                    let (_, inode) = dump.file_id();
                    self.seen.retain(|&(_, other)| other != inode);
                }
                failed = Some(error);
                false
            }
        });
        failed
    }

    /// Adds a jitdump. Returns the first one, to be closed, if there are too many.
    fn add(&mut self, dump: Jitdump) -> Option<Jitdump> {
        self.dumps.push(dump);
        (self.dumps.len() > MAX_DUMPS).then(|| self.dumps.remove(0))
    }

    /// Returns the jitdumps.
    pub fn dumps(&self) -> &[Jitdump] {
        &self.dumps
    }

    /// Returns the function whose code contains an address at a time, and its jitdump; [`Time::LAST`] is now. If several
    /// jitdumps have one, the newest is returned.
    pub fn function_at(&self, address: Address, time: Time) -> Option<(&Jitdump, Function)> {
        let dumps = self.dumps.iter();
        let found = dumps.filter_map(|dump| Some((dump, dump.function_at(address, time)?)));
        found.max_by_key(|(_, function)| function.since)
    }
}

/// Opens a mapped file, whatever root directory the process has. Another file at its path is refused.
fn open(pid: u32, marker: &MappedFile<'_>) -> io::Result<OpenFile> {
    let mapped = || OpenFile::open(&marker.link(pid));
    let by_path = || {
        let path = Path::new(OsStr::from_bytes(marker.path));
        let inside = path.strip_prefix("/").map_err(io::Error::other)?;
        walk::open(inside, Scope::Beneath(Path::new(&format!("/proc/{pid}/root"))))
    };
    let file = if marker.is_removed {
        mapped()?
    } else {
        // The kernel names the file of a process in a chroot by its path outside of that.
        by_path().or_else(|error| mapped().map_err(|_| error))?
    };
    if file.file_id().1 == marker.inode {
        Ok(file)
    } else {
        Err(io::Error::other("another file is at its path now"))
    }
}

/// Returns the mappings of jitdumps.
fn markers(maps: &[u8]) -> impl Iterator<Item = MappedFile<'_>> {
    mapped_files(maps).filter(|file| marker::is_dump_name(base_name(file.path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitdumps_are_found_among_mappings() {
        let maps = b"7f00-7f01 r-xp 00000000 08:01 77                      /tmp/with space/jit-5.dump\n\
            7f02-7f03 r-xp 00000000 08:01 78      /tmp/jit-6.dump (deleted)\n\
            7f04-7f05 r-xp 00000000 08:01 79      /usr/bin/node\n7f06-7f07 rw-p 00000000 00:00 0 \nend\n";
        let found: Vec<u64> = markers(maps).map(|marker| marker.inode).collect();
        assert_eq!(found, [77, 78]);
    }

    #[test]
    fn mappings_that_cannot_be_read_are_an_error_unless_a_jitdump_is_open() {
        // The largest process ID of Linux is 2^22.
        let mut process = Process::new(1 << 23);
        for _ in 0..2 {
            let error = process.update().unwrap_err();
            assert_eq!(error.path(), Some(Path::new("/proc/8388608/maps")));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jit-1.dump");
        std::fs::write(&path, "").unwrap();
        assert!(process.add(Jitdump::open(&path).unwrap()).is_none());
        assert_eq!(process.update().unwrap(), 0);
    }

    #[test]
    fn the_65th_jitdump_closes_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Process::new(1);
        let mut add = |number: usize| {
            let path = folder.path().join(number.to_string());
            std::fs::write(&path, "").unwrap();
            let closed = process.add(Jitdump::open(&path).unwrap())?;
            Some(closed.path().to_owned())
        };
        for number in 1..=64 {
            assert_eq!(add(number), None);
        }
        assert_eq!(add(65), Some(folder.path().join("1")));
        assert_eq!(add(66), Some(folder.path().join("2")));
        assert_eq!(process.dumps().len(), 64);
    }
}
