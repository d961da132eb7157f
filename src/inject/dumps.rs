//! Finding the jitdumps of a profile.
//!
//! A marker tells the path that a process knew its dump by, and the number of the file. Here there may be
//! several files of that name, or one that was renamed, or one of another run. First each marker gets the
//! file that is certainly its own; then the others choose among what is left.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::{base_name, printable};
use crate::code::clock::{CLOCK_MONOTONIC, moved};
use crate::code::profile_index::{Marker, ProfileIndex};
use crate::files::MappedFile;
use crate::files::search::shown;
use crate::hash::{HashMap, HashSet};
use crate::inject::candidates::{Candidate, Filter, Rejected, UserFile, UserFiles};
use crate::inject::claims::{Claims, Group, Identity, Pair};
use crate::inject::dedup::{ContentId, Contents};
use crate::inject::folders::Folders;
use crate::inject::ownership::Ownership;
use crate::inject::reach::Reach;
use crate::inject::running::{OpenFiles, open_files_of, process_folder};
use crate::inject::{Error, Options};
use crate::perf::Profile;
use crate::runtime::jitdump::marker::pid_in_name;
use crate::units::{Pid, Time};

/// A jitdump that belongs to the profile.
#[derive(Debug)]
pub struct FoundDump {
    /// The file.
    pub file: Arc<MappedFile>,
    /// The processes that mapped it, the first one first.
    pub pids: Vec<Pid>,
    /// Those of them that had it mapped before the profile began.
    pub pids_before: Vec<Pid>,
    /// When the first one mapped it; `None` if the profile did not see that.
    pub marked: Option<Time>,
    /// The offsets of the markers' records.
    pub markers: Vec<u64>,
}

/// What the search came to.
#[derive(Debug, Default)]
pub struct Found {
    /// The dumps, in the order in which they were mapped, then those that nobody mapped.
    pub dumps: Vec<FoundDump>,
    /// Markers whose dump could not be had: the process, the recorded path, and why.
    pub missing: Vec<Missing>,
    /// Other things that the user should know.
    pub notes: Vec<String>,
    /// All files that the user named as jitdumps, used or not, those in folders as well.
    pub given: Vec<PathBuf>,
    /// Which of the dumps has a file of some number, and a process.
    by_number: HashMap<(u64, u64), usize>,
    by_pid: HashSet<(usize, Pid)>,
}

/// A marker without its dump.
#[derive(Debug)]
pub struct Missing {
    /// The process.
    pub pid: Pid,
    /// The path that was recorded.
    pub path: String,
    /// What was tried, and what happened.
    pub reason: String,
}

/// Finds the dumps of a profile, in the files and folders that the user named as well.
pub fn find(
    profile: &Profile<'_>,
    profile_index: &ProfileIndex,
    options: &Options,
    trust: Ownership,
) -> Result<Found, Error> {
    let mut files = UserFiles::default();
    let wanted = Filter::of(profile_index);
    let reach = Reach::of(options);
    for path in &options.jitdumps {
        files.add(path, &wanted, &reach).map_err(|cause| Error::Read {
            path: path.clone(),
            cause,
        })?;
    }
    let is_monotonic = profile.attrs.clock_id() == Some(CLOCK_MONOTONIC);
    let clock_offset = options.clock_offset.or(is_monotonic.then_some(0));
    Ok(Search::new(profile_index, clock_offset, &options.input, files, trust, reach).run())
}

/// Where dumps are looked for.
#[derive(Debug)]
struct Search<'a> {
    profile_index: &'a ProfileIndex,
    /// Nanoseconds to add to the dumps' times to get the profile's, if that is known.
    clock_offset: Option<i64>,
    /// The folder that the profile lies in.
    beside: PathBuf,
    /// The inode of this process' own mount namespace.
    mount_namespace: Option<u64>,
    given: UserFiles,
    trust: Ownership,
    reach: Reach,
    /// Files that the user named themselves.
    named: HashSet<PathBuf>,
    /// The given files of each base name.
    by_name: HashMap<OsString, Vec<usize>>,
    /// The given jitdumps of each process, by their headers.
    by_pid: HashMap<u32, Vec<usize>>,
    /// How many more times given files may be tried for markers, and how many times they were not.
    tries: Cell<usize>,
    untried: Cell<usize>,
    /// What is in folders where many dumps are looked for.
    folders: RefCell<Folders>,
    /// The files that were tried for markers in vain.
    rejected: RefCell<HashSet<PathBuf>>,
    /// What was opened already: any number of processes may share a dump.
    opened: RefCell<HashMap<PathBuf, Result<Candidate, Rejected>>>,
    open_files: RefCell<HashMap<Pid, OpenFiles>>,
}

/// How many times given files are tried for markers, all together: a thousand containers that each have a dump of the
/// same name are a million pairs.
const MAX_TRIES: usize = 1 << 20;

/// Of how many files it is told why they are not the one of a marker.
const MAX_REASONS: usize = 10;

/// Files that were tried for a marker, and why they are not used.
type Tried = Vec<(PathBuf, String)>;

impl<'a> Search<'a> {
    fn new(
        profile_index: &'a ProfileIndex,
        clock_offset: Option<i64>,
        input: &Path,
        given: UserFiles,
        trust: Ownership,
        reach: Reach,
    ) -> Self {
        let parent = input.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mut by_name: HashMap<OsString, Vec<usize>> = HashMap::default();
        let mut by_pid: HashMap<u32, Vec<usize>> = HashMap::default();
        for (at, file) in given.all.iter().enumerate() {
            let name = file.path.file_name().unwrap_or_default();
            by_name.entry(name.to_owned()).or_default().push(at);
            if let Ok(candidate) = &file.opened {
                by_pid.entry(candidate.header.pid).or_default().push(at);
            }
        }
        let named = given.all.iter().filter(|file| file.is_named);
        Self {
            profile_index,
            clock_offset,
            trust,
            reach,
            named: named.map(|file| file.path.clone()).collect(),
            beside: parent.unwrap_or(Path::new(".")).to_owned(),
            mount_namespace: fs::metadata("/proc/self/ns/mnt").ok().map(|it| it.ino()),
            given,
            by_name,
            by_pid,
            tries: Cell::new(MAX_TRIES),
            untried: Cell::default(),
            folders: RefCell::default(),
            rejected: RefCell::default(),
            opened: RefCell::default(),
            open_files: RefCell::default(),
        }
    }

    /// Finds the dump of each marker, and the processes of the given files that no marker leads to.
    fn run(self) -> Found {
        let mut groups = self.groups();
        let mut claims = Claims::default();
        for group in &mut groups {
            if let Some(candidate) = self.certain(group) {
                claims.add(&candidate.file, group);
                group.chosen = Some(Ok(candidate.file));
            }
        }
        self.choose(&mut groups, &mut claims);
        let mut found = Found::default();
        for group in groups {
            match group.chosen {
                Some(Ok(file)) => {
                    let is_open = !self.open_in_process(group.first.pid, &group.identity).is_empty();
                    if is_open {
                        found.notes.push(format!(
                            "process {} still runs, and may not have written all of {}; run this again when it has ended",
                            group.first.pid,
                            printable(&group.first.path)
                        ));
                    }
                    if !is_open && !has_name_of(file.path(), group.first) {
                        found.notes.push(format!(
                            "{} is used for process {}, which called it {}",
                            shown(file.path()),
                            group.first.pid,
                            printable(&group.first.path)
                        ));
                    }
                    found.add(file, group.first, &group.records);
                }
                Some(Err(reason)) => found.missing.push(Missing {
                    pid: group.first.pid,
                    path: printable(&group.first.path),
                    reason,
                }),
                None => {}
            }
        }
        self.add_unmarked(&mut found);
        // What is left out is told first.
        let mut notes = self.given.notes;
        if self.untried.get() > 0 {
            notes.push(format!(
                "files of the same name are not compared with all processes that they may be of: {} pairs are left out",
                self.untried.get()
            ));
        }
        notes.append(&mut found.notes);
        found.notes = notes;
        found.given = self.given.paths;
        found
    }

    fn groups(&self) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        let mut known: HashMap<(Pid, Identity<'a>), usize> = HashMap::default();
        for marker in &self.profile_index.markers {
            let identity = Identity {
                path: &marker.path,
                number: marker.file.filter(|file| file.inode != 0),
                namespace: self.profile_index.mount_namespaces.get(&marker.pid).copied(),
            };
            let at = *known.entry((marker.pid, identity)).or_insert(groups.len());
            match groups.get_mut(at) {
                Some(group) => group.records.push(marker.record),
                None => groups.push(Group {
                    first: marker,
                    identity,
                    records: vec![marker.record],
                    chosen: None,
                }),
            }
        }
        groups
    }

    /// The file that was mapped: at the recorded path, or open in the process.
    fn certain(&self, group: &Group<'_>) -> Option<Candidate> {
        let recorded = Path::new(OsStr::from_bytes(&group.first.path));
        let is_here = !self.is_elsewhere(group, recorded);
        let at_path = is_here.then(|| recorded.to_owned());
        let paths = at_path
            .into_iter()
            .chain(self.open_in_process(group.first.pid, &group.identity));
        let mut opened = paths.filter_map(|path| self.open(&path).ok());
        opened.find(|candidate| self.check(candidate, group).is_ok())
    }

    /// The file of a marker among those that its process has open, if that still runs. It may have been removed,
    /// as V8 does it with `--perf-prof-delete-file`, or lie in a container.
    fn open_in_process(&self, pid: Pid, identity: &Identity<'_>) -> Vec<PathBuf> {
        let Some(number) = identity.number.filter(|_| !self.reach.is_confined()) else {
            return Vec::new();
        };
        if !self.folders.borrow_mut().may_have(&process_folder(pid)) {
            return Vec::new();
        }
        let mut open_files = self.open_files.borrow_mut();
        let files = open_files.entry(pid).or_insert_with(|| open_files_of(pid));
        files.get(&number.inode).cloned().unwrap_or_default()
    }

    /// Whether the recorded path means another file here than it did to the process: it ran in another mount
    /// namespace, or the file there now has another inode.
    fn is_elsewhere(&self, group: &Group<'_>, recorded: &Path) -> bool {
        let Identity {
            number, namespace, ..
        } = group.identity;
        if let (Some(ours), Some(theirs)) = (self.mount_namespace, namespace)
            && ours != theirs
        {
            return true;
        }
        // The device is not compared: overlay file systems show another one to perf.
        let Some(number) = number else { return false };
        match self.open(recorded) {
            Ok(candidate) => candidate.file.number().1 != number.inode,
            Err(Rejected::Missing) => false,
            Err(_) => fs::metadata(recorded).is_ok_and(|here| here.ino() != number.inode),
        }
    }

    fn open(&self, path: &Path) -> Result<Candidate, Rejected> {
        if !self.reach.has(path) || !self.folders.borrow_mut().may_have(path) {
            return Err(Rejected::Missing);
        }
        if let Some(opened) = self.opened.borrow().get(path) {
            return opened.clone();
        }
        let opened = Candidate::of(self.reach.open_recorded(path));
        self.opened.borrow_mut().insert(path.to_owned(), opened.clone());
        opened
    }

    /// Gives the likeliest file to each of `groups` that has none, or says why there is none. Of several markers that one
    /// file may belong to, the likeliest gets it.
    fn choose(&self, groups: &mut [Group<'a>], claims: &mut Claims<'a>) {
        let mut pairs = Vec::new();
        let mut tried: Vec<Tried> = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            let files = match group.chosen {
                None => self.pairs(group, at, &mut pairs),
                Some(_) => Tried::new(),
            };
            tried.push(files);
        }
        pairs.sort_by_key(Pair::rank);
        for pair in pairs {
            let (Some(group), Some(tried)) = (groups.get_mut(pair.group), tried.get_mut(pair.group)) else {
                continue;
            };
            if group.chosen.is_some() {
                continue;
            }
            match claims.check(&pair.file, group) {
                Ok(()) => {
                    claims.add(&pair.file, group);
                    group.chosen = Some(Ok(pair.file));
                }
                Err(reason) => tried.push((pair.file.path().to_owned(), reason)),
            }
        }
        for (group, tried) in groups.iter_mut().zip(tried) {
            if group.chosen.is_none() {
                group.chosen = Some(Err(self.reject(tried)));
            }
        }
    }

    /// Adds the files that may be the one of a group's marker; returns those that can't.
    fn pairs(&self, group: &Group<'_>, at: usize, pairs: &mut Vec<Pair>) -> Tried {
        let mut tried = Tried::new();
        for (order, (path, opened)) in self.candidates(group).into_iter().enumerate() {
            let checked = opened.and_then(|candidate| {
                self.check(&candidate, group)?;
                Ok(candidate)
            });
            match checked {
                Ok(candidate) => pairs.push(Pair {
                    is_renamed: !has_name_of(&path, group.first),
                    distance: self.distance(&candidate, group.first),
                    order,
                    group: at,
                    file: candidate.file,
                }),
                Err(Rejected::Missing) => {}
                Err(reason) => tried.push((path, reason.to_string())),
            }
        }
        tried
    }

    /// Why a marker has none of the files that were tried.
    fn reject(&self, tried: Tried) -> String {
        if tried.is_empty() {
            let place = match self.reach.is_confined() {
                true => "not looked for there (--confine), and not found beside the profile",
                false => "not found there, nor beside the profile",
            };
            return format!("{place}; if you have it elsewhere, name it with --jitdump");
        }
        let more = tried.len().saturating_sub(MAX_REASONS);
        let told = tried.iter().take(MAX_REASONS);
        let mut told: Vec<String> = told
            .map(|(path, reason)| format!("{} {reason}", shown(path)))
            .collect();
        told.dedup();
        if more > 0 {
            told.push(format!("nor is it any of {more} others"));
        }
        self.rejected
            .borrow_mut()
            .extend(tried.into_iter().map(|(path, _)| path));
        told.join("; ")
    }

    /// How far the first record of a file is from its marker, in nanoseconds, where that can be told.
    fn distance(&self, candidate: &Candidate, marker: &Marker) -> u64 {
        match (candidate.first, self.clock_offset) {
            (Some(first), Some(offset)) if marker.time != Time(0) => {
                moved(first, offset.into()).0.abs_diff(marker.time.0)
            }
            _ => 0,
        }
    }

    /// What may be the dump of a marker, the likeliest place first.
    fn candidates(&self, group: &Group<'_>) -> Vec<(PathBuf, Result<Candidate, Rejected>)> {
        let marker = group.first;
        let recorded = Path::new(OsStr::from_bytes(&marker.path));
        let name = OsStr::from_bytes(base_name(&marker.path));
        let mut all = Vec::new();
        let open = |path: PathBuf| {
            let opened = self.open(&path);
            (path, opened)
        };
        let is_elsewhere = self.is_elsewhere(group, recorded);
        if !is_elsewhere {
            all.push(open(recorded.to_owned()));
        }
        all.push(open(self.beside.join(name)));
        let given = |places: Option<&Vec<usize>>| {
            let places = self.within_tries(places.map_or(&[], Vec::as_slice)).iter();
            let mut given: Vec<&UserFile> = places.filter_map(|&at| self.given.all.get(at)).collect();
            // Several files of the same name, as containers make them: the one whose path is most like the
            // recorded one.
            given.sort_by_key(|file| std::cmp::Reverse(common_end(&file.path, recorded)));
            let pairs = given
                .into_iter()
                .map(|file| (file.path.clone(), file.opened.clone()));
            pairs.collect::<Vec<_>>()
        };
        all.extend(given(self.by_name.get(name)));
        let process = process_folder(marker.pid);
        if self.folders.borrow_mut().may_have(&process) {
            let root = process.join("root");
            all.push(open(root.join(recorded.strip_prefix("/").unwrap_or(recorded))));
        }
        if is_elsewhere {
            // What lies here under that path is another file, unless there is no other.
            all.push(open(recorded.to_owned()));
        }
        // Files that were renamed: their header still says whose they are.
        let number = pid_in_name(name.as_bytes()).filter(|&number| number != marker.pid.0);
        for pid in std::iter::once(marker.pid.0).chain(number) {
            let mut renamed = given(self.by_pid.get(&pid));
            renamed.retain(|(path, _)| !has_name_of(path, marker));
            all.append(&mut renamed);
        }
        all
    }

    /// As many of some given files as may still be tried.
    fn within_tries<'p>(&self, places: &'p [usize]) -> &'p [usize] {
        let tries = self.tries.get();
        self.tries.set(tries.saturating_sub(places.len()));
        let (tried, untried) = places.split_at_checked(tries).unwrap_or((places, &[]));
        self.untried.set(self.untried.get().saturating_add(untried.len()));
        tried
    }

    /// Makes sure that a file can be the dump of a marker.
    fn check(&self, candidate: &Candidate, group: &Group<'_>) -> Result<(), Rejected> {
        self.check_times(candidate, group.first.time)?;
        // What the process itself has mapped is its own, whoever it belongs to.
        let (_, inode) = candidate.file.number();
        if group.identity.number.is_some_and(|number| number.inode == inode) {
            return Ok(());
        }
        self.check_owner(candidate, group.first.pid)
    }

    /// Makes sure that a file belongs to somebody who may tell about a process, or was named by the user.
    fn check_owner(&self, candidate: &Candidate, pid: Pid) -> Result<(), Rejected> {
        if self.named.contains(candidate.file.path()) {
            return Ok(());
        }
        self.trust.check(&candidate.file, pid)
    }

    /// Makes sure that a file can have been written while the profile was recorded, and mapped at `marked`,
    /// which is 0 if that was before the profile or is not known.
    fn check_times(&self, candidate: &Candidate, marked: Time) -> Result<(), Rejected> {
        let Some(offset) = self.clock_offset else {
            return Ok(());
        };
        let (_, end) = self.profile_index.times.unzip();
        candidate.check_times(offset, end, Some(marked).filter(|&time| time != Time(0)))
    }

    /// Adds the given files that no marker leads to, for the process that their header tells. Of those in
    /// folders, only what nothing else is there for.
    fn add_unmarked(&self, found: &mut Found) {
        let mut contents = Contents::default();
        let mut used: HashSet<ContentId> = HashSet::default();
        for dump in &found.dumps {
            used.insert(contents.of(&dump.file));
        }
        let injected = self.injected();
        let mut with_dump: HashSet<Pid> = found.dumps.iter().flat_map(|dump| &dump.pids).copied().collect();
        for given in &self.given.all {
            let candidate = match &given.opened {
                Ok(candidate) => candidate,
                Err(reason) => {
                    if given.is_named && !self.rejected.borrow().contains(&given.path) {
                        found.notes.push(format!("{} {reason}", shown(&given.path)));
                    }
                    continue;
                }
            };
            let content = contents.of(&candidate.file);
            if used.contains(&content) {
                continue;
            }
            let pid = Pid(candidate.header.pid);
            let has_dump = with_dump.contains(&pid);
            let checked = if injected.contains(&pid) {
                Err(Rejected::Because(format!(
                    "is of process {pid}, which has objects of an earlier run already: not used; run this on the original profile"
                )))
            } else if self.profile_index.processes.knows(pid) {
                let in_time = self.check_times(candidate, Time(0));
                in_time.and_then(|()| self.check_owner(candidate, pid))
            } else {
                Err(Rejected::Because(format!(
                    "is of process {pid}, which is not in the profile, and no marker leads to it: not used"
                )))
            };
            match checked {
                Ok(()) if given.is_named || !has_dump => {
                    found.notes.push(format!(
                        "{} is used for process {pid}, as its header says: no marker leads to it",
                        candidate.name()
                    ));
                    if self
                        .profile_index
                        .processes
                        .spaces_of(pid)
                        .all(|(_, space)| space.maps.is_empty())
                    {
                        found.notes.push(format!(
                            "the profile has no maps of process {pid}: only code of its dump gets names"
                        ));
                    }
                    used.insert(content);
                    with_dump.insert(pid);
                    found.dumps.push(FoundDump {
                        file: candidate.file.clone(),
                        pids: vec![pid],
                        pids_before: Vec::new(),
                        marked: None,
                        markers: Vec::new(),
                    });
                }
                Err(reason) if given.is_named => {
                    found.notes.push(format!("{} {reason}", candidate.name()));
                }
                _ => {}
            }
        }
    }

    /// The processes whose dump an earlier run has used, by its objects in them or in what they have started: what has no
    /// object, no sample touches.
    fn injected(&self) -> HashSet<Pid> {
        let processes = &self.profile_index.processes;
        let maps = self.profile_index.injected.iter().filter(|map| map.is_dumped);
        let own: HashSet<Pid> = maps.map(|map| map.pid).collect();
        let mut all = own.clone();
        for pid in own {
            all.extend(processes.starters(pid));
        }
        all
    }
}

impl Found {
    /// Notes that a marker leads to a file, which may be there already.
    fn add(&mut self, file: Arc<MappedFile>, marker: &Marker, records: &[u64]) {
        let number = file.number();
        let at = *self.by_number.entry(number).or_insert(self.dumps.len());
        if at == self.dumps.len() {
            self.dumps.push(FoundDump {
                file,
                pids: Vec::new(),
                pids_before: Vec::new(),
                marked: Some(marker.time).filter(|&time| time != Time(0)),
                markers: Vec::new(),
            });
        }
        let Some(dump) = self.dumps.get_mut(at) else {
            return;
        };
        dump.markers.extend_from_slice(records);
        if self.by_pid.insert((at, marker.pid)) {
            dump.pids.push(marker.pid);
            if marker.time == Time(0) {
                dump.pids_before.push(marker.pid);
            }
        }
    }
}

/// Whether a file has the base name that its process knew it by.
fn has_name_of(path: &Path, marker: &Marker) -> bool {
    path.file_name() == Some(OsStr::from_bytes(base_name(&marker.path)))
}

/// How many components two paths have in common, counted from the end.
fn common_end(one: &Path, other: &Path) -> usize {
    let pairs = one.components().rev().zip(other.components().rev());
    pairs.take_while(|(one, other)| one == other).count()
}
