//! Adding objects to a build-ID cache after the output is in place.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use jitdump::Tally;

use crate::files::Folder;
use crate::files::objects::build_id_cache::{Added, BuildIdCache};
use crate::inject::objects::{PlacedObject, distinct};
use crate::inject::options::InjectOptions;
use crate::inject::output::refuse_cache;
use crate::load::Progress;
use crate::results::diagnostics::{Diagnostic, Issue};

/// Objects in the cache, and why others are not.
#[derive(Debug, Default)]
pub struct CachedObjects {
    /// Number of objects that were added.
    pub added: u64,
    /// Number of objects that the cache already had.
    pub present: u64,
    /// Objects that were not added because the cache has another file with their build ID.
    pub faults: Tally<Issue>,
    /// Why an [optional](InjectOptions::is_cache_optional) cache lacks objects.
    pub unusable: Option<Diagnostic>,
}

/// Adds all objects, which are in `folder`, to the build-ID cache that the options name. `None` if they name none, or an optional
/// one for no objects. Why an optional cache lacks objects is part of the result; of another one, it is an error.
pub fn fill(
    options: &InjectOptions,
    folder: Option<&Folder>,
    objects: &[PlacedObject],
    progress: &mut dyn Progress,
) -> Result<Option<CachedObjects>, Diagnostic> {
    let Some(path) = &options.build_id_cache else {
        return Ok(None);
    };
    let mut cached = CachedObjects::default();
    if options.is_cache_optional {
        if objects.is_empty() {
            return Ok(None);
        }
        // Others were checked before the run.
        let result = refuse_cache(options, path)
            .and_then(|()| add_all(options, path, folder, objects, &mut cached, progress));
        cached.unusable = result.err().map(Diagnostic::as_note);
    } else {
        add_all(options, path, folder, objects, &mut cached, progress)?;
    }
    Ok(Some(cached))
}

/// Adds objects, which are in `folder`, to the cache at `path`, and counts them in `cached`, which is right even if a later
/// one fails.
fn add_all(
    options: &InjectOptions,
    path: &Path,
    folder: Option<&Folder>,
    objects: &[PlacedObject],
    cached: &mut CachedObjects,
    progress: &mut dyn Progress,
) -> Result<(), Diagnostic> {
    progress.start("filling the build-id cache", objects.len() as u64);
    let mut cache = BuildIdCache::create(path, options.folder.as_ref())?;
    // Without a folder, there are no objects.
    let Some(folder) = folder else {
        return Ok(());
    };
    for object in distinct(objects) {
        let object_path = Path::new(OsStr::from_bytes(&object.path));
        let added = if options.is_cache_linked {
            // The store has named it, so there is a name.
            let name = object_path.file_name().unwrap_or_default();
            cache.link(&object.build_id, folder, name)?
        } else {
            cache.add_object(&object.build_id, folder, object_path)?
        };
        match added {
            Added::New => cached.added += 1,
            Added::Present => cached.present += 1,
            Added::Occupied => cached.faults.add(Issue::BuildIdOccupied, 0),
        }
        progress.advance(1);
    }
    Ok(())
}
