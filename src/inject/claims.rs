//! Which marker has which file: one of two runtimes must not get the file of the other.

use std::sync::Arc;

use crate::bytes::printable;
use crate::code::profile_index::Marker;
use crate::files::MappedFile;
use crate::hash::HashMap;
use crate::inject::dedup::{ContentId, Contents};
use crate::perf::event::FileNumber;
use crate::units::Pid;

/// What tells the files of markers apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity<'a> {
    /// The path in the mount namespace of the process.
    pub path: &'a [u8],
    /// The number of the file, if the profile has it.
    pub number: Option<FileNumber>,
    /// The inode of the mount namespace that the path is one of.
    pub namespace: Option<u64>,
}

impl Identity<'_> {
    /// Whether both can mean one file.
    fn is_like(&self, other: &Identity<'_>) -> bool {
        match (self.number, other.number) {
            (Some(one), Some(other)) => one == other,
            _ => self.has_path_of(other),
        }
    }

    fn has_path_of(&self, other: &Identity<'_>) -> bool {
        self.path == other.path && self.namespace == other.namespace
    }
}

/// All markers by which one process mapped one file. It may do so again and again.
pub struct Group<'a> {
    /// The first of them.
    pub first: &'a Marker,
    /// What tells the file from others.
    pub identity: Identity<'a>,
    /// The offsets of the records of all of them.
    pub records: Vec<u64>,
    /// The file, or why there is none.
    pub chosen: Option<Result<Arc<MappedFile>, String>>,
}

/// Who has which content: what its marker says, and the process that mapped it first.
#[derive(Default)]
pub struct Claims<'a> {
    contents: Contents,
    claims: HashMap<ContentId, (Identity<'a>, Pid)>,
}

impl<'a> Claims<'a> {
    /// Notes that the marker of a group has a file.
    pub fn add(&mut self, file: &Arc<MappedFile>, group: &Group<'a>) {
        let claim = (group.identity, group.first.pid);
        self.claims.entry(self.contents.of(file)).or_insert(claim);
    }

    /// Makes sure that a file is not that of another marker, nor a copy of that. One process may have two dumps of one
    /// name, which two runtimes in it write to different folders.
    pub fn check(&mut self, file: &Arc<MappedFile>, group: &Group<'_>) -> Result<(), String> {
        let Some((identity, pid)) = self.claims.get(&self.contents.of(file)) else {
            return Ok(());
        };
        let (own, own_pid) = (&group.identity, group.first.pid);
        // One that was removed and made anew has another number.
        let is_renewed = *pid == own_pid && identity.has_path_of(own);
        if identity.is_like(own) || is_renewed {
            Ok(())
        } else if *pid == own_pid {
            Err(format!("is the one that it called {}", printable(identity.path)))
        } else {
            Err(format!("is the one of process {pid}"))
        }
    }
}

/// A file that may be the one of a marker. The least one is the likeliest.
pub struct Pair {
    /// Whether it has another name.
    pub is_renamed: bool,
    /// How far its first record is from the marker, in nanoseconds.
    pub distance: u64,
    /// How early it was looked for.
    pub order: usize,
    /// The group of the marker.
    pub group: usize,
    /// The file.
    pub file: Arc<MappedFile>,
}

impl Pair {
    /// What pairs are sorted by.
    pub fn rank(&self) -> (bool, u64, usize, usize) {
        (self.is_renamed, self.distance, self.order, self.group)
    }
}
