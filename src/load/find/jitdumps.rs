//! Finding the jitdumps of a profile.
//!
//! A marker contains the path of the dump in the process, and device and inode of the file. This machine may
//! have several files of that name, a renamed one, or one from another run. First, each marker gets the file
//! that is certainly its own. Then, the remaining markers are matched with the remaining files.
//!
//! Times reveal files of another run, which are skipped. Among several files, the one with the first record
//! nearest to the marker wins; among several markers for one file, the nearest. No marker gets a file with
//! the same content as another marker's: two runtimes in one process both name their jitdump
//! `jit-PID.dump`, in different directories, and a lost one must be reported. Of processes that wrote one file
//! after the other, the last one gets it. A process with objects of an earlier run gets no jitdump without a marker.

mod overwritten;
mod rejected_files;
mod unmarked;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jitdump::internals::format::marker::pid_in_name;
use jitdump::{Time, printable};

use self::rejected_files::{Tried, listed};
use crate::bytes::{base_name, printable_path};
use crate::code::clock::{CLOCK_MONOTONIC, apply_offset};
use crate::code::profile_index::{FileMarker, IndexedProfile, ProfileIndex};
use crate::collections::hash::{HashMap, HashSet};
use crate::files::walk::{self, Scope};
use crate::files::{OpenFile, PagedFile};
use crate::load::find::access::Access;
use crate::load::find::candidates::{CandidateDump, DumpFilter, UserFile, UserFiles};
use crate::load::find::claims::{Choice, Claims, MarkedFile, MarkerGroup, MatchCandidate};
use crate::load::find::folders::{Folders, ProfileFolders};
use crate::load::find::found_file::FoundFile;
use crate::load::find::mapped::MappingTimes;
use crate::load::options::LoadOptions;
use crate::load::running_processes::{OpenFiles, open_files_of, process_folder};
use crate::perf::feature::ClockData;
use crate::results::diagnostics::issues::{CHECK_PATH, COPY_MEANWHILE, COPY_OUT_OF_MOUNTS};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::Pid;

/// Result of the search.
#[derive(Debug, Default)]
pub struct FoundDumps {
    /// Dumps in the order of their mappings, followed by those without a mapping.
    pub dumps: Vec<FoundFile>,
    /// Processes whose jitdump was not found or is not usable, and why.
    pub missing: Vec<(Pid, Diagnostic)>,
    /// What else to report.
    pub diagnostics: Vec<Diagnostic>,
    /// All files given as jitdumps, used or not, including those in folders.
    pub given: Vec<PathBuf>,
    /// Indices of the dumps by device and inode, and the processes of each.
    by_file_id: HashMap<(u64, u64), usize>,
    by_pid: HashSet<(usize, Pid)>,
}

/// Finds the dumps of a profile, also in files and folders that the user named. Fails if one of these is
/// missing.
pub fn find(
    IndexedProfile { profile, index }: &IndexedProfile<'_>,
    options: &LoadOptions,
    access: &Access,
) -> Result<FoundDumps, Diagnostic> {
    let mut files = UserFiles::default();
    let wanted = DumpFilter::of(index);
    for path in &options.jitdumps {
        files
            .add(path, &wanted, &access.reach)
            .map_err(|cause| Diagnostic::cannot_read_named(path, &cause, CHECK_PATH))?;
    }
    let is_monotonic = profile.attrs.clock_id() == Some(CLOCK_MONOTONIC);
    let clock_offset = options.clock_offset.or(is_monotonic.then_some(0));
    let clock = profile.clock_data();
    Ok(JitdumpSearch::new(index, clock_offset, clock, &options.input, files, access).run())
}

/// A file that may be the dump of a marker: its path, and the opened file or why it cannot be used.
type PossibleDump = (PathBuf, Result<CandidateDump, Diagnostic>);

/// A search for jitdumps.
#[derive(Debug)]
struct JitdumpSearch<'a> {
    profile_index: &'a ProfileIndex,
    /// Nanoseconds to add to the dumps' times to get profile times, if known.
    clock_offset: Option<i64>,
    mapped: MappingTimes,
    profile_folders: ProfileFolders,
    /// Inode of jitinject's mount namespace.
    mount_namespace: Option<u64>,
    given: UserFiles,
    access: &'a Access,
    /// Files that the user named themselves.
    named: HashSet<PathBuf>,
    /// Indices of the given files, by base name.
    by_name: HashMap<OsString, Vec<usize>>,
    /// Indices of the given jitdumps, by the process ID in their headers.
    by_pid: HashMap<u32, Vec<usize>>,
    /// How often given files may still be tried for markers, and how often they were left out.
    tries: Cell<usize>,
    untried: Cell<usize>,
    /// Contents of folders in which many dumps are looked for.
    folders: RefCell<Folders>,
    /// Files that were rejected for markers.
    rejected: RefCell<HashSet<PathBuf>>,
    /// Files that were opened already: any number of processes may share a dump.
    opened: RefCell<HashMap<PathBuf, Result<CandidateDump, Diagnostic>>>,
    open_files: RefCell<HashMap<Pid, OpenFiles>>,
}

/// Maximum number of attempts to match given files with markers: a thousand containers that each have a dump
/// of the same name make a million pairs.
const MAX_TRIES: usize = 1 << 20;

impl<'a> JitdumpSearch<'a> {
    /// Prepares a search: `given` are the files that the user named, `clock_offset` and `clock` what is known of the
    /// profile's clock.
    fn new(
        profile_index: &'a ProfileIndex,
        clock_offset: Option<i64>,
        clock: Option<ClockData>,
        input: &Path,
        given: UserFiles,
        access: &'a Access,
    ) -> Self {
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
            mapped: MappingTimes::new(clock, profile_index, access.end),
            access,
            named: named.map(|file| file.path.clone()).collect(),
            profile_folders: ProfileFolders::of(input),
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

    /// Finds the dump of each marker, and the processes of given files without a marker.
    fn run(self) -> FoundDumps {
        let mut groups = self.groups();
        let mut claims = Claims::default();
        for group in &mut groups {
            if let Some(candidate) = self.certain(group) {
                claims.add(&candidate.file, group);
                group.choice = Choice::File(candidate.file);
            }
        }
        self.choose(&mut groups, &mut claims);
        self.reject_overwritten(&mut groups);
        let mut found = FoundDumps::default();
        for group in groups {
            self.add_chosen(&mut found, group);
        }
        self.add_unmarked(&mut found);
        // Omissions come first.
        let mut diagnostics = self.given.diagnostics;
        if self.untried.get() > 0 {
            let untried = Diagnostic::new(Issue::CandidatesNotCompared);
            diagnostics.push(untried.times(self.untried.get() as u64));
        }
        diagnostics.append(&mut found.diagnostics);
        found.diagnostics = diagnostics;
        found.given = self.given.paths;
        found
    }

    /// Adds the file that was chosen for a group of markers, or reports why there is none.
    fn add_chosen(&self, found: &mut FoundDumps, group: MarkerGroup<'_>) {
        let marker = group.first;
        match group.choice {
            Choice::File(file) => {
                let is_open = !self.open_in_process(marker.pid, &group.identity).is_empty();
                if is_open {
                    found.diagnostics.push(still_written(marker, file.path()));
                } else if !has_name_of(file.path(), marker) {
                    let renamed = Diagnostic::new(Issue::DumpRenamed).in_file(file.path());
                    let renamed = renamed.with("pid", marker.pid);
                    found
                        .diagnostics
                        .push(renamed.with("path", printable(&marker.path)));
                }
                found.add(file, marker, &group.markers);
            }
            Choice::Missing(reason) => {
                let missing = reason.in_file_called(printable(&marker.path));
                found.missing.push((marker.pid, missing.with("pid", marker.pid)));
            }
            Choice::Open => {}
        }
    }

    /// Groups the markers of each process by the file that they mark.
    fn groups(&self) -> Vec<MarkerGroup<'a>> {
        let mut groups: Vec<MarkerGroup<'a>> = Vec::new();
        let mut known: HashMap<(Pid, MarkedFile<'a>), usize> = HashMap::default();
        for (index, marker) in self.profile_index.markers.iter().enumerate() {
            let identity = MarkedFile {
                path: &marker.path,
                file_id: marker.file.filter(|file| file.inode != 0),
                namespace: self.profile_index.mount_namespaces.get(&marker.pid).copied(),
            };
            let at = *known.entry((marker.pid, identity)).or_insert(groups.len());
            match groups.get_mut(at) {
                Some(group) => group.markers.push(index),
                None => groups.push(MarkerGroup {
                    first: marker,
                    identity,
                    markers: vec![index],
                    choice: Choice::Open,
                }),
            }
        }
        groups
    }

    /// Returns the file that was mapped: at the recorded path, or open in the process.
    fn certain(&self, group: &MarkerGroup<'_>) -> Option<CandidateDump> {
        let recorded = Path::new(OsStr::from_bytes(&group.first.path));
        let is_here = !self.is_elsewhere(group, recorded);
        let at_path = is_here.then(|| self.open(recorded)).into_iter();
        let in_process = self.open_in_process(group.first.pid, &group.identity).into_iter();
        let in_process = in_process.map(|path| self.open_once(&path, || OpenFile::open(&path)));
        let mut opened = at_path.chain(in_process).filter_map(Result::ok);
        opened.find(|candidate| self.check(candidate, group).is_ok())
    }

    /// Returns the paths by which a running process has a marker's file open. The file may have been removed,
    /// as by V8 with `--perf-prof-delete-file`, or be in a container.
    fn open_in_process(&self, pid: Pid, identity: &MarkedFile<'_>) -> Vec<PathBuf> {
        let Some(file_id) = identity.file_id.filter(|_| !self.access.reach.is_confined()) else {
            return Vec::new();
        };
        if !self.folders.borrow_mut().may_have(&process_folder(pid)) {
            return Vec::new();
        }
        let mut open_files = self.open_files.borrow_mut();
        let files = open_files.entry(pid).or_insert_with(|| open_files_of(pid));
        files.get(&file_id.inode).cloned().unwrap_or_default()
    }

    /// Whether the recorded path means another file here than it did in the process: the mount namespaces or
    /// the inodes differ.
    fn is_elsewhere(&self, group: &MarkerGroup<'_>, recorded: &Path) -> bool {
        if self.has_other_mounts(group) {
            return true;
        }
        // The device is not compared: perf records another one on overlay file systems.
        let Some(file_id) = group.identity.file_id else {
            return false;
        };
        match self.open(recorded) {
            Ok(candidate) => candidate.file.file_id().1 != file_id.inode,
            Err(error) if error.issue == Issue::FileMissing => false,
            Err(_) => fs::metadata(recorded).is_ok_and(|here| here.ino() != file_id.inode),
        }
    }

    /// Whether the process was in another mount namespace than this one.
    fn has_other_mounts(&self, group: &MarkerGroup<'_>) -> bool {
        let namespaces = self.mount_namespace.zip(group.identity.namespace);
        namespaces.is_some_and(|(ours, theirs)| ours != theirs)
    }

    /// Opens a file at a path in the profile.
    fn open(&self, path: &Path) -> Result<CandidateDump, Diagnostic> {
        self.open_once(path, || self.access.reach.open_recorded(path))
    }

    /// Opens a file, or returns what came of it before.
    fn open_once(
        &self,
        path: &Path,
        open: impl FnOnce() -> io::Result<OpenFile>,
    ) -> Result<CandidateDump, Diagnostic> {
        if !self.access.reach.has(path) || !self.folders.borrow_mut().may_have(path) {
            return Err(Diagnostic::new(Issue::FileMissing));
        }
        if let Some(opened) = self.opened.borrow().get(path) {
            return opened.clone();
        }
        let opened = CandidateDump::of(open());
        self.opened.borrow_mut().insert(path.to_owned(), opened.clone());
        opened
    }

    /// Assigns the most likely file to each of `groups` without a file, or the reason why it is missing. A
    /// file that may belong to several markers is assigned to the most likely one.
    fn choose(&self, groups: &mut [MarkerGroup<'a>], claims: &mut Claims<'a>) {
        let mut candidates = Vec::new();
        let mut rejected_files: Vec<Tried> = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let files = match group.choice {
                Choice::Open => self.add_candidates(group, index, &mut candidates),
                Choice::File(_) | Choice::Missing(_) => Tried::new(),
            };
            rejected_files.push(files);
        }
        candidates.sort_by_key(MatchCandidate::rank);
        for candidate in candidates {
            let (Some(group), Some(rejected_files)) = (
                groups.get_mut(candidate.group),
                rejected_files.get_mut(candidate.group),
            ) else {
                continue;
            };
            if !matches!(group.choice, Choice::Open) {
                continue;
            }
            match claims.check(&candidate.file, group) {
                Ok(()) => {
                    claims.add(&candidate.file, group);
                    group.choice = Choice::File(candidate.file);
                }
                Err(reason) => rejected_files.push((candidate.file.path().to_owned(), reason)),
            }
        }
        for (group, rejected_files) in groups.iter_mut().zip(rejected_files) {
            if matches!(group.choice, Choice::Open) {
                let missing = self.reject(rejected_files);
                let is_gone = missing.issue == Issue::DumpNotFound && self.has_other_mounts(group);
                group.choice = Choice::Missing(if is_gone {
                    missing.with_remedy(COPY_OUT_OF_MOUNTS)
                } else {
                    missing
                });
            }
        }
    }

    /// Adds the files that may belong to the markers of a group, whose index is `group_index`, to `candidates`. Returns the
    /// rejected ones, with the reasons.
    fn add_candidates(
        &self,
        group: &MarkerGroup<'_>,
        group_index: usize,
        candidates: &mut Vec<MatchCandidate>,
    ) -> Tried {
        let mut rejected_files = Tried::new();
        for (order, (path, opened)) in self.possible_dumps(group).into_iter().enumerate() {
            let checked = opened.and_then(|candidate| {
                self.check(&candidate, group)?;
                Ok(candidate)
            });
            match checked {
                Ok(candidate) => candidates.push(MatchCandidate {
                    is_mapped: self.is_mapped(&candidate, group),
                    is_renamed: !has_name_of(&path, group.first),
                    distance: self.distance(&candidate, group.first),
                    order,
                    group: group_index,
                    file: candidate.file,
                }),
                // Most paths are guesses: where nothing is, nothing was rejected.
                Err(error) if error.issue == Issue::FileMissing => {}
                Err(rejected) => rejected_files.push((path, rejected)),
            }
        }
        rejected_files
    }

    /// Returns why a marker has none of the files that were tried.
    fn reject(&self, mut rejected_files: Tried) -> Diagnostic {
        if rejected_files.is_empty() {
            return Diagnostic::new(if self.access.reach.is_confined() {
                Issue::DumpNotFoundConfined
            } else {
                Issue::DumpNotFound
            });
        }
        // A file in a folder that the user named may also be beside the profile.
        let mut known = HashSet::default();
        rejected_files.retain(|(path, _)| known.insert(path.clone()));
        let reasons = listed(&rejected_files);
        self.rejected
            .borrow_mut()
            .extend(rejected_files.into_iter().map(|(path, _)| path));
        Diagnostic::new(Issue::DumpUnusable).with("tried", reasons)
    }

    /// Time between a marker and the first record of a file in nanoseconds; 0 if unknown.
    fn distance(&self, candidate: &CandidateDump, marker: &FileMarker) -> u64 {
        match (candidate.first, self.clock_offset) {
            (Some(first), Some(offset)) if marker.time != Time(0) => {
                apply_offset(first, offset.into()).0.abs_diff(marker.time.0)
            }
            _ => 0,
        }
    }

    /// Returns the files that may be the dump of a marker, the most likely ones first.
    fn possible_dumps(&self, group: &MarkerGroup<'_>) -> Vec<PossibleDump> {
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
        let root = &self.profile_folders.own;
        all.extend(self.profile_folders.paths(name).map(|path| {
            let opened = self.open_once(&path, || self.access.reach.open_named(root, &path));
            (path, opened)
        }));
        all.extend(self.given_like(recorded, self.by_name.get(name)));
        all.extend(self.in_root_of_process(recorded, marker.pid));
        if is_elsewhere {
            // On this machine, the recorded path is probably another file, so it comes after the others.
            all.push(open(recorded.to_owned()));
        }
        // Renamed files still have the process ID in their headers.
        let number = pid_in_name(name.as_bytes()).filter(|&number| number != marker.pid.0);
        for pid in std::iter::once(marker.pid.0).chain(number) {
            let mut renamed = self.given_like(recorded, self.by_pid.get(&pid));
            renamed.retain(|(path, _)| !has_name_of(path, marker));
            all.append(&mut renamed);
        }
        all
    }

    /// Returns the given files with these indices, as far as they may still be tried. Containers produce several files of the
    /// same name, so the one whose path is most similar to the recorded one is first.
    fn given_like(&self, recorded: &Path, indices: Option<&Vec<usize>>) -> Vec<PossibleDump> {
        let indices = self.within_tries(indices.map_or(&[], Vec::as_slice)).iter();
        let mut given: Vec<&UserFile> = indices.filter_map(|&index| self.given.all.get(index)).collect();
        given.sort_by_key(|file| Reverse(common_end(&file.path, recorded)));
        let given = given.into_iter();
        given
            .map(|file| (file.path.clone(), file.opened.clone()))
            .collect()
    }

    /// Opens the file at the recorded path in the root directory of a running process; `None` if the process has ended.
    fn in_root_of_process(&self, recorded: &Path, pid: Pid) -> Option<PossibleDump> {
        let process = process_folder(pid);
        if !self.folders.borrow_mut().may_have(&process) {
            return None;
        }
        let root = process.join("root");
        let path = root.join(recorded.strip_prefix("/").unwrap_or(recorded));
        let opened = self.open_once(&path, || walk::open(recorded, Scope::Root(&root)));
        let opened = opened.and_then(|found| {
            self.access.check_in_process(found.file.origin(), pid)?;
            Ok(found)
        });
        Some((path, opened))
    }

    /// Returns as many of the given files as may still be tried.
    fn within_tries<'p>(&self, places: &'p [usize]) -> &'p [usize] {
        let tries = self.tries.get();
        self.tries.set(tries.saturating_sub(places.len()));
        let (tried, untried) = places.split_at_checked(tries).unwrap_or((places, &[]));
        self.untried.set(self.untried.get().saturating_add(untried.len()));
        tried
    }

    /// Rejects a file that cannot be the dump of a marker.
    fn check(&self, candidate: &CandidateDump, group: &MarkerGroup<'_>) -> Result<(), Diagnostic> {
        self.check_times(candidate, group.first.time)?;
        // A file that the process has mapped is its own, whoever owns it.
        if self.is_mapped(candidate, group) {
            return Ok(());
        }
        self.check_owner(candidate, group.first.pid)
    }

    /// Whether a file is the one that was mapped last. Of a process that starts when perf does, perf writes a mapping twice:
    /// without a time, as of one that ran before, and with its time.
    fn is_mapped(&self, candidate: &CandidateDump, group: &MarkerGroup<'_>) -> bool {
        let markers = &self.profile_index.markers;
        let last = group.markers.last().and_then(|&last| markers.get(last));
        last.is_some_and(|last| self.mapped.has(candidate.file.origin(), candidate.created, last))
    }

    /// Rejects a file with an untrusted owner, unless the user named the file.
    fn check_owner(&self, candidate: &CandidateDump, pid: Pid) -> Result<(), Diagnostic> {
        if self.named.contains(candidate.file.path()) {
            return Ok(());
        }
        self.access.check(candidate.file.origin(), Some(pid))
    }

    /// Rejects a file that cannot have been written during the recording and mapped at `marked`, which is 0
    /// if that was before the profile or is unknown.
    fn check_times(&self, candidate: &CandidateDump, marked: Time) -> Result<(), Diagnostic> {
        let Some(offset) = self.clock_offset else {
            return Ok(());
        };
        let (_, end) = self.profile_index.times.unzip();
        candidate.check_times(offset, end, Some(marked).filter(|&time| time != Time(0)))
    }
}

impl FoundDumps {
    /// Adds the file of a marker, or the marker to a file that is already there.
    fn add(&mut self, file: Arc<PagedFile>, marker: &FileMarker, markers: &[usize]) {
        let file_id = file.file_id();
        let at = *self.by_file_id.entry(file_id).or_insert(self.dumps.len());
        if at == self.dumps.len() {
            self.dumps.push(FoundFile {
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
        dump.markers.extend_from_slice(markers);
        if self.by_pid.insert((at, marker.pid)) {
            dump.pids.push(marker.pid);
            if marker.time == Time(0) {
                dump.pids_before.push(marker.pid);
            }
        }
    }
}

/// Returns the diagnostic for a jitdump at `path` that its process still writes.
fn still_written(marker: &FileMarker, path: &Path) -> Diagnostic {
    let incomplete = Diagnostic::new(Issue::DumpStillWritten)
        .in_file_called(printable(&marker.path))
        .with("pid", marker.pid);
    // It is not at its path here.
    if path.starts_with(process_folder(marker.pid)) {
        incomplete
            .with("copy", printable_path(path))
            .with_remedy(COPY_MEANWHILE)
    } else {
        incomplete
    }
}

/// Whether a file has the base name that the marker recorded.
fn has_name_of(path: &Path, marker: &FileMarker) -> bool {
    path.file_name() == Some(OsStr::from_bytes(base_name(&marker.path)))
}

/// Number of components that two paths have in common, counted from the end.
fn common_end(one: &Path, other: &Path) -> usize {
    let pairs = one.components().rev().zip(other.components().rev());
    pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests;
