//! The folder that objects are written to.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::files::search::shown;
use crate::files::staged::Committed;
use crate::files::{Contents, MappedFile, StagedFolder};
use crate::hash::{HashMap, HashSet};
use crate::sparse::SparseBytes;
use crate::units::BuildId;

/// Why objects can't be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder can't be used.
    #[error("cannot use {} for objects: {cause}", shown(folder))]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// There is something in the folder that we did not put there.
    #[error(
        "{} holds {entry:?}, which is not ours to replace; choose another folder with --elf-dir, or move it away",
        shown(folder)
    )]
    NotOurs {
        /// Which.
        folder: PathBuf,
        /// What.
        entry: std::ffi::OsString,
    },
    /// An object can't be written.
    #[error("cannot write {}: {cause}", shown(path))]
    Object {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
}

/// Whose the folder is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// It belongs to one output and is replaced with it.
    OfOutput,
    /// It may hold the objects of other profiles, which stay.
    Shared,
}

/// A folder of objects in the making.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    staged: StagedFolder,
    /// Whether files are moved into an existing folder, rather than all of it put in place.
    is_merged: bool,
    /// The names given out, each with how many objects asked for it.
    names: HashMap<String, u32>,
    /// How many bytes were written so far, without holes.
    bytes_written: u64,
    /// The names of the files written so far, if they are to be moved.
    written: Vec<String>,
    /// Those of source files.
    sources: HashSet<String>,
    /// Last, so that all in it is gone by then.
    _folder: RemovedIfEmpty,
}

/// A folder that goes again if nothing comes to lie in it.
#[derive(Debug)]
struct RemovedIfEmpty(PathBuf);

impl Drop for RemovedIfEmpty {
    fn drop(&mut self) {
        // One with objects can't be removed this way, which is as it should be.
        let _ = fs::remove_dir(&self.0);
    }
}

/// What the names of objects with one function, and of those with a symbol, start with. It is what perf
/// inject's are called.
pub const FUNCTION_PREFIX: &str = "jitted-";

/// What the names of objects with several functions start with. Not as those with one: samply takes the first
/// symbol of such a file for all of it.
pub const IMAGE_PREFIX: &str = "jit-image-";

/// The folder for source files among the objects.
const SOURCES: &str = "sources";

impl Store {
    /// Starts a folder; nothing is seen of it until [`Store::commit`].
    pub fn create(folder: &Path, ownership: Ownership) -> Result<Self, Error> {
        let error = |cause| Error::Folder {
            folder: folder.to_owned(),
            cause,
        };
        let folder = absolute(folder, ownership).map_err(error)?;
        let is_merged = ownership == Ownership::Shared;
        if is_merged {
            // At once, so that runs at the same time meet in one folder.
            create_folder(&folder).map_err(error)?;
        }
        let removed_if_empty = RemovedIfEmpty(folder.clone());
        if !is_merged && is_folder(&folder).map_err(error)? {
            only_objects(&folder, &folder)?;
        }
        let target = if is_merged {
            folder.join("objects")
        } else {
            folder.clone()
        };
        Ok(Self {
            staged: StagedFolder::create(&target).map_err(error)?,
            _folder: removed_if_empty,
            folder,
            is_merged,
            names: HashMap::default(),
            bytes_written: 0,
            written: Vec::new(),
            sources: HashSet::default(),
        })
    }

    /// The folder that it will be.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How many bytes were written so far, without holes.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// A name for an object of `content`: `stem.so`, or `stem-N.so` if that is taken in this run. In a folder
    /// with other objects, one with other content keeps its name, and the new one gets a part of its build-id
    /// into its own.
    pub fn name(&mut self, stem: &str, content: &SparseBytes, build_id: &BuildId) -> String {
        let count = self.names.entry(stem.to_owned()).or_insert(0);
        let stem = match *count {
            0 => stem.to_owned(),
            count => format!("{stem}-{count}"),
        };
        *count = count.saturating_add(1);
        let name = format!("{stem}.so");
        if self.is_merged && is_taken(&self.folder.join(&name), content) {
            let BuildId([a, b, c, d, ..]) = build_id;
            return format!("{stem}-{a:02x}{b:02x}{c:02x}{d:02x}.so");
        }
        name
    }

    /// Writes an object, or another file of the folder.
    pub fn write(&mut self, name: &str, content: &SparseBytes) -> Result<(), Error> {
        let file = self.staged.create_file(name);
        file.and_then(|file| content.write_to(&file))
            .map_err(|cause| self.error(name, cause))?;
        self.bytes_written = self.bytes_written.saturating_add(content.stored_size());
        if self.is_merged {
            self.written.push(name.to_owned());
        }
        Ok(())
    }

    /// Writes the text of a source file, unless that was done already; `folder` and `name` as for
    /// [`Store::source_path`].
    pub fn write_source(&mut self, folder: &str, name: &str, text: &[u8]) -> Result<(), Error> {
        let path = format!("{SOURCES}/{folder}/{name}");
        if !self.sources.insert(path.clone()) {
            return Ok(());
        }
        let made = self.staged.create_folder(SOURCES);
        made.and_then(|()| self.staged.create_folder(&format!("{SOURCES}/{folder}")))
            .map_err(|cause| self.error(&path, cause))?;
        // The text may lie in a map of a file that somebody cuts off just then. What is read of that is zeros,
        // but to have it written from there fails.
        self.write(&path, &text.to_vec().into())
    }

    /// Where a source file will lie: in a folder of its own, whose name is made from its path and text, so
    /// that files of one name don't meet.
    pub fn source_path(store: &Path, folder: &str, name: &str) -> PathBuf {
        store.join(SOURCES).join(folder).join(name)
    }

    /// Puts all objects in place.
    pub fn commit(self) -> Result<Committed, Error> {
        if self.is_merged {
            let is_same =
                |staged: &Path, target: &Path| match (MappedFile::open(staged), MappedFile::open(target)) {
                    (Ok(staged), Ok(target)) => staged[..] == target[..],
                    _ => false,
                };
            let moved = self.staged.move_files(&self.written, &self.folder, is_same);
            return moved.map_err(|(path, cause)| Error::Object { path, cause });
        }
        let folder = self.folder;
        let error = |cause| Error::Folder {
            folder: folder.clone(),
            cause,
        };
        // It was looked at before, but others may have put something there since.
        let ours = |replaced: &Path| match is_folder(replaced) {
            Ok(_) => only_objects(replaced, &folder),
            Err(cause) => Err(error(cause)),
        };
        self.staged.commit(ours, error)
    }

    fn error(&self, name: &str, cause: io::Error) -> Error {
        Error::Object {
            path: self.folder.join(name),
            cause,
        }
    }
}

/// Removes the folder of an earlier output that had objects, for one that has none. What is not such a folder
/// stays, and so does what others put there meanwhile.
pub fn remove_stale(folder: &Path) -> Result<(), Error> {
    if !is_folder(folder).unwrap_or(false) {
        return Ok(());
    }
    let contents = only_objects(folder, folder).unwrap_or_default();
    if contents.is_empty() {
        return Ok(());
    }
    match contents.remove(folder) {
        Err(cause) if cause.kind() != io::ErrorKind::DirectoryNotEmpty => Err(Error::Folder {
            folder: folder.to_owned(),
            cause,
        }),
        _ => Ok(()),
    }
}

/// The whole path of a folder, since the profile names objects by theirs. What it lies in is made if it is
/// one that the user chose.
fn absolute(folder: &Path, ownership: Ownership) -> io::Result<PathBuf> {
    let Some(name) = folder.file_name() else {
        // `.`, `..` and the like
        return fs::canonicalize(folder);
    };
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if ownership == Ownership::Shared {
        fs::create_dir_all(parent)?;
    }
    Ok(fs::canonicalize(parent)?.join(name))
}

/// Makes a folder for its owner alone, unless it is there.
fn create_folder(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => is_folder(path).map(drop),
        other => other,
    }
}

/// Whether a path is a folder; an error if it is anything else, a symbolic link among them.
fn is_folder(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(true),
        Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes sure that a folder which is to be replaced, and is `called` something else, holds nothing but objects and source
/// files; returns which.
fn only_objects(folder: &Path, called: &Path) -> Result<Contents, Error> {
    let prefixes = [FUNCTION_PREFIX, IMAGE_PREFIX];
    let is_object = |name: &[u8]| {
        prefixes.iter().any(|prefix| name.starts_with(prefix.as_bytes())) && name.ends_with(b".so")
    };
    let mut walk = Walk {
        folder,
        called,
        contents: Contents::default(),
    };
    let top = walk.add(Path::new(""), |name, kind| {
        is_object(name) && kind.is_file() || name == SOURCES.as_bytes() && kind.is_dir()
    })?;
    for sources in top {
        let folders = walk.add(&sources, |name, kind| {
            name.len() == SOURCE_FOLDER_LENGTH && name.iter().all(u8::is_ascii_hexdigit) && kind.is_dir()
        })?;
        for folder in folders {
            // One file in each.
            let mut is_first = true;
            walk.add(&folder, |_, kind| kind.is_file() && std::mem::take(&mut is_first))?;
        }
    }
    Ok(walk.contents)
}

/// The length of the names of folders with one source file each.
pub const SOURCE_FOLDER_LENGTH: usize = 16;

/// A walk over a folder in which all must be ours.
struct Walk<'a> {
    folder: &'a Path,
    /// What to call it in messages.
    called: &'a Path,
    contents: Contents,
}

impl Walk<'_> {
    /// Adds all entries of a folder `below`, each of which must be ours; returns those that are folders.
    fn add(
        &mut self,
        below: &Path,
        mut is_ours: impl FnMut(&[u8], fs::FileType) -> bool,
    ) -> Result<Vec<PathBuf>, Error> {
        let called = self.called.join(below);
        let error = |cause| Error::Folder {
            folder: called.clone(),
            cause,
        };
        let mut folders = Vec::new();
        for entry in fs::read_dir(self.folder.join(below)).map_err(error)? {
            let entry = entry.map_err(error)?;
            let (name, kind) = (entry.file_name(), entry.file_type().map_err(error)?);
            if !is_ours(name.as_encoded_bytes(), kind) {
                return Err(Error::NotOurs {
                    folder: called,
                    entry: name,
                });
            }
            let path = below.join(name);
            if kind.is_dir() {
                folders.push(path.clone());
                self.contents.add_folder(path);
            } else {
                self.contents.add_file(path);
            }
        }
        Ok(folders)
    }
}

/// Whether there is something else at a path than a file of this content.
fn is_taken(path: &Path, content: &SparseBytes) -> bool {
    let is_same_size = |metadata: fs::Metadata| metadata.is_file() && metadata.len() == content.len();
    match fs::symlink_metadata(path) {
        Ok(metadata) => {
            !is_same_size(metadata) || MappedFile::open(path).map_or(true, |found| !content.matches(&found))
        }
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}
