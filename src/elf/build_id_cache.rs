//! A build-id cache: objects that are found by their build-id, on whichever machine.
//!
//! ```text
//! DIR/.build-id/ab/cdef…  ──►  ../../PATH/abcdef…     a link, by which perf finds
//! DIR/PATH/abcdef…/elf                                the object that had this path
//! ```
//!
//! It is laid out as `perf buildid-cache` does it (`build_id_cache__add` in `util/build-id.c`). perf looks
//! there (`dso__build_id_filename`) before it looks where the profile says, and does so even where a process
//! has a file system of its own. debuginfod knows files below DIR by the build-ids in them, whatever they are
//! called, and follows no links unless it is told to: the objects are regular files.

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::files::search::shown;
use crate::files::{MappedFile, SharedFolder};
use crate::units::BuildId;

/// The folder of links.
const LINKS: &str = ".build-id";
/// The name of every object.
const OBJECT: &str = "elf";

/// Why an object can't be put there.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}", shown(path))]
pub struct Error {
    /// What can't be read or made.
    pub path: PathBuf,
    /// Why not.
    pub cause: io::Error,
}

/// What became of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    /// It is there now.
    New,
    /// It was there already.
    Present,
    /// Readers who ask for its build-id are led to something else, which stays.
    Occupied,
}

/// An open cache.
#[derive(Debug)]
pub struct BuildIdCache {
    root: SharedFolder,
    links: SharedFolder,
    /// The folder for objects that had their paths in this folder; that of the last one.
    folder: Option<(PathBuf, SharedFolder)>,
}

impl BuildIdCache {
    /// Opens a cache, which is made if it is missing.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let root = SharedFolder::create(path).map_err(|cause| Error {
            path: path.to_owned(),
            cause,
        })?;
        Ok(Self {
            links: enter(&root, LINKS.as_ref())?,
            root,
            folder: None,
        })
    }

    /// Adds the object at an absolute path. The link to it comes last, so that it never leads to nothing.
    pub fn add(&mut self, build_id: &BuildId, path: &Path) -> Result<Added, Error> {
        let error = |path: &Path, cause| Error {
            path: path.to_owned(),
            cause,
        };
        let object = MappedFile::open(path).map_err(|cause| error(path, cause))?;
        let name = build_id.to_string();
        let (first, rest) = name.split_at(2);
        let links = enter(&self.links, first.as_ref())?;
        let link = links.path().join(rest);
        if serves(&link, &object) {
            return Ok(Added::Present);
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        let file_name = path.file_name().unwrap_or_default();
        let entry = enter(&enter(self.folder(folder)?, file_name)?, name.as_ref())?;
        let put = entry.put(OBJECT, &object);
        put.map_err(|cause| error(&entry.path().join(OBJECT), cause))?;
        let target: PathBuf = ["..", ".."].iter().map(OsStr::new).chain(names(path)).collect();
        let linked = links.link(rest, &target.join(&name));
        linked.map_err(|cause| error(&link, cause))?;
        Ok(if serves(&link, &object) {
            Added::New
        } else {
            Added::Occupied
        })
    }

    fn folder(&mut self, path: &Path) -> Result<&SharedFolder, Error> {
        if self.folder.as_ref().is_some_and(|(last, _)| last != path) {
            self.folder = None;
        }
        match self.folder {
            Some((_, ref folder)) => Ok(folder),
            None => {
                let mut names = names(path);
                let first = enter(&self.root, names.next().unwrap_or(OsStr::new(".")))?;
                let folder = names.try_fold(first, |folder, name| enter(&folder, name))?;
                let (_, folder) = self.folder.insert((path.to_owned(), folder));
                Ok(folder)
            }
        }
    }
}

/// The names that an absolute path consists of.
fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

fn enter(folder: &SharedFolder, name: &OsStr) -> Result<SharedFolder, Error> {
    folder.enter(name).map_err(|cause| Error {
        path: folder.path().join(name),
        cause,
    })
}

/// Whether a link leads readers to this very content.
fn serves(link: &Path, object: &MappedFile) -> bool {
    MappedFile::open(&link.join(OBJECT)).is_ok_and(|found| found[..] == object[..])
}
