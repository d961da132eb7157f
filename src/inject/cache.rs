//! Filling a build-id cache with the objects of an output that is in place.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::elf::build_id_cache::{Added, BuildIdCache, Error};
use crate::inject::objects::PlacedObject;
use crate::inject::{Options, Progress};
use crate::tally::Tally;

/// Objects that did not get into the cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// Their build-id leads to something else.
    Occupied,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Occupied => {
                "objects whose build-ids lead to something else in the build-id cache, which was left alone"
            }
        })
    }
}

/// What is in the cache now.
#[derive(Debug, Default)]
pub struct Filled {
    /// How many objects were added.
    pub added: u64,
    /// How many were there before.
    pub present: u64,
    /// Those that others are in the way of.
    pub faults: Tally<Fault>,
}

/// Adds all objects to the cache, if there is to be one.
pub fn fill(
    options: &Options,
    objects: &[PlacedObject],
    progress: &mut dyn Progress,
) -> Result<Option<Filled>, Error> {
    let Some(folder) = &options.build_id_cache else {
        return Ok(None);
    };
    progress.start("filling the build-id cache", objects.len() as u64);
    let mut filled = Filled::default();
    let mut cache = BuildIdCache::create(folder)?;
    // Those that are mapped more than once stand side by side.
    for object in objects
        .chunk_by(|one, other| one.path == other.path)
        .filter_map(<[_]>::first)
    {
        match cache.add(&object.build_id, Path::new(OsStr::from_bytes(&object.path)))? {
            Added::New => filled.added += 1,
            Added::Present => filled.present += 1,
            Added::Occupied => filled.faults.add(Fault::Occupied, 0),
        }
        progress.advance(1);
    }
    Ok(Some(filled))
}
