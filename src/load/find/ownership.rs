//! Ownership checks of runtime files.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::files::FileOrigin;
use crate::files::open_file::is_trusted;
use crate::load::find::running_processes::process_folder;
use crate::load::options::LoadOptions;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::Pid;

/// Decides which files may be used. In folders such as `/tmp`, anybody can create files with the names of
/// other users' runtime files, and false names would be shown as true. The owner of a symbolic link chooses
/// its target, so links are checked too.
#[derive(Clone, Copy, Debug)]
pub struct OwnerCheck {
    profile_owner: u32,
    is_blind: bool,
}

impl OwnerCheck {
    /// Creates the checks for a profile that belongs to the user ID `profile_owner`.
    pub fn new(options: &LoadOptions, profile_owner: u32) -> Self {
        Self {
            profile_owner,
            is_blind: options.force,
        }
    }

    /// Rejects a file unless it and each link on its path belong to root, the current user, the owner of the
    /// profile, or the owner of the process `pid`, if that is known, while it runs.
    pub fn check(&self, file: &FileOrigin, pid: Option<Pid>) -> Result<(), Diagnostic> {
        if self.is_blind {
            return Ok(());
        }
        if !self.has(file.owner, pid) {
            return Err(Diagnostic::new(Issue::OtherOwner).with("user", file.owner));
        }
        let mut link_owners = file.trail.link_owners.iter();
        if let Some(&owner) = link_owners.find(|&&owner| !self.has(owner, pid)) {
            return Err(Diagnostic::new(Issue::LinkOwner).with("user", owner));
        }
        Ok(())
    }

    fn has(&self, owner: u32, pid: Option<Pid>) -> bool {
        let is_of = |pid| fs::metadata(process_folder(pid)).is_ok_and(|process| process.uid() == owner);
        is_trusted(owner) || owner == self.profile_owner || pid.is_some_and(is_of)
    }
}
