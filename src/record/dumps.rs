//! The files of runtimes, moved into the directory of a recording.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jitdump::internals::format::marker::pid_in_name;
use rustix::process::geteuid;
use serde::Serialize;

use super::process_files::{append_perf_map, copy_file, ids_of, may_be_of, open_perf_map, owner_of};
use super::recorded_process::RecordedProcess;
use crate::bytes::{base_name, printable_path};
use crate::code::profile_index::{FileMarker, ProfileIndex};
use crate::files::folder::PRIVATE;
use crate::files::kernel;
use crate::files::search::folder_of;
use crate::files::walk::Scope;
use crate::files::{Folder, NameInFolder, OpenFile};
use crate::load::process_stat::{SLACK, start_of};
use crate::units::Pid;

/// A file of a runtime.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct CollectedFile {
    /// Path relative to the folder of the recording.
    pub path: String,
    /// Path at which the runtime wrote it.
    pub written_to: String,
    /// Whether the file is still there: its process runs, or it is not the user's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_left: bool,
}

/// What to collect.
#[derive(Debug)]
pub struct Collection<'a> {
    /// Folder of the recording.
    pub folder: &'a Folder,
    /// Folder for the files, in that folder.
    pub dumps: &'a Folder,
    /// Processes that were looked at while they ran.
    pub processes: &'a [RecordedProcess],
    /// When the recording started.
    pub started: SystemTime,
    /// Whether the recording started all processes, so their files are part of it.
    pub is_own: bool,
}

/// A file of a process that was written during the recording.
struct WrittenFile {
    place: NameInFolder,
    file: OpenFile,
}

impl Collection<'_> {
    /// Moves the jitdumps that the processes of a profile have mapped, and their perf maps. Files of processes that still run,
    /// or that existed before, are copied.
    ///
    /// A file that cannot be moved or copied stays; injection finds it there, or reports that it is missing.
    pub fn run(&self, index: &ProfileIndex) -> Vec<CollectedFile> {
        let mut collected = Vec::new();
        // V8 writes its log to the working directory, even if its jitdump is elsewhere.
        let mut folders = BTreeSet::new();
        for marker in &index.markers {
            let path = Path::new(OsStr::from_bytes(&marker.path));
            let pid = pid_in_name(base_name(&marker.path));
            if let Some(number) = pid.filter(|&number| self.has_id(marker.pid, number)) {
                folders.extend(std::env::current_dir().map(|folder| (folder, number, marker.pid)));
                folders.insert((folder_of(path).to_owned(), number, marker.pid));
            }
        }
        for (path, pid) in self.jitdumps(index) {
            collected.extend(self.collect(&path, pid));
            // .NET 8 writes its perf map beside its jitdump.
            if folder_of(&path) != Path::new("/tmp") {
                let maps = beside(&path, pid).into_iter();
                collected.extend(maps.filter_map(|map| self.collect(&map, pid)));
            }
        }
        for (folder, number, pid) in folders.into_iter().filter(|_| self.is_own) {
            let logs = v8_logs(&folder, number);
            let logs = logs.filter(|log| !log.starts_with(self.dumps.path()));
            collected.extend(logs.filter_map(|log| self.collect(&log, pid)));
        }
        let pids: BTreeSet<Pid> = index.processes.spaces().iter().map(|space| space.pid).collect();
        for pid in pids {
            collected.extend(self.collect_perf_map(pid));
            // .NET's list of its libraries, which nothing reads.
            if self.is_own && !is_running(pid) {
                let list = Path::new("/tmp").join(format!("perfinfo-{pid}.map"));
                collected.extend(self.collect(&list, pid));
            }
        }
        collected
    }

    /// Copies the perf map of a process, and removes it if the process has ended.
    fn collect_perf_map(&self, pid: Pid) -> Option<CollectedFile> {
        let map = open_perf_map(pid.0).filter(|map| self.is_new(map))?;
        let found = map.file().metadata().ok()?;
        if !may_be_of(&found, start_of(pid.0)) {
            return None;
        }
        let target = append_perf_map(&map, pid.0, self.owner(pid), self.dumps, &mut || false).ok()?;
        let is_removed = self.may_remove(&map, pid) && remove_at_path(&map);
        Some(self.collected(map.path(), &target, !is_removed))
    }

    /// Whether a file of a process, of which there is a copy, is the user's to remove.
    fn may_remove(&self, file: &OpenFile, pid: Pid) -> bool {
        self.is_own && !is_running(pid) && file.origin().owner == geteuid().as_raw()
    }

    /// Returns the jitdumps outside of the folder that markers lead to, each once, with a process.
    fn jitdumps(&self, index: &ProfileIndex) -> Vec<(PathBuf, Pid)> {
        let namespace = fs::metadata("/proc/self/ns/mnt").ok().map(|it| it.ino());
        let is_here = |marker: &&FileMarker| {
            let theirs = index.mount_namespaces.get(&marker.pid).copied();
            theirs.is_none() || theirs == namespace
        };
        let mut known = BTreeSet::new();
        let mut jitdumps = Vec::new();
        let mut markers: Vec<&FileMarker> = index.markers.iter().filter(is_here).collect();
        // Of the processes that share a file, the one that wrote it.
        let is_foreign = |marker: &&FileMarker| {
            let number = pid_in_name(base_name(&marker.path));
            !number.is_some_and(|number| self.has_id(marker.pid, number))
        };
        markers.sort_by_cached_key(is_foreign);
        for marker in markers {
            let path = PathBuf::from(OsStr::from_bytes(&marker.path));
            let inode = marker.file.map_or(0, |file| file.inode);
            let is_same = |found: WrittenFile| inode == 0 || found.file.file_id().1 == inode;
            if path.is_absolute()
                && !path.starts_with(self.dumps.path())
                && self.find(&path, marker.pid).is_some_and(is_same)
                && known.insert(path.clone())
            {
                jitdumps.push((path, marker.pid));
            }
        }
        jitdumps
    }

    /// Opens a file if it is that of a process and was written during the recording.
    fn find(&self, path: &Path, pid: Pid) -> Option<WrittenFile> {
        let place = Folder::open(folder_of(path), Scope::Recorded)
            .ok()?
            .at(path.file_name()?);
        let file = place.open_file().ok()?;
        let is_found = file.origin().owner == self.owner(pid) && self.is_new(&file);
        is_found.then_some(WrittenFile { place, file })
    }

    /// Returns the user whose files are those of a process: its owner.
    fn owner(&self, pid: Pid) -> u32 {
        let known = || self.known(pid).find_map(|process| process.owner);
        let own = || geteuid().as_raw();
        owner_of(pid.0).or_else(known).unwrap_or_else(own)
    }

    /// Whether a number is the ID of a process in one of its namespaces.
    fn has_id(&self, pid: Pid, number: u32) -> bool {
        let mut known = self.known(pid).flat_map(|process| &process.inner_pids);
        pid.0 == number || known.any(|&id| id == number) || ids_of(pid.0).contains(&number)
    }

    fn known(&self, pid: Pid) -> impl Iterator<Item = &RecordedProcess> {
        self.processes.iter().filter(move |process| process.pid == pid.0)
    }

    /// Whether a file was written during the recording, or may be older because its process is.
    fn is_new(&self, file: &OpenFile) -> bool {
        let modified = || file.file().metadata()?.modified();
        !self.is_own || modified().is_ok_and(|modified| modified + SLACK >= self.started)
    }

    /// Moves or copies a file of a process, under another folder if there is one of its name. It is copied if the process still
    /// runs or ran before the recording, or if the ID in the file's name is not its own.
    fn collect(&self, path: &Path, pid: Pid) -> Option<CollectedFile> {
        let WrittenFile { place, file } = self.find(path, pid)?;
        let mut parts = place.name.as_bytes().split(|byte| b"-.".contains(byte));
        let number = |part| std::str::from_utf8(part).ok()?.parse().ok();
        let is_of_process = parts.any(|part| number(part).is_some_and(|number| self.has_id(pid, number)));
        let is_moved = self.is_own && is_of_process && !is_running(pid);
        let target = self.dumps.without(&place.name).ok()?.at(&place.name);
        let mut is_left = !is_moved;
        if !(is_moved && place.move_file(&file, &target)) {
            let copy = target.create_file(PRIVATE).ok()?;
            if copy_file(&file, &copy, &mut || false).is_err() {
                let _ = target.remove();
                return None;
            }
            // Another user's is only believed because it is the one that the process mapped. A copy of a file that cannot be
            // removed is enough.
            let may_remove = is_of_process && self.may_remove(&file, pid);
            is_left = !(may_remove && place.remove_file(&file).is_ok());
        }
        Some(self.collected(path, &target.path(), is_left))
    }

    fn collected(&self, path: &Path, target: &Path, is_left: bool) -> CollectedFile {
        CollectedFile {
            path: printable_path(target.strip_prefix(self.folder.path()).unwrap_or(target)),
            written_to: printable_path(path),
            is_left,
        }
    }
}

/// Removes a file from where it was opened, unless another one is there by now. Returns whether that was possible.
fn remove_at_path(file: &OpenFile) -> bool {
    let folder = Folder::open(folder_of(file.path()), Scope::Recorded).ok();
    let place = folder.zip(file.path().file_name());
    place.is_some_and(|(folder, name)| folder.at(name).remove_file(file).is_ok())
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

/// Returns whether a process has not exited. One that has, and that nobody waits for, has no program.
fn is_running(pid: Pid) -> bool {
    kernel::read_link(format!("/proc/{pid}/exe")).is_ok()
}
