//! Writes objects into an output directory, atomically.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::bytes::printable;
use crate::diagnostics::{Diagnostic, Issue};
use crate::files::staged::Committed;
use crate::files::{FolderContents, InputFile, StagedFolder};
use crate::hash::{HashMap, HashSet};
use crate::sparse::SparseBytes;
use crate::units::BuildId;

/// Whether the directory of objects is shared with other profiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// The directory belongs to one output and is replaced with it.
    Exclusive,
    /// The directory may hold objects of other profiles, which are kept.
    Shared,
}

/// A directory of objects that is being written.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    staged: StagedFolder,
    /// Whether files are moved into an existing directory, instead of replacing all of it.
    is_merged: bool,
    /// Name stems given out, each with the number of objects that requested it.
    names: HashMap<String, u32>,
    /// Number of bytes written so far, without holes.
    bytes_written: u64,
    /// Names of the files written so far, if they have to be moved.
    written: Vec<String>,
    /// Paths of the source files written so far.
    sources: HashSet<String>,
    /// Must be the last field: dropped when everything in the directory is gone.
    _folder: RemovedIfEmpty,
}

/// A directory that is removed on drop if it is empty.
#[derive(Debug)]
struct RemovedIfEmpty(PathBuf);

impl Drop for RemovedIfEmpty {
    fn drop(&mut self) {
        // Fails if the directory holds objects, which is intended.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Prefix of the names of objects with one function or symbol. perf inject uses the same prefix.
pub const FUNCTION_PREFIX: &str = "jitted-";

/// Prefix of the names of objects with several functions. It differs from [`FUNCTION_PREFIX`], because samply uses
/// the first symbol of such a file for all of its code.
pub const IMAGE_PREFIX: &str = "jit-image-";

/// Name of the subdirectory with source files.
const SOURCES: &str = "sources";

impl Store {
    /// Starts a directory. With [`Ownership::Exclusive`], nothing of it is visible until [`Store::commit`].
    pub fn create(folder: &Path, ownership: Ownership) -> Result<Self, Diagnostic> {
        let error = folder_error(folder);
        let folder = absolute(folder, ownership).map_err(error)?;
        let is_merged = ownership == Ownership::Shared;
        if is_merged {
            // Created at once, so that concurrent runs share one directory.
            create_folder(&folder).map_err(error)?;
        }
        let removed_if_empty = RemovedIfEmpty(folder.clone());
        if !is_merged && is_folder(&folder).map_err(error)? {
            check_contents(&folder, &folder)?;
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

    /// Returns the path that the directory has after [`Store::commit`].
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the number of bytes written so far, without holes.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Returns a name for an object with `content`: `stem.so`, or `stem-N.so` if this run has used that already.
    /// If a file in a shared directory has this name and other content, the file is kept and the new name includes
    /// a part of the build ID.
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

    /// Writes an object, or another file of the directory.
    pub fn write(&mut self, name: &str, content: &SparseBytes) -> Result<(), Diagnostic> {
        let file = self.staged.create_file(name);
        file.and_then(|file| content.write_to(&file))
            .map_err(|cause| self.error(name, &cause))?;
        self.bytes_written = self.bytes_written.saturating_add(content.stored_size());
        if self.is_merged {
            self.written.push(name.to_owned());
        }
        Ok(())
    }

    /// Writes the text of a source file, unless that was done already. `folder` and `name` are as for
    /// [`Store::source_path`].
    pub fn write_source(&mut self, folder: &str, name: &str, text: &[u8]) -> Result<(), Diagnostic> {
        let path = format!("{SOURCES}/{folder}/{name}");
        if !self.sources.insert(path.clone()) {
            return Ok(());
        }
        let created = self.staged.create_folder(SOURCES);
        created
            .and_then(|()| self.staged.create_folder(&format!("{SOURCES}/{folder}")))
            .map_err(|cause| self.error(&path, &cause))?;
        // The text may be in a mapping of a file that is being truncated. Reads from that part return zeros, but
        // writing directly from it fails.
        self.write(&path, &text.to_vec().into())
    }

    /// Returns the path for a source file. `folder` is derived from its original path and text, so that files with
    /// the same name do not collide.
    pub fn source_path(store: &Path, folder: &str, name: &str) -> PathBuf {
        store.join(SOURCES).join(folder).join(name)
    }

    /// Moves all objects into place.
    pub fn commit(self) -> Result<Committed, Diagnostic> {
        if self.is_merged {
            let is_same =
                |staged: &Path, target: &Path| match (InputFile::open(staged), InputFile::open(target)) {
                    (Ok(staged), Ok(target)) => staged[..] == target[..],
                    _ => false,
                };
            let moved = self.staged.move_files(&self.written, &self.folder, is_same);
            return moved.map_err(|(path, cause)| Diagnostic::cannot_write(&path, &cause));
        }
        let folder = self.folder;
        let error = folder_error(&folder);
        // Checked before, but other programs may have added files since.
        let ours = |replaced: &Path| match is_folder(replaced) {
            Ok(_) => check_contents(replaced, &folder),
            Err(cause) => Err(error(cause)),
        };
        self.staged.commit(ours, error)
    }

    fn error(&self, name: &str, cause: &io::Error) -> Diagnostic {
        Diagnostic::cannot_write(&self.folder.join(name), cause)
    }
}

/// Returns a function that makes the diagnostic for the object directory.
fn folder_error(folder: &Path) -> impl Fn(io::Error) -> Diagnostic + Copy {
    move |cause| {
        Diagnostic::new(Issue::ObjectFolder)
            .in_file(folder)
            .caused_by(&cause)
    }
}

/// Removes the object directory of an earlier output if the new output has no objects. Does nothing if the path is
/// not such a directory; keeps files that others add meanwhile.
pub fn remove_stale(folder: &Path) -> Result<(), Diagnostic> {
    if !is_folder(folder).unwrap_or(false) {
        return Ok(());
    }
    let contents = check_contents(folder, folder).unwrap_or_default();
    if contents.is_empty() {
        return Ok(());
    }
    match contents.remove(folder) {
        Err(cause) if cause.kind() != io::ErrorKind::DirectoryNotEmpty => Err(folder_error(folder)(cause)),
        _ => Ok(()),
    }
}

/// Returns the absolute path of a directory, because the profile refers to objects by absolute paths. Creates the
/// parents of a directory that the user chose.
fn absolute(folder: &Path, ownership: Ownership) -> io::Result<PathBuf> {
    let Some(name) = folder.file_name() else {
        // `.`, `..` and the like
        return fs::canonicalize(folder);
    };
    let parent = folder.parent().filter(|parent| *parent != Path::new(""));
    let parent = parent.unwrap_or(Path::new("."));
    if ownership == Ownership::Shared {
        fs::create_dir_all(parent)?;
    }
    Ok(fs::canonicalize(parent)?.join(name))
}

/// Creates a directory with mode 0700, unless it exists.
fn create_folder(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => is_folder(path).map(drop),
        other => other,
    }
}

/// Returns whether a path is a directory; an error if it is anything else, including a symbolic link.
fn is_folder(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(true),
        Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Checks that a directory that is to be replaced holds only objects and source files; returns these. Error
/// messages use the path `shown_path`.
fn check_contents(folder: &Path, shown_path: &Path) -> Result<FolderContents, Diagnostic> {
    let prefixes = [FUNCTION_PREFIX, IMAGE_PREFIX];
    let is_object = |name: &[u8]| {
        prefixes.iter().any(|prefix| name.starts_with(prefix.as_bytes())) && name.ends_with(b".so")
    };
    let mut walk = Walk {
        folder,
        shown_path,
        contents: FolderContents::default(),
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

/// Length of the name of a directory with one source file.
pub const SOURCE_FOLDER_LENGTH: usize = 16;

/// Traversal of a directory that may only hold our own files.
struct Walk<'a> {
    folder: &'a Path,
    /// Path of the directory in error messages.
    shown_path: &'a Path,
    contents: FolderContents,
}

impl Walk<'_> {
    /// Adds the entries of the subdirectory `below`, all of which must be ours; returns its subdirectories.
    fn add(
        &mut self,
        below: &Path,
        mut is_ours: impl FnMut(&[u8], fs::FileType) -> bool,
    ) -> Result<Vec<PathBuf>, Diagnostic> {
        // Joining an empty path would add a slash.
        let shown_path: PathBuf = self.shown_path.join(below).components().collect();
        let error = folder_error(&shown_path);
        let mut folders = Vec::new();
        for entry in fs::read_dir(self.folder.join(below)).map_err(error)? {
            let entry = entry.map_err(error)?;
            let (name, kind) = (entry.file_name(), entry.file_type().map_err(error)?);
            if !is_ours(name.as_encoded_bytes(), kind) {
                let foreign = Diagnostic::new(Issue::ObjectFolderForeign).in_file(&shown_path);
                return Err(foreign.with("entry", printable(name.as_encoded_bytes())));
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

/// Returns whether a path exists and is not a file with this content.
fn is_taken(path: &Path, content: &SparseBytes) -> bool {
    let is_same_size = |metadata: fs::Metadata| metadata.is_file() && metadata.len() == content.size();
    match fs::symlink_metadata(path) {
        Ok(metadata) => {
            !is_same_size(metadata) || InputFile::open(path).map_or(true, |found| !content.matches(&found))
        }
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}
