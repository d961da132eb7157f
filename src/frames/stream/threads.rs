//! Names of threads over time.

use jitdump::{Time, printable};

use crate::code::profile_index::IndexedProfile;
use crate::collections::hash::{HashMap, HashSet};
use crate::collections::indexed_table::IndexedTable;
use crate::frames::stream::rows::ThreadKey;
use crate::frames::stream::tables::{Tables, Thread, ThreadIndex};
use crate::perf::event::{MAX_THREAD_NAME, ThreadChange, thread_change};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::{Pid, Tid};

/// Names of a thread, each with the time from which it has it.
type Names<'a> = Vec<(Time, &'a [u8])>;

/// Adds the threads of samples.
pub fn add(
    tables: &mut Tables,
    threads: IndexedTable<ThreadIndex, ThreadKey>,
    IndexedProfile { profile, index }: &IndexedProfile<'_>,
) {
    let mut names: HashMap<(Pid, Tid), Names<'_>> = HashMap::default();
    let mut truncated = 0u64;
    let sampled: HashSet<ThreadKey> = threads.iter().copied().collect();
    for record in index.kept.iter(profile.endian) {
        let Some((pid, tid, ThreadChange::Name(name))) = thread_change(&record, profile.endian) else {
            continue;
        };
        let tid = Tid(tid);
        let is_process = pid.0 == tid.0;
        if !is_process && !sampled.contains(&(Some(pid), Some(tid))) {
            continue;
        }
        // All threads of a process may have its name.
        let kept = name.get(..MAX_THREAD_NAME).unwrap_or(name);
        if kept.len() < name.len() {
            truncated = truncated.saturating_add(1);
        }
        let time = profile.attrs.time_of(&record, profile.endian).unwrap_or_default();
        names.entry((pid, tid)).or_default().push((time, kept));
    }
    for of_thread in names.values_mut() {
        // Buffers of different CPUs follow each other.
        of_thread.sort_by_key(|&(time, _)| time);
        of_thread.dedup_by_key(|&mut (_, name)| name);
    }
    let cut = (truncated > 0).then(|| Diagnostic::new(Issue::ThreadNameCut).times(truncated));
    tables.diagnostics.extend(cut);
    let of = |pid: Option<Pid>, tid: Option<Tid>| {
        let found = pid.zip(tid).and_then(|key| names.get(&key));
        found.map_or(&[][..], |names| names)
    };
    let of_process = |pid: Pid| of(Some(pid), Some(Tid(pid.0)));
    for (pid, tid) in threads {
        // A thread has the name of the one that started it, until it gets its own, and so has a process.
        let own = pid.and_then(|pid| of_process(pid).last());
        let process = own.or_else(|| {
            let (_, space) = index.processes.spaces_of(pid?).next()?;
            let mut starters = index.processes.starters(space.pid).map(of_process);
            let names = starters.find(|names| !names.is_empty())?;
            names
                .iter()
                .rfind(|(time, _)| *time <= space.since)
                .or(names.first())
        });
        let named = of(pid, tid).iter();
        tables.threads.push(Thread {
            pid,
            tid,
            names: named.map(|&(time, name)| (time, printable(name))).collect(),
            process_name: process.map_or_else(String::new, |(_, name)| printable(name)),
        });
    }
}
