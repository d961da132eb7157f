//! Which files may be opened for a profile.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::OpenFile;
use crate::files::within::open_within;
use crate::inject::{Options, is_standard};

/// Opens files for a profile.
///
/// Normally that is any file that it names. Of a profile that others recorded ([`Options::confine`]), it is only what
/// is in its folder and below: who can write a profile could otherwise have any file opened that its reader may read.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The folder of the profile by all names that recorded paths may have for it; `None` where any file may be opened.
    folders: Option<Vec<PathBuf>>,
}

impl Reach {
    /// For the profile that is the input.
    pub fn of(options: &Options) -> Self {
        let folders = options.confine.then(|| {
            if is_standard(&options.input) {
                return Vec::new();
            }
            let given = parent(&options.input);
            let mut folders: Vec<PathBuf> = given.canonicalize().into_iter().collect();
            folders.push(given.to_owned());
            folders
        });
        Self { folders }
    }

    /// Whether only the folder of the profile is in reach, and no running process.
    pub fn is_confined(&self) -> bool {
        self.folders.is_some()
    }

    /// Whether a file is in reach whose path is recorded in the profile or made from it.
    pub fn has(&self, path: &Path) -> bool {
        !self.is_confined() || self.split(path).is_some()
    }

    /// Opens a file whose path is recorded in the profile or made from it; out of reach, there is none.
    pub fn open_recorded(&self, path: &Path) -> io::Result<OpenFile> {
        match self.split(path) {
            _ if !self.is_confined() => OpenFile::open(path),
            Some((folder, inside)) => open_within(folder, inside),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// A path as one from a folder in reach.
    fn split<'p>(&self, path: &'p Path) -> Option<(&Path, &'p Path)> {
        let mut folders = self.folders.iter().flatten();
        folders.find_map(|folder| Some((&**folder, path.strip_prefix(folder).ok()?)))
    }

    /// Opens a file that the user named, or one in a folder that they named: `root` is what was named.
    pub fn open_named(&self, root: &Path, path: &Path) -> io::Result<OpenFile> {
        if !self.is_confined() {
            return OpenFile::open(path);
        }
        match path.strip_prefix(root) {
            Ok(inside) if !inside.as_os_str().is_empty() => open_within(root, inside),
            _ => open_within(parent(path), Path::new(path.file_name().unwrap_or_default())),
        }
    }
}

/// The folder that a file is in.
fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}
