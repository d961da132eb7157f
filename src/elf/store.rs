//! Writes objects into a directory. Objects are named by their content, so a file in the directory never changes, and
//! any number of profiles may refer to it.
//!
//! Objects are written under a hidden name and moved into the directory when all of them are complete, before the profile
//! that refers to them is. So no profile ever refers to a missing object, and the objects of an earlier profile stay until
//! the new one has replaced it. Then those that no profile refers to any more are removed. Runs that use a directory at the
//! same time share a lock on it, and nothing is removed meanwhile.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::bytes::printable;
use crate::collections::hash::HashSet;
use crate::collections::sparse::SparseBytes;
use crate::diagnostics::{Diagnostic, Issue};
use crate::elf::stored_source::{FOLDER_LENGTH, LIST_PREFIX, SOURCES, SourceList, StoredSource};
use crate::files::search::{folder_of, without_links};
use crate::files::staged::is_at;
use crate::files::{FolderContents, StagedFolder};
use crate::units::{Address, BuildId, Pid};

/// Whether the directory of objects is shared with other profiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// The directory belongs to one output, and has no objects of others.
    Exclusive,
    /// The directory may hold objects of other profiles, which are kept.
    Shared,
}

/// A directory of objects that is being written.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    ownership: Ownership,
    staged: StagedFolder,
    /// Lock on a shared directory.
    lock: Option<Lock>,
    /// Number of bytes written so far, without holes.
    bytes_written: u64,
    /// Paths of the files written so far, in the directory.
    written: Vec<String>,
    /// The same, and those of source directories.
    names: HashSet<String>,
    /// Source files written so far.
    sources: SourceList,
}

/// Kind of the code in an object, which is part of its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// Functions of a jitdump or a log.
    Functions,
    /// A symbol of a perf map, which starts at this address.
    Symbol(Address),
}

/// Start of an object's name, which perf inject uses as well: by `jitted-PID-NUMBER.so`, readers know JIT code.
const PREFIX: &str = "jitted-";
const SUFFIX: &str = ".so";

/// What precedes the address of a perf map symbol in the name of its object.
const SYMBOL_MARK: &str = "map-";

/// Returns the name of an object of a process: `jitted-PID-NUMBER.so` for functions, `jitted-PID-map-ADDRESS-NUMBER.so`
/// for a perf map symbol. The number is the start of the build ID, in decimal, as readers expect, and fits into 64 bits
/// with a sign.
fn object_name(pid: Pid, kind: ObjectKind, build_id: &BuildId) -> String {
    let BuildId([a, b, c, d, e, f, g, h, ..]) = *build_id;
    let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
    match kind {
        ObjectKind::Functions => format!("{PREFIX}{pid}-{number}{SUFFIX}"),
        ObjectKind::Symbol(start) => format!("{PREFIX}{pid}-{SYMBOL_MARK}{:x}-{number}{SUFFIX}", start.0),
    }
}

/// Returns whether the object of this name has functions of a jitdump or a log, rather than a symbol of a perf map;
/// `None` if it is not the name of an object of jitinject or perf inject.
pub fn has_functions(name: &[u8]) -> Option<bool> {
    let stem = name
        .strip_prefix(PREFIX.as_bytes())?
        .strip_suffix(SUFFIX.as_bytes())?;
    let mut parts = stem.splitn(2, |&byte| byte == b'-');
    let number = parts.nth(1);
    Some(!number.is_some_and(|number| number.starts_with(SYMBOL_MARK.as_bytes())))
}

impl Store {
    /// Starts writing to a directory. It is not changed until [`Store::commit`].
    pub fn create(folder: &Path, ownership: Ownership) -> Result<Self, Diagnostic> {
        let error = folder_error(folder);
        let folder = absolute(folder, ownership).map_err(error)?;
        let (hidden, lock) = match ownership {
            // Its parent may belong to somebody else.
            Ownership::Shared => {
                let lock = Lock::create(&folder, SHARED_PATIENCE).map_err(error)?;
                (folder.join("objects"), Some(lock))
            }
            Ownership::Exclusive => {
                if is_folder(&folder).map_err(error)? {
                    check_contents(&folder)?;
                }
                (folder.clone(), None)
            }
        };
        Ok(Self {
            lock,
            staged: StagedFolder::create(&hidden).map_err(error)?,
            folder,
            ownership,
            bytes_written: 0,
            written: Vec::new(),
            names: HashSet::default(),
            sources: SourceList::default(),
        })
    }

    /// Returns what to report if another process does not let go of its lock on the directory.
    pub fn lock_fault(&self) -> Option<Diagnostic> {
        let lock = self.lock.as_ref().filter(|lock| !lock.is_held)?;
        Some(Diagnostic::new(Issue::ObjectFolderLocked).in_file(&lock.folder))
    }

    /// Returns the path of the directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the number of bytes written so far, without holes.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Writes an object of a process, unless that was done already. Returns its name.
    pub fn write(
        &mut self,
        pid: Pid,
        kind: ObjectKind,
        content: &SparseBytes,
        build_id: &BuildId,
    ) -> Result<String, Diagnostic> {
        let name = object_name(pid, kind, build_id);
        self.write_file(&name, content)?;
        Ok(name)
    }

    fn write_file(&mut self, name: &str, content: &SparseBytes) -> Result<(), Diagnostic> {
        if !self.names.insert(name.to_owned()) {
            return Ok(());
        }
        let file = self.staged.create_file(name);
        file.and_then(|file| content.write_to(&file))
            .map_err(|cause| self.error(name, &cause))?;
        self.bytes_written = self.bytes_written.saturating_add(content.stored_size());
        self.written.push(name.to_owned());
        Ok(())
    }

    /// Writes a source file, unless that was done already. The list of sources is part of [`Store::commit`].
    pub fn write_source(&mut self, source: &StoredSource<'_>) -> Result<(), Diagnostic> {
        let folder = format!("{SOURCES}/{}", source.folder);
        let path = format!("{folder}/{}", source.name);
        if self.names.contains(&path) {
            return Ok(());
        }
        let made = self.staged.create_folder(SOURCES);
        made.and_then(|()| self.staged.create_folder(&folder))
            .map_err(|cause| self.error(&path, &cause))?;
        self.names.extend([SOURCES.to_owned(), folder]);
        self.sources.add(source);
        self.write_file(&path, &source.text.to_vec().into())?;
        match source.is_private {
            true => self
                .staged
                .make_private(&path)
                .map_err(|cause| self.error(&path, &cause)),
            false => Ok(()),
        }
    }

    /// Moves all files into the directory: all of them or none. Files that are there already are kept.
    pub fn commit(mut self) -> Result<CommittedObjects, Diagnostic> {
        if let Some((name, list)) = self.sources.file() {
            self.write_file(&format!("{SOURCES}/{name}"), &list.into_bytes().into())?;
        }
        let error = folder_error(&self.folder);
        let lock = match self.lock {
            Some(lock) => lock,
            None => Lock::create(&self.folder, EXCLUSIVE_PATIENCE).map_err(error)?,
        };
        if !lock.is_held && self.ownership == Ownership::Exclusive {
            // It may be a run that removes objects.
            return Err(error(io::Error::other("another process has locked it")));
        }
        let mut committed = CommittedObjects {
            lock,
            ownership: self.ownership,
            names: self.names,
            moved: Vec::new(),
        };
        if self.ownership == Ownership::Exclusive {
            // Checked before, but other programs may have added files since.
            check_contents(&committed.lock.folder)?;
        }
        let moved = self.staged.move_files(&self.written, &committed.lock.folder);
        match moved {
            Ok(moved) => committed.moved = moved,
            Err((path, cause)) => {
                // The first failure is reported.
                let _ = committed.undo();
                return Err(Diagnostic::cannot_write(&path, &cause));
            }
        }
        Ok(committed)
    }

    fn error(&self, name: &str, cause: &io::Error) -> Diagnostic {
        Diagnostic::cannot_write(&self.folder.join(name), cause)
    }
}

/// Objects in place, before and after the profile that refers to them is.
#[derive(Debug)]
pub struct CommittedObjects {
    ownership: Ownership,
    /// Paths of all files and directories of this run.
    names: HashSet<String>,
    /// Paths of the files that did not exist before.
    moved: Vec<PathBuf>,
    /// Lock on the directory.
    lock: Lock,
}

impl CommittedObjects {
    /// Keeps the files even if the run fails later, because something that cannot be taken back refers to them.
    pub fn keep(&mut self) {
        self.moved.clear();
    }

    /// Removes the files that this run has added. If other runs use the directory, which may refer to the same
    /// files by now, nothing is removed.
    pub fn undo(self) -> Result<(), Diagnostic> {
        if !self.lock.is_alone() {
            return Ok(());
        }
        let remove =
            |path: &PathBuf| fs::remove_file(path).map_err(|cause| Diagnostic::cannot_write(path, &cause));
        let removed = self.moved.iter().try_for_each(remove);
        let mut folders: Vec<&String> = self.names.iter().collect();
        folders.sort_unstable();
        // Directories with files of others or of earlier runs stay.
        for folder in folders.into_iter().rev() {
            let _ = fs::remove_dir(self.lock.folder.join(folder));
        }
        if self.lock.is_new && self.ownership == Ownership::Exclusive {
            let _ = fs::remove_dir(&self.lock.folder);
        }
        removed
    }

    /// Removes the objects that are not of this run, if the directory belongs to its output, `is_current` returns
    /// `true`, and no other run uses the directory. `is_current` is whether the output is still the one of this run.
    pub fn remove_others(&self, is_current: impl FnOnce() -> bool) -> Result<(), Diagnostic> {
        if self.ownership == Ownership::Shared || !self.lock.is_alone() || !is_current() {
            return Ok(());
        }
        remove_unless(&self.lock.folder, |name| self.names.contains(name))
    }
}

/// Removes the objects of an earlier output if the new output has none. Does nothing if the path is not a directory of
/// objects, or another run uses it, or `is_current` returns `false`: whether the output is still the one of this run.
/// Keeps files that others add meanwhile.
pub fn remove_stale(folder: &Path, is_current: impl FnOnce() -> bool) -> Result<(), Diagnostic> {
    if !is_folder(folder).unwrap_or(false) {
        return Ok(());
    }
    match Lock::of(folder, Duration::ZERO) {
        Ok(lock) if lock.is_alone() && is_current() => remove_unless(folder, |_| false),
        _ => Ok(()),
    }
}

/// Removes the objects and source files in a directory, except those that `is_used` by their path in it. If nothing is
/// left, the directory is removed as well. Does nothing if it holds other files.
fn remove_unless(folder: &Path, is_used: impl Fn(&str) -> bool) -> Result<(), Diagnostic> {
    let mut contents = check_contents(folder).unwrap_or_default();
    if contents.is_empty() {
        return Ok(());
    }
    let is_emptied = contents.retain(|path| !path.to_str().is_some_and(&is_used));
    match contents.remove(folder, is_emptied) {
        Err(cause) if cause.kind() != io::ErrorKind::DirectoryNotEmpty => Err(folder_error(folder)(cause)),
        _ => Ok(()),
    }
}

/// How long to wait for a lock on a shared directory. Any user who can open the directory can lock it.
const SHARED_PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait for a lock on the directory of an output. A run that removes a million objects may take that long.
const EXCLUSIVE_PATIENCE: Duration = Duration::from_secs(60);

/// Shared lock on a directory: any number of runs use it, and none removes objects meanwhile.
///
/// A run that has to know that it is alone makes the lock exclusive. If that fails, it has no lock any more.
#[derive(Debug)]
struct Lock {
    folder: PathBuf,
    handle: OwnedFd,
    /// Whether the directory was created for the lock.
    is_new: bool,
    /// Whether it was locked, unless the file system has no locks.
    is_held: bool,
}

impl Lock {
    /// Locks a directory. If another process has an exclusive lock on it, waits for `patience`.
    fn of(folder: &Path, patience: Duration) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(CWD, folder, flags, Mode::empty())?;
        let start = Instant::now();
        let is_held = loop {
            match rustix::fs::flock(&handle, FlockOperation::NonBlockingLockShared) {
                Err(Errno::WOULDBLOCK) if start.elapsed() < patience => {
                    thread::sleep(Duration::from_millis(20));
                }
                Err(Errno::WOULDBLOCK) => break false,
                // Some file systems have no locks. Nothing is removed from directories on them.
                _ => break true,
            }
        };
        Ok(Self {
            folder: folder.to_owned(),
            handle,
            is_new: false,
            is_held,
        })
    }

    /// Creates a directory, unless it exists, and locks it.
    fn create(folder: &Path, patience: Duration) -> io::Result<Self> {
        loop {
            let is_new = create_folder(folder)?;
            match Self::of(folder, patience) {
                Ok(lock) if is_at(&lock.handle, folder) => return Ok(Self { is_new, ..lock }),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                // Another run has removed it before it was locked.
                _ => {}
            }
        }
    }

    /// Whether no other run uses the directory, and none can start to until the lock is dropped.
    fn is_alone(&self) -> bool {
        self.is_held
            && rustix::fs::flock(&self.handle, FlockOperation::NonBlockingLockExclusive).is_ok()
            && is_at(&self.handle, &self.folder)
    }
}

/// The error of a folder for objects.
fn folder_error(folder: &Path) -> impl Fn(io::Error) -> Diagnostic + Copy {
    move |cause| {
        Diagnostic::new(Issue::ObjectFolder)
            .in_file(folder)
            .caused_by(&cause)
    }
}

/// Returns the absolute path of a directory, because the profile refers to objects by absolute paths. Creates the
/// parents of a directory that the user chose.
fn absolute(folder: &Path, ownership: Ownership) -> io::Result<PathBuf> {
    let Some(name) = folder.file_name() else {
        // `.`, `..` and the like
        return without_links(folder);
    };
    let parent = folder_of(folder);
    if ownership == Ownership::Shared {
        fs::create_dir_all(parent)?;
    }
    Ok(without_links(parent)?.join(name))
}

/// Creates a directory with mode 0700, unless it exists. Returns whether it did not.
fn create_folder(path: &Path) -> io::Result<bool> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => is_folder(path).map(|_| false),
        created => created.map(|()| true),
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

/// Checks that a directory holds only objects and source files; returns these.
fn check_contents(folder: &Path) -> Result<FolderContents, Diagnostic> {
    let mut walk = Walk {
        folder,
        contents: FolderContents::default(),
    };
    let top = walk.add(Path::new(""), |name, kind| {
        has_functions(name).is_some() && kind.is_file() || name == SOURCES.as_bytes() && kind.is_dir()
    })?;
    for sources in top {
        let folders = walk.add(&sources, |name, kind| {
            name.len() == FOLDER_LENGTH && name.iter().all(u8::is_ascii_hexdigit) && kind.is_dir()
                || name.starts_with(LIST_PREFIX.as_bytes()) && kind.is_file()
        })?;
        for folder in folders {
            // One file in each.
            let mut is_first = true;
            walk.add(&folder, |_, kind| kind.is_file() && std::mem::take(&mut is_first))?;
        }
    }
    Ok(walk.contents)
}

/// Traversal of a directory that may only hold our own files.
struct Walk<'a> {
    folder: &'a Path,
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
        let path: PathBuf = self.folder.join(below).components().collect();
        let error = folder_error(&path);
        let mut folders = Vec::new();
        let entries = match fs::read_dir(&path) {
            // Another run has removed it meanwhile.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(folders),
            entries => entries.map_err(error)?,
        };
        for entry in entries {
            let entry = entry.map_err(error)?;
            let (name, kind) = (entry.file_name(), entry.file_type().map_err(error)?);
            if !is_ours(name.as_encoded_bytes(), kind) {
                let foreign = Diagnostic::new(Issue::ObjectFolderForeign).in_file(&path);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_are_those_of_perf_inject() {
        let pid = Pid(4711);
        let name = |kind, byte| object_name(pid, kind, &BuildId([byte; BuildId::SIZE]));
        assert_eq!(name(ObjectKind::Functions, 0), "jitted-4711-0.so");
        let largest = format!("jitted-4711-{}.so", i64::MAX);
        assert_eq!(name(ObjectKind::Functions, 0xff), largest);
        let symbol = name(ObjectKind::Symbol(Address(0x7f00)), 0);
        assert_eq!(symbol, "jitted-4711-map-7f00-0.so");
        let is_of_functions = [
            (&largest[..], Some(true)),
            (&symbol, Some(false)),
            ("jitted-12-3.so", Some(true)),
            ("jitted-12.so", Some(true)),
            ("jitted-12-3.so.1", None),
            ("libjitted-12-3.so", None),
        ];
        for (name, expected) in is_of_functions {
            assert_eq!(has_functions(name.as_bytes()), expected, "{name}");
        }
    }
}
