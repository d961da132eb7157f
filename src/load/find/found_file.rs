//! A runtime file and the processes that it belongs to.

use std::sync::Arc;

use jitdump::Time;

use crate::files::PagedFile;
use crate::units::Pid;

/// A runtime file that belongs to the profile.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// The file.
    pub file: Arc<PagedFile>,
    /// Processes that mapped it, the first one first.
    pub pids: Vec<Pid>,
    /// Processes that had it mapped before the profile began.
    pub pids_before: Vec<Pid>,
    /// Time of the first mapping; `None` if it was before the profile or is unknown.
    pub marked: Option<Time>,
    /// Indices of its markers in [`markers`](crate::code::profile_index::ProfileIndex::markers).
    pub markers: Vec<usize>,
}

impl FoundFile {
    /// Creates the entry of a file without markers, of one process.
    pub fn of_process(file: Arc<PagedFile>, pid: Pid) -> Self {
        Self {
            file,
            pids: vec![pid],
            pids_before: Vec::new(),
            marked: None,
            markers: Vec::new(),
        }
    }
}
