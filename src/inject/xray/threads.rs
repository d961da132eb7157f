//! Which thread of the profile each thread of a trace is.

use crate::code::process::Processes;
use crate::hash::HashMap;
use crate::perf::synthesis::Thread;
use crate::perf::{Profile, event};
use crate::runtime::xray::{Index, Trace};
use crate::units::{Pid, Tid};

/// No kernel gives a number as high to a thread (`PID_MAX_LIMIT`).
const ABOVE_ALL: u32 = 1 << 22;

/// A thread of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedThread {
    /// By the profile's numbers.
    pub thread: Thread,
    /// Whether the profile knows it.
    pub is_known: bool,
}

/// The threads of a profile.
#[derive(Clone, Debug)]
pub struct ProfileThreads<'p> {
    processes: &'p Processes,
    owners: HashMap<Tid, Pid>,
    /// By the last 16 bits of their numbers: the thread, if it is the only one.
    endings: HashMap<u16, Option<Tid>>,
}

impl<'p> ProfileThreads<'p> {
    /// Walks a profile, whose processes are known already.
    pub fn of(profile: &Profile<'_>, processes: &'p Processes) -> Self {
        let changes = profile.records().filter_map(|record| {
            let (pid, tid, _) = event::thread_change(&record, profile.order)?;
            Some((Tid(tid), pid))
        });
        let owners: HashMap<Tid, Pid> = changes.collect();
        let mut endings: HashMap<u16, Option<Tid>> = HashMap::default();
        for &tid in owners.keys() {
            let only = endings.entry(tid.0 as u16).or_insert(Some(tid));
            *only = only.filter(|&other| other == tid);
        }
        Self {
            processes,
            owners,
            endings,
        }
    }

    fn owner(&self, tid: Tid) -> Option<Pid> {
        let own = Pid(tid.0);
        let owner = self.owners.get(&tid).copied();
        owner.or_else(|| self.processes.knows(own).then_some(own))
    }

    /// The only thread whose number ends with the 16 bits of `tid`.
    fn ending_with(&self, tid: Tid) -> Option<Tid> {
        self.endings.get(&(tid.0 as u16)).copied().flatten()
    }
}

/// The threads of a trace, in the order of [`Index::threads`], by the numbers of those that are `known`, if there is a
/// profile; an error, with the process, for those that the profile has not. `pid` is what the user says.
pub fn threads(
    trace: &Trace<'_>,
    index: &Index,
    known: Option<&ProfileThreads<'_>>,
    pid: Option<u32>,
) -> Vec<Result<TracedThread, Pid>> {
    // Threads get their numbers one after the other, mostly: the first one has the lowest.
    let numbers = index.threads().filter_map(|thread| positive(thread.thread));
    let lowest = numbers.min().unwrap_or(1);
    let find = |process: Option<i32>, tid: i32| {
        let mut tid = Tid(positive(tid).unwrap_or(lowest));
        let Some(known) = known else {
            let pid = pid.or(process.and_then(positive)).unwrap_or(lowest);
            let thread = Thread { pid: Pid(pid), tid };
            return Ok(TracedThread {
                thread,
                is_known: false,
            });
        };
        // Quirk: LLVM 5 took these numbers for 16 bits.
        if trace.header().version == 1 && known.owner(tid).is_none() {
            tid = known.ending_with(tid).unwrap_or(tid);
        }
        let own = process.and_then(positive);
        if pid.is_some() && own == Some(tid.0) {
            // It is in a container, whose first thread has the number of the process as well.
            tid = Tid(pid.unwrap_or(tid.0));
        }
        let told = pid.or(own).map(Pid);
        let pid = told.or_else(|| known.owner(tid)).unwrap_or(Pid(lowest));
        if !known.processes.knows(pid) {
            return Err(pid);
        }
        let owner = known.owner(tid);
        if owner.is_some_and(|owner| owner != pid) {
            // Numbers of a container are others' outside of it.
            tid = Tid(tid.0 | ABOVE_ALL);
        }
        let thread = Thread { pid, tid };
        Ok(TracedThread {
            thread,
            is_known: owner == Some(pid),
        })
    };
    index
        .threads()
        .map(|thread| find(thread.process, thread.thread))
        .collect()
}

/// Numbers of processes and threads are above 0, which is the idle task's.
fn positive(number: i32) -> Option<u32> {
    u32::try_from(number).ok().filter(|&number| number > 0)
}
