//! Files and directories that appear atomically, under a temporary name first.
//!
//! Both are created next to their target, privately, and renamed when complete, all of that in one open directory. They are
//! removed if they are dropped before that, or if a signal ends the program.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::collections::hash::HashMap;
use crate::files::cleanup::{self, CommitGuard};
use crate::files::folder::{Folder, NameInFolder, PRIVATE, SHARED, SHARED_FOLDER, ignore_existing};
use crate::files::folder_contents::FolderContents;
use crate::files::open_file::is_trusted;
use crate::files::stream;

/// How many names are tried for a new file. Other users may have taken some on purpose.
const MAX_ATTEMPTS: u32 = 1000;

/// Creates something next to `target` with `make`, under an unused hidden name.
fn create_beside<T>(
    target: &NameInFolder,
    make: impl Fn(&NameInFolder) -> rustix::io::Result<T>,
) -> io::Result<(NameInFolder, T)> {
    for attempt in 0..MAX_ATTEMPTS {
        // Does not contain the target's name, which may have the maximum length.
        let place = target.folder.at(cleanup::hidden_name(attempt));
        match cleanup::create(&place, &make) {
            Ok(created) => return Ok((place, created)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// As [`create_beside`], and opens and locks what was created, so that no other run takes it for a leftover.
fn create_locked<T, F: AsFd>(
    target: &NameInFolder,
    make: impl Fn(&NameInFolder) -> rustix::io::Result<T>,
    open: impl Fn(&NameInFolder, T) -> io::Result<F>,
) -> io::Result<(NameInFolder, F)> {
    cleanup::remove_leftovers(&target.folder);
    loop {
        let (place, made) = create_beside(target, &make)?;
        match open(&place, made) {
            Ok(handle) if cleanup::lock_unfinished(&handle, &place) => return Ok((place, handle)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let _ = place.remove_folder();
                cleanup::unregister(&place);
                return Err(error);
            }
            // Another run has removed it before it was locked.
            _ => cleanup::unregister(&place),
        }
    }
}

/// Writes a file atomically, or writes to a stream.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    if stream::is_stream(path) {
        stream::open(path)?.write_all(content)
    } else {
        write_file(NameInFolder::of(path)?, content)
    }
}

/// Writes a file atomically.
pub fn write_file(target: NameInFolder, content: &[u8]) -> io::Result<()> {
    let mut file = StagedFile::create(target)?;
    file.file().write_all(content)?;
    file.commit().map(drop)
}

/// A regular file that has not been committed.
#[derive(Debug)]
pub struct StagedFile {
    target: NameInFolder,
    staged: NameInFolder,
    file: File,
}

impl StagedFile {
    /// Creates the file for `target`. Only its owner can read it, as perf does for profiles.
    pub fn create(target: NameInFolder) -> io::Result<Self> {
        match target.has_folder() {
            Ok(true) => Err(io::Error::other("there is a directory of that name")),
            _ => Self::with_mode(target, PRIVATE),
        }
    }

    fn with_mode(target: NameInFolder, mode: Mode) -> io::Result<Self> {
        let (staged, file) = create_locked(&target, |place| place.create_file(mode), |_, file| Ok(file))?;
        Ok(Self { target, staged, file })
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
        if self.staged.has_folder().is_ok_and(|has_folder| has_folder) {
            self.staged.exchange(&self.target)?;
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Committed::File(self))
    }

    /// Replaces the target with a plain rename, after making a second link to the old file.
    fn replace(&self) -> io::Result<()> {
        let old = create_beside(&self.target, |place| self.target.link(place));
        let renamed = self.staged.rename(&self.target);
        if let Ok((old, ())) = old {
            match renamed {
                Ok(()) => old.rename(&self.staged)?,
                Err(_) => old.remove()?,
            }
            cleanup::unregister(&old);
        }
        Ok(renamed?)
    }
}

/// Writes a file that all who can enter its directory may read, unless its name is taken.
pub fn write_new_file(target: NameInFolder, content: &[u8]) -> io::Result<()> {
    let mut file = StagedFile::with_mode(target, SHARED)?;
    file.file().write_all(content)?;
    let _guard = CommitGuard::begin();
    Ok(ignore_existing(rename_new(&file.staged, &file.target))?)
}

/// Renames `staged` to `target`. If `target` exists, it gets the name `staged`.
fn rename_or_exchange(staged: &NameInFolder, target: &NameInFolder) -> rustix::io::Result<()> {
    match staged.rename_new(target) {
        Err(Errno::EXIST) => staged.exchange(target),
        other => other,
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // Nothing can be done if the file cannot be removed.
        let _ = self.staged.remove();
        cleanup::unregister(&self.staged);
    }
}

/// A directory of files that has not been committed.
#[derive(Debug)]
pub struct StagedFolder {
    target: NameInFolder,
    /// Place of the directory; after it was committed, that of the directory it replaced.
    staged: NameInFolder,
    folder: Folder,
    /// Contents of the directory that this one replaced.
    replaced: Option<FolderContents>,
}

impl StagedFolder {
    /// Creates the directory for `target`. Other users cannot enter it.
    pub fn create(target: NameInFolder) -> io::Result<Self> {
        let make = |place: &NameInFolder| place.create_folder(Mode::RWXU);
        let open = |place: &NameInFolder, ()| place.open_readable_folder();
        let (staged, folder) = create_locked(&target, make, open)?;
        Ok(Self {
            target,
            staged,
            folder,
            replaced: None,
        })
    }

    /// Creates a subdirectory, unless it exists.
    pub fn create_folder(&self, name: &str) -> io::Result<()> {
        let create = || self.folder.at(name).create_folder(SHARED_FOLDER);
        Ok(ignore_existing(cleanup::modify(create))?)
    }

    /// Creates a file in the directory, readable by all who can enter the directory unless it is private.
    pub fn create_file(&self, name: &str, is_private: bool) -> io::Result<File> {
        let mode = if is_private { PRIVATE } else { SHARED };
        Ok(cleanup::modify(|| self.folder.at(name).create_file(mode))?)
    }

    /// Renames the directory to its target. If the target exists, it is moved to a private name first, and
    /// `check_replaced` must recognize it as a directory of jitinject's and return its contents. The returned value
    /// keeps it. If `check_replaced` fails, the target gets its name back.
    pub fn commit(
        mut self,
        check_replaced: impl FnOnce(&NameInFolder) -> io::Result<FolderContents>,
    ) -> io::Result<Committed> {
        let _guard = CommitGuard::begin();
        match rename_or_exchange(&self.staged, &self.target) {
            // NFS and some other file systems do not support the flags.
            Err(Errno::INVAL) => self.exchange_in_steps()?,
            other => other?,
        }
        if !self.staged.is_taken() {
            self.replaced = Some(FolderContents::default());
            return Ok(Committed::Folder(self));
        }
        match check_replaced(&self.staged) {
            Ok(contents) => self.replaced = Some(contents),
            Err(reason) => {
                self.exchange_back()?;
                return Err(reason);
            }
        }
        Ok(Committed::Folder(self))
    }

    /// Exchanges the two names again.
    fn exchange_back(&self) -> io::Result<()> {
        match self.staged.exchange(&self.target) {
            Err(Errno::INVAL) => self.exchange_in_steps(),
            other => Ok(other?),
        }
    }

    /// Exchanges the directory where the file system cannot do it at once: for a moment the target is not there.
    fn exchange_in_steps(&self) -> io::Result<()> {
        let (old, ()) = create_beside(&self.target, |place| place.create_folder(Mode::RWXU))?;
        // Must not be cleaned up: from here on, it holds the only copy of the old directory, or nothing.
        cleanup::unregister(&old);
        let has_old = self.target.is_taken();
        if has_old {
            self.target.rename(&old)?;
        }
        if let Err(error) = self.staged.rename(&self.target) {
            // The first failure is reported.
            let _ = old.rename(&self.target);
            return Err(error.into());
        }
        if has_old {
            Ok(old.rename(&self.staged)?)
        } else {
            old.remove_folder()
        }
    }

    /// Moves all files of the directory into another one on the same file system. A file that exists there is kept if it has
    /// the same bytes and other users cannot change it, and replaced otherwise. Returns the paths of the files that did not
    /// exist, which are removed again if one cannot be moved. Names are those of contents, so what was replaced may stay.
    pub fn move_files(self, paths: &[String], to: &Folder) -> Result<Vec<String>, (PathBuf, io::Error)> {
        let _uninterrupted = CommitGuard::begin();
        let mut new: Vec<String> = Vec::new();
        // Whether subdirectories were moved with all that is in them, because they did not exist.
        let mut folders: HashMap<&str, bool> = HashMap::default();
        let mut is_moved = |folder| {
            let move_all = || self.folder.at(folder).rename_new(&to.at(folder)).is_ok();
            *folders.entry(folder).or_insert_with(move_all)
        };
        for path in paths {
            if path.split_once('/').is_some_and(|(folder, _)| is_moved(folder)) {
                new.push(path.clone());
                continue;
            }
            let staged = self.folder.at(path);
            let moved = shared_place(to, Path::new(path)).and_then(|target| move_file(&staged, &target));
            match moved {
                Ok(true) => new.push(path.clone()),
                Ok(false) => {}
                Err(error) => {
                    // The first failure is reported.
                    let remove = |path: &String| to.inside(Path::new(path))?.remove();
                    new.iter().for_each(|path| drop(remove(path)));
                    return Err((to.path().join(path), error));
                }
            }
        }
        Ok(new)
    }
}

/// Moves a file, or keeps the one that is there, as in [`StagedFolder::move_files`]. Returns whether there was none.
fn move_file(staged: &NameInFolder, target: &NameInFolder) -> io::Result<bool> {
    match rename_new(staged, target) {
        Err(Errno::EXIST) if is_there(staged, target) => Ok(false),
        Err(Errno::EXIST) => replace(staged, target).map(|()| false),
        other => Ok(other.map(|()| true)?),
    }
}

/// Whether there is a file with the same bytes as `staged`, which other users cannot change.
fn is_there(staged: &NameInFolder, target: &NameInFolder) -> bool {
    let (Ok(new), Ok(old)) = (staged.open_file(), target.open_file()) else {
        return false;
    };
    old.is_unchanged_by_others() && new.has_bytes_of(&old).unwrap_or(false)
}

/// Replaces a file.
fn replace(staged: &NameInFolder, target: &NameInFolder) -> io::Result<()> {
    staged.rename(target).map_err(|cause| match target.stat() {
        Ok(found) if matches!(cause, Errno::ACCESS | Errno::PERM) && !is_trusted(found.st_uid) => {
            let uid = found.st_uid;
            io::Error::other(format!(
                "it belongs to user {uid}, who could change it later, and cannot be replaced in this directory"
            ))
        }
        _ => cause.into(),
    })
}

/// Renames a file unless `target` exists.
fn rename_new(from: &NameInFolder, target: &NameInFolder) -> rustix::io::Result<()> {
    match from.rename_new(target) {
        // NFS and some other file systems do not support the flag. A hard link has the same effect.
        Err(Errno::INVAL) => from.link(target),
        other => other,
    }
}

/// Opens the parent of a path in `folder`, and creates the missing ones. Existing ones must belong to nobody who could not
/// change the files of `folder` anyway.
fn shared_place(folder: &Folder, path: &Path) -> io::Result<NameInFolder> {
    let mut here = folder.clone();
    for name in path.parent().into_iter().flatten() {
        here = here.at(name).open_shared_folder()?;
        let owner = here.owner()?;
        if !is_trusted(owner) && owner != folder.owner()? {
            return Err(io::Error::other(format!(
                "its directory belongs to user {owner}, who could change it later"
            )));
        }
    }
    Ok(here.at(path.file_name().unwrap_or_default()))
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        // Nothing can be done if the directory cannot be removed. Files that others have put into a replaced
        // directory since its contents were listed are kept.
        let _ = match &self.replaced {
            // There may be no descriptor left to open it again.
            None => self.folder.clear().and_then(|()| self.staged.remove_folder()),
            Some(contents) => contents.remove_with(&self.staged),
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
            Self::File(file) => file.target.holds(&file.file),
            Self::Folder(folder) => folder.target.holds(&folder.folder),
        }
    }

    /// Restores what was replaced, if anything, and removes the new files. Leaves the output of another run that has
    /// replaced them.
    pub fn undo(self) -> io::Result<()> {
        if !self.is_in_place() {
            return Ok(());
        }
        match self {
            Self::File(file) if file.staged.is_taken() => Ok(file.staged.rename(&file.target)?),
            Self::File(file) => file.target.remove(),
            Self::Folder(mut folder) => {
                if folder.staged.is_taken() {
                    folder.exchange_back()?
                } else {
                    folder.target.rename(&folder.staged)?
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
    use std::cell::Cell;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

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
                let mut file = StagedFile::create(NameInFolder::of(&target).unwrap()).unwrap();
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
            let mut file = StagedFile::create(NameInFolder::of(&target).unwrap()).unwrap();
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
        let file = StagedFile::create(NameInFolder::of(&target).unwrap()).unwrap();
        fs::create_dir(&target).unwrap();
        fs::write(target.join("precious"), "").unwrap();
        file.commit().unwrap_err();
        assert_eq!(names(folder.path()), ["target"]);
        assert_eq!(names(&target), ["precious"]);
        assert!(StagedFile::create(NameInFolder::of(&target).unwrap()).is_err());
    }

    #[test]
    fn folders_are_replaced_and_restored_with_and_without_flags() {
        for (is_replaced, has_flags) in [(false, false), (false, true), (true, false), (true, true)] {
            let folder = tempfile::tempdir().unwrap();
            let target = folder.path().join("target");
            let check_replaced = |_: &NameInFolder| {
                let mut contents = FolderContents::default();
                contents.add("old".into(), false);
                Ok(contents)
            };
            if is_replaced {
                fs::create_dir(&target).unwrap();
                fs::write(target.join("old"), "").unwrap();
            }
            for is_undone in [true, false] {
                let mut staged = StagedFolder::create(NameInFolder::of(&target).unwrap()).unwrap();
                staged.create_file("new", false).unwrap();
                let committed = if has_flags {
                    staged.commit(check_replaced).unwrap()
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
        let staged = StagedFolder::create(NameInFolder::of(&target).unwrap()).unwrap();
        staged.create_file("new", false).unwrap();
        let check_replaced = |_: &NameInFolder| Err(io::ErrorKind::Other.into());
        staged.commit(check_replaced).unwrap_err();
        assert_eq!(names(&target), ["precious"]);
        assert_eq!(names(folder.path()), ["target"]);
    }

    #[test]
    fn a_new_subfolder_is_moved_as_a_whole() {
        for is_new in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let to = folder.path().join("objects");
            fs::create_dir(&to).unwrap();
            if !is_new {
                fs::create_dir_all(to.join("sources/1")).unwrap();
                fs::write(to.join("sources/1/a.js"), "a").unwrap();
            }
            let staged = StagedFolder::create(NameInFolder::of(&folder.path().join("new")).unwrap()).unwrap();
            for name in ["sources", "sources/1", "sources/2"] {
                staged.create_folder(name).unwrap();
            }
            let paths = ["x.so", "sources/1/a.js", "sources/2/b.js"].map(str::to_owned);
            for path in &paths {
                staged.create_file(path, false).unwrap().write_all(b"a").unwrap();
            }
            let inode = |path: &Path| fs::metadata(path).unwrap().ino();
            let before = inode(&staged.staged.path().join("sources"));
            let there = NameInFolder::of(&to).unwrap().open_folder().unwrap();
            let new = staged.move_files(&paths, &there).unwrap();
            assert_eq!(inode(&to.join("sources")) == before, is_new);
            let expected: Vec<&String> = paths
                .iter()
                .filter(|path| is_new || !path.contains("a.js"))
                .collect();
            assert_eq!(new.iter().collect::<Vec<_>>(), expected);
            assert!(paths.iter().all(|path| fs::read(to.join(path)).unwrap() == b"a"));
            assert_eq!(names(folder.path()), ["objects"]);
        }
    }

    #[test]
    fn a_thousand_names_are_tried() {
        let folder = tempfile::tempdir().unwrap();
        let target = NameInFolder::of(&folder.path().join("target")).unwrap();
        let create = |taken: u32| {
            let attempts = Cell::new(0);
            let created = create_beside(&target, |_| {
                attempts.set(attempts.get() + 1);
                if attempts.get() > taken {
                    Ok(())
                } else {
                    Err(Errno::EXIST)
                }
            });
            (created, attempts.get())
        };
        let (created, attempts) = create(999);
        let (place, ()) = created.unwrap();
        cleanup::unregister(&place);
        assert_eq!(attempts, 1000);
        assert_eq!(place.name.to_str(), Some(&*cleanup::hidden_name(999)));
        let (refused, attempts) = create(1000);
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(attempts, 1000);
    }
}
