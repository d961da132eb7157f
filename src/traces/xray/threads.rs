//! Matches a trace's threads with the profile's.

use crate::code::process::Processes;
use crate::code::profile_index::IndexedProfile;
use crate::collections::hash::HashMap;
use crate::perf::process_records;
use crate::perf::synthetic::SyntheticThread;
use crate::traces::conversion::source::{FIRST_SYNTHETIC_TID, TracedThread};
use crate::traces::xray::format::TraceIndex;
use crate::units::{Pid, Tid};

/// The threads of a profile.
#[derive(Clone, Debug)]
pub struct ProfileThreads<'p> {
    processes: &'p Processes,
    owners: HashMap<Tid, Pid>,
}

impl<'p> ProfileThreads<'p> {
    /// Collects the threads of a profile.
    pub fn of(IndexedProfile { profile, index }: &'p IndexedProfile<'_>) -> Self {
        let changes = index.kept.iter(profile.endian).filter_map(|record| {
            let found = process_records::thread_record(&record, profile.endian)?;
            Some((found.tid, found.pid))
        });
        Self {
            processes: &index.processes,
            owners: changes.collect(),
        }
    }

    fn owner(&self, tid: Tid) -> Option<Pid> {
        let own = Pid(tid.0);
        let owner = self.owners.get(&tid).copied();
        owner.or_else(|| self.processes.knows(own).then_some(own))
    }

    /// Finds the process of a thread in the profile: `given` by the user, or `own` by the trace, or that of the thread ID, or else
    /// the one with the ID `lowest`. Returns the process as an error if the profile does not have it.
    fn find(
        &self,
        tid: Tid,
        own: Option<u32>,
        given: Option<u32>,
        lowest: u32,
    ) -> Result<TracedThread<'static>, Pid> {
        let tid = match given {
            // In a container, the first thread also has the ID of its process.
            Some(given) if own == Some(tid.0) => Tid(given),
            _ => tid,
        };
        let owner = self.owner(tid);
        let pid = given.or(own).map(Pid).or(owner).unwrap_or(Pid(lowest));
        if !self.processes.knows(pid) {
            return Err(pid);
        }
        let tid = if owner.is_some_and(|owner| owner != pid) {
            // A thread ID of a container may belong to another process outside of it.
            Tid(tid.0 | FIRST_SYNTHETIC_TID)
        } else {
            tid
        };
        Ok(TracedThread {
            thread: SyntheticThread { pid, tid },
            is_introduced: owner == Some(pid),
            name: None,
        })
    }
}

/// Returns the threads of a trace, in the order of [`TraceIndex::threads`], by the IDs of those in `known`, if there is a
/// profile. A thread whose process is not in the profile is an error with its process. `pid` is the one that the user
/// gave.
pub fn threads(
    index: &TraceIndex,
    known: Option<&ProfileThreads<'_>>,
    pid: Option<u32>,
) -> Vec<Result<TracedThread<'static>, Pid>> {
    // Thread IDs mostly ascend, so the first thread has the lowest.
    let numbers = index.threads().filter_map(|thread| positive(thread.thread));
    let lowest = numbers.min().unwrap_or(1);
    let find = |process: Option<i32>, tid: i32| {
        let tid = Tid(positive(tid).unwrap_or(lowest));
        let own = process.and_then(positive);
        if let Some(known) = known {
            return known.find(tid, own, pid, lowest);
        }
        let pid = Pid(pid.or(own).unwrap_or(lowest));
        Ok(TracedThread {
            thread: SyntheticThread { pid, tid },
            is_introduced: false,
            name: None,
        })
    };
    index
        .threads()
        .map(|thread| find(thread.process, thread.thread))
        .collect()
}

/// Returns the ID if it is positive. ID 0 is the idle task's.
fn positive(number: i32) -> Option<u32> {
    u32::try_from(number).ok().filter(|&number| number > 0)
}
