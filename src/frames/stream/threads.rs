//! Names of threads over time.

use jitdump::{Time, printable};

use crate::code::process::Processes;
use crate::code::profile_index::IndexedProfile;
use crate::collections::hash::{HashMap, HashSet};
use crate::collections::indexed_table::IndexedTable;
use crate::frames::stream::rows::ThreadKey;
use crate::frames::stream::tables::{Tables, Thread, ThreadIndex};
use crate::perf::Profile;
use crate::perf::process_records::{
    MAX_THREAD_NAME, ThreadChange, ThreadRecord, started_thread, thread_record,
};
use crate::perf::record::Record;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::{Pid, Tid};

/// Names of a thread, each with the time from which it has it.
type Names<'a> = Vec<(Time, &'a [u8])>;

/// The start of a thread.
struct Start {
    time: Time,
    thread: (Pid, Tid),
    starter: (Pid, Tid),
}

/// Returns the threads of samples, the first threads of their processes, and those that started them.
fn needed_threads(threads: &IndexedTable<ThreadIndex, ThreadKey>, starts: &[Start]) -> HashSet<(Pid, Tid)> {
    let sampled = threads.iter().filter_map(|&(pid, tid)| pid.zip(tid));
    let mut needed: HashSet<(Pid, Tid)> = sampled
        .flat_map(|(pid, tid)| [(pid, tid), (pid, Tid(pid.0))])
        .collect();
    for start in starts.iter().rev() {
        if needed.contains(&start.thread) {
            needed.insert(start.starter);
        }
    }
    needed
}

/// Returns the names that threads had when they were started: those that their starters had then. `starts` must be in the
/// order of time.
fn first_names<'a>(
    starts: &[Start],
    names: &HashMap<(Pid, Tid), Names<'a>>,
) -> HashMap<(Pid, Tid), &'a [u8]> {
    let mut first: HashMap<(Pid, Tid), &'a [u8]> = HashMap::default();
    for start in starts {
        let given = names.get(&start.starter).and_then(|given| {
            let after = given.partition_point(|&(time, _)| time <= start.time);
            given.get(after.checked_sub(1)?)
        });
        let name = match given {
            Some(&(_, name)) => Some(name),
            None => first.get(&start.starter).copied(),
        };
        if let Some(name) = name {
            first.insert(start.thread, name);
        }
    }
    first
}

/// Returns the starts of threads, in the order of time.
fn starts_of_threads(IndexedProfile { profile, index }: &IndexedProfile<'_>) -> Vec<Start> {
    let started = |record: Record<'_>| {
        let [thread, starter] = started_thread(&record, profile.endian)?;
        Some(Start {
            time: time_of(&record, profile),
            thread,
            starter,
        })
    };
    let mut starts: Vec<Start> = index.kept.iter(profile.endian).filter_map(started).collect();
    // Buffers of different CPUs follow each other.
    starts.sort_by_key(|start| start.time);
    starts
}

fn time_of(record: &Record<'_>, profile: &Profile<'_>) -> Time {
    profile.attrs.time_of(record, profile.endian).unwrap_or_default()
}

/// Names of threads in records.
#[derive(Default)]
struct RecordedNames<'a> {
    of_threads: HashMap<(Pid, Tid), Names<'a>>,
    /// Number of names that are too long, and cut.
    cut: u64,
}

/// Returns the names of processes, and of other threads that are `needed`.
fn recorded_names<'p>(
    IndexedProfile { profile, index }: &'p IndexedProfile<'_>,
    needed: &HashSet<(Pid, Tid)>,
) -> RecordedNames<'p> {
    let mut names = RecordedNames::default();
    for record in index.kept.iter(profile.endian) {
        let Some(ThreadRecord {
            pid,
            tid,
            change: ThreadChange::Name(name),
        }) = thread_record(&record, profile.endian)
        else {
            continue;
        };
        let is_process = pid.0 == tid.0;
        if !is_process && !needed.contains(&(pid, tid)) {
            continue;
        }
        // All threads of a process may have its name.
        let kept = name.get(..MAX_THREAD_NAME).unwrap_or(name);
        if kept.len() < name.len() {
            names.cut = names.cut.saturating_add(1);
        }
        let of_thread = names.of_threads.entry((pid, tid)).or_default();
        of_thread.push((time_of(&record, profile), kept));
    }
    for of_thread in names.of_threads.values_mut() {
        of_thread.sort_by_key(|&(time, _)| time);
        of_thread.dedup_by_key(|&mut (_, name)| name);
    }
    names
}

/// Adds the threads of samples.
pub fn add(tables: &mut Tables, threads: IndexedTable<ThreadIndex, ThreadKey>, indexed: &IndexedProfile<'_>) {
    let mut starts = starts_of_threads(indexed);
    let needed = needed_threads(&threads, &starts);
    starts.retain(|start| needed.contains(&start.thread));
    let RecordedNames {
        of_threads: names,
        cut,
    } = recorded_names(indexed, &needed);
    let cut = (cut > 0).then(|| Diagnostic::new(Issue::ThreadNameCut).times(cut));
    tables.diagnostics.extend(cut);
    let names = ThreadNames {
        first: first_names(&starts, &names),
        recorded: names,
        processes: &indexed.index.processes,
    };
    for (pid, tid) in threads {
        tables.threads.push(Thread {
            pid,
            tid,
            names: names.of_thread(pid.zip(tid)),
            process_name: pid
                .and_then(|pid| names.of_process(pid))
                .map_or_else(String::new, printable),
        });
    }
}

/// The names of threads and processes. A thread has the name of the one that started it, until it gets its own, and so has a
/// process.
struct ThreadNames<'a> {
    recorded: HashMap<(Pid, Tid), Names<'a>>,
    /// Names that threads had when they were started.
    first: HashMap<(Pid, Tid), &'a [u8]>,
    processes: &'a Processes,
}

impl<'a> ThreadNames<'a> {
    /// Returns the names of a thread over time; none if its IDs or its names are unknown.
    fn of_thread(&self, ids: Option<(Pid, Tid)>) -> Vec<(Time, String)> {
        let Some(ids) = ids else {
            return Vec::new();
        };
        let own = self.recorded.get(&ids).into_iter().flatten();
        let mut names: Vec<(Time, String)> = own.map(|&(time, name)| (time, printable(name))).collect();
        if names.is_empty()
            && let Some(name) = self.first.get(&ids)
        {
            names.push((Time(0), printable(name)));
        }
        names
    }

    /// Returns the last name of a process.
    fn of_process(&self, pid: Pid) -> Option<&'a [u8]> {
        let own = self.names_of_first_thread(pid).last();
        own.map(|&(_, name)| name)
            .or_else(|| self.first.get(&(pid, Tid(pid.0))).copied())
            .or_else(|| self.of_starter(pid))
    }

    /// Returns the name that the process that started another one had then.
    fn of_starter(&self, pid: Pid) -> Option<&'a [u8]> {
        let (_, space) = self.processes.spaces_of(pid).next()?;
        let starters = self.processes.starters(space.pid);
        let mut names = starters.map(|starter| self.names_of_first_thread(starter));
        let names = names.find(|names| !names.is_empty())?;
        let then = names.iter().rfind(|(time, _)| *time <= space.since);
        then.or(names.first()).map(|&(_, name)| name)
    }

    /// Returns the recorded names of the first thread of a process, in the order of time.
    fn names_of_first_thread(&self, pid: Pid) -> &[(Time, &'a [u8])] {
        let found = self.recorded.get(&(pid, Tid(pid.0)));
        found.map_or(&[][..], Vec::as_slice)
    }
}
