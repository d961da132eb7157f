//! Directories that are read and written through their descriptors.
//!
//! Whoever can change a part of a path may put another directory there. That one is never entered: a path is looked up once,
//! and then everything has a name in an open directory. No link of such a name is followed.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::fs::{
    fstat, linkat, mkdirat, open, openat, openat2, renameat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use crate::files::OpenFile;
use crate::files::kernel;
use crate::files::open_file::is_trusted;
use crate::files::search::folder_of;
use crate::files::walk::{self, OpenFolder, Scope};

/// Flags for opening directories, which need not be readable.
const FOLDER_FLAGS: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Mode of a file that only its owner can use.
pub const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Mode of a file in a directory: readable by all who can enter the directory.
pub const SHARED: Mode = PRIVATE.union(Mode::RGRP).union(Mode::ROTH);

/// Mode of a subdirectory, likewise.
pub const SHARED_FOLDER: Mode = SHARED.union(Mode::XUSR).union(Mode::XGRP).union(Mode::XOTH);

/// An open directory.
#[derive(Clone, Debug)]
pub struct Folder {
    handle: Arc<OwnedFd>,
    path: PathBuf,
}

impl Folder {
    /// Opens a directory.
    pub fn open(path: &Path, scope: Scope<'_>) -> io::Result<Self> {
        Self::open_by_links_of(path, scope, |_| true)
    }

    /// Opens a directory. Fails if a link of another user than those that `may_lead` leads there.
    pub fn open_by_links_of(
        path: &Path,
        scope: Scope<'_>,
        may_lead: impl Fn(u32) -> bool,
    ) -> io::Result<Self> {
        let OpenFolder { handle, path, trail } = walk::open_folder(path, scope)?;
        if trail.link_owners.into_iter().all(may_lead) {
            Ok(Self::new(handle, path))
        } else {
            Err(ErrorKind::PermissionDenied.into())
        }
    }

    /// Opens the directory that the user named, through any links. Creates it and its parents if they are missing.
    pub fn create_all(path: &Path) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(SHARED_FOLDER.bits()).create(path)?;
        Self::open(path, Scope::Named)
    }

    fn new(handle: OwnedFd, path: PathBuf) -> Self {
        let handle = Arc::new(handle);
        Self { handle, path }
    }

    /// Returns the same directory with another path.
    pub fn with_path(self, path: &Path) -> Self {
        let path = path.to_owned();
        Self { path, ..self }
    }

    /// Returns the path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path through the descriptor, for this program and for those that it starts. It is valid as long as this value.
    pub fn descriptor_path(&self) -> PathBuf {
        descriptor_path(&self.handle)
    }

    /// Returns the user ID of the owner.
    pub fn owner(&self) -> io::Result<u32> {
        Ok(fstat(self)?.st_uid)
    }

    /// Returns a place in it.
    pub fn at(&self, name: impl Into<OsString>) -> NameInFolder {
        NameInFolder {
            folder: self.clone(),
            name: name.into(),
        }
    }

    /// Returns the place of a path that begins with the path of this directory; `None` if it leads elsewhere.
    pub fn place_of(&self, path: &Path) -> Option<NameInFolder> {
        let name = path.file_name().filter(|_| self.path == folder_of(path))?;
        Some(self.at(name))
    }

    /// Returns a place in its subdirectories, which must exist.
    pub fn inside(&self, path: &Path) -> io::Result<NameInFolder> {
        let mut folders = path.parent().into_iter().flatten();
        let folder = folders.try_fold(self.clone(), |folder, name| folder.at(name).open_folder())?;
        Ok(folder.at(path.file_name().unwrap_or_default()))
    }

    /// Returns a directory without anything of this name: this one, or a numbered subdirectory.
    pub fn without(&self, name: &OsStr) -> io::Result<Self> {
        let mut folder = self.clone();
        let mut number: u32 = 1;
        // A new subdirectory is empty.
        while folder.at(name).is_taken() {
            number = number.checked_add(1).ok_or(ErrorKind::AlreadyExists)?;
            let place = self.at(number.to_string());
            folder = match place.create_private_folder() {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => place.open_folder()?,
                other => other?,
            };
        }
        Ok(folder)
    }

    /// Opens it again, so that it can be listed and locked.
    pub fn readable(&self) -> io::Result<Self> {
        Ok(Self::new(self.open_for_reading()?, self.path.clone()))
    }

    fn open_for_reading(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(self, ".", flags, Mode::empty())
    }

    /// Returns what is in it, with the kind of each.
    pub fn entries(&self) -> io::Result<impl Iterator<Item = io::Result<(NameInFolder, FileType)>>> {
        let entries = Dir::new(self.open_for_reading()?)?.map(|entry| {
            let entry = entry?;
            let place = self.at(OsStr::from_bytes(entry.file_name().to_bytes()));
            match entry.file_type() {
                // Some file systems do not have it there.
                FileType::Unknown => place.kind().map(|kind| (place, kind)),
                kind => Ok((place, kind)),
            }
        });
        let is_inside = |place: &NameInFolder| place.name != "." && place.name != "..";
        Ok(entries.filter(move |entry| entry.as_ref().map_or(true, |(place, _)| is_inside(place))))
    }

    /// Removes everything in it.
    pub fn clear(&self) -> io::Result<()> {
        let entries = self.entries()?.collect::<io::Result<Vec<_>>>()?;
        entries.iter().try_for_each(|(place, _)| place.remove_all())
    }

    /// Whether it belongs to the user. On some file systems, all files belong to one other user.
    fn is_own(&self) -> io::Result<bool> {
        let owner = self.owner()?;
        if owner == geteuid().as_raw() {
            return Ok(true);
        }
        let probe = self.at(".owner");
        let owner_of_new = fstat(probe.create_file(PRIVATE)?)?.st_uid;
        probe.remove()?;
        Ok(owner_of_new == owner)
    }

    /// Whether both are the same open directory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// A name in an open directory, whether anything has it or not.
#[derive(Clone, Debug)]
pub struct NameInFolder {
    /// The directory.
    pub folder: Folder,
    /// The name.
    pub name: OsString,
}

impl NameInFolder {
    /// Opens the directory of a path that the user named, through any links.
    pub fn of(path: &Path) -> io::Result<Self> {
        let (folder, name) = match path.file_name() {
            Some(name) => (folder_of(path), name),
            None => (path, OsStr::new(".")),
        };
        Ok(Folder::open(folder, Scope::Named)?.at(name))
    }

    /// As [`Self::of`], unless the directory of the path is open already.
    pub fn within(path: &Path, open: Option<&Folder>) -> io::Result<Self> {
        open.and_then(|open| open.place_of(path))
            .map_or_else(|| Self::of(path), Ok)
    }

    /// Returns its path.
    pub fn path(&self) -> PathBuf {
        self.folder.path.join(&self.name)
    }

    /// Whether both have the same name in the same open directory.
    pub fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.folder.is_same(&other.folder)
    }

    /// Returns what the kernel says of what is there. A link is not followed.
    pub fn stat(&self) -> rustix::io::Result<Stat> {
        statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn kind(&self) -> io::Result<FileType> {
        Ok(FileType::from_raw_mode(self.stat()?.st_mode))
    }

    /// Whether anything is there.
    pub fn is_taken(&self) -> bool {
        self.stat().is_ok()
    }

    /// Whether a directory is there. Fails if it is anything else, including a link.
    pub fn has_folder(&self) -> io::Result<bool> {
        match self.kind() {
            Ok(FileType::Directory) => Ok(true),
            Ok(_) => Err(ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether an open file or directory is there.
    pub fn holds(&self, file: impl AsFd) -> bool {
        let id = |stat: Stat| (stat.st_dev, stat.st_ino);
        match (fstat(file), self.stat()) {
            (Ok(open), Ok(found)) => id(open) == id(found),
            _ => false,
        }
    }

    /// Creates a file. Fails if there is anything, even a link.
    pub fn create_file(&self, mode: Mode) -> rustix::io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.folder, &self.name, flags, mode)?.into())
    }

    /// Creates a directory. Fails if there is anything, even a link.
    pub fn create_folder(&self, mode: Mode) -> rustix::io::Result<()> {
        mkdirat(&self.folder, &self.name, mode)
    }

    /// Creates a directory that only the user can enter, and opens it. Fails if there is anything.
    pub fn create_private_folder(&self) -> io::Result<Folder> {
        self.create_folder(Mode::RWXU)?;
        let folder = self.open_folder()?;
        // Others may have exchanged it already.
        if folder.is_own()? && folder.entries()?.next().is_none() {
            Ok(folder)
        } else {
            Err(io::Error::other("another directory was put in its place"))
        }
    }

    /// Creates a symbolic link. Fails if there is anything.
    pub fn create_link(&self, target: &Path) -> rustix::io::Result<()> {
        symlinkat(target, &self.folder, &self.name)
    }

    /// Opens a directory.
    pub fn open_folder(&self) -> io::Result<Folder> {
        self.open_folder_with(FOLDER_FLAGS)
    }

    /// Opens a directory so that it can be locked, too.
    pub fn open_readable_folder(&self) -> io::Result<Folder> {
        self.open_folder_with(FOLDER_FLAGS - OFlags::PATH)
    }

    fn open_folder_with(&self, flags: OFlags) -> io::Result<Folder> {
        let handle = openat(&self.folder, &self.name, flags, Mode::empty())?;
        Ok(Folder::new(handle, self.path()))
    }

    /// Opens a directory that all can enter, and creates it if there is nothing.
    pub fn open_shared_folder(&self) -> io::Result<Folder> {
        match self.open_folder() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Another process may just have created it.
                ignore_existing(self.create_folder(SHARED_FOLDER))?;
                self.open_folder()
            }
            other => other,
        }
    }

    /// Opens a regular file for appending.
    pub fn append(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.folder, &self.name, flags, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(file.into()),
            _ => Err(io::Error::other("not a regular file")),
        }
    }

    /// Opens a regular file for reading. Enters no file that is mounted there.
    pub fn open_file(&self) -> io::Result<OpenFile> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let file = match openat2(&self.folder, &self.name, flags, Mode::empty(), resolve) {
            // Before Linux 5.6.
            Err(Errno::NOSYS) => openat(&self.folder, &self.name, flags | OFlags::NOFOLLOW, Mode::empty()),
            other => other,
        };
        OpenFile::from_file(file?.into(), &self.path())
    }

    /// Renames what is there, and replaces what is at the other place.
    pub fn rename(&self, to: &Self) -> rustix::io::Result<()> {
        renameat(&self.folder, &self.name, &to.folder, &to.name)
    }

    /// Renames what is there. Fails if there is anything at the other place.
    pub fn rename_new(&self, to: &Self) -> rustix::io::Result<()> {
        self.rename_with(to, RenameFlags::NOREPLACE)
    }

    /// Exchanges two names.
    pub fn exchange(&self, other: &Self) -> rustix::io::Result<()> {
        self.rename_with(other, RenameFlags::EXCHANGE)
    }

    fn rename_with(&self, to: &Self, flags: RenameFlags) -> rustix::io::Result<()> {
        renameat_with(&self.folder, &self.name, &to.folder, &to.name, flags)
    }

    /// Gives a file a second name.
    pub fn link(&self, to: &Self) -> rustix::io::Result<()> {
        linkat(&self.folder, &self.name, &to.folder, &to.name, AtFlags::empty())
    }

    /// Moves an open file to a place where nothing is. Returns whether that was done: not if somebody has put another file in
    /// its place, or if the places are on different file systems.
    pub fn move_file(&self, file: &OpenFile, to: &Self) -> bool {
        if !self.holds(file.file()) || self.rename_new(to).is_err() {
            return false;
        }
        let is_moved = to.holds(file.file());
        if !is_moved {
            let _ = to.rename_new(self);
        }
        is_moved
    }

    /// Removes an open file, unless somebody has put another one in its place.
    pub fn remove_file(&self, file: &OpenFile) -> io::Result<()> {
        if self.holds(file.file()) {
            self.remove()
        } else {
            Err(ErrorKind::NotFound.into())
        }
    }

    /// Removes what is there, unless it is a directory.
    pub fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.folder, &self.name, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    pub fn remove_folder(&self) -> io::Result<()> {
        Ok(unlinkat(&self.folder, &self.name, AtFlags::REMOVEDIR)?)
    }

    /// Removes what is there, with everything in it.
    pub fn remove_all(&self) -> io::Result<()> {
        match self.remove() {
            Err(error) if error.kind() == ErrorKind::IsADirectory => {
                self.open_folder()?.clear()?;
                self.remove_folder()
            }
            other => other,
        }
    }
}

/// Turns the error that a name is taken into success.
pub fn ignore_existing(created: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match created {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Returns a path that leads to an open file, for this program and for those that it starts.
pub fn descriptor_path(handle: &OwnedFd) -> PathBuf {
    // The number of this process in the PID namespace of /proc. Scripts are read after the program has been executed, when
    // /proc/self has no such descriptor.
    let process = kernel::read_link("/proc/self").unwrap_or_else(|_| "self".into());
    Path::new("/proc")
        .join(process)
        .join("fd")
        .join(handle.as_raw_fd().to_string())
}

/// Opens a file or directory, without access to its contents, if only the user and root can change it and its path. `None` if
/// others can, or if there are links in the path. Each part is checked by the descriptor through which the next one is found,
/// so there is no moment in which somebody could exchange one.
pub fn open_unchangeable(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open_part = |part: Result<OwnedFd, Errno>| part.ok().filter(|part| fstat(part).is_ok_and(is_safe));
    let mut parts = path.components();
    parts.next().filter(|root| *root == Component::RootDir)?;
    let root = open_part(open("/", flags, Mode::empty()))?;
    parts.try_fold(root, |folder, part| match part {
        Component::Normal(name) => open_part(openat(folder, name, flags, Mode::empty())),
        _ => None,
    })
}

/// Whether only the user and root can change a file, or exchange an entry of a directory.
fn is_safe(found: Stat) -> bool {
    const OTHERS: u32 = 0o002;
    const GROUP: u32 = 0o020;
    /// Others can only add entries of their own.
    const STICKY: u32 = 0o1000;
    let kind = FileType::from_raw_mode(found.st_mode);
    // Many systems give each user a group, and a umask of 002.
    let is_own_group = !geteuid().is_root() && found.st_gid == getegid().as_raw();
    let is_shared = found.st_mode & OTHERS != 0 || found.st_mode & GROUP != 0 && !is_own_group;
    let is_sticky = kind == FileType::Directory && found.st_mode & STICKY != 0;
    is_trusted(found.st_uid) && kind != FileType::Symlink && (!is_shared || is_sticky)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::CWD;

    fn folder(path: &Path) -> Folder {
        NameInFolder::of(path).unwrap().create_private_folder().unwrap()
    }

    #[test]
    fn what_others_put_in_its_place_is_not_entered() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("folder");
        let place = NameInFolder::of(&path).unwrap();
        let folder = place.create_private_folder().unwrap();
        assert!(place.holds(&folder));
        assert!(place.create_private_folder().is_err());
        fs::rename(&path, scratch.path().join("moved")).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(!place.holds(&folder));
        let file = folder.at("file");
        file.create_file(PRIVATE).unwrap().write_all(b"one").unwrap();
        file.append().unwrap().write_all(b" two").unwrap();
        assert!(file.create_file(PRIVATE).is_err());
        let inside = folder.at("inside").open_shared_folder().unwrap();
        inside.at("deep").create_file(SHARED).unwrap();
        assert!(folder.inside(Path::new("inside/deep")).unwrap().is_taken());
        assert_eq!(file.open_file().unwrap().read_start().unwrap(), b"one two");
        assert_eq!(
            fs::read(folder.descriptor_path().join("file")).unwrap(),
            b"one two"
        );
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        folder.clear().unwrap();
        assert_eq!(fs::read_dir(scratch.path().join("moved")).unwrap().count(), 0);
    }

    #[test]
    fn links_and_fifos_are_neither_read_nor_written_nor_entered() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = folder(&scratch.path().join("folder"));
        let victim = scratch.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink(&victim, at("link")).unwrap();
        symlink(scratch.path(), at("linked")).unwrap();
        rustix::fs::mkfifoat(CWD, at("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        for place in ["link", "fifo", "linked"].map(|name| folder.at(name)) {
            assert!(place.create_file(PRIVATE).is_err());
            assert!(place.append().is_err());
            assert!(place.open_file().is_err());
            assert!(place.open_folder().is_err());
            assert!(place.open_shared_folder().is_err());
        }
        assert!(folder.inside(Path::new("linked/victim")).is_err());
        let other = folder.without(OsStr::new("link")).unwrap();
        assert_eq!(other.path(), at("2"));
        assert_eq!(folder.without(OsStr::new("new")).unwrap().path(), folder.path());
        other.at("link").create_file(PRIVATE).unwrap();
        assert_eq!(folder.without(OsStr::new("link")).unwrap().path(), at("3"));
        folder.clear().unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn only_the_file_that_is_open_is_moved_or_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder(&scratch.path().join(name)).at("file"));
        fs::write(from.path(), "one").unwrap();
        let file = from.open_file().unwrap();
        fs::rename(from.path(), scratch.path().join("kept")).unwrap();
        fs::write(from.path(), "other").unwrap();
        assert!(!from.move_file(&file, &to));
        assert!(from.remove_file(&file).is_err());
        assert_eq!(fs::read(from.path()).unwrap(), b"other");
        fs::rename(scratch.path().join("kept"), from.path()).unwrap();
        assert!(from.move_file(&file, &to));
        assert_eq!(fs::read(to.path()).unwrap(), b"one");
        to.remove_file(&file).unwrap();
        assert!(!to.is_taken());
    }

    #[test]
    fn folders_of_a_process_stay_in_its_root() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("tmp")).unwrap();
        symlink(root.path(), root.path().join("out")).unwrap();
        let opened = |inside: &str| Folder::open(Path::new(inside), Scope::Root(root.path()));
        assert_eq!(opened("/tmp").unwrap().path(), root.path().join("tmp"));
        assert!(opened("/out").is_err());
        symlink("/tmp", root.path().join("link")).unwrap();
        assert!(opened("link").is_ok());
        let (me, link, scope) = (geteuid().as_raw(), Path::new("link"), Scope::Root(root.path()));
        let by_links_of = |user: u32| Folder::open_by_links_of(link, scope, |owner| owner == user);
        assert!(by_links_of(me).is_ok() && by_links_of(me + 1).is_err());
        fs::write(root.path().join("file"), "").unwrap();
        assert!(opened("file").is_err());
    }

    #[test]
    fn an_open_folder_serves_the_paths_in_it() {
        let scratch = tempfile::tempdir().unwrap();
        let open = folder(&scratch.path().join("folder")).with_path(Path::new("named"));
        let within = |path: &str| NameInFolder::within(Path::new(path), Some(&open));
        assert!(within("named/file").unwrap().folder.is_same(&open));
        assert!(within("named/deep/file").is_err());
        assert!(!within("file").unwrap().folder.is_same(&open));
        assert_eq!(within("named/file").unwrap().path(), Path::new("named/file"));
        assert!(NameInFolder::of(Path::new("..")).unwrap().has_folder().unwrap());
    }

    #[test]
    fn what_others_can_change_is_recognized() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node");
        fs::write(&file, "").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let is_open = |path: &Path| open_unchangeable(path).is_some();
        for (folder_mode, mode, is_safe) in [
            (0o755, 0o755, true),
            (0o755, 0o757, false),
            (0o777, 0o755, false),
            (0o1777, 0o755, true),
            (0o1777, 0o1757, false),
        ] {
            set(folder.path(), folder_mode);
            set(&file, mode);
            assert_eq!(is_open(&file), is_safe, "{folder_mode:o} {mode:o}");
        }
        set(&file, 0o775);
        assert_eq!(is_open(&file), !geteuid().is_root());
        set(&file, 0o755);
        let link = folder.path().join("link");
        symlink(&file, &link).unwrap();
        assert!(!is_open(&link));
        assert!(!is_open(&folder.path().join("absent")));
        assert!(!is_open(&folder.path().join("../node")));
        assert!(!is_open(Path::new("node")));
    }
}
