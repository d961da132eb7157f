//! Finding the jitdumps of a profile.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use crate::bytes::printable;
use crate::code::clock::CLOCK_MONOTONIC;
use crate::code::survey::{Marker, Survey};
use crate::files::MappedFile;
use crate::inject::Error;
use crate::perf::Profile;
use crate::runtime::jitdump::marker::{base_name, is_dump_name};
use crate::runtime::jitdump::{self, Header, first_time};
use crate::units::{Pid, Time};

/// How deep folders are searched.
const MAX_DEPTH: usize = 64;

/// A jitdump that belongs to the profile.
#[derive(Debug)]
pub struct FoundDump {
    /// The file.
    pub file: MappedFile,
    /// The processes that mapped it, the first one first.
    pub pids: Vec<Pid>,
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

/// Finds the dumps of a profile at `input`, in the files and folders of `given` as well.
pub fn find(profile: &Profile<'_>, survey: &Survey, input: &Path, given: &[PathBuf]) -> Result<Found, Error> {
    let mut search = Search::new(profile, survey, input);
    for path in given {
        search.add_given(path).map_err(|cause| Error::Read {
            path: path.clone(),
            cause,
        })?;
    }
    Ok(search.run())
}

/// Where dumps are looked for.
#[derive(Debug)]
struct Search<'a> {
    survey: &'a Survey,
    /// Whether the profile's times are those of CLOCK_MONOTONIC, as the dumps' are.
    is_monotonic: bool,
    /// The folder that the profile lies in.
    beside: PathBuf,
    /// What the user named, by base name, those in folders as well.
    given: BTreeMap<Vec<u8>, Vec<PathBuf>>,
    /// The files among what the user named, which are meant even where no marker leads to them.
    named: Vec<PathBuf>,
    notes: Vec<String>,
}

impl<'a> Search<'a> {
    fn new(profile: &Profile<'_>, survey: &'a Survey, input: &Path) -> Self {
        let parent = input.parent().filter(|parent| !parent.as_os_str().is_empty());
        Self {
            survey,
            is_monotonic: profile.attrs.clock_id() == Some(CLOCK_MONOTONIC),
            beside: parent.unwrap_or(Path::new(".")).to_owned(),
            given: BTreeMap::new(),
            named: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds what the user named: a file, or all in a folder that could be a dump.
    fn add_given(&mut self, path: &Path) -> io::Result<()> {
        if fs::metadata(path)?.is_dir() {
            self.add_folder(path, MAX_DEPTH);
        } else {
            self.add_file(path.to_owned());
            self.named.push(path.to_owned());
        }
        Ok(())
    }

    fn add_file(&mut self, path: PathBuf) {
        let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
        self.given.entry(name).or_default().push(path);
    }

    /// Adds what lies in a folder and below and could be a dump by its name, in the order of the names.
    fn add_folder(&mut self, folder: &Path, depth: usize) {
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                let note = format!("cannot search {}: {error}", folder.display());
                return self.notes.push(note);
            }
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            // Links to folders are not followed: they may lead in circles.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if depth > 0 {
                    self.add_folder(&path, depth - 1);
                }
            } else if is_dump_name(entry.file_name().as_bytes()) {
                self.add_file(path);
            }
        }
    }

    /// Finds the dump of each marker, and the processes of the named files that no marker leads to.
    fn run(mut self) -> Found {
        let mut found = Found::default();
        // A process may map its dump again and again.
        let mut known: FxHashMap<(Pid, &[u8]), Option<usize>> = FxHashMap::default();
        for marker in &self.survey.markers {
            let at = *known
                .entry((marker.pid, &marker.path))
                .or_insert_with(|| match self.find(marker) {
                    Ok(file) => Some(found.dump_of(file, marker)),
                    Err(reason) => {
                        found.missing.push(Missing {
                            pid: marker.pid,
                            path: printable(&marker.path),
                            reason,
                        });
                        None
                    }
                });
            if let Some(dump) = at.and_then(|at| found.dumps.get_mut(at)) {
                dump.markers.push(marker.record);
            }
        }
        self.add_unmarked(&mut found);
        found.notes.append(&mut self.notes);
        found
    }

    /// The file that a marker leads to, or why there is none.
    fn find(&self, marker: &Marker) -> Result<MappedFile, String> {
        let mut tried = Vec::new();
        for path in self.candidates(marker) {
            match open(&path).and_then(|file| self.check(&file).map(|()| file)) {
                Ok(file) => return Ok(file),
                Err(Rejected::Missing) => {}
                Err(Rejected::Other(reason)) => {
                    tried.push(format!("{} {reason}", path.display()));
                }
            }
        }
        if tried.is_empty() {
            tried.push(
                "not found there, nor beside the profile; if you have it elsewhere, name it with --jitdump"
                    .into(),
            );
        }
        Err(tried.join("; "))
    }

    /// Where the dump of a marker may lie, the likeliest place first.
    fn candidates(&self, marker: &Marker) -> Vec<PathBuf> {
        let recorded = Path::new(OsStr::from_bytes(&marker.path));
        let name = base_name(&marker.path);
        let mut beside = vec![self.beside.join(OsStr::from_bytes(name))];
        let mut given = self.given.get(name).cloned().unwrap_or_default();
        // Several files of the same name, as containers make them: the one whose path is most like the
        // recorded one.
        given.sort_by_key(|path| std::cmp::Reverse(common_end(path, recorded)));
        beside.append(&mut given);
        let proc = PathBuf::from(format!("/proc/{}/root", marker.pid));
        let in_container = proc.join(recorded.strip_prefix("/").unwrap_or(recorded));
        if self.is_elsewhere(marker, recorded) {
            // What lies here under that path is another file, unless there is no other.
            beside.push(in_container);
            beside.push(recorded.to_owned());
            return beside;
        }
        let mut all = vec![recorded.to_owned()];
        all.append(&mut beside);
        all.push(in_container);
        all
    }

    /// Whether the recorded path means another file here than it did to the process: it ran in another mount
    /// namespace, or the file there now has another inode.
    fn is_elsewhere(&self, marker: &Marker, recorded: &Path) -> bool {
        let ours = fs::metadata("/proc/self/ns/mnt").map(|metadata| metadata.ino());
        let theirs = self.survey.mount_namespaces.get(&marker.pid);
        if let (Ok(ours), Some(&theirs)) = (ours, theirs)
            && ours != theirs
        {
            return true;
        }
        match (fs::metadata(recorded), marker.file) {
            (Ok(here), Some(file)) => file.inode != 0 && here.ino() != file.inode,
            _ => false,
        }
    }

    /// Whether a file is a dump that can belong to this profile.
    fn check(&self, file: &MappedFile) -> Result<(), Rejected> {
        let header = Header::parse(file)?;
        if self.is_monotonic
            && !header.counts_cycles()
            && let (Some(first), Some((_, end))) = (first_time(file, &header), self.survey.times)
            && first.0 > end.0
        {
            let reason = "belongs to another run: it was written after this recording ended";
            return Err(Rejected::Other(reason.into()));
        }
        Ok(())
    }

    /// Adds the files that the user named and no marker leads to, for the process that their header tells.
    fn add_unmarked(&mut self, found: &mut Found) {
        for path in &self.named {
            let opened = open(path).and_then(|file| {
                let pid = Pid(Header::parse(&file)?.pid);
                Ok((file, pid))
            });
            let (file, pid) = match opened {
                Ok(opened) => opened,
                Err(reason) => {
                    found.notes.push(format!("{} {reason}", path.display()));
                    continue;
                }
            };
            if found.dumps.iter().any(|dump| dump.file.number() == file.number()) {
                continue;
            }
            if !self.survey.processes.knows(pid) {
                found.notes.push(format!(
                    "{} is of process {pid}, which is not in the profile, and no marker leads to it: not used",
                    path.display()
                ));
                continue;
            }
            found.notes.push(format!(
                "{} is used for process {pid}, as its header says: no marker leads to it",
                path.display()
            ));
            found.dumps.push(FoundDump {
                file,
                pids: vec![pid],
                marked: None,
                markers: Vec::new(),
            });
        }
    }
}

impl Found {
    /// Notes that a marker leads to a file, which may be there already; returns where.
    fn dump_of(&mut self, file: MappedFile, marker: &Marker) -> usize {
        let number = file.number();
        let known = self.dumps.iter().position(|dump| dump.file.number() == number);
        let at = known.unwrap_or(self.dumps.len());
        match self.dumps.get_mut(at) {
            Some(dump) if !dump.pids.contains(&marker.pid) => dump.pids.push(marker.pid),
            Some(_) => {}
            None => self.dumps.push(FoundDump {
                file,
                pids: vec![marker.pid],
                marked: Some(marker.time).filter(|&time| time != Time(0)),
                markers: Vec::new(),
            }),
        }
        at
    }
}

/// Why a file is not used.
enum Rejected {
    /// There is none.
    Missing,
    /// Something else.
    Other(String),
}

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Missing => "is missing",
            Self::Other(reason) => reason,
        })
    }
}

fn open(path: &Path) -> Result<MappedFile, Rejected> {
    MappedFile::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Rejected::Missing,
        _ => Rejected::Other(format!("cannot be read: {error}")),
    })
}

/// How many components two paths have in common, counted from the end.
fn common_end(one: &Path, other: &Path) -> usize {
    let pairs = one.components().rev().zip(other.components().rev());
    pairs.take_while(|(one, other)| one == other).count()
}

// The header's errors read as the rest of a sentence about the file.
impl From<jitdump::Error> for Rejected {
    fn from(error: jitdump::Error) -> Self {
        Self::Other(error.to_string())
    }
}
