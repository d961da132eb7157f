//! Files and directories that appear atomically, under a temporary name first.
//!
//! Both are created next to their target, privately (O_EXCL, O_NOFOLLOW, directories with mode 0700), and
//! renamed when complete. They are removed if they are dropped before that, or if a signal ends the program.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::files::cleanup::{self, CommitGuard};
use crate::files::folder_contents::FolderContents;
use crate::files::open_file::is_trusted;
use crate::files::{OpenFile, stream};

/// How many names are tried for a new file. Other users may have taken some on purpose.
const MAX_ATTEMPTS: u32 = 1000;

/// Flags for creating a file where nothing exists, not even a symbolic link.
pub(super) const NEW_FILE_FLAGS: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Mode of a file in a directory: readable by all who can enter the directory.
pub(super) const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::ROTH);

/// Mode of a subdirectory, likewise.
pub(super) const FOLDER_MODE: Mode = FILE_MODE.union(Mode::XUSR).union(Mode::XGRP).union(Mode::XOTH);

/// Turns the error that a name is taken into success.
pub(super) fn ignore_existing(created: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match created {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Whether a path is that of an open file or directory.
pub fn is_at(handle: impl AsFd, path: &Path) -> bool {
    let id = |stat: Stat| (stat.st_dev, stat.st_ino);
    match (rustix::fs::fstat(handle), rustix::fs::lstat(path)) {
        (Ok(open), Ok(found)) => id(open) == id(found),
        _ => false,
    }
}

/// Creates something next to `target` with `make`, under an unused hidden name.
pub(super) fn create_beside<T>(
    target: &Path,
    make: impl Fn(&Path) -> rustix::io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    for attempt in 0..MAX_ATTEMPTS {
        // Does not contain the target's name, which may have the maximum length.
        let path = target.with_file_name(cleanup::hidden_name(attempt));
        match cleanup::create(&path, &make) {
            Ok(created) => return Ok((path, created)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// As [`create_beside`], and opens and locks what was created, so that no other run takes it for a leftover.
fn create_locked<T>(
    target: &Path,
    make: impl Fn(&Path) -> rustix::io::Result<T>,
    open: impl Fn(&Path, T) -> rustix::io::Result<OwnedFd>,
) -> io::Result<(PathBuf, OwnedFd)> {
    loop {
        let (path, made) = create_beside(target, &make)?;
        match open(&path, made) {
            Ok(handle) if cleanup::lock_unfinished(&handle, &path) => return Ok((path, handle)),
            // Another run has removed it before it was locked.
            Ok(_) | Err(Errno::NOENT) => cleanup::unregister(&path),
            Err(error) => {
                let _ = fs::remove_dir(&path);
                cleanup::unregister(&path);
                return Err(error.into());
            }
        }
    }
}

/// Writes a file atomically, or writes to a stream.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    if stream::is_stream(path) {
        return stream::open(path)?.write_all(content);
    }
    let mut file = StagedFile::create(path)?;
    file.file().write_all(content)?;
    file.commit().map(drop)
}

/// A regular file that has not been committed.
#[derive(Debug)]
pub struct StagedFile {
    target: PathBuf,
    staged: PathBuf,
    file: File,
}

impl StagedFile {
    /// Creates the file for `target`. Only its owner can read it, as perf does for profiles.
    pub fn create(target: &Path) -> io::Result<Self> {
        if fs::symlink_metadata(target).is_ok_and(|found| found.is_dir()) {
            return Err(io::Error::other("there is a folder of that name"));
        }
        cleanup::remove_leftovers(target);
        let mode = Mode::RUSR | Mode::WUSR;
        let make = |path: &Path| rustix::fs::openat(CWD, path, NEW_FILE_FLAGS, mode);
        let (staged, file) = create_locked(target, make, |_, file| Ok(file))?;
        Ok(Self {
            target: target.to_owned(),
            staged,
            file: file.into(),
        })
    }

    /// Returns the file for writing.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Renames the file to its target. The returned value keeps the file or link that it replaces.
    pub fn commit(self) -> io::Result<Committed> {
        let _guard = CommitGuard::begin();
        match rename_or_exchange(&self.staged, &self.target) {
            // NFS and some other file systems do not support the flags.
            Err(Errno::INVAL) => self.replace()?,
            other => other?,
        }
        if fs::symlink_metadata(&self.staged).is_ok_and(|found| found.is_dir()) {
            exchange(&self.staged, &self.target)?;
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Committed::File(self))
    }

    /// Replaces the target with a plain rename, after making a second link to the old file.
    fn replace(&self) -> io::Result<()> {
        let old = create_beside(&self.target, |path| rustix::fs::link(&self.target, path));
        let renamed = fs::rename(&self.staged, &self.target);
        if let Ok((old, ())) = old {
            match renamed {
                Ok(()) => fs::rename(&old, &self.staged)?,
                Err(_) => fs::remove_file(&old)?,
            }
            cleanup::unregister(&old);
        }
        renamed
    }
}

/// Renames `staged` to `target`. If `target` exists, it gets the name `staged`.
fn rename_or_exchange(staged: &Path, target: &Path) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(CWD, staged, CWD, target, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => exchange(staged, target),
        other => other,
    }
}

fn exchange(one: &Path, other: &Path) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // Nothing can be done if the file cannot be removed.
        let _ = fs::remove_file(&self.staged);
        cleanup::unregister(&self.staged);
    }
}

/// A directory of files that has not been committed.
#[derive(Debug)]
pub struct StagedFolder {
    target: PathBuf,
    /// Path of the directory; after it was committed, that of the directory it replaced.
    staged: PathBuf,
    handle: OwnedFd,
    /// Contents of the directory that this one replaced.
    replaced: Option<FolderContents>,
}

impl StagedFolder {
    /// Creates the directory for `target`. Other users cannot enter it.
    pub fn create(target: &Path) -> io::Result<Self> {
        cleanup::remove_leftovers(target);
        let make = |path: &Path| rustix::fs::mkdirat(CWD, path, Mode::RWXU);
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |path: &Path, ()| rustix::fs::openat(CWD, path, flags, Mode::empty());
        let (staged, handle) = create_locked(target, make, open)?;
        Ok(Self {
            target: target.to_owned(),
            staged,
            handle,
            replaced: None,
        })
    }

    /// Creates a subdirectory, unless it exists.
    pub fn create_folder(&self, name: &str) -> io::Result<()> {
        let create = || rustix::fs::mkdirat(&self.handle, name, FOLDER_MODE);
        Ok(ignore_existing(cleanup::modify(create))?)
    }

    /// Creates a file in the directory, readable by all who can enter the directory.
    pub fn create_file(&self, name: &str) -> io::Result<File> {
        let open = || rustix::fs::openat(&self.handle, name, NEW_FILE_FLAGS, FILE_MODE);
        Ok(cleanup::modify(open)?.into())
    }

    /// Lets only the user read a file in the directory.
    pub fn make_private(&self, name: &str) -> io::Result<()> {
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::chmodat(&self.handle, name, mode, AtFlags::empty())?)
    }

    /// Renames the directory to its target. If the target exists, it is moved to a private name first, and
    /// `check_replaced` must recognize it as a directory of jitinject's and return its contents. The returned value
    /// keeps it. If `check_replaced` fails, the target gets its name back. `error` converts I/O errors.
    pub fn commit<E>(
        mut self,
        check_replaced: impl FnOnce(&Path) -> Result<FolderContents, E>,
        error: impl Fn(io::Error) -> E,
    ) -> Result<Committed, E> {
        let _guard = CommitGuard::begin();
        let renamed = match rename_or_exchange(&self.staged, &self.target) {
            // NFS and some other file systems do not support the flags.
            Err(Errno::INVAL) => self.exchange_in_steps(),
            other => other.map_err(io::Error::from),
        };
        renamed.map_err(&error)?;
        if fs::symlink_metadata(&self.staged).is_err() {
            self.replaced = Some(FolderContents::default());
            return Ok(Committed::Folder(self));
        }
        match check_replaced(&self.staged) {
            Ok(contents) => self.replaced = Some(contents),
            Err(reason) => {
                self.exchange_back().map_err(error)?;
                return Err(reason);
            }
        }
        Ok(Committed::Folder(self))
    }

    /// Exchanges the two names again.
    fn exchange_back(&self) -> io::Result<()> {
        match exchange(&self.staged, &self.target) {
            Err(Errno::INVAL) => self.exchange_in_steps(),
            other => Ok(other?),
        }
    }

    fn exchange_in_steps(&self) -> io::Result<()> {
        let make = |path: &Path| rustix::fs::mkdirat(CWD, path, Mode::RWXU);
        let (old, ()) = create_beside(&self.target, make)?;
        // Must not be cleaned up: from here on, it holds the only copy of the old directory, or nothing.
        cleanup::unregister(&old);
        let has_old = fs::symlink_metadata(&self.target).is_ok();
        if has_old {
            fs::rename(&self.target, &old)?;
        }
        if let Err(error) = fs::rename(&self.staged, &self.target) {
            // The first failure is reported.
            let _ = fs::rename(&old, &self.target);
            return Err(error);
        }
        match has_old {
            true => fs::rename(&old, &self.staged),
            false => fs::remove_dir(&old),
        }
    }

    /// Moves files of the directory into another one on the same file system: all of them or none. A file that exists
    /// there is kept if it has the same bytes and other users cannot change it, and replaced otherwise. Returns the paths
    /// of the files that did not exist.
    pub fn move_files(self, names: &[String], folder: &Path) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
        let _uninterrupted = CommitGuard::begin();
        let mut new: Vec<PathBuf> = Vec::new();
        for name in names {
            let (staged, target) = (self.staged.join(name), folder.join(name));
            let moved = create_parents(folder, name).and_then(|()| match rename_new(&staged, &target) {
                Err(Errno::EXIST) if is_there(&staged, &target) => Ok(false),
                Err(Errno::EXIST) => replace(&staged, &target).map(|()| false),
                other => Ok(other.map(|()| true)?),
            });
            match moved {
                Ok(true) => new.push(target),
                Ok(false) => {}
                Err(error) => {
                    // The first failure is reported.
                    new.iter().for_each(|path| drop(fs::remove_file(path)));
                    return Err((target, error));
                }
            }
        }
        Ok(new)
    }
}

/// Whether `target` is a file with the same bytes as `staged`, which other users cannot change.
fn is_there(staged: &Path, target: &Path) -> bool {
    let (Ok(new), Ok(old)) = (OpenFile::open(staged), OpenFile::open(target)) else {
        return false;
    };
    old.is_unchanged_by_others() && is_at(old.file(), target) && new.has_bytes_of(&old).unwrap_or(false)
}

/// Replaces a file.
fn replace(staged: &Path, target: &Path) -> io::Result<()> {
    fs::rename(staged, target).map_err(|cause| match fs::symlink_metadata(target) {
        Ok(found) if cause.kind() == io::ErrorKind::PermissionDenied && !is_trusted(found.uid()) => {
            let uid = found.uid();
            io::Error::other(format!(
                "it belongs to user {uid}, who could change it later, and cannot be replaced in this folder"
            ))
        }
        _ => cause,
    })
}

/// Renames a file unless `target` exists.
fn rename_new(from: &Path, target: &Path) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, target, RenameFlags::NOREPLACE) {
        // NFS and some other file systems do not support the flag. A hard link has the same effect.
        Err(Errno::INVAL) => rustix::fs::link(from, target),
        other => other,
    }
}

/// Creates the missing parent directories of `name` below `folder`. Existing ones must be directories, not
/// links.
fn create_parents(folder: &Path, name: &str) -> io::Result<()> {
    let mut path = folder.to_owned();
    let Some((folders, _)) = name.rsplit_once('/') else {
        return Ok(());
    };
    for component in folders.split('/') {
        path.push(component);
        match rustix::fs::mkdirat(CWD, &path, FOLDER_MODE) {
            Ok(()) => {}
            Err(Errno::EXIST) => check_subfolder(&path, folder)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Checks that an existing directory is not a link, and belongs to nobody who could not change the files of `folder` anyway.
fn check_subfolder(path: &Path, folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let owner = found.uid();
    if is_trusted(owner) || owner == fs::metadata(folder)?.uid() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "its folder belongs to user {owner}, who could change it later"
    )))
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        // Nothing can be done if the directory cannot be removed. Files that others have put into a replaced
        // directory since its contents were listed are kept.
        let _ = match &self.replaced {
            None => fs::remove_dir_all(&self.staged),
            Some(contents) => contents.remove(&self.staged, true),
        };
        cleanup::unregister(&self.staged);
    }
}

/// What was renamed to its target and can still be undone.
#[derive(Debug)]
pub enum Committed {
    /// A file. Dropping this removes the file that it replaced.
    File(StagedFile),
    /// A directory, likewise.
    Folder(StagedFolder),
}

impl Committed {
    /// Whether the target is still what was renamed to it, rather than the output of another run that has replaced it.
    ///
    /// The new file or directory is open until this is dropped, so that its inode number is not given to another one.
    pub fn is_in_place(&self) -> bool {
        match self {
            Self::File(file) => is_at(&file.file, &file.target),
            Self::Folder(folder) => is_at(&folder.handle, &folder.target),
        }
    }

    /// Restores what was replaced, if anything, and removes the new files. Leaves the output of another run that has
    /// replaced them.
    pub fn undo(self) -> io::Result<()> {
        if !self.is_in_place() {
            return Ok(());
        }
        match self {
            Self::File(file) if fs::symlink_metadata(&file.staged).is_ok() => {
                fs::rename(&file.staged, &file.target)
            }
            Self::File(file) => fs::remove_file(&file.target),
            Self::Folder(mut folder) => {
                let had_name = fs::symlink_metadata(&folder.staged).is_ok();
                match had_name {
                    true => folder.exchange_back()?,
                    false => fs::rename(&folder.target, &folder.staged)?,
                }
                // The new directory is removed with everything in it.
                folder.replaced = None;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_replaced_and_restored_with_and_without_flags() {
        for (is_replaced, has_flags) in [(false, false), (false, true), (true, false), (true, true)] {
            let folder = tempfile::tempdir().unwrap();
            let target = folder.path().join("target");
            if is_replaced {
                fs::write(&target, "old").unwrap();
            }
            for is_undone in [true, false] {
                let mut file = StagedFile::create(&target).unwrap();
                file.file().write_all(b"new").unwrap();
                let committed = if has_flags {
                    file.commit().unwrap()
                } else {
                    file.replace().unwrap();
                    Committed::File(file)
                };
                assert_eq!(fs::read(&target).unwrap(), b"new");
                if is_undone {
                    committed.undo().unwrap();
                    let found = fs::read(&target).ok();
                    assert_eq!(found, is_replaced.then(|| b"old".to_vec()), "{has_flags}");
                } else {
                    drop(committed);
                    assert_eq!(names(folder.path()), ["target"], "{is_replaced} {has_flags}");
                }
            }
        }
    }

    #[test]
    fn the_output_of_another_run_is_not_undone() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        let commit = |content: &[u8]| {
            let mut file = StagedFile::create(&target).unwrap();
            file.file().write_all(content).unwrap();
            file.commit().unwrap()
        };
        let first = commit(b"first");
        assert!(first.is_in_place());
        let second = commit(b"second");
        assert!(!first.is_in_place());
        assert!(second.is_in_place());
        drop(second);
        first.undo().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"second");
        assert_eq!(names(folder.path()), ["target"]);
    }

    #[test]
    fn a_folder_with_the_name_of_a_file_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        let file = StagedFile::create(&target).unwrap();
        fs::create_dir(&target).unwrap();
        fs::write(target.join("precious"), "").unwrap();
        file.commit().unwrap_err();
        assert_eq!(names(folder.path()), ["target"]);
        assert_eq!(names(&target), ["precious"]);
        assert!(StagedFile::create(&target).is_err());
    }

    #[test]
    fn folders_are_replaced_and_restored_with_and_without_flags() {
        for (is_replaced, has_flags) in [(false, false), (false, true), (true, false), (true, true)] {
            let folder = tempfile::tempdir().unwrap();
            let target = folder.path().join("target");
            let check_replaced = |_: &Path| {
                let mut contents = FolderContents::default();
                contents.add_file("old".into());
                Ok(contents)
            };
            if is_replaced {
                fs::create_dir(&target).unwrap();
                fs::write(target.join("old"), "").unwrap();
            }
            for is_undone in [true, false] {
                let mut staged = StagedFolder::create(&target).unwrap();
                staged.create_file("new").unwrap();
                let committed = if has_flags {
                    staged.commit(check_replaced, |error: io::Error| error).unwrap()
                } else {
                    staged.exchange_in_steps().unwrap();
                    staged.replaced = Some(check_replaced(&staged.staged).unwrap());
                    Committed::Folder(staged)
                };
                assert_eq!(names(&target), ["new"]);
                if is_undone {
                    committed.undo().unwrap();
                    assert_eq!(target.join("old").exists(), is_replaced);
                    assert_eq!(names(folder.path()).len(), usize::from(is_replaced));
                } else {
                    drop(committed);
                    assert_eq!(names(folder.path()), ["target"], "{is_replaced} {has_flags}");
                }
            }
        }
    }

    #[test]
    fn a_foreign_folder_gets_its_name_back() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("precious"), "").unwrap();
        let staged = StagedFolder::create(&target).unwrap();
        staged.create_file("new").unwrap();
        let check_replaced = |_: &Path| Err(io::ErrorKind::Other.into());
        staged
            .commit(check_replaced, |error: io::Error| error)
            .unwrap_err();
        assert_eq!(names(&target), ["precious"]);
        assert_eq!(names(folder.path()), ["target"]);
    }
}
