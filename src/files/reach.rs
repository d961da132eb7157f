//! Restriction of the files that may be opened for a profile.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::OpenFile;
use crate::files::search::{folder_of, without_links};
use crate::files::stdio::is_standard;
use crate::files::walk::{self, Scope};

/// Opens files for a profile.
///
/// By default, these are all files that it names. For a confined profile, which others made, they are only those in its
/// folder and below: otherwise, its author could choose any file that its reader may read.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Folder of the profile, in the forms that recorded paths may have; `None` if any file may be opened.
    folders: Option<Vec<PathBuf>>,
}

impl Reach {
    /// Creates the restriction for the input.
    pub fn of(input: &Path, is_confined: bool) -> Self {
        let folders = is_confined.then(|| {
            if is_standard(input) {
                return Vec::new();
            }
            let given = folder_of(input);
            let mut folders: Vec<PathBuf> = without_links(given).into_iter().collect();
            folders.push(given.to_owned());
            folders
        });
        Self { folders }
    }

    /// Whether only files in the profile's folder may be opened, and no running process may be examined.
    pub fn is_confined(&self) -> bool {
        self.folders.is_some()
    }

    /// Whether a path that is recorded in the profile, or made from such a path, may be opened.
    pub fn has(&self, path: &Path) -> bool {
        !self.is_confined() || self.split(path).is_some()
    }

    /// Opens a path that is recorded in the profile, or made from such a path. Fails for files out of reach.
    pub fn open_recorded(&self, path: &Path) -> io::Result<OpenFile> {
        if !self.is_confined() {
            return walk::open(path, Scope::Recorded);
        }
        match self.split(path) {
            Some((folder, inside)) => walk::open(inside, Scope::Beneath(folder)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Splits a path into an allowed folder and the rest.
    fn split<'p>(&self, path: &'p Path) -> Option<(&Path, &'p Path)> {
        let mut folders = self.folders.iter().flatten();
        folders.find_map(|folder| Some((&**folder, path.strip_prefix(folder).ok()?)))
    }

    /// Opens `path`, which the user named, or which is below the folder `named`. One that is not below it counts as named itself.
    /// Unless the profile is confined, links may lead out of the folder.
    pub fn open_named(&self, named: &Path, path: &Path) -> io::Result<OpenFile> {
        let inside = path.strip_prefix(named).ok();
        let (folder, inside) = match inside.filter(|inside| !inside.as_os_str().is_empty()) {
            Some(inside) => (named, inside),
            None if self.is_confined() => (folder_of(path), Path::new(path.file_name().unwrap_or_default())),
            None => return OpenFile::open(path),
        };
        let scope = if self.is_confined() {
            Scope::Beneath(folder)
        } else {
            Scope::From(folder)
        };
        walk::open(inside, scope)
    }
}
