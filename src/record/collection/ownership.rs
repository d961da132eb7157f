//! Whose the files of processes are, and which may be moved.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use jitdump::internals::format::marker::pid_in_name;
use rustix::process::geteuid;

use super::{Collection, path_of};
use crate::bytes::base_name;
use crate::code::profile_index::FileMarker;
use crate::files::folder::open_unchangeable;
use crate::files::open_file::is_trusted;
use crate::files::search::folder_of;
use crate::files::walk::Scope;
use crate::files::{Folder, OpenFile};
use crate::load::running_processes::{SLACK, owner_of};
use crate::record::process_files::{ids_of, is_running};
use crate::record::recorded_process::RecordedProcess;
use crate::units::Pid;

impl Collection<'_> {
    /// Whether the files of a process in a folder are moved: it was recorded from its start, has ended, and wrote them.
    pub(super) fn may_move(&self, pid: Pid, folder: &Path) -> bool {
        self.is_own && !is_running(pid) && self.has_own_files(pid, folder)
    }

    /// Whether the files of a process in a folder are certainly not another user's: its owner is known, or only the user and root
    /// can change the folder.
    pub(super) fn has_own_files(&self, pid: Pid, folder: &Path) -> bool {
        self.owner(pid).is_some() || is_closed(folder)
    }

    /// Whether a file was written during the recording, or may be older because its process is.
    pub(super) fn is_new(&self, file: &OpenFile) -> bool {
        let modified = || file.file().metadata()?.modified();
        !self.is_own || modified().is_ok_and(|modified| modified + SLACK >= self.started)
    }

    pub(super) fn is_mapped(&self, file: &OpenFile, marker: &FileMarker) -> bool {
        self.mapped.has(file.origin(), file.created(), marker)
    }

    /// Whether a file is one of the user that a process of the recording has mapped. A server may create its jitdump,
    /// and then give up the rights of root.
    pub(super) fn is_from_before(&self, file: &OpenFile, marker: &FileMarker) -> bool {
        self.is_own && file.origin().owner == geteuid().as_raw() && self.is_mapped(file, marker)
    }

    /// Whether the file at the path of a marker is the one that was mapped, but belongs to another user than the process.
    pub(super) fn is_of_other(&self, marker: &FileMarker) -> bool {
        let found = self.open_new(&path_of(marker), self.owner(marker.pid));
        let is_other = |file: &OpenFile| !self.has_user(file, marker.pid) && self.is_mapped(file, marker);
        found.is_some_and(|found| is_other(&found.file))
    }

    /// Whether a file of a process, of which there is a copy, is the user's to remove.
    pub(super) fn may_remove(&self, file: &OpenFile, pid: Pid) -> bool {
        let folder = folder_of(file.path());
        // A process of another owner may have mapped what another program wrote, which has its ID in another namespace.
        let number = || pid_in_name(base_name(file.path().as_os_str().as_bytes()));
        let is_certain = self.has_user(file, pid) || is_closed(folder) && number() == Some(pid.0);
        is_certain && self.may_move(pid, folder) && file.origin().owner == geteuid().as_raw()
    }

    /// Removes a file from where it was opened, unless another one is there by now. Returns whether that was possible.
    pub(super) fn remove_at_path(&self, file: &OpenFile, pid: Pid) -> bool {
        let folder = self.open_folder(folder_of(file.path()), self.owner(pid));
        let place = folder.zip(file.path().file_name());
        place.is_some_and(|(folder, name)| folder.at(name).remove_file(file).is_ok())
    }

    /// Opens a directory, unless a link of somebody else than the user, root and the owner of the process leads there.
    pub(super) fn open_folder(&self, path: &Path, owner: Option<u32>) -> Option<Folder> {
        let may_lead = |user| is_trusted(user) || owner == Some(user);
        Folder::open_by_links_of(path, Scope::Recorded, may_lead).ok()
    }

    /// Returns the owner of a process. For root, it is unknown whose processes were that were not seen while they ran. The kernel
    /// lets other users record their own only.
    pub(super) fn owner(&self, pid: Pid) -> Option<u32> {
        let me = geteuid();
        let own = (!me.is_root()).then_some(me.as_raw());
        let noted = self.seen.owners.get(&pid.0).copied();
        noted.or_else(|| owner_of(pid.0)).or(own)
    }

    /// Returns the user whose files are those of a process.
    pub(super) fn user(&self, pid: Pid) -> u32 {
        self.owner(pid).unwrap_or_else(|| geteuid().as_raw())
    }

    /// Whether a file belongs to the owner of a process.
    pub(super) fn has_user(&self, file: &OpenFile, pid: Pid) -> bool {
        file.origin().owner == self.user(pid)
    }

    /// Whether a number is the ID of a process in one of its namespaces.
    pub(super) fn has_id(&self, pid: Pid, number: u32) -> bool {
        let mut known = self.known(pid).flat_map(|process| &process.inner_pids);
        pid.0 == number || known.any(|&id| id == number) || ids_of(pid.0).contains(&number)
    }

    fn known(&self, pid: Pid) -> impl Iterator<Item = &RecordedProcess> {
        self.seen
            .processes
            .iter()
            .filter(move |process| process.pid == pid.0)
    }
}

/// Whether only the user and root can change a folder, or write files into it.
fn is_closed(folder: &Path) -> bool {
    /// Write permission of others, also in folders such as `/tmp`.
    const OTHERS: u32 = 0o002;
    let is_closed = |folder| rustix::fs::fstat(&folder).is_ok_and(|stat| stat.st_mode & OTHERS == 0);
    open_unchangeable(folder).is_some_and(is_closed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    use std::time::Duration;

    use crate::code::profile_index::ProfileIndex;
    use crate::record::collection::tests::{ENDED, marker, run};
    use crate::record::watch::Seen;

    /// Process ID that the process has in a namespace of its own.
    const INNER: u32 = 77;

    /// Collects a jitdump of the user with an ID in its name, from a folder of this mode. A process has mapped it that
    /// now has the rights of another user, who may own a link that leads there. It may be newer than the recording.
    /// Returns the number of copies, and whether the file stays.
    fn collect(number: u32, mode: u32, has_link: bool, is_newer: bool) -> (usize, bool) {
        let other = geteuid().as_raw() + 1;
        let scratch = tempfile::tempdir().unwrap();
        let work = scratch.path().join("work");
        fs::create_dir(&work).unwrap();
        fs::set_permissions(&work, fs::Permissions::from_mode(mode)).unwrap();
        let dump = work.join(format!("jit-{number}.dump"));
        let log = format!("isolate0x1-{number}-v8.log");
        for path in [&dump, &work.join(&log)] {
            fs::write(path, "content").unwrap();
        }
        let found = fs::metadata(&dump).unwrap();
        let created = found.created().unwrap();
        let end = created - Duration::from_secs(is_newer.into());
        let mut path = dump.clone();
        if has_link {
            let link = scratch.path().join("link");
            symlink(&work, &link).unwrap();
            lchown(&link, Some(other), None).unwrap();
            path = link.join(dump.file_name().unwrap());
        }
        let mut index = ProfileIndex::default();
        index.markers.push(marker(ENDED, &path, Some(&found)));
        let maps = b"7f00-7f01 r-xp 00000000 08:01 7  /usr/lib/libpython3.13.so.1.0\n";
        let mut process = RecordedProcess::of(std::process::id(), maps).unwrap();
        process.pid = ENDED;
        process.inner_pids = vec![INNER];
        let seen = Seen {
            processes: vec![process],
            owners: BTreeMap::from([(ENDED, other)]),
            ..Seen::default()
        };
        let folder = Folder::create_all(&scratch.path().join("r")).unwrap();
        let found = run((&folder, "dumps"), &seen, &index, created, Some(end));
        // Nothing shows whose it is.
        assert!(found.untouched.len() == 1 && found.untouched.iter().all(|path| path.ends_with(&log)));
        assert!(found.files.iter().all(|file| file.is_left == dump.exists()));
        (found.files.len(), dump.exists())
    }

    /// As of a process whose owner is unknown, it is removed only where nobody else could have put it.
    #[test]
    fn the_jitdump_of_a_process_that_gave_up_rights_is_copied() {
        assert_eq!(collect(ENDED, 0o755, false, false), (1, false));
        assert_eq!(collect(ENDED, 0o777, false, false), (1, true));
        assert_eq!(collect(INNER, 0o755, false, false), (1, true));
        // The inode of the mapped one was free again.
        assert_eq!(collect(ENDED, 0o755, false, true), (0, true));
        // Nobody else can give a link away.
        if geteuid().is_root() {
            assert_eq!(collect(ENDED, 0o755, true, false), (0, true));
        }
    }
}
