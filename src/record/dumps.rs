//! The files of runtimes, moved into the folder of a recording.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::process_files::{append_perf_map, open_perf_map, owner_of};
use crate::bytes::base_name;
use crate::code::profile_index::{Marker, ProfileIndex};
use crate::files::open_file::open_within;
use crate::files::search::{folder_of, printable_path};
use crate::runtime::jitdump::marker::pid_in_name;
use crate::units::Pid;

/// How much older than the recording its files may seem, since file systems store rounded times.
const SLACK: Duration = Duration::from_secs(2);

/// A file of a runtime.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct CollectedFile {
    /// Path relative to the folder of the recording.
    pub path: String,
    /// Path at which the runtime wrote it.
    pub written_to: String,
}

/// What to collect.
#[derive(Debug)]
pub struct Collection<'a> {
    /// Folder of the recording.
    pub folder: &'a Path,
    /// Folder for the files, in that folder.
    pub dumps: &'a Path,
    /// When the recording started.
    pub started: SystemTime,
    /// Whether the recording started the processes, so their files are part of it.
    pub is_own: bool,
}

impl Collection<'_> {
    /// Moves the jitdumps that the processes of a profile have mapped, and copies their perf maps. Files of
    /// processes that still run, or that existed before, are copied.
    ///
    /// A file that cannot be moved or copied stays; injection finds it there, or reports that it is missing.
    pub fn run(&self, index: &ProfileIndex) -> Vec<CollectedFile> {
        let mut collected = Vec::new();
        // V8 writes its log to the working directory, even if its jitdump is elsewhere.
        let mut folders = BTreeSet::new();
        for marker in &index.markers {
            let path = Path::new(OsStr::from_bytes(&marker.path));
            if let Some(pid) = pid_in_name(base_name(&marker.path)) {
                folders.insert((PathBuf::from("."), pid));
                folders.insert((folder_of(path).to_owned(), pid));
            }
        }
        for (path, pid) in self.jitdumps(index) {
            let is_finished = self.is_own && !is_running(pid);
            collected.extend(self.collect(&path, is_finished));
            // .NET 8 writes its perf map beside its jitdump.
            if folder_of(&path) != Path::new("/tmp") {
                let maps = beside(&path, pid).into_iter();
                let maps = maps.filter(|map| self.is_of_recording(map, pid).is_some());
                collected.extend(maps.filter_map(|map| self.collect(&map, is_finished)));
            }
        }
        for (folder, pid) in folders.into_iter().filter(|_| self.is_own) {
            let logs = v8_logs(&folder, pid);
            let logs = logs.filter(|log| self.is_of_recording(log, Pid(pid)).is_some());
            let logs = logs.filter(|log| !log.starts_with(self.dumps));
            collected.extend(logs.filter_map(|log| self.collect(&log, self.is_own)));
        }
        let pids: BTreeSet<Pid> = index.processes.spaces().iter().map(|space| space.pid).collect();
        for pid in pids {
            collected.extend(self.collect_perf_map(pid));
            // .NET's list of its libraries, which nothing reads.
            let list = Path::new("/tmp").join(format!("perfinfo-{pid}.map"));
            if self.is_own && !is_running(pid) && self.is_of_recording(&list, pid).is_some() {
                collected.extend(self.collect(&list, true));
            }
        }
        collected
    }

    /// Copies the perf map of a process.
    fn collect_perf_map(&self, pid: Pid) -> Option<CollectedFile> {
        let map = open_perf_map(pid.0)?;
        let metadata = map.file().metadata().ok()?;
        if !self.is_new(&metadata) || !is_of_user(&metadata, pid) {
            return None;
        }
        let target = append_perf_map(&map, pid.0, self.dumps).ok()?;
        Some(self.collected(map.path(), &target))
    }

    /// Returns the jitdumps outside of the folder that markers lead to, each once, with a process.
    fn jitdumps(&self, index: &ProfileIndex) -> Vec<(PathBuf, Pid)> {
        let namespace = fs::metadata("/proc/self/ns/mnt").ok().map(|it| it.ino());
        let is_here = |marker: &&Marker| {
            let theirs = index.mount_namespaces.get(&marker.pid).copied();
            theirs.is_none() || theirs == namespace
        };
        let mut known = BTreeSet::new();
        let mut jitdumps = Vec::new();
        for marker in index.markers.iter().filter(is_here) {
            let path = PathBuf::from(OsStr::from_bytes(&marker.path));
            let inode = marker.file.map_or(0, |file| file.inode);
            let is_same = |found: Metadata| inode == 0 || found.ino() == inode;
            if path.is_absolute()
                && !path.starts_with(self.dumps)
                && self.is_of_recording(&path, marker.pid).is_some_and(is_same)
                && known.insert(path.clone())
            {
                jitdumps.push((path, marker.pid));
            }
        }
        jitdumps
    }

    /// Returns the metadata of a file if it is that of a process and was written during the recording.
    fn is_of_recording(&self, path: &Path, pid: Pid) -> Option<Metadata> {
        let found = fs::symlink_metadata(path).ok()?;
        (found.is_file() && is_of_user(&found, pid) && self.is_new(&found)).then_some(found)
    }

    /// Whether a file was written during the recording, or may be older because its process is.
    fn is_new(&self, file: &Metadata) -> bool {
        let is_new = |modified| modified + SLACK >= self.started;
        !self.is_own || file.modified().is_ok_and(is_new)
    }

    /// Moves or copies a file, under another folder if there is one of its name.
    fn collect(&self, path: &Path, is_moved: bool) -> Option<CollectedFile> {
        let name = path.file_name()?;
        let target = self.free_path(name).ok()?;
        let is_renamed = is_moved && fs::rename(path, &target).is_ok();
        if !is_renamed {
            if copy(path, name, &target).is_err() {
                let _ = fs::remove_file(&target);
                return None;
            }
            if is_moved {
                // A copy of a file that cannot be removed is enough.
                let _ = fs::remove_file(path);
            }
        }
        Some(self.collected(path, &target))
    }

    fn collected(&self, path: &Path, target: &Path) -> CollectedFile {
        CollectedFile {
            path: printable_path(target.strip_prefix(self.folder).unwrap_or(target)),
            written_to: printable_path(path),
        }
    }

    fn free_path(&self, name: &OsStr) -> io::Result<PathBuf> {
        let mut path = self.dumps.join(name);
        let mut number = 1;
        while path.symlink_metadata().is_ok() {
            number += 1;
            let folder = self.dumps.join(number.to_string());
            fs::create_dir_all(&folder)?;
            path = folder.join(name);
        }
        Ok(path)
    }
}

/// Copies a file of a runtime, which may be in a folder of another user.
fn copy(path: &Path, name: &OsStr, target: &Path) -> io::Result<()> {
    let file = open_within(folder_of(path), Path::new(name))?;
    let mut options = OpenOptions::new();
    let mut copy = options.write(true).create_new(true).mode(0o600).open(target)?;
    io::copy(&mut file.file(), &mut copy).map(drop)
}

/// Returns the perf map of a process, and .NET's list of its libraries, in the folder of its jitdump.
fn beside(jitdump: &Path, pid: Pid) -> [PathBuf; 2] {
    // In a container, the process has another ID.
    let name = jitdump.file_name().map_or(&b""[..], OsStr::as_bytes);
    let pid = pid_in_name(name).unwrap_or(pid.0);
    [format!("perf-{pid}.map"), format!("perfinfo-{pid}.map")].map(|name| jitdump.with_file_name(name))
}

/// Returns the logs that V8 writes beside its jitdump, which nothing reads.
fn v8_logs(folder: &Path, pid: u32) -> impl Iterator<Item = PathBuf> + use<> {
    let end = OsString::from(format!("-{pid}-v8.log"));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let logs = entries.filter(move |entry| {
        let name = entry.file_name();
        name.as_bytes().starts_with(b"isolate") && name.as_bytes().ends_with(end.as_bytes())
    });
    logs.map(|entry| entry.path())
}

/// Whether a file is the user's own, or that of the owner of a running process.
fn is_of_user(file: &Metadata, pid: Pid) -> bool {
    file.uid() == rustix::process::geteuid().as_raw() || owner_of(pid.0) == Some(file.uid())
}

/// Returns whether a process has not exited. One that has, and that nobody waits for, has no program.
fn is_running(pid: Pid) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}
