//! Finding the perf maps of a profile's processes.
//!
//! A profile contains no reference to them. A runtime writes `/tmp/perf-PID.map` with its own process ID. In
//! a container, this differs from the ID in the profile, but the name of a jitdump contains it as well.
//!
//! In `/tmp`, only the PIDs of the profile count. Elsewhere, if several processes share a PID, the file
//! belongs to the process with that PID in the profile, or to the process with a jitdump in the same
//! directory, or to none. A perf map belongs to another process if it was last modified before its process
//! started (by the profile's clock data), or created after the recording ended. Its owner does not matter
//! here; perf (6.1, 6.12) accepts any.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jitdump::internals::format::marker;
use jitdump::internals::perf_map::{PerfMapSymbol, pid_in_name};
use jitdump::{PerfMap, Time};

use crate::bytes::{base_name, printable_path};
use crate::code::perf_map_symbols::{SymbolId, SymbolTable, SymbolTableIndex};
use crate::code::profile_index::{IndexedProfile, ProfileIndex};
use crate::collections::hash::{HashMap, HashSet};
use crate::collections::indexed_table::IndexedTable;
use crate::files::search::files_below;
use crate::files::walk::{self, Scope};
use crate::files::{InputFile, kernel};
use crate::load::find::access::Access;
use crate::load::find::folders::{Folders, ProfileFolders};
use crate::load::find::found_file::FoundFile;
use crate::load::find::open::read_if;
use crate::load::options::LoadOptions;
use crate::load::running_processes::{process_folder, start_of};
use crate::perf::feature::ClockData;
use crate::results::diagnostics::issues::CHECK_PATH;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::Pid;

/// Whether a time is certainly after another one, even if clocks were set back, which makes the map of a process look
/// older than the process.
fn is_after(time: SystemTime, other: SystemTime) -> bool {
    const SLACK: Duration = Duration::from_secs(60);
    time > other + SLACK
}

/// Result of the search.
#[derive(Debug, Default)]
pub struct FoundPerfMaps {
    /// Perf maps that belong to the profile, at most one per process, with its ID in the profile.
    pub maps: Vec<(Pid, InputFile)>,
    /// All perf maps given by the user, used or not, including those in folders.
    pub given: Vec<PathBuf>,
    /// What to report of them.
    pub diagnostics: Vec<Diagnostic>,
    /// Processes whose file system cannot be read, and which may have perf maps there.
    pub unreadable: Vec<Pid>,
}

/// A perf map in use.
#[derive(Debug)]
pub struct UsedPerfMap<'a> {
    /// Process ID in the profile.
    pub pid: Pid,
    /// The file.
    pub file: &'a InputFile,
    /// Parsed content.
    pub map: PerfMap<'a>,
}

impl UsedPerfMap<'_> {
    /// Returns the address ranges of its symbols.
    pub fn table(&self) -> SymbolTable {
        SymbolTable {
            pid: self.pid,
            ranges: self.map.symbols.iter().map(|symbol| symbol.range).collect(),
        }
    }
}

/// Returns a symbol of one of `maps`; `None` if the ID is invalid.
pub fn symbol_of<'m>(
    maps: &'m IndexedTable<SymbolTableIndex, UsedPerfMap<'_>>,
    id: SymbolId,
) -> Option<PerfMapSymbol<'m>> {
    maps[id.table].map.symbols.get(id.symbol as usize).copied()
}

/// Returns all symbols of `maps`.
#[cfg(feature = "timeline")]
pub fn all_symbols<'m>(
    maps: &'m IndexedTable<SymbolTableIndex, UsedPerfMap<'_>>,
) -> impl Iterator<Item = (SymbolId, PerfMapSymbol<'m>)> {
    maps.enumerate().flat_map(|(table, used)| {
        let symbols = (0u32..).zip(&used.map.symbols);
        symbols.map(move |(symbol, of_map)| (SymbolId { table, symbol }, *of_map))
    })
}

/// Parses the maps that were found.
pub fn read(found: &FoundPerfMaps) -> IndexedTable<SymbolTableIndex, UsedPerfMap<'_>> {
    let used = found.maps.iter().map(|(pid, file)| UsedPerfMap {
        pid: *pid,
        file,
        map: PerfMap::parse(file),
    });
    used.collect()
}

/// Finds the perf maps of a profile's processes. Fails if a file that the user named cannot be read.
pub fn find(
    IndexedProfile { profile, index }: &IndexedProfile<'_>,
    dumps: &[FoundFile],
    options: &LoadOptions,
    access: &Access,
) -> Result<FoundPerfMaps, Diagnostic> {
    let mut found = FoundPerfMaps::default();
    let given = given(&options.perf_maps, &mut found.diagnostics)?;
    found.given = given.iter().map(|file| file.path.clone()).collect();
    let mut given_by_number: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let mut given_by_place: HashMap<(u32, PathBuf), Vec<usize>> = HashMap::default();
    for (at, file) in given.iter().enumerate() {
        if let Some(number) = file.number {
            given_by_number.entry(number).or_default().push(at);
            let folder = file.path.parent().unwrap_or(Path::new("")).to_owned();
            given_by_place.entry((number, folder)).or_default().push(at);
        }
    }
    let search = PerfMapSearch {
        profile_index: index,
        access,
        names: NamespacePids::of(index),
        given,
        given_by_number,
        given_by_place,
        profile_folders: ProfileFolders::of(&options.input),
        dump_folders: dump_folders(dumps),
        folders: RefCell::default(),
        clock: profile.clock_data(),
    };
    search.choose_maps(&mut found);
    Ok(found)
}

/// A file that the user named, or a file in a folder that the user named.
#[derive(Debug)]
struct GivenMap {
    path: PathBuf,
    /// The path that the user named.
    root: PathBuf,
    is_named: bool,
    /// Process ID in its name.
    number: Option<u32>,
}

/// Lists the perf maps that the user named, and those in named folders.
fn given(paths: &[PathBuf], diagnostics: &mut Vec<Diagnostic>) -> Result<Vec<GivenMap>, Diagnostic> {
    let mut given = Vec::new();
    let number = |path: &Path| pid_in_name(path.file_name().unwrap_or_default().as_bytes());
    for path in paths {
        let metadata =
            fs::metadata(path).map_err(|cause| Diagnostic::cannot_read_named(path, &cause, CHECK_PATH))?;
        if !metadata.is_dir() {
            given.push(GivenMap {
                path: path.clone(),
                root: path.clone(),
                is_named: true,
                number: number(path),
            });
            continue;
        }
        let below = files_below(path, diagnostics).into_iter().map(|below| GivenMap {
            is_named: false,
            root: path.clone(),
            number: number(&below),
            path: below,
        });
        given.extend(below.filter(|file| file.number.is_some()));
    }
    Ok(given)
}

/// Folders of the jitdumps, by process.
fn dump_folders(dumps: &[FoundFile]) -> BTreeMap<Pid, PathBuf> {
    let folders = dumps.iter().filter_map(|dump| {
        let folder = dump.file.path().parent()?;
        Some(dump.pids.iter().map(|&pid| (pid, folder.to_owned())))
    });
    folders.flatten().collect()
}

/// Processes by the IDs in file names. In a container these differ from the IDs in the profile, but the names
/// of jitdumps contain them.
struct NamespacePids {
    /// For each ID, the processes with a jitdump that has it in its name. If one of them has this ID in the
    /// profile too, the others inherited the dump, and only that one counts.
    by_number: BTreeMap<u32, Vec<Pid>>,
    /// For each process, the other IDs in names of its jitdumps, and whether they are unique.
    by_pid: BTreeMap<Pid, Vec<(u32, bool)>>,
}

impl NamespacePids {
    /// Collects the IDs in the names of marked jitdumps.
    fn of(profile_index: &ProfileIndex) -> Self {
        let mut pairs: Vec<(u32, Pid)> = Vec::new();
        for dump in &profile_index.markers {
            let number = marker::pid_in_name(base_name(&dump.path));
            pairs.extend(number.map(|number| (number, dump.pid)));
        }
        pairs.sort_unstable();
        pairs.dedup();
        let mut by_number: BTreeMap<u32, Vec<Pid>> = BTreeMap::new();
        for (number, pid) in pairs {
            by_number.entry(number).or_default().push(pid);
        }
        let mut by_pid: BTreeMap<Pid, Vec<(u32, bool)>> = BTreeMap::new();
        for (&number, pids) in &mut by_number {
            if pids.contains(&Pid(number)) {
                *pids = vec![Pid(number)];
                continue;
            }
            for &pid in &*pids {
                by_pid.entry(pid).or_default().push((number, pids.len() == 1));
            }
        }
        Self { by_number, by_pid }
    }

    /// Returns the processes whose files may have an ID in their names.
    fn owners(&self, number: u32) -> Cow<'_, [Pid]> {
        match self.by_number.get(&number) {
            Some(pids) => Cow::Borrowed(pids),
            None => Cow::Owned(vec![Pid(number)]),
        }
    }

    /// Returns the IDs that file names may have for a process, its own first, and whether they are unique.
    fn of_process(&self, pid: Pid) -> impl Iterator<Item = (u32, bool)> {
        let own = (*self.owners(pid.0) == [pid]).then_some((pid.0, true));
        let by_dump = self.by_pid.get(&pid).into_iter().flatten().copied();
        own.into_iter().chain(by_dump)
    }
}

/// A file that may be the perf map of a process.
struct PossibleMap {
    origin: MapOrigin,
    /// The file itself, or a folder above it, which the user named or which no file has chosen.
    root: PathBuf,
    path: PathBuf,
}

/// Where a possible map comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MapOrigin {
    /// A file that the user named.
    Named,
    /// A folder that the user named, or the folder of the profile.
    UserFiles,
    /// `/tmp` of the process.
    Process,
    /// `/tmp`.
    Temporary,
}

/// Folder with the perf maps of processes that have exited.
const TEMPORARY: &str = "/tmp";

/// A search for perf maps.
struct PerfMapSearch<'a> {
    profile_index: &'a ProfileIndex,
    access: &'a Access,
    names: NamespacePids,
    given: Vec<GivenMap>,
    /// Indices of the given maps, by process ID.
    given_by_number: BTreeMap<u32, Vec<usize>>,
    /// Indices of the given maps, by process ID and folder.
    given_by_place: HashMap<(u32, PathBuf), Vec<usize>>,
    profile_folders: ProfileFolders,
    dump_folders: BTreeMap<Pid, PathBuf>,
    /// Contents of the folders in which the maps of many processes are looked for.
    folders: RefCell<Folders>,
    /// A time on both the profile's clock and the wall clock.
    clock: Option<ClockData>,
}

impl PerfMapSearch<'_> {
    /// Chooses the perf map of each process.
    fn choose_maps(&self, found: &mut FoundPerfMaps) {
        let spaces = self.profile_index.processes.spaces.iter();
        let mut pids: Vec<Pid> = spaces.map(|space| space.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let mut warned = HashSet::default();
        let mut rejected_paths = HashSet::default();
        let mut reject = |found: &mut FoundPerfMaps, rejected: Diagnostic, path: &Path| {
            let rejected = match rejected.file {
                Some(_) => rejected,
                None => rejected.in_file(path),
            };
            rejected_paths.insert(path.to_owned());
            if warned.insert(rejected.clone()) {
                found.diagnostics.push(rejected);
            }
        };
        for pid in pids {
            // Why the file in the process's own `/tmp` is not used. Most processes have no other one than this program.
            let mut in_process: Option<(PathBuf, Diagnostic)> = None;
            for place in self.candidates(pid) {
                match self.open(&place, pid) {
                    Ok(file) => {
                        found.maps.push((pid, file));
                        break;
                    }
                    Err(error) if error.issue == Issue::FileMissing => {}
                    Err(error) if place.origin != MapOrigin::Process => {
                        in_process = in_process.filter(|(_, other)| other.message() != error.message());
                        reject(found, error, &place.path);
                    }
                    Err(error) if error.issue == Issue::CannotRead => found.unreadable.push(pid),
                    Err(error) => in_process = Some((place.path, error)),
                }
            }
            if let Some((path, error)) = in_process {
                reject(found, error, &path);
            }
        }
        self.report_unused(found, &rejected_paths);
    }

    /// Returns the files that may be the map of a process, the most likely one first.
    fn candidates(&self, pid: Pid) -> Vec<PossibleMap> {
        let name = |number: u32| format!("perf-{number}.map");
        let mut places = Vec::new();
        let mut add = |origin, root, path| places.push(PossibleMap { origin, root, path });
        for file in self.given_for(pid) {
            let kind = if file.is_named {
                MapOrigin::Named
            } else {
                MapOrigin::UserFiles
            };
            add(kind, file.root.clone(), file.path.clone());
        }
        let mut folders = self.folders.borrow_mut();
        for (number, _) in self.names.of_process(pid).filter(|&(_, is_unique)| is_unique) {
            for beside in self.profile_folders.paths(name(number).as_ref()) {
                if folders.may_have(&beside) {
                    add(MapOrigin::UserFiles, self.profile_folders.own.clone(), beside);
                }
            }
        }
        if self.access.reach.is_confined() {
            return places;
        }
        // A running process may have its own `/tmp`, and another ID there.
        let is_running = folders.may_have(&process_folder(pid));
        if let Some(number) = is_running.then(|| namespace_pid(pid)).flatten() {
            let root = process_folder(pid).join("root");
            let path = root.join("tmp").join(name(number));
            add(MapOrigin::Process, root, path);
        }
        // Here, process IDs from containers would mean other processes.
        let temporary = Path::new(TEMPORARY).join(name(pid.0));
        if folders.may_have(&temporary) {
            add(MapOrigin::Temporary, PathBuf::from(TEMPORARY), temporary);
        }
        places
    }

    /// Returns the files and those in folders that the user named and that may be the map of a process: those beside its jitdump,
    /// and those named one by one, first. Containers produce several files of the same name.
    fn given_for(&self, pid: Pid) -> Vec<&GivenMap> {
        let dump_folder = self.dump_folders.get(&pid).map(PathBuf::as_path);
        let is_with_dump = |file: &GivenMap| dump_folder.is_some() && file.path.parent() == dump_folder;
        let mut given: Vec<&GivenMap> = Vec::new();
        for (number, is_unique) in self.names.of_process(pid) {
            // A number of several processes shows the process only together with the folder.
            let files = if is_unique {
                self.given_by_number.get(&number)
            } else {
                dump_folder.and_then(|folder| self.given_by_place.get(&(number, folder.to_owned())))
            };
            given.extend(files.into_iter().flatten().filter_map(|&at| self.given.get(at)));
        }
        given.sort_by_key(|file| !file.is_named && !is_with_dump(file));
        given
    }

    /// Opens a possible map for a process, if its owner and content allow it.
    fn open(&self, place: &PossibleMap, pid: Pid) -> Result<InputFile, Diagnostic> {
        let inside = place.path.strip_prefix(&place.root).unwrap_or(&place.path);
        let opened = match place.origin {
            MapOrigin::Process => walk::open(inside, Scope::Root(&place.root)),
            MapOrigin::Named | MapOrigin::UserFiles | MapOrigin::Temporary => {
                self.access.reach.open_named(&place.root, &place.path)
            }
        };
        let file = read_if(opened, |_| Ok(()))?;
        if file.is_empty() {
            return Err(Diagnostic::new(Issue::FileMissing));
        }
        if place.origin != MapOrigin::Named {
            self.access.check(file.origin(), Some(pid))?;
        }
        if place.origin == MapOrigin::Process {
            self.access.check_in_process(file.origin(), pid)?;
        }
        let rejected = |issue| {
            let rejected = Diagnostic::new(issue).with("pid", pid);
            match &file.origin().trail.target {
                Some(target) => {
                    let [path, target] = [&place.path, target].map(|path| printable_path(path));
                    rejected.in_file_called(format!("{path} -> {target}"))
                }
                None => rejected,
            }
        };
        let is_found = match place.origin {
            MapOrigin::Process | MapOrigin::Temporary => true,
            MapOrigin::Named | MapOrigin::UserFiles => false,
        };
        let end = self.profile_index.times.and_then(|(_, end)| self.wall_clock(end));
        let is_later = |created: SystemTime| end.is_some_and(|end| is_after(created, end));
        if is_found && file.created().is_some_and(is_later) {
            return Err(rejected(Issue::PerfMapMadeLater));
        }
        let born = self.born(pid).filter(|_| place.origin != MapOrigin::Named);
        if born.is_some_and(|born| is_after(born, file.modified())) {
            return Err(rejected(Issue::PerfMapOlder));
        }
        Ok(file)
    }

    /// Start time of a process; `None` if it is unknown.
    fn born(&self, pid: Pid) -> Option<SystemTime> {
        let processes = &self.profile_index.processes;
        let since = processes.space(processes.space_at(pid, Time(0))?).since;
        if since != Time(0) {
            return self.wall_clock(since);
        }
        // It is older than the profile. If it still runs, it was there when the profile began, unlike another one with its ID.
        let (begin, _) = self.profile_index.times?;
        let begin = self.wall_clock(begin)?;
        let is_confined = self.access.reach.is_confined();
        let started = (!is_confined).then(|| start_of(pid.0)).flatten();
        started.filter(|started| *started <= begin)
    }

    /// Wall clock time at a time of the profile, if known.
    fn wall_clock(&self, time: Time) -> Option<SystemTime> {
        self.clock?.wall_clock_at(time)
    }

    /// Notes which given files are not used, and why. Files in folders are noted only if another one was
    /// preferred. Those of `rejected` are reported already.
    fn report_unused(&self, found: &mut FoundPerfMaps, rejected: &HashSet<PathBuf>) {
        let used: BTreeMap<Pid, &Path> = found.maps.iter().map(|(pid, file)| (*pid, file.path())).collect();
        let used_paths: BTreeSet<&Path> = used.values().copied().collect();
        let reported: BTreeSet<&str> = found
            .diagnostics
            .iter()
            .filter_map(|it| it.file.as_deref())
            .collect();
        let mut unused = Vec::new();
        for given in &self.given {
            let name = printable_path(&given.path);
            let owners = given
                .number
                .map(|number| self.names.owners(number))
                .unwrap_or_default();
            let is_reported = reported.contains(&*name) || rejected.contains(&given.path);
            if used_paths.contains(&*given.path) || is_reported {
                continue;
            }
            let preferred = match &owners[..] {
                [pid] => used.get(pid).map(|path| (pid, path)),
                _ => None,
            };
            let reason = match (preferred, &owners[..]) {
                (Some((pid, path)), _) => Diagnostic::new(Issue::PerfMapSuperseded)
                    .with("pid", pid)
                    .with("path", printable_path(path)),
                _ if !given.is_named => continue,
                (_, []) => Diagnostic::new(Issue::PerfMapWithoutPid),
                (_, [pid]) if self.profile_index.processes.knows(*pid) => {
                    Diagnostic::new(Issue::PerfMapEmpty)
                }
                (_, [pid]) => Diagnostic::new(Issue::PerfMapUnknownProcess).with("pid", pid),
                _ => Diagnostic::new(Issue::PerfMapAmbiguous),
            };
            unused.push(reason.in_file_called(name));
        }
        found.diagnostics.append(&mut unused);
    }
}

/// ID of a running process in its own PID namespace.
fn namespace_pid(pid: Pid) -> Option<u32> {
    let numbers = kernel::status_of(pid, "NStgid")?;
    numbers.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn clocks_may_have_been_set_back_by_a_minute() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert!(!is_after(at(1060), at(1000)));
        assert!(is_after(at(1061), at(1000)));
    }
}
