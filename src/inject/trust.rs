//! Whose files are believed.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::files::MappedFile;
use crate::inject::Options;
use crate::inject::candidates::Rejected;
use crate::units::Pid;

/// Decides which of the files that were found may be read. In folders such as `/tmp`, everybody can put files
/// that are called like those of others' processes; names that they hold would be shown as if they were true.
#[derive(Clone, Copy, Debug)]
pub struct Trust {
    profile_owner: u32,
    is_blind: bool,
}

impl Trust {
    /// For a profile that belongs to user `profile_owner`.
    pub fn new(options: &Options, profile_owner: u32) -> Self {
        Self {
            profile_owner,
            is_blind: options.force,
        }
    }

    /// Makes sure that a file belongs to somebody who may tell about a process: root, the user who runs this,
    /// the owner of the profile, or that of the process, as long as it runs.
    pub fn check(&self, file: &MappedFile, pid: Pid) -> Result<(), Rejected> {
        let owner = file.owner();
        let is_of_process =
            || fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == owner);
        if self.is_blind || file.is_trusted() || owner == self.profile_owner || is_of_process() {
            return Ok(());
        }
        Err(Rejected::Because(format!(
            "belongs to user {owner}, and neither to you nor to root nor to the owner of the profile: not used (-f does)"
        )))
    }
}
