//! Finding the perf maps of a profile's processes.
//!
//! Nothing in a profile leads to them. A runtime writes `/tmp/perf-PID.map`, with the number that it knows its
//! process by: in a container that is not the profile's, but the name of a jitdump tells it as well.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::code::survey::Survey;
use crate::code::symbols::SymbolTable;
use crate::files::MappedFile;
use crate::inject::candidates::{Rejected, files_below, shown};
use crate::inject::{Error, Options};
use crate::perf::Profile;
use crate::perf::feature::{self, ClockData};
use crate::runtime::jitdump::marker;
use crate::runtime::perf_map::{self, PerfMap, pid_in_name};
use crate::summary::Warning;
use crate::units::{Pid, Time};

/// By how much clocks may have been set back since, so that a map of a process seems to be older than it.
const SLACK: Duration = Duration::from_secs(60);

/// A perf map that belongs to the profile.
#[derive(Debug)]
pub struct FoundMap {
    /// Its process.
    pub pid: Pid,
    /// The file.
    pub file: MappedFile,
}

/// What the search came to.
#[derive(Debug, Default)]
pub struct FoundMaps {
    /// The maps, at most one for each process.
    pub maps: Vec<FoundMap>,
    /// All perf maps that the user named, used or not, those in folders as well.
    pub given: Vec<PathBuf>,
    /// Files that are not used though they are there.
    pub warnings: Vec<Warning>,
    /// Other things that the user should know.
    pub notes: Vec<String>,
}

/// A perf map that is used.
#[derive(Debug)]
pub struct UsedMap<'a> {
    /// The file.
    pub found: &'a FoundMap,
    /// What is in it.
    pub map: PerfMap<'a>,
}

impl UsedMap<'_> {
    /// Where its symbols lie.
    pub fn table(&self) -> SymbolTable {
        SymbolTable {
            pid: self.found.pid,
            ranges: self.map.symbols.iter().map(|symbol| symbol.range).collect(),
        }
    }
}

/// Reads the maps that were found.
pub fn read(found: &FoundMaps) -> Vec<UsedMap<'_>> {
    let used = found.maps.iter().map(|found| UsedMap {
        found,
        map: perf_map::parse(&found.file),
    });
    used.collect()
}

/// Finds the perf maps of a profile's processes.
pub fn find(profile: &Profile<'_>, survey: &Survey, options: &Options) -> Result<FoundMaps, Error> {
    let mut found = FoundMaps::default();
    let given = given(&options.perf_maps, &mut found.notes)?;
    found.given = given.iter().map(|file| file.path.clone()).collect();
    let mut given_by_number: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, file) in given.iter().enumerate() {
        if let Some(number) = file.number {
            given_by_number.entry(number).or_default().push(at);
        }
    }
    let parent = options.input.parent();
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    let clock = profile.feature(feature::CLOCK_DATA);
    let search = Search {
        survey,
        names: Names::of(survey),
        given,
        given_by_number,
        beside: parent.unwrap_or(Path::new(".")).to_owned(),
        clock: clock.and_then(|content| ClockData::parse(content, profile.order)),
    };
    search.run(&mut found);
    Ok(found)
}

/// One file that the user named, or that lies in a folder which they named.
#[derive(Debug)]
struct GivenMap {
    path: PathBuf,
    is_named: bool,
    /// The number in its name.
    number: Option<u32>,
}

fn given(paths: &[PathBuf], notes: &mut Vec<String>) -> Result<Vec<GivenMap>, Error> {
    let mut given = Vec::new();
    let number = |path: &Path| pid_in_name(path.file_name().unwrap_or_default().as_bytes());
    for path in paths {
        let metadata = fs::metadata(path).map_err(|cause| Error::Read {
            path: path.clone(),
            cause,
        })?;
        if !metadata.is_dir() {
            given.push(GivenMap {
                path: path.clone(),
                is_named: true,
                number: number(path),
            });
            continue;
        }
        let below = files_below(path, notes).into_iter().map(|path| GivenMap {
            is_named: false,
            number: number(&path),
            path,
        });
        given.extend(below.filter(|file| file.number.is_some()));
    }
    Ok(given)
}

/// Which processes call themselves by which number.
struct Names {
    /// For each number, the processes whose jitdump has it in its name.
    by_number: BTreeMap<u32, Vec<Pid>>,
    /// For each process, the numbers that only its own jitdumps have.
    by_pid: BTreeMap<Pid, Vec<u32>>,
}

impl Names {
    fn of(survey: &Survey) -> Self {
        let mut pairs: Vec<(u32, Pid)> = Vec::new();
        for dump in &survey.markers {
            let number = marker::pid_in_name(marker::base_name(&dump.path));
            pairs.extend(number.map(|number| (number, dump.pid)));
        }
        pairs.sort_unstable();
        pairs.dedup();
        let mut by_number: BTreeMap<u32, Vec<Pid>> = BTreeMap::new();
        for (number, pid) in pairs {
            by_number.entry(number).or_default().push(pid);
        }
        let mut by_pid: BTreeMap<Pid, Vec<u32>> = BTreeMap::new();
        for (&number, pids) in &by_number {
            if let &[pid] = &pids[..] {
                by_pid.entry(pid).or_default().push(number);
            }
        }
        Self { by_number, by_pid }
    }

    /// The processes that may mean themselves by a number.
    fn owners(&self, number: u32) -> Vec<Pid> {
        let by_dump = self.by_number.get(&number).cloned();
        by_dump.unwrap_or_else(|| vec![Pid(number)])
    }

    /// The numbers by which a process, and no other, may mean itself, its own first.
    fn of_process(&self, pid: Pid) -> Vec<u32> {
        let is_own = self.owners(pid.0) == [pid];
        let own = is_own.then_some(pid.0);
        let by_dump = self.by_pid.get(&pid).into_iter().flatten().copied();
        own.into_iter()
            .chain(by_dump.filter(|&number| number != pid.0))
            .collect()
    }
}

/// Where perf maps are looked for.
struct Search<'a> {
    survey: &'a Survey,
    names: Names,
    given: Vec<GivenMap>,
    /// The given maps of each number.
    given_by_number: BTreeMap<u32, Vec<usize>>,
    /// The folder that the profile lies in.
    beside: PathBuf,
    /// What the wall clock said at some time of the profile.
    clock: Option<ClockData>,
}

impl Search<'_> {
    fn run(&self, found: &mut FoundMaps) {
        let mut pids: Vec<Pid> = self
            .survey
            .processes
            .spaces()
            .iter()
            .map(|space| space.pid)
            .collect();
        pids.sort_unstable();
        pids.dedup();
        for pid in pids {
            for (path, is_given) in self.candidates(pid) {
                match self.open(&path, pid, is_given) {
                    Ok(file) => {
                        found.maps.push(FoundMap { pid, file });
                        break;
                    }
                    Err(Rejected::Missing) => {}
                    Err(reason) => found.warnings.push(Warning {
                        file: Some(shown(&path)),
                        ..Warning::new(reason.to_string())
                    }),
                }
            }
        }
        self.tell_unused(found);
    }

    /// What may be the map of a process, the likeliest place first, and whether the user named it.
    fn candidates(&self, pid: Pid) -> Vec<(PathBuf, bool)> {
        let numbers = self.names.of_process(pid);
        let given = numbers
            .iter()
            .filter_map(|number| self.given_by_number.get(number));
        let given = given.flatten().filter_map(|&at| self.given.get(at));
        let mut all: Vec<_> = given.map(|file| (file.path.clone(), true)).collect();
        let name = |number: u32| format!("perf-{number}.map");
        all.extend(
            numbers
                .iter()
                .map(|&number| (self.beside.join(name(number)), false)),
        );
        // As long as it lives, its own folder for temporary files, and its own number.
        if let Some(number) = own_number(pid) {
            let folder = PathBuf::from(format!("/proc/{pid}/root/tmp"));
            all.push((folder.join(name(number)), false));
        }
        let temporary = Path::new("/tmp");
        all.extend(
            numbers
                .iter()
                .map(|&number| (temporary.join(name(number)), false)),
        );
        all
    }

    fn open(&self, path: &Path, pid: Pid, is_given: bool) -> Result<MappedFile, Rejected> {
        let file = MappedFile::open(path).map_err(|error| match error.kind() {
            // Of processes of other users, perhaps.
            io::ErrorKind::PermissionDenied if path.starts_with("/proc") => Rejected::Missing,
            _ => error.into(),
        })?;
        if file.is_empty() {
            return Err(Rejected::Missing);
        }
        let born = self.born(pid).filter(|_| !is_given);
        if born.is_some_and(|born| file.modified() + SLACK < born) {
            let reason = format!("is older than process {pid}, and so that of another one, ignored");
            return Err(Rejected::Because(reason));
        }
        Ok(file)
    }

    /// When a process came to be, if that was while the profile was recorded.
    fn born(&self, pid: Pid) -> Option<SystemTime> {
        let processes = &self.survey.processes;
        let since = processes.space(processes.space_at(pid, Time(0))?)?.since;
        let clock = self.clock.filter(|_| since != Time(0))?;
        let earlier = clock.profile_clock.saturating_sub(since.0);
        let later = since.0.saturating_sub(clock.profile_clock);
        let wall_clock = clock.wall_clock.checked_add(later)?.checked_sub(earlier)?;
        UNIX_EPOCH.checked_add(Duration::from_nanos(wall_clock))
    }

    /// Notes which of the named files are not used, and why.
    fn tell_unused(&self, found: &mut FoundMaps) {
        for given in self.given.iter().filter(|given| given.is_named) {
            let is_told = |path: &Path| {
                let name = shown(path);
                found
                    .warnings
                    .iter()
                    .any(|warning| warning.file.as_ref() == Some(&name))
            };
            let is_used = |path: &Path| found.maps.iter().any(|map| map.file.path() == path);
            if is_told(&given.path) || is_used(&given.path) {
                continue;
            }
            let name = shown(&given.path);
            let note = match given.number {
                None => {
                    format!("{name} is not used: its name does not tell its process, as perf-PID.map would")
                }
                Some(number) => match self.names.owners(number)[..] {
                    [pid] => match found.maps.iter().find(|map| map.pid == pid) {
                        Some(map) => format!(
                            "{name} is not used: process {pid} has {} already",
                            shown(map.file.path())
                        ),
                        None if self.survey.processes.knows(pid) => format!("{name} is empty"),
                        None => format!(
                            "{name} is of process {pid}, which is not in the profile: not used; \
                             if that is its number in a container, rename it after the one in the profile"
                        ),
                    },
                    _ => format!(
                        "{name} may be that of several processes: not used; rename it after the number of one in the profile"
                    ),
                },
            };
            found.notes.push(note);
        }
    }
}

/// The number that a living process knows itself by.
fn own_number(pid: Pid) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NStgid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}
