//! The logs that V8 writes beside its jitdump, or with a perf map, which nothing reads.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{CollectedFile, Collection};
use crate::bytes::printable_path;
use crate::files::search::folder_of;
use crate::results::diagnostics::Diagnostic;
use crate::units::Pid;

/// Folders in which processes may have written logs.
#[derive(Default)]
pub struct LogFolders {
    /// Processes by folder and the number in the names of their logs.
    by_folder: BTreeMap<PathBuf, BTreeMap<u32, BTreeSet<Pid>>>,
}

impl LogFolders {
    /// Adds a folder of a process with this number.
    pub fn add(&mut self, folder: &Path, number: u32, pid: Pid) {
        let by_number = self.by_folder.entry(folder.to_owned()).or_default();
        by_number.entry(number).or_default().insert(pid);
    }

    /// Adds the working directory, where V8 writes its log even if its jitdump is elsewhere.
    pub fn add_current(&mut self, number: u32, pid: Pid) {
        if let Ok(folder) = std::env::current_dir() {
            self.add(&folder, number, pid);
        }
    }
}

impl Collection<'_> {
    /// Collects the logs in folders of processes that the recording has started. Those that may be another user's are
    /// `untouched`.
    pub(super) fn collect_v8_logs(
        &self,
        folders: &LogFolders,
        untouched: &mut BTreeSet<String>,
    ) -> Vec<Result<CollectedFile, Diagnostic>> {
        let mut collected = Vec::new();
        for (log, pid) in self.is_own.then(|| self.v8_logs(folders)).into_iter().flatten() {
            let is_own = self.has_own_files(pid, folder_of(&log));
            match is_own.then(|| self.collect_file(&log, pid)).flatten() {
                Some(file) => collected.push(file),
                None => untouched.extend(self.open_new(&log, self.owner(pid)).map(|_| printable_path(&log))),
            }
        }
        collected
    }

    /// Returns the logs in folders, with their processes.
    fn v8_logs(&self, folders: &LogFolders) -> BTreeSet<(PathBuf, Pid)> {
        let mut logs = BTreeSet::new();
        for (path, by_number) in &folders.by_folder {
            let mut pids = by_number.values().flatten();
            let folder = pids.find_map(|&pid| self.open_folder(path, self.owner(pid)));
            let entries = folder.as_ref().and_then(|folder| folder.entries().ok());
            for (place, _) in entries.into_iter().flatten().flatten() {
                let pids = number_of(place.name.as_bytes()).and_then(|number| by_number.get(&number));
                logs.extend(pids.into_iter().flatten().map(|&pid| (place.path(), pid)));
            }
        }
        logs.retain(|(log, _)| !log.starts_with(self.dumps.path()));
        logs
    }
}

/// Returns the process ID in the name of a log.
fn number_of(name: &[u8]) -> Option<u32> {
    let name = name.strip_prefix(b"isolate")?.strip_suffix(b"-v8.log")?;
    let (_, number) = std::str::from_utf8(name).ok()?.rsplit_once('-')?;
    number.parse().ok()
}
