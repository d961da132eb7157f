//! Whose the files of processes are, and which may be moved.

use std::path::Path;

use rustix::process::geteuid;

use super::{Collection, is_running};
use crate::files::folder::open_unchangeable;
use crate::files::open_file::is_trusted;
use crate::files::search::folder_of;
use crate::files::walk::Scope;
use crate::files::{Folder, OpenFile};
use crate::load::running_processes::owner_of;
use crate::record::process_files::ids_of;
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
        /// Write permission of others, also in folders such as `/tmp`.
        const OTHERS: u32 = 0o002;
        let is_closed = |folder| rustix::fs::fstat(&folder).is_ok_and(|stat| stat.st_mode & OTHERS == 0);
        self.owner(pid).is_some() || open_unchangeable(folder).is_some_and(is_closed)
    }

    /// Whether a file of a process, of which there is a copy, is the user's to remove.
    pub(super) fn may_remove(&self, file: &OpenFile, pid: Pid) -> bool {
        self.may_move(pid, folder_of(file.path())) && file.origin().owner == geteuid().as_raw()
    }

    /// Removes a file from where it was opened, unless another one is there by now. Returns whether that was possible.
    pub(super) fn remove_at_path(&self, file: &OpenFile, pid: Pid) -> bool {
        let folder = self.open_folder(folder_of(file.path()), pid);
        let place = folder.zip(file.path().file_name());
        place.is_some_and(|(folder, name)| folder.at(name).remove_file(file).is_ok())
    }

    /// Opens a directory, unless a link of somebody else than root and the owner of the process leads there.
    pub(super) fn open_folder(&self, path: &Path, pid: Pid) -> Option<Folder> {
        let owner = self.owner(pid);
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
