//! Programs of other processes that may be run.
//!
//! Programs that others choose are not run as root. CPython is asked by its own program, and runtimes by
//! theirs for their version, only if nobody but root can change it; other users also run what they run
//! already. The file is executed that was checked, and neither it nor its children are waited for.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;

use super::process_files::has_same_root;
use crate::files::folder::{descriptor_path, open_unchangeable};
use crate::files::search::without_links;
use crate::load::running_processes::owner_of;

/// A program of another process that the user may run.
#[derive(Debug)]
pub struct SafeProgram {
    /// Its path.
    pub(super) path: PathBuf,
    /// The file that was checked.
    pub(super) file: OwnedFd,
}

impl SafeProgram {
    /// Opens the program of a process, by its path; `None` if the user must not run it. The path of a program in another root
    /// directory is another program here, if there is any.
    pub fn open(pid: u32, path: &Path) -> Option<Self> {
        let is_own = owner_of(pid) == Some(geteuid().as_raw());
        has_same_root(pid).then(|| Self::of(path, is_own)).flatten()
    }

    /// Opens a program that the user starts, by any path.
    pub fn started(path: &Path) -> Option<Self> {
        Self::of_user(&without_links(path).ok()?)
    }

    /// Opens a program that the user starts, or that [`Self::open`] has let the user run before.
    pub fn of_user(path: &Path) -> Option<Self> {
        Self::of(path, true)
    }

    /// Opens a program that only the user and root can change, or that the user runs already.
    ///
    /// For root, it proves nothing that a process is root's: a user's may have become that by executing another program after
    /// its path was read. Root therefore runs only what no other user can change, and no process that others start and exchange
    /// makes a difference.
    fn of(path: &Path, is_own: bool) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = if is_own && !geteuid().is_root() {
            rustix::fs::open(path, flags, Mode::empty()).ok()?
        } else {
            open_unchangeable(path)?
        };
        let path = path.to_owned();
        Some(Self { path, file })
    }

    /// Returns the command that runs the file that was checked, whatever is at its path by now. Its name is its path: many
    /// runtimes look for their files beside it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(descriptor_path(&self.file));
        command.arg0(&self.path);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn root_runs_no_program_that_others_can_change_even_its_own_process() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("node");
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o757)).unwrap();
        let opened = SafeProgram::open(std::process::id(), &program);
        assert_eq!(opened.is_some(), !geteuid().is_root());
    }
}
