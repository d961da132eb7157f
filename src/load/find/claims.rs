//! Assignment of files to markers, so that no runtime gets the file of another one.

use std::sync::Arc;

use jitdump::printable;

use crate::code::profile_index::FileMarker;
use crate::collections::hash::HashMap;
use crate::files::PagedFile;
use crate::load::find::dedup::{ContentId, ContentIds};
use crate::perf::process_records::FileId;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::Pid;

/// What identifies the file of a marker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MarkedFile<'a> {
    /// Path in the mount namespace of the process.
    pub path: &'a [u8],
    /// Device and inode of the file, if recorded.
    pub file_id: Option<FileId>,
    /// Inode of the mount namespace, if recorded.
    pub namespace: Option<u64>,
}

impl MarkedFile<'_> {
    /// Whether both may be the same file.
    fn is_like(&self, other: &MarkedFile<'_>) -> bool {
        match (self.file_id, other.file_id) {
            (Some(one), Some(other)) => one == other,
            _ => self.has_path_of(other),
        }
    }

    fn has_path_of(&self, other: &MarkedFile<'_>) -> bool {
        self.path == other.path && self.namespace == other.namespace
    }
}

/// All markers that one process made for one file, which may be many.
pub struct MarkerGroup<'a> {
    /// First marker.
    pub first: &'a FileMarker,
    /// Identity of the file.
    pub identity: MarkedFile<'a>,
    /// Indices of the markers.
    pub markers: Vec<usize>,
    /// The file.
    pub choice: Choice,
}

/// The file of a group of markers.
pub enum Choice {
    /// It is not decided yet.
    Open,
    /// This one was chosen.
    File(Arc<PagedFile>),
    /// It is missing, for this reason.
    Missing(Diagnostic),
}

/// Assigned contents of files, with the identity and the process of the first marker of each.
#[derive(Default)]
pub struct Claims<'a> {
    contents: ContentIds,
    claims: HashMap<ContentId, (MarkedFile<'a>, Pid)>,
}

impl<'a> Claims<'a> {
    /// Assigns a file to a group of markers.
    pub fn add(&mut self, file: &Arc<PagedFile>, group: &MarkerGroup<'a>) {
        let claim = (group.identity, group.first.pid);
        self.claims.entry(self.contents.of(file)).or_insert(claim);
    }

    /// Rejects a file that belongs to another marker, or is a copy of such a file. One process may have two
    /// dumps of one name, if two runtimes in it write to different folders.
    pub fn check(&mut self, file: &Arc<PagedFile>, group: &MarkerGroup<'_>) -> Result<(), Diagnostic> {
        let Some((identity, pid)) = self.claims.get(&self.contents.of(file)) else {
            return Ok(());
        };
        let (own, own_pid) = (&group.identity, group.first.pid);
        // A file that was removed and created again has another inode.
        let is_renewed = *pid == own_pid && identity.has_path_of(own);
        if identity.is_like(own) || is_renewed {
            Ok(())
        } else if *pid == own_pid {
            Err(Diagnostic::new(Issue::UsedForOtherPath).with("path", printable(identity.path)))
        } else {
            Err(Diagnostic::new(Issue::UsedForOtherProcess).with("pid", pid))
        }
    }
}

/// A file that may belong to a group of markers. The lowest [`MatchCandidate::rank`] is the most likely one.
pub struct MatchCandidate {
    /// Whether the process had mapped it.
    pub is_mapped: bool,
    /// Whether the file name differs from the recorded one.
    pub is_renamed: bool,
    /// Time between the marker and the first record, in nanoseconds.
    pub distance: u64,
    /// Position in the search order.
    pub order: usize,
    /// Index of the group.
    pub group: usize,
    /// The file.
    pub file: Arc<PagedFile>,
}

impl MatchCandidate {
    /// Returns the key to sort pairs by.
    pub fn rank(&self) -> (bool, bool, u64, usize, usize) {
        (
            !self.is_mapped,
            self.is_renamed,
            self.distance,
            self.order,
            self.group,
        )
    }
}
