//! Files and folders that get their name only once they are whole.
//!
//! Both are made under another name beside their own, by us alone (O_EXCL, O_NOFOLLOW, folders with mode
//! 0700), and take their name by a rename. Dropped before that, they are removed, and so they are when a signal
//! ends the program.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::files::unfinished::{self, Uninterrupted};

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
        match unfinished::make(&path, &make) {
            Ok(made) => return Ok((path, made)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// Whether a path is a link to a file that is open already, as `/dev/stdout` is: the link must stay.
pub fn leads_to_open_file(path: &Path) -> bool {
    let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    let folder = path.parent().and_then(|folder| fs::canonicalize(folder).ok());
    is_link && folder.is_some_and(|folder| folder == Path::new("/dev") || folder.starts_with("/proc"))
}

/// Writes a whole file: under another name first, unless it is a pipe, a terminal or the like.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let is_open_ended = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    if is_open_ended || leads_to_open_file(path) {
        return OpenOptions::new().write(true).open(path)?.write_all(content);
    }
    let mut file = StagedFile::create(path)?;
    file.file().write_all(content)?;
    file.commit()
}

/// A regular file in the making.
#[derive(Debug)]
pub struct StagedFile {
    target: PathBuf,
    staged: PathBuf,
    file: File,
    is_done: bool,
}

impl StagedFile {
    /// Starts a file that is to be `target`. Only its owner will be able to read it, as is perf's custom for
    /// profiles.
    pub fn create(target: &Path) -> io::Result<Self> {
        let mode = Mode::RUSR | Mode::WUSR;
        let make = |path: &Path| rustix::fs::openat(CWD, path, NEW_FILE, mode);
        let (staged, file) = make_beside(target, make)?;
        Ok(Self {
            target: target.to_owned(),
            staged,
            file: file.into(),
            is_done: false,
        })
    }

    /// The file, to be written.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file its name, in the place of any that had it.
    pub fn commit(mut self) -> io::Result<()> {
        let _uninterrupted = Uninterrupted::begin();
        fs::rename(&self.staged, &self.target)?;
        unfinished::end(&self.staged);
        self.is_done = true;
        Ok(())
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.is_done {
            // Nothing more can be done about a file that can't be removed.
            let _ = fs::remove_file(&self.staged);
            unfinished::end(&self.staged);
        }
    }
}

/// A folder of files in the making.
#[derive(Debug)]
pub struct StagedFolder {
    target: PathBuf,
    staged: PathBuf,
    handle: OwnedFd,
}

impl StagedFolder {
    /// Starts a folder that is to be `target`, open to nobody else.
    pub fn create(target: &Path) -> io::Result<Self> {
        let (staged, ()) = make_beside(target, |path| rustix::fs::mkdirat(CWD, path, Mode::RWXU))?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(CWD, &staged, flags, Mode::empty());
        let handle = handle.inspect_err(|_| {
            let _ = fs::remove_dir(&staged);
            unfinished::end(&staged);
        })?;
        Ok(Self {
            target: target.to_owned(),
            staged,
            handle,
        })
    }

    /// Makes a folder in the folder, unless it is there.
    pub fn create_folder(&self, name: &str) -> io::Result<()> {
        match unfinished::change(|| rustix::fs::mkdirat(&self.handle, name, OPEN_FOLDER)) {
            Err(Errno::EXIST) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Starts a file in the folder, readable for all whom the folder is open to.
    pub fn create_file(&self, name: &str) -> io::Result<File> {
        let open = || rustix::fs::openat(&self.handle, name, NEW_FILE, OPEN_FILE);
        Ok(unfinished::change(open)?.into())
    }

    /// Gives the folder its name. A folder that had it goes with the returned value.
    pub fn commit(self) -> io::Result<Committed> {
        let _uninterrupted = Uninterrupted::begin();
        let rename = |flags| rustix::fs::renameat_with(CWD, &self.staged, CWD, &self.target, flags);
        match rename(RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => rename(RenameFlags::EXCHANGE)?,
            // NFS and some others know neither flag.
            Err(Errno::INVAL) => self.exchange_in_steps()?,
            other => other?,
        }
        Ok(Committed::Folder(self))
    }

    fn exchange_in_steps(&self) -> io::Result<()> {
        let make = |path: &Path| rustix::fs::mkdirat(CWD, path, Mode::RWXU);
        let (old, ()) = make_beside(&self.target, make)?;
        // It holds what must not be lost from here on, or nothing.
        unfinished::end(&old);
        if self.target.exists() {
            fs::rename(&self.target, &old)?;
        }
        if let Err(error) = fs::rename(&self.staged, &self.target) {
            // The first failure is the one to be told.
            let _ = fs::rename(&old, &self.target);
            return Err(error);
        }
        fs::rename(&old, &self.staged)
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
        let _uninterrupted = Uninterrupted::begin();
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
        // Nothing more can be done about a folder that can't be removed.
        let _ = fs::remove_dir_all(&self.staged);
        unfinished::end(&self.staged);
    }
}

/// What has its name now, and could still be taken back.
#[derive(Debug)]
pub enum Committed {
    /// A folder. What had its name before is removed when this is dropped.
    Folder(StagedFolder),
    /// Files that were not there before.
    Files(Vec<PathBuf>),
}

impl Committed {
    /// Gives a name back to what had it before, if anything did, and removes what is new.
    pub fn undo(self) -> io::Result<()> {
        match self {
            Self::Folder(folder) if folder.staged.exists() => folder.exchange_in_steps(),
            Self::Folder(folder) => fs::rename(&folder.target, &folder.staged),
            Self::Files(files) => files.iter().try_for_each(fs::remove_file),
        }
    }
}
