//! Files that may be the jitdump of a process.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::bytes::base_name;
use crate::code::clock::moved;
use crate::code::process::Processes;
use crate::code::profile_index::ProfileIndex;
use crate::files::search::{files_below, shown};
use crate::files::{MappedFile, OpenFile, Packing};
use crate::hash::HashSet;
use crate::inject::Error;
use crate::inject::input::read_error;
use crate::inject::ownership::Ownership;
use crate::inject::reach::Reach;
use crate::runtime::RuntimeTime;
use crate::runtime::jitdump::marker::{is_dump_name, pid_in_name};
use crate::runtime::jitdump::{self, Header, first_time, last_time};
use crate::summary::count_of;
use crate::units::{Pid, Time};

/// Nanoseconds by which a marker may be later than the code: some runtimes map their dump only after they
/// have written to it.
const SLACK: u64 = 1_000_000_000;

/// How many files there may be in use at a time when one of a runtime is to be used: more than any machine runs
/// processes, and few enough to be looked through in seconds.
const MAX_FILES: usize = 50_000;

/// Reads an opened file, if it can be one that a runtime has written and `check` finds nothing wrong with its first bytes.
pub fn read_if(
    opened: io::Result<OpenFile>,
    check: impl FnOnce(&[u8]) -> Result<(), Rejected>,
) -> Result<MappedFile, Rejected> {
    if MappedFile::in_use() >= MAX_FILES {
        return Err(Rejected::TooMany);
    }
    let file = opened?;
    let start = file.start()?;
    if let Some(packing) = Packing::of(&start) {
        let program = packing.program();
        return Err(Rejected::Because(format!(
            "is compressed with {program}: not used; unpack it with {program} -d"
        )));
    }
    check(&start)?;
    Ok(file.read()?)
}

/// A jitdump, of which only the header and the first record were looked at.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The file.
    pub file: Arc<MappedFile>,
    /// What it says of itself.
    pub header: Header,
    /// The time of its first record.
    pub first: Option<RuntimeTime>,
    /// The latest time in it, once somebody has asked.
    last: Arc<OnceLock<Option<RuntimeTime>>>,
}

/// Why a file is not used.
#[derive(Clone, Debug)]
pub enum Rejected {
    /// There is none.
    Missing,
    /// There are too many beside it.
    TooMany,
    /// The rest of a sentence about it.
    Because(String),
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("is missing"),
            Self::TooMany => write!(f, "is not used: {MAX_FILES} other jitdumps and perf maps are"),
            Self::Because(reason) => f.write_str(reason),
        }
    }
}

impl From<io::Error> for Rejected {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            _ => Self::Because(format!("cannot be read: {error}")),
        }
    }
}

// The header's errors read as the rest of a sentence about the file.
impl From<jitdump::Error> for Rejected {
    fn from(error: jitdump::Error) -> Self {
        Self::Because(error.to_string())
    }
}

impl Candidate {
    /// ScanBudget at an opened file, which must be a jitdump.
    pub fn of(opened: io::Result<OpenFile>) -> Result<Self, Rejected> {
        let file = read_if(opened, |start| {
            Header::parse(start)?;
            Ok(())
        })?;
        let header = Header::parse(&file)?;
        Ok(Self {
            first: first_time(&file, &header),
            last: Arc::default(),
            header,
            file: Arc::new(file),
        })
    }

    /// Its path, to be shown.
    pub fn name(&self) -> String {
        shown(self.file.path())
    }

    /// Makes sure that it can have been written while a profile was recorded whose clock is `offset`
    /// nanoseconds ahead of the dump's: not later than `end`, and not done with before `marked`, when the
    /// process mapped it.
    pub fn check_times(&self, offset: i64, end: Option<Time>, marked: Option<Time>) -> Result<(), Rejected> {
        let time_of = |time| moved(time, offset.into());
        let Some(first) = self.first.filter(|_| !self.header.counts_cycles()) else {
            return Ok(());
        };
        if end.is_some_and(|end| time_of(first) > end) {
            let reason = "belongs to another run, or its clock is none of the profile's: it was written after this recording ended";
            return Err(Rejected::Because(reason.into()));
        }
        let is_before = |time: RuntimeTime| {
            let has_time = time.0 > SLACK;
            has_time && marked.is_some_and(|marked| time_of(time).0.saturating_add(SLACK) < marked.0)
        };
        // The first look is a quick one: nearly all dumps are mapped before anything is written to them.
        let last = || *self.last.get_or_init(|| last_time(&self.file, &self.header));
        if is_before(first) && last().is_some_and(is_before) {
            let reason = "belongs to another run, or its clock is none of the profile's: it was complete before the process mapped it";
            return Err(Rejected::Because(reason.into()));
        }
        Ok(())
    }
}

/// What the user named with `--jitdump`.
#[derive(Debug, Default)]
pub struct UserFiles {
    /// Files and the wanted jitdumps in folders, in that order.
    pub all: Vec<UserFile>,
    /// The paths of all of them, wanted or not.
    pub paths: Vec<PathBuf>,
    /// What could not be searched.
    pub notes: Vec<String>,
}

/// Which of the jitdumps in a folder may be of the profile, which may be a few among any number of them.
#[derive(Debug)]
pub struct Filter<'a> {
    names: HashSet<&'a [u8]>,
    numbers: HashSet<u32>,
    processes: &'a Processes,
}

impl<'a> Filter<'a> {
    /// Those that a marker may lead to, and those of the profile's processes.
    pub fn of(profile_index: &'a ProfileIndex) -> Self {
        let names = profile_index.markers.iter().map(|marker| base_name(&marker.path));
        Self {
            names: names.clone().collect(),
            numbers: names.filter_map(pid_in_name).collect(),
            processes: &profile_index.processes,
        }
    }

    fn has(&self, name: &[u8], opened: &Result<Candidate, Rejected>) -> bool {
        let pid = opened.as_ref().map(|candidate| candidate.header.pid);
        let is_known = |pid| self.numbers.contains(&pid) || self.processes.knows(Pid(pid));
        self.names.contains(name) || pid.is_ok_and(is_known)
    }
}

/// One file of [`UserFiles`].
#[derive(Debug)]
pub struct UserFile {
    /// Where it is.
    pub path: PathBuf,
    /// Whether the user named the file itself, and not a folder.
    pub is_named: bool,
    /// What it is.
    pub opened: Result<Candidate, Rejected>,
}

impl UserFiles {
    /// Adds a file, or all in a folder and below that is a jitdump by its first bytes or its name and wanted.
    pub fn add(&mut self, path: &Path, wanted: &Filter<'_>, reach: &Reach) -> io::Result<()> {
        if fs::metadata(path)?.is_dir() {
            self.add_folder(path, wanted, reach);
            return Ok(());
        }
        self.paths.push(path.to_owned());
        self.all.push(UserFile {
            path: path.to_owned(),
            is_named: true,
            opened: Candidate::of(reach.open_named(path, path)),
        });
        Ok(())
    }

    fn add_folder(&mut self, folder: &Path, wanted: &Filter<'_>, reach: &Reach) {
        let mut left_out = 0;
        for path in files_below(folder, &mut self.notes) {
            let opened = Candidate::of(reach.open_named(folder, &path));
            let name = path.file_name().unwrap_or_default().as_bytes();
            if matches!(opened, Err(Rejected::TooMany)) {
                left_out += 1u64;
            }
            if opened.is_err() && !is_dump_name(name) {
                continue;
            }
            self.paths.push(path.clone());
            if wanted.has(name, &opened) {
                self.all.push(UserFile {
                    path,
                    is_named: false,
                    opened,
                });
            }
        }
        if left_out > 0 {
            self.notes.push(format!(
                "{left_out} files in {} were not looked at: {MAX_FILES} others are jitdumps that the profile may have",
                shown(folder)
            ));
        }
    }
}

/// Opens what the user named, and all in the folders that they named that is `wanted` by its first bytes and may be
/// believed; notes what may not.
///
/// What was `opened` before, or is named twice, comes once.
pub fn open_given(
    paths: &[PathBuf],
    opened: Option<&MappedFile>,
    wanted: impl Fn(&[u8]) -> bool,
    trust: Ownership,
    reach: &Reach,
    notes: &mut Vec<String>,
) -> Result<Vec<Arc<MappedFile>>, Error> {
    let mut files = Vec::new();
    let mut known: HashSet<(u64, u64)> = opened.into_iter().map(MappedFile::number).collect();
    let mut add = |file: MappedFile| {
        if known.insert(file.number()) {
            files.push(Arc::new(file));
        }
    };
    for path in paths {
        let error = |cause| read_error(path, cause);
        if !fs::metadata(path).map_err(error)?.is_dir() {
            let file = reach.open_named(path, path).and_then(OpenFile::read);
            add(file.map_err(error)?);
            continue;
        }
        let mut unread = Unread::default();
        for found in files_below(path, notes) {
            let file = reach.open_named(path, &found).and_then(|file| {
                let is_wanted = wanted(&file.start()?);
                is_wanted.then(|| file.read()).transpose()
            });
            let file = match file {
                Ok(Some(file)) => file,
                Ok(None) => continue,
                Err(error) => {
                    unread.add(&found, &error);
                    continue;
                }
            };
            match trust.check(&file, Pid(0)) {
                Ok(()) => add(file),
                Err(reason) => notes.push(format!("{} {reason}", shown(&found))),
            }
        }
        notes.extend(unread.note(path));
    }
    Ok(files)
}

/// Files of a folder that can't be read, so that nobody knows what they are.
#[derive(Debug, Default)]
struct Unread {
    count: u64,
    /// The first one, and why not.
    first: Option<String>,
}

impl Unread {
    fn add(&mut self, path: &Path, error: &io::Error) {
        self.count = self.count.saturating_add(1);
        self.first
            .get_or_insert_with(|| format!("{}: {error}", shown(path)));
    }

    fn note(self, folder: &Path) -> Option<String> {
        let first = self.first?;
        let files = count_of(self.count, "file", "files");
        let folder = shown(folder);
        Some(match self.count {
            1 => format!("{files} in {folder} cannot be read, and is not used: {first}"),
            _ => format!("{files} in {folder} cannot be read, and are not used; the first one is {first}"),
        })
    }
}
