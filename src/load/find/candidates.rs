//! Files that may be the jitdump of a process.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use jitdump::internals::format::marker::{is_dump_name, pid_in_name};
use jitdump::internals::format::{first_time, last_time};
use jitdump::{Header, RuntimeTime, Time};

use crate::bytes::base_name;
use crate::code::clock::apply_offset;
use crate::code::process::Processes;
use crate::code::profile_index::ProfileIndex;
use crate::collections::hash::HashSet;
use crate::files::Reach;
use crate::files::search::files_below;
use crate::files::{OpenFile, PagedFile};
use crate::load::find::open::{MAX_FILES, accept_if};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::Pid;

/// How much later than the code a marker may be, in nanoseconds: some runtimes map their dump only after they
/// have written to it.
const SLACK: u64 = 1_000_000_000;

/// A jitdump of which only the header and the first record were read.
#[derive(Clone, Debug)]
pub struct CandidateDump {
    /// The file.
    pub file: Arc<PagedFile>,
    /// Header of the file.
    pub header: Header,
    /// Time of the first record.
    pub first: Option<RuntimeTime>,
    /// When the file was created, if the file system has it.
    pub created: Option<SystemTime>,
    /// Latest time in the file, if it was needed so far.
    last: Arc<OnceLock<Option<RuntimeTime>>>,
}

impl CandidateDump {
    /// Reads the header of an opened file. Rejects the file if it is not a jitdump.
    pub fn of(opened: io::Result<OpenFile>) -> Result<Self, Diagnostic> {
        let file = accept_if(opened, |start| {
            Header::parse(start)?;
            Ok(())
        })?;
        let created = file.created();
        let file = PagedFile::of(file).map_err(|cause| Diagnostic::unusable(&cause))?;
        let header = Header::read(&file).map_err(|error| Diagnostic::from(error).as_unused())?;
        Ok(Self {
            first: first_time(&file, &header),
            created,
            last: Arc::default(),
            header,
            file: Arc::new(file),
        })
    }

    /// Rejects a file that cannot have been written during the recording: one that starts after `end`, or was
    /// complete before `marked`, when the process mapped it. `offset` is the number of nanoseconds to add to
    /// the dump's times to get profile times.
    pub fn check_times(
        &self,
        offset: i64,
        end: Option<Time>,
        marked: Option<Time>,
    ) -> Result<(), Diagnostic> {
        let time_of = |time| apply_offset(time, offset.into());
        let Some(first) = self.first.filter(|_| !self.header.counts_cycles()) else {
            return Ok(());
        };
        if end.is_some_and(|end| time_of(first) > end) {
            return Err(Diagnostic::new(Issue::WrittenLater));
        }
        let is_before = |time: RuntimeTime| {
            let has_time = time.0 > SLACK;
            has_time && marked.is_some_and(|marked| time_of(time).0.saturating_add(SLACK) < marked.0)
        };
        // The first record is quick to check: nearly all dumps are mapped before anything is written to them.
        let last = || *self.last.get_or_init(|| last_time(&*self.file, &self.header));
        if is_before(first) && last().is_some_and(is_before) {
            return Err(Diagnostic::new(Issue::CompleteBefore));
        }
        Ok(())
    }
}

/// Files given with `--jitdump`.
#[derive(Debug, Default)]
pub struct UserFiles {
    /// Given files, and jitdumps in given folders that may belong to the profile.
    pub all: Vec<UserFile>,
    /// Paths of given files, and of all jitdumps in given folders.
    pub paths: Vec<PathBuf>,
    /// Messages about what could not be searched.
    pub diagnostics: Vec<Diagnostic>,
}

/// Filter for jitdumps in folders, of which only a few may belong to the profile.
#[derive(Debug)]
pub struct DumpFilter<'a> {
    names: HashSet<&'a [u8]>,
    numbers: HashSet<u32>,
    processes: &'a Processes,
}

impl<'a> DumpFilter<'a> {
    /// Creates a filter for dumps that markers may refer to, and for dumps of the profile's processes.
    pub fn of(profile_index: &'a ProfileIndex) -> Self {
        let names = profile_index.markers.iter().map(|marker| base_name(&marker.path));
        Self {
            names: names.clone().collect(),
            numbers: names.filter_map(pid_in_name).collect(),
            processes: &profile_index.processes,
        }
    }

    fn has(&self, name: &[u8], opened: &Result<CandidateDump, Diagnostic>) -> bool {
        let pid = opened.as_ref().map(|candidate| candidate.header.pid);
        let is_known = |pid| self.numbers.contains(&pid) || self.processes.knows(Pid(pid));
        self.names.contains(name) || pid.is_ok_and(is_known)
    }
}

/// A file in [`UserFiles`].
#[derive(Debug)]
pub struct UserFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Whether the user named the file itself, not its folder.
    pub is_named: bool,
    /// The jitdump, or why it is not used.
    pub opened: Result<CandidateDump, Diagnostic>,
}

impl UserFiles {
    /// Adds a file, or jitdumps in a folder and below that pass the filter, recognised by content or name.
    pub fn add(&mut self, path: &Path, wanted: &DumpFilter<'_>, reach: &Reach) -> io::Result<()> {
        if fs::metadata(path)?.is_dir() {
            self.add_folder(path, wanted, reach);
            return Ok(());
        }
        self.paths.push(path.to_owned());
        self.all.push(UserFile {
            path: path.to_owned(),
            is_named: true,
            opened: CandidateDump::of(reach.open_named(path, path)),
        });
        Ok(())
    }

    /// Adds the jitdumps in a folder and below that pass the filter.
    fn add_folder(&mut self, folder: &Path, wanted: &DumpFilter<'_>, reach: &Reach) {
        let mut left_out = 0;
        for path in files_below(folder, &mut self.diagnostics) {
            let opened = CandidateDump::of(reach.open_named(folder, &path));
            let name = path.file_name().unwrap_or_default().as_bytes();
            if opened
                .as_ref()
                .is_err_and(|error| error.issue == Issue::TooManyFiles)
            {
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
            let unchecked = Diagnostic::new(Issue::FilesNotChecked).in_file(folder);
            self.diagnostics
                .push(unchecked.times(left_out).with("limit", MAX_FILES));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitdump::ByteOrder;

    /// Returns a jitdump whose only record has this time.
    fn candidate(time: u64) -> CandidateDump {
        const CODE_CLOSE: u32 = 3;
        let endian = ByteOrder::Little;
        let mut bytes = Vec::new();
        for field in [0x4a69_5444, 1, 40, 62, 0, 7] {
            endian.write_u32(&mut bytes, field);
        }
        for field in [time, 0] {
            endian.write_u64(&mut bytes, field);
        }
        for field in [CODE_CLOSE, 16] {
            endian.write_u32(&mut bytes, field);
        }
        endian.write_u64(&mut bytes, time);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        let candidate = CandidateDump::of(OpenFile::open(file.path())).unwrap();
        assert_eq!(candidate.first, Some(RuntimeTime(time)));
        candidate
    }

    fn issue(time: u64, marked: u64) -> Option<Issue> {
        let checked = candidate(time).check_times(0, None, Some(Time(marked)));
        checked.err().map(|error| error.issue)
    }

    #[test]
    fn a_dump_may_be_complete_a_second_before_it_is_mapped() {
        assert_eq!(issue(5_000_000_000, 6_000_000_000), None);
        assert_eq!(issue(5_000_000_000, 6_000_000_001), Some(Issue::CompleteBefore));
    }

    #[test]
    fn records_from_the_first_second_have_no_time() {
        assert_eq!(issue(1_000_000_000, 100_000_000_000), None);
        assert_eq!(issue(1_000_000_001, 100_000_000_000), Some(Issue::CompleteBefore));
    }
}
