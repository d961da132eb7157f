//! Recorded processes while they run: their CPU time, and the files of their runtimes.

mod sample_count;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, getpgrp, kill_process};

use super::mapped_dumps::SeenDumps;
use super::plan::Plan;
use super::process_files::{files_of, maps_of, runtime_in};
use super::recorded_process::RecordedProcess;
use crate::files::kernel;
use crate::load::RUNTIME_FILES;
use crate::load::running_processes::{ProcessStat, owner_of};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::runtimes::Runtime;
use sample_count::SampleCount;

/// CPU time in seconds after which a JIT compiler has compiled something.
const CPU_SECONDS_UNTIL_FILES: u64 = 2;

/// State of a running recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Time since its start.
    pub elapsed: Duration,
    /// Size of the profile in bytes.
    pub profile_size: u64,
    /// Number of samples in it, if they can be counted.
    pub samples: Option<u64>,
    /// Number of jitdumps and perf maps seen.
    pub dumps: usize,
    /// Their size in bytes.
    pub dump_size: u64,
}

/// Watches the processes that a recording has started, or some that ran before.
#[derive(Debug)]
pub struct Watch<'a> {
    plan: &'a Plan,
    profile: PathBuf,
    samples: SampleCount,
    /// perf, whose descendants are recorded.
    perf: Option<u32>,
    processes: BTreeMap<u32, WatchedProcess>,
    /// Files of runtimes.
    files: BTreeSet<PathBuf>,
    /// Runtimes with a warning.
    warned: BTreeSet<Runtime>,
    /// Processes of known runtimes, by start and process ID.
    recorded: BTreeMap<(u64, u32), RecordedProcess>,
    /// User IDs of the owners of all processes, likewise.
    owners: BTreeMap<(u64, u32), u32>,
    dumps: SeenDumps,
}

/// What was seen of processes while they ran.
#[derive(Debug, Default)]
pub struct Seen {
    /// Processes of known runtimes, except for short ones, in the order of their starts.
    pub processes: Vec<RecordedProcess>,
    /// User IDs of the owners of processes, except for short ones.
    pub owners: BTreeMap<u32, u32>,
    /// Jitdumps that they had mapped.
    pub dumps: SeenDumps,
    /// Runtimes that have used time without a log, as was printed meanwhile.
    pub warned: BTreeSet<Runtime>,
}

/// A recorded process.
#[derive(Clone, Copy, Debug, Default)]
struct WatchedProcess {
    /// Start in clock ticks since the boot, which distinguishes processes with the same ID.
    started: u64,
    /// Number of looks at it.
    looks: u32,
    has_files: bool,
    /// Whether it has used enough CPU time to expect a file, and was checked then.
    is_checked: bool,
}

impl WatchedProcess {
    /// Counts a look at the process with this start, anew if the last look was at another one with its ID.
    fn count_look(&mut self, started: u64) {
        if self.started != started {
            *self = Self {
                started,
                ..Self::default()
            };
        }
        self.looks += 1;
    }
}

impl<'a> Watch<'a> {
    /// Watches all that perf starts.
    pub fn of_descendants(perf: u32, plan: &'a Plan, profile: &Path) -> Self {
        Self::new(Some(perf), plan, profile)
    }

    /// Watches processes that ran before. There are no warnings of them.
    pub fn of_processes(plan: &'a Plan, profile: &Path) -> Self {
        let mut watch = Self::new(None, plan, profile);
        let pids = plan.perf.pids.iter();
        watch.processes = pids.map(|&pid| (pid, WatchedProcess::default())).collect();
        watch
    }

    /// Prepares watching the recording of a profile by a process of perf.
    fn new(perf: Option<u32>, plan: &'a Plan, profile: &Path) -> Self {
        Self {
            plan,
            profile: profile.to_owned(),
            samples: SampleCount::default(),
            perf,
            processes: BTreeMap::new(),
            files: BTreeSet::new(),
            warned: BTreeSet::new(),
            recorded: BTreeMap::new(),
            owners: BTreeMap::new(),
            dumps: SeenDumps::default(),
        }
    }

    /// Looks at all processes. Returns the state, and a warning for each runtime that should have written something.
    pub fn look(&mut self, elapsed: Duration) -> (Status, Vec<Diagnostic>) {
        self.find_descendants();
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        let warnings = pids.into_iter().filter_map(|pid| self.look_at(pid)).collect();
        (self.status(elapsed), warnings)
    }

    /// Looks at a process. Its mappings, of which there may be many, are read at its first, second, fourth look and so on
    /// until it has files, and once it has used [`CPU_SECONDS_UNTIL_FILES`]. Returns a warning if its runtime should have
    /// written something by then.
    fn look_at(&mut self, pid: u32) -> Option<Diagnostic> {
        let Some((started, cpu_time)) = times(pid) else {
            self.processes.remove(&pid);
            return None;
        };
        self.note_owner(pid, started);
        let process = self.processes.entry(pid).or_default();
        process.count_look(started);
        let is_overdue = self.perf.is_some() && !process.is_checked && cpu_time >= CPU_SECONDS_UNTIL_FILES;
        let is_due = process.looks.is_power_of_two() && !process.has_files;
        if !is_overdue && !is_due {
            return None;
        }
        // Before it runs the program, a process is perf, which may have the library of a runtime: Debian's has CPython's.
        let is_perf = self.perf.is_some_and(|perf| run_same_program(perf, pid));
        let maps = maps_of(pid);
        if !is_perf && let Some(found) = RecordedProcess::of(pid, &maps) {
            // A process may replace its program.
            self.recorded.insert((started, pid), found);
        }
        let writes_files = self.note_files(pid, &maps);
        let process = self.processes.entry(pid).or_default();
        process.is_checked |= is_overdue;
        process.has_files |= writes_files;
        if is_overdue && !process.has_files {
            self.warning(pid, &maps)
        } else {
            None
        }
    }

    /// Notes the owner of a process with this start. A process of a user is root's while it executes su.
    fn note_owner(&mut self, pid: u32, started: u64) {
        if let Some(owner) = owner_of(pid) {
            let noted = self.owners.entry((started, pid)).or_insert(owner);
            *noted = if owner == 0 { *noted } else { owner };
        }
    }

    /// Notes the jitdumps that a process has mapped, and the files of its runtime. Returns whether it has files.
    fn note_files(&mut self, pid: u32, maps: &[u8]) -> bool {
        self.dumps.add(pid, maps);
        let mut files = files_of(pid, maps);
        // .NET 8 writes its perf map into the folder for the files of runtimes.
        let map = self
            .profile
            .with_file_name(RUNTIME_FILES)
            .join(format!("perf-{pid}.map"));
        files.extend(Some(map).filter(|map| map.is_file()));
        let has_files = !files.is_empty();
        self.files.extend(files);
        has_files
    }

    /// Returns what was seen.
    pub fn into_seen(self) -> Seen {
        Seen {
            processes: self.recorded.into_values().collect(),
            owners: owners_by_id(&self.owners),
            dumps: self.dumps,
            warned: self.warned,
        }
    }

    /// Ends the processes that are left in the process group of this program.
    pub fn end_rest(&self, signal: Signal) {
        for pid in self.rest(getpgrp().as_raw_nonzero().get()) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Whether processes are left in a process group.
    pub fn has_rest(&self, group: i32) -> bool {
        self.rest(group).next().is_some()
    }

    /// Returns the processes of a group that have not exited.
    fn rest(&self, group: i32) -> impl Iterator<Item = Pid> {
        self.processes.iter().filter_map(move |(&pid, process)| {
            let stat = ProcessStat::of(pid).filter(|stat| stat.start() == Some(process.started))?;
            let is_in_group = stat.field(ProcessStat::GROUP) == Some(group);
            let is_left = is_in_group && stat.field(ProcessStat::STATE) != Some('Z');
            pid.try_into().ok().and_then(Pid::from_raw).filter(|_| is_left)
        })
    }

    /// Adds the processes that perf and known processes have started.
    fn find_descendants(&mut self) {
        let known: Vec<u32> = self.processes.keys().copied().collect();
        // Those whose parent has exited are no longer below perf.
        let mut open: Vec<u32> = self.perf.into_iter().chain(known).collect();
        while let Some(pid) = open.pop().filter(|_| self.perf.is_some()) {
            for child in children(pid) {
                self.processes.entry(child).or_insert_with(|| {
                    open.push(child);
                    WatchedProcess::default()
                });
            }
        }
    }

    /// Returns what is shown of the recording after some time.
    fn status(&mut self, elapsed: Duration) -> Status {
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |found| found.len());
        let profile_size = size(&self.profile);
        Status {
            elapsed,
            profile_size,
            samples: self.samples.update(&self.profile, profile_size),
            dumps: self.files.len(),
            dump_size: self.files.iter().map(size).sum(),
        }
    }

    /// Returns the warning of a process without files, if its runtime is known.
    fn warning(&mut self, pid: u32, maps: &[u8]) -> Option<Diagnostic> {
        let found = runtime_in(pid, maps)?;
        if writes_at_exit(pid) || !self.warned.insert(found.runtime) {
            return None;
        }
        let warning = Diagnostic::new(Issue::NoDumpYet).with("pid", pid);
        let warning = warning
            .with("runtime", found.name)
            .with("seconds", CPU_SECONDS_UNTIL_FILES);
        Some(self.plan.with_advice(warning, found))
    }
}

/// Returns the owners of processes by their IDs, without IDs that processes of several users had.
fn owners_by_id(owners: &BTreeMap<(u64, u32), u32>) -> BTreeMap<u32, u32> {
    let (mut by_id, mut several) = (BTreeMap::new(), BTreeSet::new());
    for (&(_, pid), &owner) in owners {
        if *by_id.entry(pid).or_insert(owner) != owner {
            several.insert(pid);
        }
    }
    by_id.retain(|pid, _| !several.contains(pid));
    by_id
}

/// Whether two processes run the same program.
fn run_same_program(one: u32, other: u32) -> bool {
    let [one, other] = [one, other].map(|pid| kernel::read_link(format!("/proc/{pid}/exe")).ok());
    one.is_some() && one == other
}

/// Returns the processes that the threads of a process have started.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let lists = threads
        .flatten()
        .filter_map(|thread| kernel::read_text(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}

/// Returns the start of a process in clock ticks, and its CPU time in seconds.
fn times(pid: u32) -> Option<(u64, u64)> {
    let stat = ProcessStat::of(pid)?;
    let ticks = |number: usize| stat.field::<u64>(number);
    let cpu_time = ticks(ProcessStat::USER_TIME)? + ticks(ProcessStat::SYSTEM_TIME)?;
    Some((stat.start()?, cpu_time / clock_ticks_per_second()))
}

/// Whether a process is Java with a perf map at its end.
fn writes_at_exit(pid: u32) -> bool {
    let read = |name: &str| kernel::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let started = [read("cmdline"), read("environ")].concat();
    memchr::memmem::find(&started, b"DumpPerfMapAtExit").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::plan::RecordOptions;
    use rustix::process::kill_process_group;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::time::Instant;

    #[test]
    fn the_owner_of_an_id_of_several_users_is_unknown() {
        let owners = [((1, 7), 10), ((1, 8), 10), ((5, 8), 10), ((5, 7), 0)];
        let by_id = owners_by_id(&BTreeMap::from(owners));
        assert_eq!(by_id, BTreeMap::from([(8, 10)]));
    }

    /// Nobody waits for the process.
    #[test]
    fn a_process_that_has_exited_is_not_left() {
        let mut command = Command::new("sleep");
        let mut child = command.arg("60").process_group(0).spawn().unwrap();
        let mut options = RecordOptions {
            output: "r".into(),
            ..RecordOptions::default()
        };
        options.perf.pids.push(child.id());
        let plan = Plan::new(options).unwrap();
        let mut watch = Watch::of_processes(&plan, Path::new("perf.data"));
        watch.look(Duration::ZERO);
        let group = i32::try_from(child.id()).unwrap();
        let is_left = [watch.has_rest(group), watch.has_rest(1)];
        child.kill().unwrap();
        let started = Instant::now();
        while watch.has_rest(group) && started.elapsed() < Duration::from_secs(300) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_left_then = watch.has_rest(group);
        child.wait().unwrap();
        assert_eq!((is_left, is_left_then), ([true, false], false));
    }

    #[test]
    fn processes_have_a_start_and_children() {
        let me = std::process::id();
        assert!(times(me).unwrap().0 > 0);
        assert_eq!(times(u32::MAX), None);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let found = children(me);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()), "{found:?}");
    }

    #[test]
    fn a_process_is_not_of_a_runtime_that_perf_has() {
        let folder = tempfile::tempdir().unwrap();
        let copy = |program: &str, name: &str| {
            let copy = folder.path().join(name);
            let copied = Command::new("cp").arg(program).arg(&copy).status();
            assert!(copied.unwrap().success());
            copy
        };
        // It has started a process that has not run its program yet, and one that has.
        let mut perf = Command::new(copy("/bin/sh", "python3.12"))
            .args(["-c", "(sleep 60; :) & \"$0\" 60 & wait"])
            .arg(copy("/bin/sleep", "node"))
            .process_group(0)
            .spawn()
            .unwrap();
        let options = RecordOptions {
            command: vec!["absent".into()],
            output: "r".into(),
            ..RecordOptions::default()
        };
        let plan = Plan::new(options).unwrap();
        let mut watch = Watch::new(Some(perf.id()), &plan, &folder.path().join("perf.data"));
        for _ in 0..60_000 {
            watch.look(Duration::ZERO);
            if !watch.recorded.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        kill_process_group(Pid::from_child(&perf), Signal::KILL).unwrap();
        perf.wait().unwrap();
        let seen = watch.into_seen().processes;
        let runtimes: Vec<&str> = seen.iter().map(|process| process.runtime).collect();
        assert_eq!(runtimes, [Runtime::Node.description().name]);
    }
}
