//! Resolution of process IDs in runtime files to processes of the profile.

use crate::code::process::Processes;
use crate::collections::hash::{HashMap, HashSet};
use crate::load::find::found_file::FoundFile;
use crate::units::Pid;

/// Resolves process IDs in runtime files to processes of the profile.
///
/// A dump belongs to the process that mapped it, whatever ID it contains: in a container (capture
/// node20-pidns) it is 1. But a child that continues its parent's dump after a fork uses its own ID.
#[derive(Debug)]
pub struct PidResolver {
    /// For the first process of each dump, its descendants that have no dump.
    descendants: HashMap<Pid, Descendants>,
    /// Files (device and inode) and the processes that mapped them.
    mapped: HashSet<((u64, u64), Pid)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Descendants {
    One(Pid),
    Many,
}

impl PidResolver {
    /// Collects the descendants of all processes with a dump.
    pub fn new<'a>(dumps: impl Iterator<Item = &'a FoundFile> + Clone, processes: &Processes) -> Self {
        let with_dump: HashSet<Pid> = dumps.clone().flat_map(|dump| &dump.pids).copied().collect();
        let pairs = dumps.clone().flat_map(|dump| {
            let file_id = dump.file.file_id();
            dump.pids.iter().map(move |&pid| (file_id, pid))
        });
        let mapped = pairs.collect();
        let firsts: HashSet<Pid> = dumps.filter_map(|dump| dump.pids.first()).copied().collect();
        let mut descendants: HashMap<Pid, Descendants> = HashMap::default();
        for (id, space) in processes.iter() {
            if with_dump.contains(&space.pid) {
                continue;
            }
            let ancestors = processes.all_ancestors(id).map(|(_, ancestor)| ancestor.pid);
            for ancestor in ancestors.filter(|pid| firsts.contains(pid)) {
                let descendants = descendants.entry(ancestor).or_insert(Descendants::One(space.pid));
                if *descendants != Descendants::One(space.pid) {
                    *descendants = Descendants::Many;
                }
            }
        }
        Self { descendants, mapped }
    }

    /// Returns the process of the profile that `pid` means in `dump`, whose header contains `header_pid`; `None` if there
    /// are several candidates. They differ in containers only.
    pub fn process_of(
        &self,
        dump: &FoundFile,
        header_pid: u32,
        pid: u32,
        processes: &Processes,
    ) -> Option<Pid> {
        let same = Pid(pid);
        let Some((&first, others)) = dump.pids.split_first() else {
            return Some(same);
        };
        if self.mapped.contains(&(dump.file.file_id(), same)) {
            return Some(same);
        }
        if pid == header_pid {
            return Some(first);
        }
        if processes.descends(same, first) {
            return Some(same);
        }
        // A child in another PID namespace.
        match (others, self.descendants.get(&first)) {
            ([], None) => Some(first),
            ([], Some(&Descendants::One(heir))) => Some(heir),
            (&[other], None) => Some(other),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::code::process::ProcessEvent;
    use crate::files::{OpenFile, PagedFile};
    use jitdump::Time;

    fn processes(forks: &[(u32, u32)]) -> Processes {
        let fork = |&(parent, child)| ProcessEvent::Fork {
            child: Pid(child),
            parent: Pid(parent),
            time: Time(10),
        };
        Processes::new(forks.iter().map(fork).collect())
    }

    fn dump(pids: &[u32]) -> FoundFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        FoundFile {
            file: Arc::new(PagedFile::of(OpenFile::open(file.path()).unwrap()).unwrap()),
            pids: pids.iter().copied().map(Pid).collect(),
            pids_before: Vec::new(),
            marked: None,
            markers: Vec::new(),
        }
    }

    fn owner(forks: &[(u32, u32)], pids: &[u32], header_pid: u32, pid: u32) -> Option<u32> {
        let processes = processes(forks);
        let dump = dump(pids);
        let owners = PidResolver::new([&dump].into_iter(), &processes);
        owners
            .process_of(&dump, header_pid, pid, &processes)
            .map(|pid| pid.0)
    }

    #[test]
    fn who_mapped_a_dump_is_meant_by_its_header() {
        assert_eq!(owner(&[], &[100], 1, 1), Some(100));
        assert_eq!(owner(&[], &[100], 100, 100), Some(100));
        assert_eq!(owner(&[(100, 101)], &[100, 101], 100, 101), Some(101));
    }

    #[test]
    fn children_mean_themselves() {
        assert_eq!(owner(&[(100, 101)], &[100], 100, 101), Some(101));
        assert_eq!(owner(&[(100, 101)], &[100], 1, 7), Some(101), "in a container");
        assert_eq!(owner(&[(100, 101), (100, 102)], &[100], 1, 7), None, "which one?");
        assert_eq!(owner(&[(50, 7)], &[100], 1, 7), Some(100), "7 is somebody else");
        assert_eq!(
            owner(&[], &[100, 107], 1, 7),
            Some(107),
            "forked before the profile"
        );
    }
}
