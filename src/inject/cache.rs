//! Adding objects to a build-ID cache after the output is in place.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::collections::tally::Tally;
use crate::diagnostics::{Diagnostic, Issue};
use crate::elf::build_id_cache::{Added, BuildIdCache};
use crate::files::Folder;
use crate::inject::objects::PlacedObject;
use crate::inject::options::InjectOptions;
use crate::load::Progress;

/// What was added to the cache.
#[derive(Debug, Default)]
pub struct Filled {
    /// Number of objects that were added.
    pub added: u64,
    /// Number of objects that the cache already had.
    pub present: u64,
    /// Objects that were not added because the cache has another file with their build ID.
    pub faults: Tally<Issue>,
}

/// Adds all objects to the build-ID cache that the options name; returns `None` if they name none. `folder` has the objects.
pub fn fill(
    options: &InjectOptions,
    folder: Option<&Folder>,
    objects: &[PlacedObject],
    progress: &mut dyn Progress,
) -> Result<Option<Filled>, Diagnostic> {
    let Some(path) = &options.build_id_cache else {
        return Ok(None);
    };
    progress.start("filling the build-id cache", objects.len() as u64);
    let mut filled = Filled::default();
    let mut cache = BuildIdCache::create(path, options.folder.as_ref())?;
    // Objects that are mapped more than once are adjacent.
    let objects = objects
        .chunk_by(|one, other| one.path == other.path)
        .filter_map(<[_]>::first);
    // There is one if there are objects.
    for (object, folder) in objects.zip(std::iter::repeat(folder).flatten()) {
        let path = Path::new(OsStr::from_bytes(&object.path));
        match cache.add(&object.build_id, folder, path)? {
            Added::New => filled.added += 1,
            Added::Present => filled.present += 1,
            Added::Occupied => filled.faults.add(Issue::BuildIdOccupied, 0),
        }
        progress.advance(1);
    }
    Ok(Some(filled))
}
