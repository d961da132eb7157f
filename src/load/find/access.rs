//! Which files may be opened and used.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use serde::Deserialize;

use crate::bytes::printable_path;
use crate::files::open_file::is_trusted;
use crate::files::search::folder_of;
use crate::files::walk::{self, Scope};
use crate::files::{FileOrigin, Reach};
use crate::load::options::LoadOptions;
use crate::load::running_processes::{SLACK, owner_of, process_folder, start_of};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::Pid;

/// Name of the manifest in the folder of a recording.
pub const MANIFEST: &str = "manifest.json";

/// Maximum size of a manifest in bytes.
const MAX_MANIFEST: u64 = 64 << 20;

/// Restrictions on files, by their paths and their owners. In folders such as `/tmp`, anybody can create files with the names of
/// other users' runtime files, and false names would be shown as true. The owner of a symbolic link chooses
/// its target, so links are checked too.
#[derive(Clone, Debug)]
pub struct Access {
    /// Which paths may be opened.
    pub reach: Reach,
    profile_owner: u32,
    /// Owners of processes, by ID, as the options name them.
    process_owners: BTreeMap<u32, u32>,
    /// Path of the profile.
    profile: PathBuf,
    /// The same in the manifest of the recording, read when a file of another user is found.
    noted: OnceLock<BTreeMap<u32, u32>>,
    is_blind: bool,
    /// When the profile ended, if that is known.
    pub end: Option<SystemTime>,
}

impl Access {
    /// Returns the restrictions for a profile that belongs to the user ID `profile_owner` and ended then, if that is known.
    pub fn new(options: &LoadOptions, profile_owner: u32, end: Option<SystemTime>) -> Self {
        Self {
            reach: options.reach(),
            profile_owner,
            process_owners: options.process_owners.clone(),
            profile: options.input.clone(),
            noted: OnceLock::new(),
            is_blind: options.force,
            end,
        }
    }

    /// Rejects a file unless it belongs to root, the current user, the owner of the profile, or the owner of the process
    /// `pid`, who is known while it runs, or by the options or the manifest. Each link on its path must belong to root, the
    /// current user or the owner of the file: another user could lead to a file that only this one may read.
    pub fn check(&self, file: &FileOrigin, pid: Option<Pid>) -> Result<(), Diagnostic> {
        if self.is_blind {
            return Ok(());
        }
        if !self.has(file.owner, pid) {
            return Err(Diagnostic::new(Issue::OtherOwner).with("user", file.owner));
        }
        let mut link_owners = file.trail.link_owners.iter();
        match link_owners.find(|&&owner| !is_trusted(owner) && owner != file.owner) {
            Some(&owner) => Err(led_by(owner, file)),
            None => Ok(()),
        }
    }

    /// Rejects a file below the root directory of a running process that the process may not read: in a mount namespace of
    /// its own, it can give any name to such a file.
    pub fn check_in_process(&self, file: &FileOrigin, pid: Pid) -> Result<(), Diagnostic> {
        if self.is_blind || file.is_public() {
            return Ok(());
        }
        match owner_of(pid.0) {
            Some(owner) if owner == file.owner => Ok(()),
            Some(owner) => Err(led_by(owner, file)),
            None => Err(Diagnostic::new(Issue::FileMissing)),
        }
    }

    /// Whether files of `owner` are believed: those of trusted users, of the profile's owner, and of the owner of process `pid`.
    fn has(&self, owner: u32, pid: Option<Pid>) -> bool {
        let in_manifest = || {
            let noted = || noted_owners(&self.profile).unwrap_or_default();
            self.noted.get_or_init(noted)
        };
        let noted = |pid: Pid| {
            let named = self.process_owners.get(&pid.0);
            named.or_else(|| in_manifest().get(&pid.0))
        };
        let is_of = |pid| noted(pid) == Some(&owner) || self.is_of_running(owner, pid);
        is_trusted(owner) || owner == self.profile_owner || pid.is_some_and(is_of)
    }

    /// Whether a process of the profile still runs and belongs to a user. One that started after the end has only its ID.
    fn is_of_running(&self, owner: u32, pid: Pid) -> bool {
        // The start is read last: of a process that gets the ID meanwhile, it is later.
        let is_owner = fs::metadata(process_folder(pid)).is_ok_and(|process| process.uid() == owner);
        let started = || start_of(pid.0)?.checked_add(SLACK);
        let was_there = |end: SystemTime| started().is_some_and(|started| started <= end);
        is_owner && self.end.is_some_and(was_there)
    }
}

/// The part of a manifest that is needed.
#[derive(Deserialize)]
struct NotedOwners {
    #[serde(default)]
    owners: BTreeMap<u32, u32>,
}

/// Returns the user IDs of the owners of processes, by process ID, that `jitinject record` has noted in the manifest
/// beside a profile; `None` if a user other than root and the current one could have written it.
fn noted_owners(profile: &Path) -> Option<BTreeMap<u32, u32>> {
    let folder = Scope::BeneathRecorded(folder_of(profile));
    let file = walk::open(MANIFEST.as_ref(), folder).ok()?;
    if !file.is_unchanged_by_others() || file.size() > MAX_MANIFEST {
        return None;
    }
    let content = file.read_part(0, file.size()).ok()?;
    let noted: NotedOwners = serde_json::from_slice(&content).ok()?;
    Some(noted.owners)
}

/// Returns why a file is not used to which a user leads who is not its owner.
pub fn led_by(user: u32, file: &FileOrigin) -> Diagnostic {
    let target = file.trail.target.as_ref().unwrap_or(&file.path);
    let rejected = Diagnostic::new(Issue::LinkOwner).with("user", user);
    rejected.with("target", printable_path(target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use rustix::process::geteuid;

    use crate::files::OpenFile;

    #[test]
    fn the_owner_of_a_process_that_started_after_the_profile_does_not_count() {
        let me = Pid(std::process::id());
        let owner = fs::metadata(process_folder(me)).unwrap().uid();
        let started = start_of(me.0).unwrap() + SLACK;
        let minute = Duration::from_secs(60);
        for (end, is_owner) in [
            (None, false),
            (Some(started - minute), false),
            (Some(started + minute), true),
        ] {
            let check = Access::new(&LoadOptions::default(), 0, end);
            assert_eq!(check.is_of_running(owner, me), is_owner, "{end:?}");
            assert!(!check.is_of_running(owner + 1, me));
        }
    }

    #[test]
    fn an_owner_that_options_name_counts_for_the_process_alone() {
        // No process has these IDs.
        let [process, other] = [Pid(4_193_902), Pid(4_193_903)];
        let user = geteuid().as_raw() + 1;
        let options = LoadOptions {
            process_owners: BTreeMap::from([(process.0, user)]),
            ..LoadOptions::default()
        };
        let check = Access::new(&options, 0, None);
        assert!(check.has(user, Some(process)));
        assert!(!check.has(user + 1, Some(process)));
        assert!(!check.has(user, Some(other)) && !check.has(user, None));
    }

    #[test]
    fn owners_are_believed_if_nobody_else_could_write_them() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join(MANIFEST);
        let read = || noted_owners(&folder.path().join("perf.data"));
        assert!(read().unwrap_or_default().is_empty());
        fs::write(&manifest, r#"{"format": 1, "owners": {"7": 1001}}"#).unwrap();
        fs::set_permissions(&manifest, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read(), Some(BTreeMap::from([(7, 1001)])));
        fs::set_permissions(&manifest, Permissions::from_mode(0o666)).unwrap();
        assert!(read().unwrap_or_default().is_empty());
        fs::set_permissions(&manifest, Permissions::from_mode(0o644)).unwrap();
        fs::write(&manifest, "{}").unwrap();
        assert!(read().unwrap_or_default().is_empty());
    }

    /// The owner of a process is believed about the process, and not about what other users have in their files.
    #[test]
    fn owners_of_links_lead_to_their_own_files_only() {
        let process = Pid(4_193_902);
        let me = geteuid().as_raw();
        let user = me + 1;
        let options = LoadOptions {
            process_owners: BTreeMap::from([(process.0, user)]),
            ..LoadOptions::default()
        };
        let check = Access::new(&options, 0, None);
        let mut file = OpenFile::open(Path::new("Cargo.toml")).unwrap().origin().clone();
        for (owner, links, is_used) in [
            (user, vec![], true),
            (user, vec![0, me, user], true),
            (me, vec![0, me], true),
            (me, vec![me, user], false),
            (0, vec![user], false),
            (user, vec![user + 1], false),
        ] {
            file.owner = owner;
            file.trail.link_owners.clone_from(&links);
            let checked = check.check(&file, Some(process));
            assert_eq!(checked.is_ok(), is_used, "{owner} {links:?}");
            if let Err(rejected) = checked {
                assert_eq!(rejected.issue, Issue::LinkOwner);
            }
        }
        let mut blind = check;
        blind.is_blind = true;
        assert_eq!(blind.check(&file, Some(process)), Ok(()));
    }

    #[test]
    fn a_private_file_in_a_process_is_that_of_its_owner() {
        let me = Pid(std::process::id());
        let check = Access::new(&LoadOptions::default(), 0, None);
        let private = tempfile::NamedTempFile::new().unwrap();
        let mut file = OpenFile::open(private.path()).unwrap().origin().clone();
        assert_eq!(check.check_in_process(&file, me), Ok(()));
        file.owner += 1;
        let rejected = check.check_in_process(&file, me).unwrap_err();
        assert_eq!(rejected.issue, Issue::LinkOwner);
    }
}
