//! A directory that is read and written through its descriptor.
//!
//! Whoever can change a part of its path may put another directory there. That one is never entered.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::fs::{fstat, mkdirat, open, openat, openat2, renameat_with, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use crate::files::OpenFile;
use crate::files::kernel;
use crate::files::open_file::is_trusted;
use crate::files::staged::{NEW_FILE_FLAGS, is_at};

/// Flags for opening directories, which need not be readable.
const FOLDER_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Mode of a file that only its owner can use.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Tries to find a name for a subdirectory.
const MAX_ATTEMPTS: u32 = 100_000;

/// An open directory.
#[derive(Debug)]
pub struct HeldFolder {
    handle: OwnedFd,
    path: PathBuf,
}

impl HeldFolder {
    /// Creates a directory that only the user can enter. Fails if there is anything of that name.
    pub fn create(path: &Path) -> io::Result<Self> {
        mkdirat(CWD, path, Mode::RWXU)?;
        let handle = openat(CWD, path, FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
        let folder = Self {
            handle,
            path: path.to_owned(),
        };
        // Others may have exchanged it already.
        let is_empty = || Ok::<_, io::Error>(fs::read_dir(folder.descriptor_path())?.next().is_none());
        match folder.is_own()? && is_empty()? {
            true => Ok(folder),
            false => Err(io::Error::other("another folder was put in its place")),
        }
    }

    /// Whether it belongs to the user. On some file systems, all files belong to one other user.
    fn is_own(&self) -> io::Result<bool> {
        const PROBE: &str = ".owner";
        let owner = fstat(&self.handle)?.st_uid;
        if owner == geteuid().as_raw() {
            return Ok(true);
        }
        let probe = fstat(self.create_file(PROBE.as_ref())?)?;
        unlinkat(&self.handle, PROBE, AtFlags::empty())?;
        Ok(probe.st_uid == owner)
    }

    /// Opens a directory, through any links.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            handle: open(path, FOLDER_FLAGS, Mode::empty())?,
            path: path.to_owned(),
        })
    }

    /// Opens a directory by its path below `root`. No link leads out of `root`.
    pub fn open_in_root(root: &Path, inside: &Path) -> io::Result<Self> {
        let handle = open(root, FOLDER_FLAGS, Mode::empty())?;
        let names = inside.components().filter(|part| *part != Component::RootDir);
        Ok(Self {
            handle: openat2(handle, inside, FOLDER_FLAGS, Mode::empty(), ResolveFlags::IN_ROOT)?,
            path: names.fold(root.to_owned(), |path, name| path.join(name)),
        })
    }

    /// Returns the path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path through the descriptor, for this program and for those that it starts. It is valid as long as this value.
    pub fn descriptor_path(&self) -> PathBuf {
        descriptor_path(&self.handle)
    }

    /// Whether it is still at its path.
    pub fn is_in_place(&self) -> bool {
        is_at(&self.handle, &self.path)
    }

    /// Creates a subdirectory that only the user can enter.
    pub fn create_folder(&self, name: &str) -> io::Result<Self> {
        mkdirat(&self.handle, name, Mode::RWXU)?;
        self.open_folder(name)
    }

    fn open_folder(&self, name: &str) -> io::Result<Self> {
        let flags = FOLDER_FLAGS | OFlags::NOFOLLOW;
        Ok(Self {
            handle: openat(&self.handle, name, flags, Mode::empty())?,
            path: self.path.join(name),
        })
    }

    /// Returns a directory without anything of this name: a new handle for this one, or a numbered subdirectory.
    pub fn folder_without(&self, name: &OsStr) -> io::Result<Self> {
        let mut folder = Self {
            handle: self.handle.try_clone()?,
            path: self.path.clone(),
        };
        for number in 2..MAX_ATTEMPTS {
            if folder.id_of(name).is_none() {
                return Ok(folder);
            }
            let number = number.to_string();
            folder = match self.create_folder(&number) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => self.open_folder(&number)?,
                other => other?,
            };
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Creates a file that only the user can read. Fails if there is anything of that name.
    pub fn create_file(&self, name: &OsStr) -> io::Result<File> {
        Ok(openat(&self.handle, name, NEW_FILE_FLAGS, PRIVATE)?.into())
    }

    /// Opens a regular file for appending. Does not follow a link.
    pub fn append_to(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.handle, name, flags, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(file.into()),
            _ => Err(io::Error::other("not a regular file")),
        }
    }

    /// Opens a regular file in it for reading. Follows no link, and enters no file that is mounted there.
    pub fn open_file(&self, name: &OsStr) -> io::Result<OpenFile> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let file = match openat2(&self.handle, name, flags, Mode::empty(), resolve) {
            // Before Linux 5.6. `name` has no folders.
            Err(Errno::NOSYS) => openat(&self.handle, name, flags | OFlags::NOFOLLOW, Mode::empty()),
            other => other,
        };
        OpenFile::from_file(file?.into(), &self.path.join(name))
    }

    /// Moves a file to another directory, where nothing has its name. Returns whether that was done: not if somebody has put
    /// another file in its place, or if the directories are on different file systems.
    pub fn move_file(&self, name: &OsStr, file: &OpenFile, to: &Self) -> bool {
        let rename = |from: &Self, to: &Self| {
            renameat_with(&from.handle, name, &to.handle, name, RenameFlags::NOREPLACE)
        };
        if self.id_of(name) != Some(file.file_id()) || rename(self, to).is_err() {
            return false;
        }
        let is_moved = to.id_of(name) == Some(file.file_id());
        if !is_moved {
            let _ = rename(to, self);
        }
        is_moved
    }

    /// Removes a file, unless somebody has put another one in its place.
    pub fn remove_file(&self, name: &OsStr, file: &OpenFile) -> io::Result<()> {
        match self.id_of(name) == Some(file.file_id()) {
            true => Ok(unlinkat(&self.handle, name, AtFlags::empty())?),
            false => Err(ErrorKind::NotFound.into()),
        }
    }

    /// Returns the device and inode of what has a name.
    fn id_of(&self, name: &OsStr) -> Option<(u64, u64)> {
        let found = statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((found.st_dev, found.st_ino))
    }

    /// Removes it with everything in it.
    pub fn remove(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.descriptor_path())? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        match self.is_in_place() {
            true => fs::remove_dir(&self.path),
            false => Ok(()),
        }
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
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_others_put_in_its_place_is_not_entered() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("folder");
        let folder = HeldFolder::create(&path).unwrap();
        assert!(folder.is_in_place());
        assert!(HeldFolder::create(&path).is_err());
        fs::rename(&path, scratch.path().join("moved")).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(!folder.is_in_place());
        let name = OsStr::new("file");
        folder.create_file(name).unwrap().write_all(b"one").unwrap();
        folder.append_to(name).unwrap().write_all(b" two").unwrap();
        assert!(folder.create_file(name).is_err());
        let inside = folder.create_folder("inside").unwrap();
        assert!(inside.is_in_place() || fs::read_dir(&path).unwrap().count() == 0);
        assert_eq!(folder.open_file(name).unwrap().read_start().unwrap(), b"one two");
        assert_eq!(
            fs::read(folder.descriptor_path().join("file")).unwrap(),
            b"one two"
        );
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        folder.remove().unwrap();
        assert!(path.exists());
        assert_eq!(fs::read_dir(scratch.path().join("moved")).unwrap().count(), 0);
    }

    #[test]
    fn links_and_fifos_are_neither_read_nor_written() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = HeldFolder::create(&scratch.path().join("folder")).unwrap();
        let victim = scratch.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink(&victim, at("link")).unwrap();
        rustix::fs::mkfifoat(CWD, at("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        for name in ["link", "fifo"].map(OsStr::new) {
            assert!(folder.create_file(name).is_err());
            assert!(folder.append_to(name).is_err());
            assert!(folder.open_file(name).is_err());
        }
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        let other = folder.folder_without(OsStr::new("link")).unwrap();
        assert_eq!(other.path(), at("2"));
        assert_eq!(
            folder.folder_without(OsStr::new("new")).unwrap().path(),
            folder.path()
        );
    }

    #[test]
    fn only_the_file_that_is_open_is_moved_or_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| HeldFolder::create(&scratch.path().join(name)).unwrap());
        let name = OsStr::new("file");
        fs::write(from.path().join(name), "one").unwrap();
        let file = from.open_file(name).unwrap();
        fs::rename(from.path().join(name), scratch.path().join("kept")).unwrap();
        fs::write(from.path().join(name), "other").unwrap();
        assert!(!from.move_file(name, &file, &to));
        assert!(from.remove_file(name, &file).is_err());
        assert_eq!(fs::read(from.path().join(name)).unwrap(), b"other");
        fs::rename(scratch.path().join("kept"), from.path().join(name)).unwrap();
        assert!(from.move_file(name, &file, &to));
        assert_eq!(fs::read(to.path().join(name)).unwrap(), b"one");
        to.remove_file(name, &file).unwrap();
        assert!(!to.path().join(name).exists());
    }

    #[test]
    fn folders_of_a_process_stay_in_its_root() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("tmp")).unwrap();
        symlink(root.path(), root.path().join("out")).unwrap();
        let opened = |inside: &str| HeldFolder::open_in_root(root.path(), Path::new(inside));
        assert_eq!(opened("/tmp").unwrap().path(), root.path().join("tmp"));
        assert!(opened("/out").is_err());
        symlink("/tmp", root.path().join("link")).unwrap();
        assert!(opened("link").is_ok());
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
