//! The files of runtimes, moved into the directory of a recording.

mod not_collected;
mod ownership;
mod unmarked;
mod v8_logs;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jitdump::internals::format::marker::pid_in_name;
use serde::Serialize;

pub(super) use self::not_collected::left_out;
use self::not_collected::of_other_user;
use self::v8_logs::LogFolders;
use super::mapped_dumps::{files_in_use, open_in_use};
use super::process_files::{append_perf_map, copy_file, is_running, may_be_of, open_perf_map};
use super::watch::Seen;
use crate::bytes::{base_name, printable_path};
use crate::code::profile_index::{FileMarker, ProfileIndex};
use crate::files::folder::PRIVATE;
use crate::files::search::folder_of;
use crate::files::{Folder, NameInFolder, OpenFile};
use crate::load::MappingTimes;
use crate::load::running_processes::{OpenFiles, start_of};
use crate::results::diagnostics::Diagnostic;
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
    /// ID of its process, and user ID of its owner.
    #[serde(skip)]
    pub owner: (u32, u32),
}

/// What to collect.
#[derive(Debug)]
pub struct Collection<'a> {
    /// Folder of the recording.
    pub folder: &'a Folder,
    /// Folder for the files, in that folder.
    pub dumps: &'a Folder,
    /// What was seen of processes while they ran.
    pub seen: &'a Seen,
    /// When the jitdumps of the profile were mapped.
    pub mapped: MappingTimes,
    /// When the recording started.
    pub started: SystemTime,
    /// Whether the recording started all processes, so their files are part of it.
    pub is_own: bool,
}

/// What was collected.
#[derive(Debug, Default)]
pub struct Collected {
    /// Files that are in the folder now.
    pub files: Vec<CollectedFile>,
    /// Files that could not be moved or copied.
    pub left_out: Vec<Diagnostic>,
    /// Paths of perf maps and logs that stay because they may not be those of the processes.
    pub untouched: BTreeSet<String>,
}

/// A file of a process that was written during the recording.
struct WrittenFile {
    place: NameInFolder,
    file: OpenFile,
}

/// The jitdumps of a profile.
#[derive(Default)]
struct Jitdumps<'a> {
    /// Those at the path that a marker has, or where they were seen, each once, with a marker.
    at_path: Vec<(PathBuf, &'a FileMarker)>,
    /// Markers of the others.
    elsewhere: Vec<&'a FileMarker>,
    /// Devices and inodes of the first ones.
    file_ids: BTreeSet<(u64, u64)>,
}

impl Collection<'_> {
    /// Moves the jitdumps that processes have mapped, and perf maps of those in a profile. Files of processes that still run,
    /// that existed before, or whose owner is another user or unknown, are copied.
    ///
    /// A file that cannot be moved or copied stays, and is reported; injection may find it there.
    pub fn run(&self, index: &ProfileIndex) -> Collected {
        let mut untouched = BTreeSet::new();
        let unmarked = self.unmarked(index);
        let mut log_folders = self.folders_of_markers(index.markers.iter().chain(&unmarked));
        let Jitdumps {
            at_path,
            elsewhere,
            mut file_ids,
        } = self.jitdumps(index, &unmarked);
        let mut collected = self.collect_at_path(&at_path, &mut log_folders);
        collected.extend(self.collect_elsewhere(&elsewhere, &mut file_ids));
        collected.extend(self.collect_perf_maps(index, &mut log_folders, &mut untouched));
        collected.extend(self.collect_v8_logs(&log_folders, &mut untouched));
        let (mut files, mut left_out) = (Vec::new(), Vec::new());
        for file in collected {
            match file {
                Ok(file) => files.push(file),
                Err(diagnostic) => left_out.push(diagnostic),
            }
        }
        // Processes may have the same ID in their namespaces.
        for file in &files {
            untouched.remove(&file.written_to);
        }
        Collected {
            files,
            left_out,
            untouched,
        }
    }

    /// Returns the folders where processes may have written logs beside the jitdumps of these markers.
    fn folders_of_markers<'m>(&self, markers: impl Iterator<Item = &'m FileMarker>) -> LogFolders {
        let mut log_folders = LogFolders::default();
        for marker in markers {
            let path = Path::new(OsStr::from_bytes(&marker.path));
            let pid = pid_in_name(base_name(&marker.path));
            if let Some(number) = pid.filter(|&number| self.has_id(marker.pid, number)) {
                log_folders.add_current(number, marker.pid);
                log_folders.add(folder_of(path), number, marker.pid);
            }
        }
        log_folders
    }

    /// Collects jitdumps that are at these paths, and perf maps beside them. Adds their folders to those that may have logs.
    fn collect_at_path(
        &self,
        dumps: &[(PathBuf, &FileMarker)],
        log_folders: &mut LogFolders,
    ) -> Vec<Result<CollectedFile, Diagnostic>> {
        let mut collected = Vec::new();
        for (path, marker) in dumps {
            let pid = marker.pid;
            // Below another root directory, its path here is not that in the profile.
            let number = pid_in_name(base_name(path.as_os_str().as_bytes()));
            if let Some(number) = number.filter(|&number| self.has_id(pid, number)) {
                log_folders.add(folder_of(path), number, pid);
            }
            let found = self.find_dump(path, marker);
            collected.extend(found.map(|found| self.move_or_copy(&found, path, pid)));
            // .NET 8 writes its perf map beside its jitdump.
            if folder_of(path) != Path::new("/tmp") {
                let maps = beside(path, pid).into_iter();
                collected.extend(maps.filter_map(|map| self.collect_file(&map, pid)));
            }
        }
        collected
    }

    /// Collects the perf maps of the processes of a profile. Adds to `log_folders` where those with one may have logs, and
    /// perf maps that stay to `untouched`.
    fn collect_perf_maps(
        &self,
        index: &ProfileIndex,
        log_folders: &mut LogFolders,
        untouched: &mut BTreeSet<String>,
    ) -> Vec<Result<CollectedFile, Diagnostic>> {
        let mut collected = Vec::new();
        let pids: BTreeSet<Pid> = index.processes.spaces.iter().map(|space| space.pid).collect();
        for pid in pids {
            let map = self.collect_perf_map(pid, untouched);
            if let Ok(Some(_)) = &map {
                log_folders.add_current(pid.0, pid);
            }
            collected.extend(map.transpose());
            // .NET's list of its libraries, which nothing reads.
            if self.is_own && !is_running(pid) {
                let list = Path::new("/tmp").join(format!("perfinfo-{pid}.map"));
                collected.extend(self.collect_file(&list, pid));
            }
        }
        collected
    }

    /// Copies the perf map of a process, and removes it if the process has ended. Returns `None` if there is none from this
    /// recording. One that may not be the process's own is added to `untouched` instead, if the recording started the process.
    fn collect_perf_map(
        &self,
        pid: Pid,
        untouched: &mut BTreeSet<String>,
    ) -> Result<Option<CollectedFile>, Diagnostic> {
        // An earlier process with this ID may have left one.
        let is_of_process = |map: &OpenFile| {
            let metadata = map.file().metadata();
            metadata.is_ok_and(|metadata| may_be_of(&metadata, start_of(pid.0)))
        };
        let map = open_perf_map(pid.0).filter(|map| self.is_new(map) && is_of_process(map));
        let Some(map) = map else {
            return Ok(None);
        };
        let never_stopped = &mut || false;
        let appended = append_perf_map(&map, pid.0, self.user(pid), self.dumps, never_stopped);
        let Some(target) = appended.map_err(|cause| left_out(map.path(), &cause))? else {
            untouched.extend(self.is_own.then(|| printable_path(map.path())));
            return Ok(None);
        };
        let is_removed = self.may_remove(&map, pid) && self.remove_at_path(&map, pid);
        Ok(Some(self.describe(pid, &map, map.path(), &target, !is_removed)))
    }

    /// Finds the jitdumps outside of the folder that markers lead to.
    fn jitdumps<'i>(&self, index: &'i ProfileIndex, unmarked: &'i [FileMarker]) -> Jitdumps<'i> {
        let namespace = fs::metadata("/proc/self/ns/mnt").ok().map(|it| it.ino());
        let is_here = |marker: &FileMarker| {
            let theirs = index.mount_namespaces.get(&marker.pid).copied();
            theirs.is_none() || theirs == namespace
        };
        let mut known = BTreeSet::new();
        let mut jitdumps = Jitdumps::default();
        let mut markers: Vec<&FileMarker> = index.markers.iter().chain(unmarked).collect();
        // Of the processes that share a file, the one that wrote it.
        markers.sort_by_cached_key(|marker| !self.is_writer(marker));
        for marker in markers {
            let path = path_of(marker);
            if !path.is_absolute() || path.starts_with(self.dumps.path()) {
                continue;
            }
            let find = |path: PathBuf| Some((self.find_dump(&path, marker)?, path));
            let seen = inode_of(marker).and_then(|inode| self.seen.dumps.of(marker.pid, inode));
            let mut paths = std::iter::once(path).chain(seen.map(|dump| dump.path.clone()));
            match is_here(marker).then(|| paths.find_map(find)).flatten() {
                Some((found, path)) => {
                    jitdumps.file_ids.insert(found.file.file_id());
                    if known.insert(path.clone()) {
                        jitdumps.at_path.push((path, marker));
                    }
                }
                None => jitdumps.elsewhere.push(marker),
            }
        }
        jitdumps
    }

    /// Copies the jitdumps that are not at their path, or no longer, of processes that still run or were seen, and reports those of
    /// other users. `file_ids` has devices and inodes of those that are collected.
    fn collect_elsewhere(
        &self,
        markers: &[&FileMarker],
        file_ids: &mut BTreeSet<(u64, u64)>,
    ) -> Vec<Result<CollectedFile, Diagnostic>> {
        let mut in_use: BTreeMap<Pid, OpenFiles> = BTreeMap::new();
        let mut known = BTreeSet::new();
        let mut collected = Vec::new();
        for marker in markers {
            let Some(inode) = inode_of(marker).filter(|&inode| known.insert((marker.pid, inode))) else {
                continue;
            };
            let seen = self.seen.dumps.of(marker.pid, inode);
            let opened = match seen.and_then(|dump| dump.file.as_ref()) {
                Some(kept) => as_it_is_now(kept),
                None if is_running(marker.pid) => {
                    let files = in_use.entry(marker.pid);
                    open_in_use(files.or_insert_with(|| files_in_use(marker.pid)), inode)
                }
                None => {
                    if self.is_of_other(marker) {
                        collected.push(Err(of_other_user(&path_of(marker))));
                    }
                    continue;
                }
            };
            match opened {
                Ok(file) => {
                    let is_first = file_ids.insert(file.file_id());
                    if is_first && self.is_new(&file) {
                        collected.push(self.copy_open_dump(&file, marker));
                    }
                }
                // Injection does not find it, either.
                Err(cause) if cause.kind() == ErrorKind::NotFound => {}
                Err(cause) => collected.push(Err(left_out(&path_of(marker), &cause))),
            }
        }
        collected
    }

    /// Copies the jitdump of a marker that is open, but not at its path; fails if it is another user's.
    fn copy_open_dump(&self, file: &OpenFile, marker: &FileMarker) -> Result<CollectedFile, Diagnostic> {
        let path = path_of(marker);
        if !self.has_user(file, marker.pid) && !self.is_from_before(file, marker) {
            return Err(of_other_user(&path));
        }
        let target = copy_to(file, &self.free_place(&path)?, &path)?;
        let is_left = is_running(marker.pid) && file.metadata().nlink() > 0;
        Ok(self.describe(marker.pid, file, &path, &target, is_left))
    }

    /// Returns a free place for the file at `path`: in the folder for the files of runtimes, or in a numbered one in it.
    fn free_place(&self, path: &Path) -> Result<NameInFolder, Diagnostic> {
        let name = path.file_name().unwrap_or_default();
        let folder = self.dumps.without(name).map_err(|cause| left_out(path, &cause))?;
        Ok(folder.at(name))
    }

    /// Opens a file if it was written during the recording. Links of `owner` may lead there, too.
    fn open_new(&self, path: &Path, owner: Option<u32>) -> Option<WrittenFile> {
        let place = self.open_folder(folder_of(path), owner)?.at(path.file_name()?);
        let file = place.open_file().ok().filter(|file| self.is_new(file))?;
        Some(WrittenFile { place, file })
    }

    /// Opens a file if it is that of a process and was written during the recording.
    fn open_own(&self, path: &Path, pid: Pid) -> Option<WrittenFile> {
        let found = self.open_new(path, self.owner(pid))?;
        self.has_user(&found.file, pid).then_some(found)
    }

    /// Opens the jitdump of a marker, likewise. If the owner of the process is unknown, it is any user's that was mapped: the
    /// process could read it. If it is another user, it is also the user's own: the process may have given up rights.
    fn find_dump(&self, path: &Path, marker: &FileMarker) -> Option<WrittenFile> {
        let is_same = |file: &OpenFile| inode_of(marker).is_none_or(|inode| file.file_id().1 == inode);
        let is_believed = |file: &OpenFile| match self.owner(marker.pid) {
            Some(_) => self.is_from_before(file, marker),
            None => self.is_mapped(file, marker),
        };
        let mapped = || self.open_new(path, None).filter(|found| is_believed(&found.file));
        let found = self.open_own(path, marker.pid).or_else(mapped);
        found.filter(|found| is_same(&found.file))
    }

    /// Moves or copies a file of a process; `None` if it is not there, or not its own.
    fn collect_file(&self, path: &Path, pid: Pid) -> Option<Result<CollectedFile, Diagnostic>> {
        let found = self.open_own(path, pid)?;
        Some(self.move_or_copy(&found, path, pid))
    }

    /// Moves or copies a file of a process, under another folder if there is one of its name. It is copied if the process still
    /// runs or ran before the recording, if its owner is another user or unknown, or if the ID in the file's name is not its own.
    fn move_or_copy(
        &self,
        WrittenFile { place, file }: &WrittenFile,
        path: &Path,
        pid: Pid,
    ) -> Result<CollectedFile, Diagnostic> {
        let mut parts = place.name.as_bytes().split(|byte| b"-.".contains(byte));
        let number = |part| std::str::from_utf8(part).ok()?.parse().ok();
        let is_of_process = parts.any(|part| number(part).is_some_and(|number| self.has_id(pid, number)));
        let is_moved = is_of_process && self.has_user(file, pid) && self.may_move(pid, folder_of(path));
        let target = self.free_place(path)?;
        let mut is_left = !is_moved;
        if !(is_moved && place.move_file(file, &target)) {
            copy_to(file, &target, path)?;
            // Another user's is only believed because it is the one that the process mapped. Of a file that cannot be removed,
            // the copy is enough.
            let may_remove = is_of_process && self.may_remove(file, pid);
            is_left = !(may_remove && place.remove_file(file).is_ok());
        }
        Ok(self.describe(pid, file, path, &target.path(), is_left))
    }

    /// Describes a file of a process that was moved or copied from `path` to `target`.
    fn describe(
        &self,
        pid: Pid,
        file: &OpenFile,
        path: &Path,
        target: &Path,
        is_left: bool,
    ) -> CollectedFile {
        CollectedFile {
            path: printable_path(target.strip_prefix(self.folder.path()).unwrap_or(target)),
            written_to: printable_path(path),
            is_left,
            owner: (pid.0, file.origin().owner),
        }
    }
}

/// Returns the path that a process has for its jitdump.
fn path_of(marker: &FileMarker) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&marker.path))
}

/// Returns the inode of a jitdump, if it was recorded.
fn inode_of(marker: &FileMarker) -> Option<u64> {
    let inode = marker.file?.inode;
    (inode != 0).then_some(inode)
}

/// Opens a file again that may have grown.
fn as_it_is_now(file: &OpenFile) -> io::Result<OpenFile> {
    OpenFile::from_file(file.file().try_clone()?, file.path())
}

/// Copies a file from `path`. Returns the path of the copy, or why the file is left out.
fn copy_to(file: &OpenFile, target: &NameInFolder, path: &Path) -> Result<PathBuf, Diagnostic> {
    let copy = target.create_file(PRIVATE).map_err(io::Error::from);
    let copied = copy.and_then(|copy| {
        copy_file(file, &copy, &mut || false).inspect_err(|_| {
            let _ = target.remove();
        })
    });
    copied
        .map(|()| target.path())
        .map_err(|cause| left_out(path, &cause))
}

/// Returns the perf map of a process, and .NET's list of its libraries, in the folder of its jitdump.
fn beside(jitdump: &Path, pid: Pid) -> [PathBuf; 2] {
    // In a container, the process has another ID.
    let name = jitdump.file_name().map_or(&b""[..], OsStr::as_bytes);
    let pid = pid_in_name(name).unwrap_or(pid.0);
    [format!("perf-{pid}.map"), format!("perfinfo-{pid}.map")].map(|name| jitdump.with_file_name(name))
}

#[cfg(test)]
mod tests;
