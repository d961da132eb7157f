//! Whose files are believed.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::files::mapped::is_trusted;
use crate::files::{MappedFile, links};
use crate::inject::Options;
use crate::inject::candidates::Rejected;
use crate::inject::running::process_folder;
use crate::units::Pid;

/// Decides which of the files that were found may be read. In folders such as `/tmp`, everybody can put files
/// that are called like those of others' processes; names that they hold would be shown as if they were true. A link there is
/// its owner's word for what it leads to, so it must belong to the same users.
#[derive(Clone, Copy, Debug)]
pub struct Ownership {
    profile_owner: u32,
    is_blind: bool,
}

impl Ownership {
    /// For a profile that belongs to user `profile_owner`.
    pub fn new(options: &Options, profile_owner: u32) -> Self {
        Self {
            profile_owner,
            is_blind: options.force,
        }
    }

    /// Makes sure that a file, and each link on the way to it, belongs to somebody who may tell about a process: root, the
    /// user who runs this, the owner of the profile, or that of the process, as long as it runs.
    pub fn check(&self, file: &MappedFile, pid: Pid) -> Result<(), Rejected> {
        if self.is_blind {
            return Ok(());
        }
        if !self.has(file.owner(), pid) {
            return Err(strange("belongs to", file.owner()));
        }
        let trace = links::trace(file.path())?;
        if let Some(&owner) = trace.owners.iter().find(|&&owner| !self.has(owner, pid)) {
            return Err(strange("is reached by a link of", owner));
        }
        if trace.number != file.number() {
            let reason = "was replaced while it was opened: not used";
            return Err(Rejected::Because(reason.to_owned()));
        }
        Ok(())
    }

    fn has(&self, owner: u32, pid: Pid) -> bool {
        let is_of_process = || fs::metadata(process_folder(pid)).is_ok_and(|process| process.uid() == owner);
        is_trusted(owner) || owner == self.profile_owner || is_of_process()
    }
}

fn strange(relation: &str, owner: u32) -> Rejected {
    Rejected::Because(format!(
        "{relation} user {owner}, who is neither you nor root nor the owner of the profile: not used (-f does)"
    ))
}
