//! Finding the perf maps of a profile's processes.
//!
//! Nothing in a profile leads to them. A runtime writes `/tmp/perf-PID.map`, with the number that it knows its
//! process by: in a container that is not the profile's, but the name of a jitdump tells it as well.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::bytes::base_name;
use crate::code::perf_map_symbols::{SymbolId, SymbolTable};
use crate::code::profile_index::ProfileIndex;
use crate::files::MappedFile;
use crate::files::search::{files_below, shown};
use crate::hash::{HashMap, HashSet};
use crate::inject::candidates::{Rejected, read_if};
use crate::inject::dumps::FoundDump;
use crate::inject::folders::Folders;
use crate::inject::ownership::Ownership;
use crate::inject::reach::Reach;
use crate::inject::running::process_folder;
use crate::inject::{Error, Options};
use crate::perf::Profile;
use crate::perf::feature::{self, ClockData};
use crate::runtime::jitdump::marker;
use crate::runtime::perf_map::{self, PerfMap, Symbol, pid_in_name};
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
    /// Processes with a file system that can't be read, which may hold their perf maps.
    pub unreadable: Vec<Pid>,
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

/// A symbol of one of `maps`.
pub fn symbol_of<'m>(maps: &'m [UsedMap<'_>], id: SymbolId) -> Option<Symbol<'m>> {
    let used = maps.get(id.table as usize)?;
    used.map.symbols.get(id.symbol as usize).copied()
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
pub fn find(
    profile: &Profile<'_>,
    profile_index: &ProfileIndex,
    dumps: &[FoundDump],
    options: &Options,
    trust: Ownership,
) -> Result<FoundMaps, Error> {
    let mut found = FoundMaps::default();
    let given = given(&options.perf_maps, &mut found.notes)?;
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
    let parent = options.input.parent();
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    let clock = profile.feature(feature::CLOCK_DATA);
    let search = Search {
        profile_index,
        trust,
        reach: Reach::of(options),
        names: Names::of(profile_index),
        given,
        given_by_number,
        given_by_place,
        beside: parent.unwrap_or(Path::new(".")).to_owned(),
        dump_folders: dump_folders(dumps),
        folders: RefCell::default(),
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

/// The folders that the dumps of processes lie in.
fn dump_folders(dumps: &[FoundDump]) -> BTreeMap<Pid, PathBuf> {
    let folders = dumps.iter().filter_map(|dump| {
        let folder = dump.file.path().parent()?;
        Some(dump.pids.iter().map(|&pid| (pid, folder.to_owned())))
    });
    folders.flatten().collect()
}

/// Which processes call themselves by which number: in a container that is another than the profile's, but the
/// names of dumps tell it.
struct Names {
    /// For each number, the processes whose jitdump has it in its name; only the one that has it in the profile,
    /// if it is among them, since others have that dump from it.
    by_number: BTreeMap<u32, Vec<Pid>>,
    /// For each process, the other numbers that its jitdumps have, and whether no other's do.
    by_pid: BTreeMap<Pid, Vec<(u32, bool)>>,
}

impl Names {
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

    /// The processes that may mean themselves by a number.
    fn owners(&self, number: u32) -> Cow<'_, [Pid]> {
        match self.by_number.get(&number) {
            Some(pids) => Cow::Borrowed(pids),
            None => Cow::Owned(vec![Pid(number)]),
        }
    }

    /// The numbers by which a process may mean itself, its own first, and whether no other does.
    fn of_process(&self, pid: Pid) -> impl Iterator<Item = (u32, bool)> {
        let own = (*self.owners(pid.0) == [pid]).then_some((pid.0, true));
        let by_dump = self.by_pid.get(&pid).into_iter().flatten().copied();
        own.into_iter().chain(by_dump)
    }
}

/// A file that may be the map of a process.
struct Place {
    kind: PlaceKind,
    path: PathBuf,
}

/// How it came to be looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PlaceKind {
    /// The user named the file itself.
    Named,
    /// It lies in a folder that the user named, or beside the profile.
    UserFiles,
    /// In the process' own `/tmp`.
    Process,
    /// In `/tmp`.
    Temporary,
}

/// Whether a time that may not be known is later than another, and not by chance.
fn is_later(time: io::Result<SystemTime>, than: SystemTime) -> bool {
    time.is_ok_and(|time| time > than + SLACK)
}

/// Where perf maps of processes that are gone lie.
const TEMPORARY: &str = "/tmp";

/// Where perf maps are looked for.
struct Search<'a> {
    profile_index: &'a ProfileIndex,
    trust: Ownership,
    reach: Reach,
    names: Names,
    given: Vec<GivenMap>,
    /// The given maps of each number.
    given_by_number: BTreeMap<u32, Vec<usize>>,
    /// The given maps of each number in each folder.
    given_by_place: HashMap<(u32, PathBuf), Vec<usize>>,
    /// The folder that the profile lies in.
    beside: PathBuf,
    dump_folders: BTreeMap<Pid, PathBuf>,
    /// What is in the folders where those of many processes are looked for.
    folders: RefCell<Folders>,
    /// What the wall clock said at some time of the profile.
    clock: Option<ClockData>,
}

impl Search<'_> {
    fn run(&self, found: &mut FoundMaps) {
        let spaces = self.profile_index.processes.spaces().iter();
        let mut pids: Vec<Pid> = spaces.map(|space| space.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let mut warned = HashSet::default();
        for pid in pids {
            for place in self.candidates(pid) {
                match self.open(&place, pid) {
                    Ok(file) => {
                        found.maps.push(FoundMap { pid, file });
                        break;
                    }
                    Err(Rejected::Missing) => {}
                    Err(_) if place.kind == PlaceKind::Process => found.unreadable.push(pid),
                    Err(reason) => {
                        let warning = Warning {
                            file: Some(shown(&place.path)),
                            ..Warning::new(reason.to_string())
                        };
                        if warned.insert(warning.clone()) {
                            found.warnings.push(warning);
                        }
                    }
                }
            }
        }
        self.tell_unused(found);
    }

    /// Where the map of a process may be, the likeliest place first.
    fn candidates(&self, pid: Pid) -> Vec<Place> {
        let name = |number: u32| format!("perf-{number}.map");
        let mut places = Vec::new();
        let mut add = |kind, path| places.push(Place { kind, path });
        let dump_folder = self.dump_folders.get(&pid).map(PathBuf::as_path);
        let is_with_dump = |file: &GivenMap| dump_folder.is_some() && file.path.parent() == dump_folder;
        let mut given: Vec<&GivenMap> = Vec::new();
        for (number, is_unique) in self.names.of_process(pid) {
            let files = if is_unique {
                self.given_by_number.get(&number)
            } else {
                dump_folder.and_then(|folder| self.given_by_place.get(&(number, folder.to_owned())))
            };
            given.extend(files.into_iter().flatten().filter_map(|&at| self.given.get(at)));
        }
        // Several of one name, as containers make them: the one that lies with the dump of the process.
        given.sort_by_key(|file| !file.is_named && !is_with_dump(file));
        for file in given {
            let kind = if file.is_named {
                PlaceKind::Named
            } else {
                PlaceKind::UserFiles
            };
            add(kind, file.path.clone());
        }
        let mut folders = self.folders.borrow_mut();
        for (number, _) in self.names.of_process(pid).filter(|&(_, is_unique)| is_unique) {
            let beside = self.beside.join(name(number));
            if folders.may_have(&beside) {
                add(PlaceKind::UserFiles, beside);
            }
        }
        if self.reach.is_confined() {
            return places;
        }
        // As long as it lives, its own folder for temporary files, and its own number.
        let is_running = folders.may_have(&process_folder(pid));
        if let Some(number) = is_running.then(|| own_number(pid)).flatten() {
            let folder = process_folder(pid).join("root/tmp");
            add(PlaceKind::Process, folder.join(name(number)));
        }
        // Here the numbers of containers mean other processes.
        let temporary = Path::new(TEMPORARY).join(name(pid.0));
        if folders.may_have(&temporary) {
            add(PlaceKind::Temporary, temporary);
        }
        places
    }

    fn open(&self, place: &Place, pid: Pid) -> Result<MappedFile, Rejected> {
        let file = read_if(self.reach.open_named(&place.path, &place.path), |_| Ok(()))?;
        if file.is_empty() {
            return Err(Rejected::Missing);
        }
        if place.kind != PlaceKind::Named {
            self.trust.check(&file, pid)?;
        }
        let is_found = matches!(place.kind, PlaceKind::Process | PlaceKind::Temporary);
        let end = self.profile_index.times.and_then(|(_, end)| self.wall_clock(end));
        let is_after =
            |end: SystemTime| fs::metadata(&place.path).is_ok_and(|it| is_later(it.created(), end));
        if is_found && end.is_some_and(is_after) {
            let reason = format!(
                "was made after this recording ended, so it may not be that of process {pid}: ignored; name it with --perf-map if it is"
            );
            return Err(Rejected::Because(reason));
        }
        let born = self.born(pid).filter(|_| place.kind != PlaceKind::Named);
        if born.is_some_and(|born| file.modified() + SLACK < born) {
            let reason = format!("is older than process {pid}, and so that of another one, ignored");
            return Err(Rejected::Because(reason));
        }
        Ok(file)
    }

    /// When a process came to be, if that was while the profile was recorded.
    fn born(&self, pid: Pid) -> Option<SystemTime> {
        let processes = &self.profile_index.processes;
        let since = processes.space(processes.space_at(pid, Time(0))?)?.since;
        (since != Time(0)).then(|| self.wall_clock(since))?
    }

    /// What the wall clock said at a time of the profile.
    fn wall_clock(&self, time: Time) -> Option<SystemTime> {
        let clock = self.clock?;
        let earlier = clock.profile_clock.saturating_sub(time.0);
        let later = time.0.saturating_sub(clock.profile_clock);
        let wall_clock = clock.wall_clock.checked_add(later)?.checked_sub(earlier)?;
        UNIX_EPOCH.checked_add(Duration::from_nanos(wall_clock))
    }

    /// Notes which of the named files are not used, and why. Of what lies in a folder, only what another one was
    /// preferred to.
    fn tell_unused(&self, found: &mut FoundMaps) {
        let used: BTreeMap<Pid, &Path> = found.maps.iter().map(|map| (map.pid, map.file.path())).collect();
        let used_paths: BTreeSet<&Path> = used.values().copied().collect();
        let told: BTreeSet<&str> = found
            .warnings
            .iter()
            .filter_map(|it| it.file.as_deref())
            .collect();
        let mut notes = Vec::new();
        for given in &self.given {
            let name = shown(&given.path);
            let owners = given
                .number
                .map(|number| self.names.owners(number))
                .unwrap_or_default();
            if used_paths.contains(&*given.path) || told.contains(&*name) {
                continue;
            }
            let preferred = match &owners[..] {
                [pid] => used.get(pid).map(|path| (pid, path)),
                _ => None,
            };
            notes.push(match (preferred, &owners[..]) {
                (Some((pid, path)), _) => {
                    format!("{name} is not used: process {pid} has {} already", shown(path))
                }
                _ if !given.is_named => continue,
                (_, []) => {
                    format!("{name} is not used: its name does not tell its process, as perf-PID.map would")
                }
                (_, [pid]) if self.profile_index.processes.knows(*pid) => format!("{name} is empty"),
                (_, [pid]) => format!(
                    "{name} is of process {pid}, which is not in the profile: not used; \
                     if that is its number in a container, rename it after the one in the profile"
                ),
                _ => format!(
                    "{name} may be that of several processes: not used; rename it after the number of one in the profile"
                ),
            });
        }
        found.notes.append(&mut notes);
    }
}

/// The number that a living process knows itself by.
fn own_number(pid: Pid) -> Option<u32> {
    let status = fs::read_to_string(process_folder(pid).join("status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NStgid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}
