//! Owners of processes that `jitinject record` has noted in the manifest of a recording.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::files::search::folder_of;
use crate::files::walk::{self, Scope};

/// Name of the manifest in the folder of a recording.
pub const MANIFEST: &str = "manifest.json";

/// Maximum size of a manifest in bytes.
const MAX_SIZE: u64 = 64 << 20;

/// The part of a manifest that is needed.
#[derive(Deserialize)]
struct NotedOwners {
    #[serde(default)]
    owners: BTreeMap<u32, u32>,
}

/// Returns the user IDs of the owners of processes, by process ID, from the manifest beside a profile. There are none if a user
/// other than root and the current one could have written it.
pub fn noted_owners(profile: &Path) -> BTreeMap<u32, u32> {
    read(folder_of(profile)).unwrap_or_default()
}

fn read(folder: &Path) -> Option<BTreeMap<u32, u32>> {
    let file = walk::open(MANIFEST.as_ref(), Scope::BeneathRecorded(folder)).ok()?;
    if !file.is_unchanged_by_others() || file.size() > MAX_SIZE {
        return None;
    }
    let content = file.read_part(0, file.size()).ok()?;
    let noted: NotedOwners = serde_json::from_slice(&content).ok()?;
    Some(noted.owners)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn owners_are_believed_if_nobody_else_could_write_them() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join(MANIFEST);
        let read = || noted_owners(&folder.path().join("perf.data"));
        assert!(read().is_empty());
        fs::write(&manifest, r#"{"format": 1, "owners": {"7": 1001}}"#).unwrap();
        fs::set_permissions(&manifest, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read(), BTreeMap::from([(7, 1001)]));
        fs::set_permissions(&manifest, Permissions::from_mode(0o666)).unwrap();
        assert!(read().is_empty());
        fs::set_permissions(&manifest, Permissions::from_mode(0o644)).unwrap();
        fs::write(&manifest, "{}").unwrap();
        assert!(read().is_empty());
    }
}
