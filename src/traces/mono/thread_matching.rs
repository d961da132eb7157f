//! Matches the threads of a log, which have IDs of their own, to the threads of a process in the profile.
//!
//! Some runtimes log a thread by an address (`pthread_t`) and a name. The kernel gets the same name at the same time
//! and records it: a COMM record follows the log's entry by microseconds. If two threads get the same name so close
//! to each other that either could match, neither is used.
//!
//! Threads without a match get an ID that no kernel assigns; the ambiguous ones are reported.

use jitdump::{RuntimeTime, Time};

use crate::code::clock::Alignment;
use crate::code::profile_index::IndexedProfile;
use crate::collections::hash::{HashMap, HashSet};
use crate::perf::process_records::{self, ThreadChange, ThreadRecord};
use crate::units::{Pid, Tid};

/// A thread in the profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileThread {
    /// Thread ID.
    pub tid: u32,
    /// Start time; 0 if it is older than the profile.
    pub start: Time,
    /// End time; [`Time::MAX`] if unknown.
    pub end: Time,
    /// Its names, each with its start time.
    pub names: Vec<(Time, Vec<u8>)>,
}

/// A thread in a log. Other threads may have the same ID before and after its lifetime.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedThread<'a> {
    /// ID of the thread in the log.
    pub id: u64,
    /// Its last name, with the time at which it was set.
    pub name: Option<(RuntimeTime, &'a [u8])>,
    /// Times of its first and last event.
    pub span: (RuntimeTime, RuntimeTime),
}

/// Result of matching a thread of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Match {
    /// ID of the thread in the profile.
    Thread(u32),
    /// Several threads match.
    Ambiguous,
    /// No thread matches.
    Missing,
}

/// Maximum size of a thread name in the kernel, in bytes (`TASK_COMM_LEN` without the NUL).
const NAME_SIZE: usize = 15;

/// How much later than the log the kernel may record a name, in nanoseconds: a thread may have to wait for a
/// processor between the two.
const LATEST: u64 = 1_000_000_000;

/// How much earlier, in nanoseconds: some runtimes set the kernel's name first.
const EARLIEST: u64 = 20_000;

/// Maximum number of unmatched threads with which unnamed threads of the log are matched. Each is compared with each.
const MAX_LEFT: usize = 1000;

/// Returns the threads of some processes, in file order.
pub fn threads(
    IndexedProfile { profile, index }: &IndexedProfile<'_>,
    pids: &HashSet<Pid>,
) -> HashMap<Pid, Vec<ProfileThread>> {
    let mut all: HashMap<Pid, Vec<ProfileThread>> = HashMap::default();
    // Thread IDs are reused after a thread has ended.
    let mut latest: HashMap<(Pid, Tid), usize> = HashMap::default();
    for record in index.kept.iter(profile.endian) {
        let Some(ThreadRecord { pid, tid, change }) = process_records::thread_record(&record, profile.endian)
        else {
            continue;
        };
        if !pids.contains(&pid) {
            continue;
        }
        let time = profile.attrs.time_of(&record, profile.endian).unwrap_or_default();
        let threads = all.entry(pid).or_default();
        let known = latest.get(&(pid, tid)).and_then(|&at| threads.get_mut(at));
        let known = known.filter(|thread| thread.end == Time::MAX && change != ThreadChange::Start);
        match (known, change) {
            (Some(thread), ThreadChange::Name(name)) => thread.names.push((time, name.to_vec())),
            (Some(thread), ThreadChange::End) => thread.end = time,
            (_, ThreadChange::End) => {}
            (_, change) => {
                latest.insert((pid, tid), threads.len());
                threads.push(ProfileThread {
                    tid: tid.0,
                    start: time,
                    end: Time::MAX,
                    names: match change {
                        ThreadChange::Name(name) => vec![(time, name.to_vec())],
                        _ => Vec::new(),
                    },
                });
            }
        }
    }
    all
}

/// Matches each of `logged` to one of `threads`, which are those of process `pid`. `alignment` converts the times of
/// the log.
pub fn matches(
    logged: &[LoggedThread<'_>],
    alignment: &Alignment,
    threads: &[ProfileThread],
    pid: Pid,
) -> Vec<Match> {
    let names = ThreadNames::new(logged, alignment, threads);
    let mut found: Vec<Match> = logged
        .iter()
        .map(|thread| names.thread_named_like(thread, pid))
        .collect();
    let taken = found.iter().filter_map(|found| match found {
        Match::Thread(tid) => Some(*tid),
        _ => None,
    });
    let taken: HashSet<u32> = taken.collect();
    let left = threads.iter().filter(|thread| !taken.contains(&thread.tid));
    let left: Vec<&ProfileThread> = left.collect();
    for (found, thread) in found.iter_mut().zip(logged) {
        if thread.name.is_none() {
            *found = by_span(thread, alignment, &left);
        }
    }
    drop_shared(&mut found);
    found
}

/// Returns the only thread of `left` whose lifetime includes all events of `thread`.
fn by_span(thread: &LoggedThread<'_>, alignment: &Alignment, left: &[&ProfileThread]) -> Match {
    if left.len() > MAX_LEFT {
        return Match::Ambiguous;
    }
    let (first, last) = (alignment.time(thread.span.0), alignment.time(thread.span.1));
    let mut fitting = left
        .iter()
        .filter(|other| other.start <= first && last <= other.end);
    one_of(fitting.next(), fitting.next())
}

/// Returns the first of some threads that match, if there is no second one.
fn one_of(first: Option<&&ProfileThread>, second: Option<&&ProfileThread>) -> Match {
    match (first, second) {
        (Some(one), None) => Match::Thread(one.tid),
        (Some(_), Some(_)) => Match::Ambiguous,
        (None, _) => Match::Missing,
    }
}

/// Makes matches ambiguous if several threads of the log match the same thread.
fn drop_shared(found: &mut [Match]) {
    let mut uses: HashMap<u32, u32> = HashMap::default();
    for found in found.iter() {
        if let Match::Thread(tid) = found {
            let uses = uses.entry(*tid).or_default();
            *uses = uses.saturating_add(1);
        }
    }
    for found in found {
        if let Match::Thread(tid) = found
            && uses.get(tid).is_some_and(|&uses| uses > 1)
        {
            *found = Match::Ambiguous;
        }
    }
}

/// Times at which threads got their names, all on the profile's clock. The names are cut as the kernel cuts them.
struct ThreadNames<'a> {
    alignment: &'a Alignment,
    /// Times in the log by name, sorted.
    logged: HashMap<&'a [u8], Vec<Time>>,
    /// Threads of the profile by name, sorted by the time at which they got it.
    recorded: HashMap<&'a [u8], Vec<NamedThread<'a>>>,
}

/// A thread of the profile, and the time at which it got a name.
#[derive(Clone, Copy)]
struct NamedThread<'a> {
    since: Time,
    thread: &'a ProfileThread,
}

/// Returns what the kernel keeps of a name.
fn kept_by_kernel(name: &[u8]) -> &[u8] {
    name.get(..NAME_SIZE).unwrap_or(name)
}

/// Returns the times in the log by name, each on the clock of the profile.
fn times_by_name<'a>(logged: &[LoggedThread<'a>], alignment: &Alignment) -> HashMap<&'a [u8], Vec<Time>> {
    let mut by_name: HashMap<&[u8], Vec<Time>> = HashMap::default();
    for (time, name) in logged.iter().filter_map(|thread| thread.name) {
        let namesakes = by_name.entry(kept_by_kernel(name)).or_default();
        namesakes.push(alignment.time(time));
    }
    by_name.values_mut().for_each(|times| times.sort_unstable());
    by_name
}

/// Returns the threads of the profile by each of their names.
fn threads_by_name(threads: &[ProfileThread]) -> HashMap<&[u8], Vec<NamedThread<'_>>> {
    let mut by_name: HashMap<&[u8], Vec<NamedThread<'_>>> = HashMap::default();
    for thread in threads {
        for &(since, ref name) in &thread.names {
            let namesakes = by_name.entry(kept_by_kernel(name)).or_default();
            namesakes.push(NamedThread { since, thread });
        }
    }
    for namesakes in by_name.values_mut() {
        namesakes.sort_by_key(|named| named.since);
    }
    by_name
}

impl<'a> ThreadNames<'a> {
    /// Collects the names that threads have in a log and in the profile.
    fn new(logged: &[LoggedThread<'a>], alignment: &'a Alignment, threads: &'a [ProfileThread]) -> Self {
        Self {
            alignment,
            logged: times_by_name(logged, alignment),
            recorded: threads_by_name(threads),
        }
    }

    /// Finds the thread of the profile that got the name of a logged one at about the same time: before the next thread of the log
    /// got it.
    fn thread_named_like(&self, thread: &LoggedThread<'_>, pid: Pid) -> Match {
        let Some((since, name)) = thread.name else {
            return Match::Missing;
        };
        let since = self.alignment.time(since);
        let namesakes = self.logged.get(kept_by_kernel(name));
        let namesakes = namesakes.map_or(&[][..], Vec::as_slice);
        // The thread itself is the last one before this index.
        let after = namesakes.partition_point(|&time| time <= since);
        let is_shared = after.checked_sub(2).and_then(|before| namesakes.get(before)) == Some(&since);
        let next_namesake = namesakes.get(after).copied().unwrap_or(Time::MAX);
        let earliest = Time(since.0.saturating_sub(EARLIEST));
        let before_next = Time(next_namesake.0.saturating_sub(EARLIEST));
        let latest = Time(since.0.saturating_add(LATEST)).min(before_next);
        let recorded = self.recorded.get(kept_by_kernel(name));
        let recorded = recorded.map_or(&[][..], Vec::as_slice);
        let first = recorded.partition_point(|named| named.since < earliest);
        let in_time = recorded
            .iter()
            .skip(first)
            .take_while(|named| named.since < latest);
        let mut fitting = in_time.map(|named| &named.thread);
        match one_of(fitting.next(), fitting.next()) {
            Match::Thread(_) if is_shared => Match::Ambiguous,
            // The main thread keeps the program's name, while runtimes call it "main".
            Match::Missing if name.eq_ignore_ascii_case(b"main") => Match::Thread(pid.0),
            found => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: u32, start: u64, named: u64, name: &str) -> ProfileThread {
        ProfileThread {
            tid,
            start: Time(start),
            end: Time::MAX,
            names: vec![(Time(named), name.into())],
        }
    }

    fn logged(id: u64, named: u64, name: &str) -> LoggedThread<'_> {
        let named = RuntimeTime(named);
        LoggedThread {
            id,
            name: Some((named, name.as_bytes())),
            span: (named, named),
        }
    }

    fn matches(logged: &[LoggedThread<'_>], threads: &[ProfileThread], pid: Pid) -> Vec<Match> {
        super::matches(logged, &Alignment::Same, threads, pid)
    }

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn a_name_and_its_time_tell_the_thread() {
        let threads = [
            thread(10, 0, MILLISECOND, "mono"),
            thread(11, 2 * MILLISECOND, 3 * MILLISECOND + 2000, "worker"),
            thread(12, 3 * MILLISECOND, 4 * MILLISECOND + 2000, "worker"),
            thread(13, 4 * MILLISECOND, 5 * MILLISECOND + 2000, "Profiler Sample"),
        ];
        let log = [
            logged(0xa, 4 * MILLISECOND, "worker"),
            logged(0xb, 3 * MILLISECOND, "worker"),
            logged(0xc, 5 * MILLISECOND, "Profiler Sampler"),
            logged(0xd, 2 * MILLISECOND, "Main"),
            logged(0xe, 6 * MILLISECOND, "nobody"),
        ];
        let expected = [
            Match::Thread(12),
            Match::Thread(11),
            Match::Thread(13),
            Match::Thread(10),
            Match::Missing,
        ];
        assert_eq!(matches(&log, &threads, Pid(10)), expected);
    }

    #[test]
    fn a_name_is_recorded_up_to_a_second_after_the_log_and_a_little_before() {
        let recorded = 5_000 * MILLISECOND;
        let threads = [thread(11, 0, recorded, "worker")];
        for (time, expected) in [
            (recorded - 1_000_000_000, Match::Missing),
            (recorded - 999_999_999, Match::Thread(11)),
            (recorded + 20_000, Match::Thread(11)),
            (recorded + 20_001, Match::Missing),
        ] {
            let log = [logged(0xa, time, "worker")];
            assert_eq!(matches(&log, &threads, Pid(10)), [expected], "{time}");
        }
    }

    #[test]
    fn who_can_be_either_of_two_is_neither() {
        let threads = [
            thread(11, 0, 3 * MILLISECOND, "worker"),
            thread(12, 0, 3 * MILLISECOND + 3000, "worker"),
        ];
        let together = 3 * MILLISECOND - 1000;
        let log = [
            logged(0xa, together, "worker"),
            logged(0xb, together + 500, "worker"),
        ];
        let found = matches(&log, &threads, Pid(10));
        assert!(
            !found.iter().any(|found| matches!(found, Match::Thread(_))),
            "{found:?}"
        );
    }

    #[test]
    fn the_only_one_left_over_is_the_one_without_a_name() {
        let threads = [thread(11, 5, MILLISECOND, "a"), thread(12, 10, 10, "mono")];
        let unnamed = |id, first, last| LoggedThread {
            id,
            name: None,
            span: (RuntimeTime(first), RuntimeTime(last)),
        };
        let log = [logged(0xa, MILLISECOND, "a"), unnamed(0xb, 20, 30)];
        assert_eq!(matches(&log, &threads, Pid(10))[1], Match::Thread(12));
        let log = [
            unnamed(0xb, 20, 30),
            unnamed(0xc, 20, 40),
            logged(0xa, MILLISECOND, "a"),
        ];
        assert_eq!(matches(&log, &threads, Pid(10))[..2], [Match::Ambiguous; 2]);
        let log = [unnamed(0xb, 2, 30), logged(0xa, MILLISECOND, "a")];
        assert_eq!(matches(&log, &threads, Pid(10))[0], Match::Missing);
    }

    #[test]
    fn among_very_many_threads_none_is_looked_for() {
        let log = [LoggedThread {
            id: 1,
            name: None,
            span: (RuntimeTime(0), RuntimeTime(1)),
        }];
        // All threads except the first started later than the logged events.
        let threads = |count: u32| {
            let start = |tid| if tid == 0 { 0 } else { 100 };
            let all = (0..count).map(|tid| thread(tid, start(tid), start(tid), "worker"));
            all.collect::<Vec<_>>()
        };
        assert_eq!(matches(&log, &threads(1000), Pid(10)), [Match::Thread(0)]);
        assert_eq!(matches(&log, &threads(1001), Pid(10)), [Match::Ambiguous]);
    }
}
