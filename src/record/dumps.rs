//! The files of runtimes, moved into the directory of a recording.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jitdump::internals::format::marker::pid_in_name;
use rustix::process::geteuid;
use serde::Serialize;

use super::mapped_dumps::{files_in_use, open_in_use};
use super::process_files::{append_perf_map, copy_file, ids_of, may_be_of, open_perf_map, owner_of};
use super::recorded_process::RecordedProcess;
use super::watch::Seen;
use crate::bytes::{base_name, printable_path};
use crate::code::profile_index::{FileMarker, ProfileIndex};
use crate::files::folder::{PRIVATE, open_unchangeable};
use crate::files::kernel;
use crate::files::open_file::is_trusted;
use crate::files::search::folder_of;
use crate::files::walk::Scope;
use crate::files::{Folder, NameInFolder, OpenFile};
use crate::load::running_processes::{OpenFiles, SLACK, start_of};
use crate::results::diagnostics::{Diagnostic, Issue};
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

/// The jitdumps of a profile.
#[derive(Default)]
struct Jitdumps<'a> {
    /// Those at the path that a marker has, or where they were seen, each once, with a process.
    at_path: Vec<(PathBuf, Pid)>,
    /// Markers of the others.
    elsewhere: Vec<&'a FileMarker>,
    /// Devices and inodes of the first ones.
    file_ids: BTreeSet<(u64, u64)>,
}

impl Collection<'_> {
    /// Moves the jitdumps that the processes of a profile have mapped, and their perf maps. Files of processes that still run,
    /// that existed before, or whose owner is unknown, are copied.
    ///
    /// A file that cannot be moved or copied stays, and is reported; injection may find it there.
    pub fn run(&self, index: &ProfileIndex) -> (Vec<CollectedFile>, Vec<Diagnostic>) {
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
        let Jitdumps {
            at_path,
            elsewhere,
            mut file_ids,
        } = self.jitdumps(index);
        for (path, pid) in at_path {
            // Below another root directory, its path here is not that in the profile.
            let number = pid_in_name(base_name(path.as_os_str().as_bytes()));
            if let Some(number) = number.filter(|&number| self.has_id(pid, number)) {
                folders.insert((folder_of(&path).to_owned(), number, pid));
            }
            collected.extend(self.collect(&path, pid));
            // .NET 8 writes its perf map beside its jitdump.
            if folder_of(&path) != Path::new("/tmp") {
                let maps = beside(&path, pid).into_iter();
                collected.extend(maps.filter_map(|map| self.collect(&map, pid)));
            }
        }
        let has_own =
            |(folder, _, pid): &(PathBuf, u32, Pid)| self.is_own && self.has_own_files(*pid, folder);
        collected.extend(self.collect_elsewhere(&elsewhere, &mut file_ids));
        for (folder, number, pid) in folders.into_iter().filter(has_own) {
            let mut logs = self.v8_logs(&folder, number, pid);
            logs.retain(|log| !log.starts_with(self.dumps.path()));
            collected.extend(logs.iter().filter_map(|log| self.collect(log, pid)));
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
        let (mut files, mut left_out) = (Vec::new(), Vec::new());
        for file in collected {
            match file {
                Ok(file) => files.push(file),
                Err(diagnostic) => left_out.push(diagnostic),
            }
        }
        (files, left_out)
    }

    /// Copies the perf map of a process, and removes it if the process has ended.
    fn collect_perf_map(&self, pid: Pid) -> Option<Result<CollectedFile, Diagnostic>> {
        let map = open_perf_map(pid.0).filter(|map| self.is_new(map))?;
        let found = map.file().metadata().ok()?;
        if !may_be_of(&found, start_of(pid.0)) {
            return None;
        }
        let target = match append_perf_map(&map, pid.0, self.user(pid), self.dumps, &mut || false) {
            Ok(target) => target,
            // It is no perf map of the process.
            Err(cause) if cause.kind() == ErrorKind::PermissionDenied => return None,
            Err(cause) => return Some(Err(left_out(map.path(), &cause))),
        };
        let is_removed = self.may_remove(&map, pid) && self.remove_at_path(&map, pid);
        Some(Ok(self.collected(pid, map.path(), &target, !is_removed)))
    }

    /// Whether the files of a process in a folder are moved: it was recorded from its start, has ended, and wrote them.
    fn may_move(&self, pid: Pid, folder: &Path) -> bool {
        self.is_own && !is_running(pid) && self.has_own_files(pid, folder)
    }

    /// Whether the files of a process in a folder are certainly not another user's: its owner is known, or only the user and root
    /// can change the folder.
    fn has_own_files(&self, pid: Pid, folder: &Path) -> bool {
        /// Write permission of others, also in folders such as `/tmp`.
        const OTHERS: u32 = 0o002;
        let is_closed = |folder| rustix::fs::fstat(&folder).is_ok_and(|stat| stat.st_mode & OTHERS == 0);
        self.owner(pid).is_some() || open_unchangeable(folder).is_some_and(is_closed)
    }

    /// Whether a file of a process, of which there is a copy, is the user's to remove.
    fn may_remove(&self, file: &OpenFile, pid: Pid) -> bool {
        self.may_move(pid, folder_of(file.path())) && file.origin().owner == geteuid().as_raw()
    }

    /// Removes a file from where it was opened, unless another one is there by now. Returns whether that was possible.
    fn remove_at_path(&self, file: &OpenFile, pid: Pid) -> bool {
        let folder = self.open_folder(folder_of(file.path()), pid);
        let place = folder.zip(file.path().file_name());
        place.is_some_and(|(folder, name)| folder.at(name).remove_file(file).is_ok())
    }

    /// Finds the jitdumps outside of the folder that markers lead to.
    fn jitdumps<'i>(&self, index: &'i ProfileIndex) -> Jitdumps<'i> {
        let namespace = fs::metadata("/proc/self/ns/mnt").ok().map(|it| it.ino());
        let is_here = |marker: &FileMarker| {
            let theirs = index.mount_namespaces.get(&marker.pid).copied();
            theirs.is_none() || theirs == namespace
        };
        let mut known = BTreeSet::new();
        let mut jitdumps = Jitdumps::default();
        let mut markers: Vec<&FileMarker> = index.markers.iter().collect();
        // Of the processes that share a file, the one that wrote it.
        let is_foreign = |marker: &&FileMarker| {
            let number = pid_in_name(base_name(&marker.path));
            !number.is_some_and(|number| self.has_id(marker.pid, number))
        };
        markers.sort_by_cached_key(is_foreign);
        for marker in markers {
            let path = path_of(marker);
            if !path.is_absolute() || path.starts_with(self.dumps.path()) {
                continue;
            }
            let inode = inode_of(marker);
            let is_same = |found: &WrittenFile| inode.is_none_or(|inode| found.file.file_id().1 == inode);
            let find = |path: PathBuf| Some((self.find(&path, marker.pid).filter(is_same)?, path));
            let seen = inode.and_then(|inode| self.seen.dumps.of(marker.pid, inode));
            let mut paths = std::iter::once(path).chain(seen.map(|dump| dump.path.clone()));
            match is_here(marker).then(|| paths.find_map(find)).flatten() {
                Some((found, path)) => {
                    jitdumps.file_ids.insert(found.file.file_id());
                    if known.insert(path.clone()) {
                        jitdumps.at_path.push((path, marker.pid));
                    }
                }
                None => jitdumps.elsewhere.push(marker),
            }
        }
        jitdumps
    }

    /// Copies the jitdumps that are not at their path, or no longer, of processes that still run or were seen. `file_ids` has devices
    /// and inodes of those that are collected.
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
                None => continue,
            };
            match opened {
                Ok(file) if file_ids.insert(file.file_id()) => collected.extend(self.copy(&file, marker)),
                Ok(_) => {}
                // Injection does not find it, either.
                Err(cause) if cause.kind() == ErrorKind::NotFound => {}
                Err(cause) => collected.push(Err(left_out(&path_of(marker), &cause))),
            }
        }
        collected
    }

    /// Copies the open jitdump of a marker, if it was written during the recording.
    fn copy(&self, file: &OpenFile, marker: &FileMarker) -> Option<Result<CollectedFile, Diagnostic>> {
        let path = path_of(marker);
        if !self.is_new(file) {
            return None;
        }
        if file.origin().owner != self.user(marker.pid) {
            let cause = io::Error::other("it belongs to another user than its process");
            return Some(Err(left_out(&path, &cause)));
        }
        let name = path.file_name()?;
        let target = self.dumps.without(name).ok()?.at(name);
        if let Err(left_out) = copy_to(file, &target, &path)? {
            return Some(Err(left_out));
        }
        let is_left = is_running(marker.pid) && file.metadata().nlink() > 0;
        Some(Ok(self.collected(marker.pid, &path, &target.path(), is_left)))
    }

    /// Opens a file if it is that of a process and was written during the recording.
    fn find(&self, path: &Path, pid: Pid) -> Option<WrittenFile> {
        let place = self.open_folder(folder_of(path), pid)?.at(path.file_name()?);
        let file = place.open_file().ok()?;
        let is_found = file.origin().owner == self.user(pid) && self.is_new(&file);
        is_found.then_some(WrittenFile { place, file })
    }

    /// Opens a directory, unless a link of somebody else than root and the owner of the process leads there.
    fn open_folder(&self, path: &Path, pid: Pid) -> Option<Folder> {
        let owner = self.owner(pid);
        let may_lead = |user| is_trusted(user) || owner == Some(user);
        Folder::open_by_links_of(path, Scope::Recorded, may_lead).ok()
    }

    /// Returns the logs that V8 writes beside its jitdump, which nothing reads.
    fn v8_logs(&self, folder: &Path, number: u32, pid: Pid) -> Vec<PathBuf> {
        let end = format!("-{number}-v8.log");
        let Some(folder) = self.open_folder(folder, pid) else {
            return Vec::new();
        };
        let Ok(entries) = folder.entries() else {
            return Vec::new();
        };
        let logs = entries.flatten().map(|(place, _)| place).filter(|place| {
            let name = place.name.as_bytes();
            name.starts_with(b"isolate") && name.ends_with(end.as_bytes())
        });
        logs.map(|log| log.path()).collect()
    }

    /// Returns the owner of a process. For root, it is unknown whose processes were that were not seen while they ran. The kernel
    /// lets other users record their own only.
    fn owner(&self, pid: Pid) -> Option<u32> {
        let me = geteuid();
        let own = (!me.is_root()).then_some(me.as_raw());
        let noted = self.seen.owners.get(&pid.0).copied();
        noted.or_else(|| owner_of(pid.0)).or(own)
    }

    /// Returns the user whose files are those of a process.
    fn user(&self, pid: Pid) -> u32 {
        self.owner(pid).unwrap_or_else(|| geteuid().as_raw())
    }

    /// Whether a number is the ID of a process in one of its namespaces.
    fn has_id(&self, pid: Pid, number: u32) -> bool {
        let mut known = self.known(pid).flat_map(|process| &process.inner_pids);
        pid.0 == number || known.any(|&id| id == number) || ids_of(pid.0).contains(&number)
    }

    fn known(&self, pid: Pid) -> impl Iterator<Item = &RecordedProcess> {
        self.seen
            .processes
            .iter()
            .filter(move |process| process.pid == pid.0)
    }

    /// Whether a file was written during the recording, or may be older because its process is.
    fn is_new(&self, file: &OpenFile) -> bool {
        let modified = || file.file().metadata()?.modified();
        !self.is_own || modified().is_ok_and(|modified| modified + SLACK >= self.started)
    }

    /// Moves or copies a file of a process, under another folder if there is one of its name. It is copied if the process still
    /// runs or ran before the recording, if its owner is unknown, or if the ID in the file's name is not its own.
    fn collect(&self, path: &Path, pid: Pid) -> Option<Result<CollectedFile, Diagnostic>> {
        let WrittenFile { place, file } = self.find(path, pid)?;
        let mut parts = place.name.as_bytes().split(|byte| b"-.".contains(byte));
        let number = |part| std::str::from_utf8(part).ok()?.parse().ok();
        let is_of_process = parts.any(|part| number(part).is_some_and(|number| self.has_id(pid, number)));
        let is_moved = is_of_process && self.may_move(pid, folder_of(path));
        let target = self.dumps.without(&place.name).ok()?.at(&place.name);
        let mut is_left = !is_moved;
        if !(is_moved && place.move_file(&file, &target)) {
            if let Err(left_out) = copy_to(&file, &target, path)? {
                return Some(Err(left_out));
            }
            // Another user's is only believed because it is the one that the process mapped. A copy of a file that cannot be
            // removed is enough.
            let may_remove = is_of_process && self.may_remove(&file, pid);
            is_left = !(may_remove && place.remove_file(&file).is_ok());
        }
        Some(Ok(self.collected(pid, path, &target.path(), is_left)))
    }

    /// Describes a file at `path` that is at `target` now.
    fn collected(&self, pid: Pid, path: &Path, target: &Path, is_left: bool) -> CollectedFile {
        CollectedFile {
            path: printable_path(target.strip_prefix(self.folder.path()).unwrap_or(target)),
            written_to: printable_path(path),
            is_left,
            owner: (pid.0, self.user(pid)),
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

/// Copies a file from `path`. Returns why it is left out.
fn copy_to(file: &OpenFile, target: &NameInFolder, path: &Path) -> Option<Result<(), Diagnostic>> {
    let copy = target.create_file(PRIVATE).ok()?;
    Some(copy_file(file, &copy, &mut || false).map_err(|cause| {
        let _ = target.remove();
        left_out(path, &cause)
    }))
}

/// Reports a file that is not in the recording, or not in its archive.
pub(super) fn left_out(path: &Path, cause: &io::Error) -> Diagnostic {
    Diagnostic::new(Issue::NotCollected)
        .in_file(path)
        .caused_by(cause)
}

/// Returns the perf map of a process, and .NET's list of its libraries, in the folder of its jitdump.
fn beside(jitdump: &Path, pid: Pid) -> [PathBuf; 2] {
    // In a container, the process has another ID.
    let name = jitdump.file_name().map_or(&b""[..], OsStr::as_bytes);
    let pid = pid_in_name(name).unwrap_or(pid.0);
    [format!("perf-{pid}.map"), format!("perfinfo-{pid}.map")].map(|name| jitdump.with_file_name(name))
}

/// Returns whether a process has not exited. One that has, and that nobody waits for, has no program.
fn is_running(pid: Pid) -> bool {
    kernel::read_link(format!("/proc/{pid}/exe")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;
    use std::time::Duration;

    use jitdump::Time;

    use crate::perf::event::FileId;
    use crate::record::plan::{Plan, RecordOptions};
    use crate::record::watch::Watch;

    /// No process has this ID.
    const ENDED: u32 = 4_193_901;

    /// Collects a jitdump that a process has mapped which has ended, and a log, with an ID in their names, from a folder of this
    /// mode. Returns the number of files that stay, and that are collected.
    fn collect(number: u32, owners: &BTreeMap<u32, u32>, mode: u32) -> (usize, usize) {
        collect_from_root(number, owners, mode, false)
    }

    /// Does the same. If the process has a root directory of its own, the path in the profile starts there.
    fn collect_from_root(
        number: u32,
        owners: &BTreeMap<u32, u32>,
        mode: u32,
        has_root: bool,
    ) -> (usize, usize) {
        let started = SystemTime::now();
        let scratch = tempfile::tempdir().unwrap();
        let work = scratch.path().join("work");
        fs::create_dir(&work).unwrap();
        fs::set_permissions(&work, fs::Permissions::from_mode(mode)).unwrap();
        let dump = work.join(format!("jit-{number}.dump"));
        for path in [&dump, &work.join(format!("isolate0x1-{number}-v8.log"))] {
            fs::write(path, "content").unwrap();
        }
        let folder = Folder::create_all(&scratch.path().join("r")).unwrap();
        let dumps = folder.at("dumps").create_private_folder().unwrap();
        let inode = fs::metadata(&dump).unwrap().ino();
        let mut seen = Seen {
            owners: owners.clone(),
            ..Seen::default()
        };
        let mut path = dump.clone();
        if has_root {
            path = Path::new("/nowhere").join(dump.file_name().unwrap());
            let mapping = format!("1-2 r-xp 0 0:0 {inode} {}", dump.display());
            seen.dumps.add(ENDED, mapping.as_bytes());
        }
        let mut index = ProfileIndex::default();
        index.markers.push(FileMarker {
            pid: Pid(ENDED),
            time: Time(0),
            path: path.as_os_str().as_bytes().to_vec(),
            file: has_root.then_some(FileId {
                major: 0,
                minor: 0,
                inode,
            }),
            record: 0,
        });
        let collection = Collection {
            folder: &folder,
            dumps: &dumps,
            seen: &seen,
            started,
            is_own: true,
        };
        let (collected, left_out) = collection.run(&index);
        assert!(left_out.is_empty(), "{left_out:?}");
        (fs::read_dir(work).unwrap().count(), collected.len())
    }

    #[test]
    fn nothing_is_moved_of_a_process_whose_owner_is_another_or_unknown() {
        let me = geteuid().as_raw();
        assert_eq!(collect(ENDED, &BTreeMap::from([(ENDED, me)]), 0o777), (0, 2));
        assert_eq!(collect(ENDED, &BTreeMap::from([(ENDED, me + 1)]), 0o755), (2, 0));
        // Nobody else could have written into the second folder.
        for (mode, of_root) in [(0o777, (2, 1)), (0o755, (0, 2))] {
            let of_unknown = if me == 0 { of_root } else { (0, 2) };
            assert_eq!(collect(ENDED, &BTreeMap::new(), mode), of_unknown, "{mode:o}");
        }
    }

    #[test]
    fn files_of_a_process_with_a_root_of_its_own_are_moved_from_where_they_were_seen() {
        let owners = BTreeMap::from([(ENDED, geteuid().as_raw())]);
        assert_eq!(collect_from_root(ENDED, &owners, 0o755, true), (0, 2));
    }

    /// V8 removes it with --perf-prof-delete-file. The program of the process stands in for the jitdump that it has mapped.
    #[test]
    fn a_removed_jitdump_is_kept_when_its_process_has_ended() {
        let started = SystemTime::now();
        let scratch = tempfile::tempdir().unwrap();
        let dump = scratch.path().join("jit-77.dump");
        let copy = Command::new("cp").arg("/bin/sleep").arg(&dump).status();
        assert!(copy.unwrap().success());
        let content = fs::read(&dump).unwrap();
        let open = File::open(&dump).unwrap();
        let inode = open.metadata().unwrap().ino();
        let mut process = Command::new(&dump).arg("60").stdin(open).spawn().unwrap();
        fs::remove_file(&dump).unwrap();
        let pid = process.id();
        let folder = Folder::create_all(&scratch.path().join("r")).unwrap();
        let mut options = RecordOptions {
            output: folder.path().to_owned(),
            ..RecordOptions::default()
        };
        options.perf.pids.push(pid);
        let plan = Plan::new(options).unwrap();
        let mut watch = Watch::of_processes(&plan, &folder.path().join("perf.data"));
        watch.look(Duration::ZERO);
        let map = fs::read_dir(format!("/proc/{pid}/map_files"));
        let may_open = !geteuid().is_root()
            || map
                .unwrap()
                .flatten()
                .any(|link| fs::metadata(link.path()).is_ok());
        process.kill().unwrap();
        process.wait().unwrap();
        let mut index = ProfileIndex::default();
        index.markers.push(FileMarker {
            pid: Pid(pid),
            time: Time(0),
            path: dump.as_os_str().as_bytes().to_vec(),
            file: Some(FileId {
                major: 0,
                minor: 0,
                inode,
            }),
            record: 0,
        });
        let collection = Collection {
            folder: &folder,
            dumps: &folder.at("dumps").create_private_folder().unwrap(),
            seen: &watch.into_seen(),
            started,
            is_own: true,
        };
        let (collected, left_out) = collection.run(&index);
        assert!(left_out.is_empty(), "{left_out:?}");
        // Root of a container may not have the right to open what is mapped.
        assert_eq!(collected.len(), usize::from(may_open));
        for CollectedFile { path, is_left, .. } in collected {
            assert!(!is_left && fs::read(folder.path().join(path)).unwrap() == content);
        }
    }

    /// A process may map any file that it can read.
    #[test]
    fn files_of_other_programs_are_copied_and_not_moved() {
        let owners = BTreeMap::from([(ENDED, geteuid().as_raw())]);
        assert_eq!(collect(77, &owners, 0o755), (2, 1));
    }
}
