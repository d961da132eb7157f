//! Jitdumps of processes that the profile lacks: they ran on CPUs that are not recorded, or perf lost their mappings.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;

use jitdump::Time;
use jitdump::internals::format::marker::pid_in_name;

use super::Collection;
use crate::bytes::base_name;
use crate::code::profile_index::{FileMarker, ProfileIndex};
use crate::perf::process_records::FileId;
use crate::units::Pid;

impl Collection<'_> {
    /// Returns markers for the jitdumps that processes had mapped while they ran, and wrote, if they have none in the profile.
    pub(super) fn unmarked(&self, index: &ProfileIndex) -> Vec<FileMarker> {
        let marked: BTreeSet<Pid> = index.markers.iter().map(|marker| marker.pid).collect();
        let seen = self.seen.dumps.all().filter(|(pid, ..)| !marked.contains(pid));
        let markers = seen.map(|(pid, inode, dump)| FileMarker {
            pid,
            time: Time(0),
            path: dump.path.as_os_str().as_bytes().to_vec(),
            file: Some(FileId {
                major: 0,
                minor: 0,
                inode,
            }),
            record: 0,
        });
        markers.filter(|marker| self.is_writer(marker)).collect()
    }

    /// Whether the jitdump of a marker has the ID of its process in its name, and not that of another one.
    pub(super) fn is_writer(&self, marker: &FileMarker) -> bool {
        let number = pid_in_name(base_name(&marker.path));
        number.is_some_and(|number| self.has_id(marker.pid, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::time::SystemTime;

    use rustix::process::geteuid;

    use crate::files::Folder;
    use crate::record::collection::tests::{ENDED, run};
    use crate::record::watch::Seen;

    #[test]
    fn the_jitdump_that_a_process_was_seen_to_write_is_moved_without_a_marker() {
        for (number, expected) in [(ENDED, (0, 1)), (77, (1, 0))] {
            let started = SystemTime::now();
            let scratch = tempfile::tempdir().unwrap();
            let work = scratch.path().join("work");
            fs::create_dir(&work).unwrap();
            let dump = work.join(format!("jit-{number}.dump"));
            fs::write(&dump, "content").unwrap();
            let mut seen = Seen {
                owners: BTreeMap::from([(ENDED, geteuid().as_raw())]),
                ..Seen::default()
            };
            let inode = fs::metadata(&dump).unwrap().ino();
            let mapping = format!("1-2 r-xp 0 0:0 {inode} {}", dump.display());
            seen.dumps.add(ENDED, mapping.as_bytes());
            let folder = Folder::create_all(&scratch.path().join("r")).unwrap();
            let index = ProfileIndex::default();
            let found = run((&folder, "dumps"), &seen, &index, started, None);
            assert!(found.left_out.is_empty(), "{:?}", found.left_out);
            let left = fs::read_dir(&work).unwrap().count();
            assert_eq!((left, found.files.len()), expected, "{number}");
        }
    }
}
