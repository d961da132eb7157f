//! Writes objects into a directory. Objects are named by their content, so a file in the directory never changes, and
//! any number of profiles may refer to it.
//!
//! Names are `jitted-PID-NUMBER.so` for functions and `jitted-PID-map-ADDRESS-NUMBER.so` for perf map
//! symbols; the number is the start of the build ID. What has the name of an object and another content is
//! damaged, and is replaced.
//!
//! 1. Objects are written to a hidden directory.
//! 2. When all are complete, they are moved into the directory of objects, each with a rename. Existing ones are kept.
//! 3. The profile that refers to them is renamed.
//! 4. Objects that no profile refers to any more are removed, if the directory belongs to this output.
//!
//! So no profile ever refers to a missing object.
//! An error before step 3 only has to remove what was added. From step 2 on, a run holds a shared lock
//! (`flock`) on the directory. Objects are removed only by a run that can make its lock exclusive and whose
//! profile is still in place. Runs side by side on one output leave the profile of the last one, with all
//! its objects. On file systems without locks, nothing is removed. A stream has no name; its objects stay
//! as long as there is a `perf.jit.data`, which may refer to others there.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use jitdump::{Address, printable};
use rustix::fs::{FileType, FlockOperation, Mode};
use rustix::io::Errno;

use crate::collections::hash::HashSet;
use crate::files::objects::sparse::SparseBytes;
use crate::files::objects::stored_source::{FOLDER_LENGTH, LIST_PREFIX, SOURCES, SourceList, StoredSource};
use crate::files::search::{folder_of, without_links};
use crate::files::{Folder, FolderContents, NameInFolder, StagedFolder};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::{BuildId, Pid};

/// Whether the directory of objects is shared with other profiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreMode {
    /// The directory belongs to one output, and has no objects of others.
    Exclusive,
    /// The directory may hold objects of other profiles, which are kept.
    Shared,
}

/// A directory of objects that is being written.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    place: NameInFolder,
    store_mode: StoreMode,
    staged: StagedFolder,
    /// Lock on a shared directory.
    lock: Option<Lock>,
    /// Number of bytes written so far, without holes.
    pub bytes_written: u64,
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
    /// Starts writing to a directory. It is not changed until [`Store::commit`]. `open` is a directory that is open already,
    /// and may have it.
    pub fn create(folder: &Path, store_mode: StoreMode, open: Option<&Folder>) -> Result<Self, Diagnostic> {
        let error = folder_error(folder);
        let path = absolute(folder, store_mode).map_err(error)?;
        let place = NameInFolder::within(folder, open).map_err(error)?;
        let (hidden, lock) = match store_mode {
            // Its parent may belong to somebody else.
            StoreMode::Shared => {
                let lock = Lock::create(&place, &path, SHARED_PATIENCE).map_err(error)?;
                (lock.folder.at("objects"), Some(lock))
            }
            StoreMode::Exclusive => {
                if place.has_folder().map_err(error)?
                    && let Some(folder) = open_present(&place)?
                {
                    check_contents(&folder.with_path(&path))?;
                }
                (place.clone(), None)
            }
        };
        Ok(Self {
            lock,
            staged: StagedFolder::create(hidden).map_err(error)?,
            folder: path,
            place,
            store_mode,
            bytes_written: 0,
            written: Vec::new(),
            names: HashSet::default(),
            sources: SourceList::default(),
        })
    }

    /// Returns what to report if another process does not let go of its lock on the directory.
    pub fn lock_fault(&self) -> Option<Diagnostic> {
        let lock = self.lock.as_ref().filter(|lock| !lock.is_held)?;
        Some(Diagnostic::new(Issue::ObjectFolderLocked).in_file(lock.folder.path()))
    }

    /// Returns the path of the directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes an object of a process, unless that was done already. Returns its name.
    pub fn write_object(
        &mut self,
        pid: Pid,
        kind: ObjectKind,
        content: &SparseBytes,
        build_id: &BuildId,
    ) -> Result<String, Diagnostic> {
        let name = object_name(pid, kind, build_id);
        self.write_file(&name, content, false)?;
        Ok(name)
    }

    /// Writes a file into the hidden folder, unless it has one of this name.
    fn write_file(&mut self, name: &str, content: &SparseBytes, is_private: bool) -> Result<(), Diagnostic> {
        if !self.names.insert(name.to_owned()) {
            return Ok(());
        }
        let file = self.staged.create_file(name, is_private);
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
        self.write_file(&path, &source.text.to_vec().into(), source.is_private)
    }

    /// Moves all files into the directory: all of them or none. Files that are there already are kept.
    pub fn commit(mut self) -> Result<CommittedObjects, Diagnostic> {
        if let Some((name, list)) = self.sources.file() {
            self.write_file(&format!("{SOURCES}/{name}"), &list.into_bytes().into(), false)?;
        }
        let error = folder_error(&self.folder);
        let lock = match self.lock {
            Some(lock) => lock,
            None => Lock::create(&self.place, &self.folder, EXCLUSIVE_PATIENCE).map_err(error)?,
        };
        if !lock.is_held && self.store_mode == StoreMode::Exclusive {
            // It may be a run that removes objects.
            return Err(error(io::Error::other("another process has locked it")));
        }
        let mut committed = CommittedObjects {
            lock,
            store_mode: self.store_mode,
            names: self.names,
            moved: Vec::new(),
        };
        if self.store_mode == StoreMode::Exclusive {
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
    store_mode: StoreMode,
    /// Paths of all files and directories of this run.
    names: HashSet<String>,
    /// Paths of the files that did not exist before, in the directory.
    moved: Vec<String>,
    /// Lock on the directory.
    lock: Lock,
}

impl CommittedObjects {
    /// Opens the directory again, without its lock.
    pub fn open_folder(&self) -> Result<Folder, Diagnostic> {
        let folder = &self.lock.folder;
        folder.readable().map_err(folder_error(folder.path()))
    }

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
        let folder = &self.lock.folder;
        let place = |path: &String| folder.inside(Path::new(path));
        let remove = |path: &String| {
            let removed = place(path).and_then(|place| place.remove());
            removed.map_err(|cause| Diagnostic::cannot_write(&folder.path().join(path), &cause))
        };
        let removed = self.moved.iter().try_for_each(remove);
        let mut folders: Vec<&String> = self.names.iter().collect();
        folders.sort_unstable();
        // Directories with files of others or of earlier runs stay.
        for path in folders.into_iter().rev() {
            let _ = place(path).and_then(|place| place.remove_folder());
        }
        if self.lock.is_new && self.store_mode == StoreMode::Exclusive {
            let _ = self.lock.place.remove_folder();
        }
        removed
    }

    /// Removes the objects that are not of this run, if the directory belongs to its output, `is_current` returns
    /// `true`, and no other run uses the directory. `is_current` is whether the output is still the one of this run.
    pub fn remove_others(&self, is_current: impl FnOnce() -> bool) -> Result<(), Diagnostic> {
        if self.store_mode == StoreMode::Shared || !self.lock.is_alone() || !is_current() {
            return Ok(());
        }
        self.lock.remove_unless(|name| self.names.contains(name))
    }
}

/// Removes the objects of an earlier output if the new output has none. Does nothing if there is no directory of objects,
/// or another run uses it, or `is_current` returns `false`: whether the output is still the one of this run. Keeps files that
/// others add meanwhile.
pub fn remove_stale(
    folder: &Path,
    open: Option<&Folder>,
    is_current: impl FnOnce() -> bool,
) -> Result<(), Diagnostic> {
    let lock = NameInFolder::within(folder, open).and_then(|place| Lock::of(&place, folder, Duration::ZERO));
    match lock {
        Ok(lock) if lock.is_alone() && is_current() => lock.remove_unless(|_| false),
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
    place: NameInFolder,
    folder: Folder,
    /// Whether the directory was created for the lock.
    is_new: bool,
    /// Whether it was locked, unless the file system has no locks.
    is_held: bool,
}

impl Lock {
    /// Locks a directory. If another process has an exclusive lock on it, waits for `patience`. `path` is its path in messages.
    fn of(place: &NameInFolder, path: &Path, patience: Duration) -> io::Result<Self> {
        let folder = place.open_readable_folder()?.with_path(path);
        let start = Instant::now();
        let is_held = loop {
            match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockShared) {
                Err(Errno::WOULDBLOCK) if start.elapsed() < patience => {
                    thread::sleep(Duration::from_millis(20));
                }
                Err(Errno::WOULDBLOCK) => break false,
                // Some file systems have no locks. Nothing is removed from directories on them.
                _ => break true,
            }
        };
        Ok(Self {
            place: place.clone(),
            folder,
            is_new: false,
            is_held,
        })
    }

    /// Creates a directory, unless it exists, and locks it.
    fn create(place: &NameInFolder, path: &Path, patience: Duration) -> io::Result<Self> {
        loop {
            let is_new = match place.create_folder(Mode::RWXU) {
                Err(Errno::EXIST) => place.has_folder().map(|_| false)?,
                created => created.map(|()| true)?,
            };
            match Self::of(place, path, patience) {
                Ok(lock) if place.holds(&lock.folder) => return Ok(Self { is_new, ..lock }),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                // Another run has removed it before it was locked.
                _ => {}
            }
        }
    }

    /// Whether no other run uses the directory, and none can start to until the lock is dropped.
    fn is_alone(&self) -> bool {
        self.is_held
            && rustix::fs::flock(&self.folder, FlockOperation::NonBlockingLockExclusive).is_ok()
            && self.place.holds(&self.folder)
    }

    /// Removes the objects and source files in the directory, except those that `is_used` by their path in it. If nothing is
    /// left, the directory is removed as well. Does nothing if it holds other files.
    fn remove_unless(&self, is_used: impl Fn(&str) -> bool) -> Result<(), Diagnostic> {
        // Unneeded objects do no harm, so they stay among files of others, and where nothing can be listed.
        let Ok(mut unused) = check_contents(&self.folder) else {
            return Ok(());
        };
        if unused.is_empty() {
            return Ok(());
        }
        let count = unused.len();
        // jitinject's names are UTF-8: files with others are in use by no run.
        unused.retain(|path| !path.to_str().is_some_and(&is_used));
        let mut removed = unused.remove(&self.folder);
        if removed.is_ok() && unused.len() == count {
            removed = self.place.remove_folder();
        }
        match removed {
            // Somebody has put a file there meanwhile.
            Err(cause) if cause.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => removed.map_err(folder_error(self.folder.path())),
        }
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
fn absolute(folder: &Path, store_mode: StoreMode) -> io::Result<PathBuf> {
    let Some(name) = folder.file_name() else {
        // `.`, `..` and the like
        return without_links(folder);
    };
    let parent = folder_of(folder);
    if store_mode == StoreMode::Shared {
        Folder::create_all(parent)?;
    }
    Ok(without_links(parent)?.join(name))
}

/// Checks that a directory holds only objects and source files; returns these.
fn check_contents(folder: &Folder) -> Result<FolderContents, Diagnostic> {
    let mut contents = FolderContents::default();
    let top = add_contents(folder, folder, &mut contents, |name, kind| {
        has_functions(name).is_some() && kind.is_file() || name == SOURCES.as_bytes() && kind.is_dir()
    })?;
    for sources in top {
        let Some(sources) = open_present(&sources)? else {
            continue;
        };
        let folders = add_contents(folder, &sources, &mut contents, |name, kind| {
            name.len() == FOLDER_LENGTH && name.iter().all(u8::is_ascii_hexdigit) && kind.is_dir()
                || name.starts_with(LIST_PREFIX.as_bytes()) && kind.is_file()
        })?;
        for source in folders {
            let Some(source) = open_present(&source)? else {
                continue;
            };
            // One file in each.
            let mut is_first = true;
            add_contents(folder, &source, &mut contents, |_, kind| {
                kind.is_file() && std::mem::take(&mut is_first)
            })?;
        }
    }
    Ok(contents)
}

/// Opens a subdirectory, unless another run has removed it meanwhile.
fn open_present(place: &NameInFolder) -> Result<Option<Folder>, Diagnostic> {
    match place.open_folder() {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some).map_err(folder_error(&place.path())),
    }
}

/// Adds the entries of a subdirectory of `root`, all of which must be ours; returns its subdirectories.
fn add_contents(
    root: &Folder,
    folder: &Folder,
    contents: &mut FolderContents,
    mut is_ours: impl FnMut(&[u8], FileType) -> bool,
) -> Result<Vec<NameInFolder>, Diagnostic> {
    let error = folder_error(folder.path());
    let mut folders = Vec::new();
    // Another run may have removed it meanwhile.
    let is_removed = |cause: &io::Error| cause.kind() == io::ErrorKind::NotFound;
    let entries = match folder.entries() {
        Err(cause) if is_removed(&cause) => return Ok(folders),
        entries => entries.map_err(error)?,
    };
    for entry in entries {
        let (place, kind) = match entry {
            Err(cause) if is_removed(&cause) => continue,
            entry => entry.map_err(error)?,
        };
        let name = place.name.as_encoded_bytes();
        if !is_ours(name, kind) {
            let foreign = Diagnostic::new(Issue::ObjectFolderForeign).in_file(folder.path());
            return Err(foreign.with("entry", printable(name)));
        }
        let path = place.path();
        let inside = path.strip_prefix(root.path()).unwrap_or(&path).to_owned();
        contents.add(inside, kind.is_dir());
        if kind.is_dir() {
            folders.push(place);
        }
    }
    Ok(folders)
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

    #[test]
    fn a_directory_that_another_run_has_removed_is_empty() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("out.data.elf");
        std::fs::create_dir(&path).unwrap();
        let folder = NameInFolder::of(&path).unwrap().open_folder().unwrap();
        std::fs::remove_dir(&path).unwrap();
        assert!(check_contents(&folder).unwrap().is_empty());
    }
}
