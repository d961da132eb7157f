//! Files and folders that get their name only once they are whole.
//!
//! Both are made under another name beside their own, by us alone (O_EXCL, O_NOFOLLOW, folders with mode
//! 0700), and take their name by a rename. Dropped before that, they are removed, and so they are when a signal
//! ends the program.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::files::cleanup::{self, CommitGuard};
use crate::files::contents::Contents;
use crate::files::stream;

/// How many names are tried for something new before giving up: others may have planted some.
const ATTEMPTS: u32 = 1000;

/// A file that was not there before, not even as a symbolic link.
pub(super) const NEW_FILE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The mode of a file in a folder: who is let into that may look.
pub(super) const OPEN_FILE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::ROTH);

/// The mode of a folder in a folder, likewise.
pub(super) const OPEN_FOLDER: Mode = OPEN_FILE.union(Mode::XUSR).union(Mode::XGRP).union(Mode::XOTH);

/// Makes something new beside `target` with `make`, under a hidden name that nothing has yet.
pub(super) fn make_beside<T>(
    target: &Path,
    make: impl Fn(&Path) -> rustix::io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    for attempt in 0..ATTEMPTS {
        // Not made from the target's name, which may be as long as a name can be.
        let hidden = format!(".jitinject-{}-{attempt}.tmp", std::process::id());
        let path = target.with_file_name(hidden);
        match cleanup::make(&path, &make) {
            Ok(made) => return Ok((path, made)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// Writes a whole file, under another name first, or to a stream.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    if stream::is_stream(path) {
        return stream::open(path)?.write_all(content);
    }
    let mut file = StagedFile::create(path)?;
    file.file().write_all(content)?;
    file.commit().map(drop)
}

/// A regular file in the making.
#[derive(Debug)]
pub struct StagedFile {
    target: PathBuf,
    staged: PathBuf,
    file: File,
}

impl StagedFile {
    /// Starts a file that is to be `target`. Only its owner will be able to read it, as is perf's custom for
    /// profiles.
    pub fn create(target: &Path) -> io::Result<Self> {
        if fs::symlink_metadata(target).is_ok_and(|found| found.is_dir()) {
            return Err(io::Error::other("there is a folder of that name"));
        }
        let mode = Mode::RUSR | Mode::WUSR;
        let make = |path: &Path| rustix::fs::openat(CWD, path, NEW_FILE, mode);
        let (staged, file) = make_beside(target, make)?;
        Ok(Self {
            target: target.to_owned(),
            staged,
            file: file.into(),
        })
    }

    /// The file, to be written.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file its name. A file or link that had it goes with the returned value.
    pub fn commit(self) -> io::Result<Committed> {
        let _uninterrupted = CommitGuard::begin();
        match put_in_place(&self.staged, &self.target) {
            // NFS and some others know no flags.
            Err(Errno::INVAL) => self.replace()?,
            other => other?,
        }
        if fs::symlink_metadata(&self.staged).is_ok_and(|found| found.is_dir()) {
            exchange(&self.staged, &self.target)?;
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Committed::File(self))
    }

    /// Takes the name at once, while what had it has a second one.
    fn replace(&self) -> io::Result<()> {
        let old = make_beside(&self.target, |path| rustix::fs::link(&self.target, path));
        let renamed = fs::rename(&self.staged, &self.target);
        if let Ok((old, ())) = old {
            match renamed {
                Ok(()) => fs::rename(&old, &self.staged)?,
                Err(_) => fs::remove_file(&old)?,
            }
            cleanup::end(&old);
        }
        renamed
    }
}

/// Renames something, so that what is in its place gets its name.
fn put_in_place(staged: &Path, target: &Path) -> rustix::io::Result<()> {
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
        // Nothing more can be done about a file that can't be removed.
        let _ = fs::remove_file(&self.staged);
        cleanup::end(&self.staged);
    }
}

/// A folder of files in the making.
#[derive(Debug)]
pub struct StagedFolder {
    target: PathBuf,
    /// Where the folder is, and once it has its name, the one that had it before.
    staged: PathBuf,
    handle: OwnedFd,
    /// What the one that had its name before consists of.
    replaced: Option<Contents>,
}

impl StagedFolder {
    /// Starts a folder that is to be `target`, open to nobody else.
    pub fn create(target: &Path) -> io::Result<Self> {
        let (staged, ()) = make_beside(target, |path| rustix::fs::mkdirat(CWD, path, Mode::RWXU))?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(CWD, &staged, flags, Mode::empty());
        let handle = handle.inspect_err(|_| {
            let _ = fs::remove_dir(&staged);
            cleanup::end(&staged);
        })?;
        Ok(Self {
            target: target.to_owned(),
            staged,
            handle,
            replaced: None,
        })
    }

    /// Makes a folder in the folder, unless it is there.
    pub fn create_folder(&self, name: &str) -> io::Result<()> {
        match cleanup::change(|| rustix::fs::mkdirat(&self.handle, name, OPEN_FOLDER)) {
            Err(Errno::EXIST) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Starts a file in the folder, readable for all whom the folder is open to.
    pub fn create_file(&self, name: &str) -> io::Result<File> {
        let open = || rustix::fs::openat(&self.handle, name, NEW_FILE, OPEN_FILE);
        Ok(cleanup::change(open)?.into())
    }

    /// Gives the folder its name. What had it must be a folder that is ours: `ours` looks at it, which nobody else finds any
    /// longer, and returns what it consists of. That goes with the returned value; if `ours` fails, it has its name again.
    /// Errors of the system become what `error` makes of them.
    pub fn commit<E>(
        mut self,
        ours: impl FnOnce(&Path) -> Result<Contents, E>,
        error: impl Fn(io::Error) -> E,
    ) -> Result<Committed, E> {
        let _uninterrupted = CommitGuard::begin();
        let put = match put_in_place(&self.staged, &self.target) {
            // NFS and some others know no flags.
            Err(Errno::INVAL) => self.exchange_in_steps(),
            other => other.map_err(io::Error::from),
        };
        put.map_err(&error)?;
        if fs::symlink_metadata(&self.staged).is_err() {
            self.replaced = Some(Contents::default());
            return Ok(Committed::Folder(self));
        }
        match ours(&self.staged) {
            Ok(contents) => self.replaced = Some(contents),
            Err(reason) => {
                self.give_back().map_err(error)?;
                return Err(reason);
            }
        }
        Ok(Committed::Folder(self))
    }

    /// Has what had the name before have it again.
    fn give_back(&self) -> io::Result<()> {
        match exchange(&self.staged, &self.target) {
            Err(Errno::INVAL) => self.exchange_in_steps(),
            other => Ok(other?),
        }
    }

    fn exchange_in_steps(&self) -> io::Result<()> {
        let make = |path: &Path| rustix::fs::mkdirat(CWD, path, Mode::RWXU);
        let (old, ()) = make_beside(&self.target, make)?;
        // It holds what must not be lost from here on, or nothing.
        cleanup::end(&old);
        let has_old = fs::symlink_metadata(&self.target).is_ok();
        if has_old {
            fs::rename(&self.target, &old)?;
        }
        if let Err(error) = fs::rename(&self.staged, &self.target) {
            // The first failure is the one to be told.
            let _ = fs::rename(&old, &self.target);
            return Err(error);
        }
        match has_old {
            true => fs::rename(&old, &self.staged),
            false => fs::remove_dir(&old),
        }
    }

    /// Moves files of the folder, by their names, into another on the same file system: all of them or none.
    /// What has one of the names there must be the same by `is_same`, which is asked for both paths, and
    /// stays.
    pub fn move_files(
        self,
        names: &[String],
        folder: &Path,
        is_same: impl Fn(&Path, &Path) -> bool,
    ) -> Result<Committed, (PathBuf, io::Error)> {
        let _uninterrupted = CommitGuard::begin();
        let mut new = Vec::new();
        for name in names {
            let target = folder.join(name);
            if let Err(error) = make_folders(folder, name) {
                let _ = Committed::Files(new).undo();
                return Err((target, error));
            }
            let staged = self.staged.join(name);
            match rename_new(&staged, &target) {
                Ok(()) => new.push(target),
                Err(Errno::EXIST) if is_same(&staged, &target) => {}
                Err(error) => {
                    // The first failure is the one to be told.
                    let _ = Committed::Files(new).undo();
                    return Err((target, error.into()));
                }
            }
        }
        Ok(Committed::Files(new))
    }
}

/// Renames a file unless there is something at `target`.
fn rename_new(from: &Path, target: &Path) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, target, RenameFlags::NOREPLACE) {
        // NFS and some others don't know the flag; a link does the same.
        Err(Errno::INVAL) => rustix::fs::link(from, target),
        other => other,
    }
}

/// Makes the folders that `name` lies in below `folder`, as far as they are missing; what is there already
/// must be folders, not links to any.
fn make_folders(folder: &Path, name: &str) -> io::Result<()> {
    let mut path = folder.to_owned();
    let Some((folders, _)) = name.rsplit_once('/') else {
        return Ok(());
    };
    for component in folders.split('/') {
        path.push(component);
        match rustix::fs::mkdirat(CWD, &path, OPEN_FOLDER) {
            Ok(()) => {}
            Err(Errno::EXIST) if fs::symlink_metadata(&path)?.is_dir() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        // Nothing more can be done about a folder that can't be removed. In one that was replaced, others may have put
        // something since it was looked at, which stays.
        let _ = match &self.replaced {
            None => fs::remove_dir_all(&self.staged),
            Some(contents) => contents.remove(&self.staged),
        };
        cleanup::end(&self.staged);
    }
}

/// What has its name now, and could still be taken back.
#[derive(Debug)]
pub enum Committed {
    /// A file. What had its name before is removed when this is dropped.
    File(StagedFile),
    /// A folder, likewise.
    Folder(StagedFolder),
    /// Files that were not there before.
    Files(Vec<PathBuf>),
}

impl Committed {
    /// Gives a name back to what had it before, if anything did, and removes what is new.
    pub fn undo(self) -> io::Result<()> {
        match self {
            Self::File(file) if fs::symlink_metadata(&file.staged).is_ok() => {
                fs::rename(&file.staged, &file.target)
            }
            Self::File(file) => fs::remove_file(&file.target),
            Self::Folder(mut folder) => {
                let had_name = fs::symlink_metadata(&folder.staged).is_ok();
                match had_name {
                    true => folder.give_back()?,
                    false => fs::rename(&folder.target, &folder.staged)?,
                }
                // What is new goes as a whole.
                folder.replaced = None;
                Ok(())
            }
            Self::Files(files) => files.iter().try_for_each(fs::remove_file),
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
    fn files_are_replaced_and_given_back_with_and_without_flags() {
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
    fn a_folder_in_the_place_of_a_file_stays() {
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
    fn folders_are_replaced_and_given_back_with_and_without_flags() {
        for (is_replaced, has_flags) in [(false, false), (false, true), (true, false), (true, true)] {
            let folder = tempfile::tempdir().unwrap();
            let target = folder.path().join("target");
            let ours = |_: &Path| {
                let mut contents = Contents::default();
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
                    staged.commit(ours, |error: io::Error| error).unwrap()
                } else {
                    staged.exchange_in_steps().unwrap();
                    staged.replaced = Some(ours(&staged.staged).unwrap());
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
    fn a_folder_that_is_not_ours_has_its_name_again() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("precious"), "").unwrap();
        let staged = StagedFolder::create(&target).unwrap();
        staged.create_file("new").unwrap();
        let ours = |_: &Path| Err(io::ErrorKind::Other.into());
        staged.commit(ours, |error: io::Error| error).unwrap_err();
        assert_eq!(names(&target), ["precious"]);
        assert_eq!(names(folder.path()), ["target"]);
    }
}
