//! Looks a path up once, and opens the file that was found.
//!
//! Between two lookups of a path, one to check it and one to open it, others could exchange its directories and links. So
//! this module follows a path once, component by component, each in the open directory before it. Owners and modes are
//! those of the links and directories on the way, and of the descriptor that is read.
//!
//! [`Scope`] limits a path: anywhere except through links of `/proc` (paths in files), anywhere (paths of users), below a
//! directory without links, or inside a directory as its root. One function handles all of them, without `openat2`, which
//! containers often forbid and old kernels lack.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat};
use rustix::io::Errno;

use crate::files::open_file::is_trusted;
use crate::files::{OpenFile, kernel};

/// Maximum number of links that are followed, as in the kernel (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

/// Maximum size of a path in bytes, as in the kernel (`PATH_MAX`).
pub const MAX_PATH: usize = 4096;

/// Flags for opening what a component names, without access to its content.
const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Flags for opening a file for reading. A FIFO is not waited for, and a terminal does not become the controlling one.
const READ_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Bits of modes.
const OTHERS_WRITE: u32 = 0o002;
const OTHERS_SEARCH: u32 = 0o001;
const STICKY: u32 = 0o1000;

/// Where a path may lead. Folders in it are the user's choice, or this program's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope<'a> {
    /// Anywhere, for a path that the user or this program has chosen.
    Named,
    /// Anywhere, except by links of `/proc`, which may lead into the mounts of other processes: for a path from a file.
    Recorded,
    /// The same, for a path relative to a folder.
    From(&'a Path),
    /// Into a folder that is the root of the path: absolute links and `..` stay in it.
    Root(&'a Path),
    /// Into a folder, without following links or leaving it by `..`.
    Beneath(&'a Path),
    /// The same, for a folder that a file names.
    BeneathRecorded(&'a Path),
}

/// What was passed on the way to a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trail {
    /// User IDs of the owners of the links, each once. The owner of a link chooses its target. Links of `/proc` have no
    /// owner.
    pub link_owners: Vec<u32>,
    /// Path of the file to which these links lead, if the kernel has it.
    pub target: Option<PathBuf>,
    /// Whether a user other than root and the current one could have put the file, or a folder with it, there. Members of
    /// the group of a folder are left out: in most cases, it is the group of one user. In a folder like `/tmp`, others can
    /// create files and links to files, but not replace folders of somebody else.
    pub is_shared: bool,
    /// User IDs of the owners of what was passed directly in folders like `/tmp`: links, folders and the file itself, each once.
    pub sticky_owners: Vec<u32>,
    /// Whether a folder on the way is closed to users other than its owner and group.
    pub is_closed: bool,
    /// Whether the way starts in the working directory. The folders above it are not looked at.
    pub starts_here: bool,
}

/// Opens a regular file. Rejects all others, if possible without opening them, since that has side effects on some
/// devices.
pub fn open(path: &Path, scope: Scope<'_>) -> io::Result<OpenFile> {
    let Followed { walk, shown, file } = follow(path, scope)?;
    walk.finish(file, &shown)
}

/// Opens a regular file by a path that starts in an open directory, as with [`Scope::From`].
pub fn open_from(folder: BorrowedFd<'_>, path: &Path) -> io::Result<OpenFile> {
    let mut walk = FolderWalk {
        folders: vec![folder.try_clone_to_owned()?],
        ..FolderWalk::default()
    };
    let found = walk.follow(path)?;
    walk.finish(found, path)
}

/// A directory that was opened.
#[derive(Debug)]
pub struct OpenFolder {
    /// The directory, which need not be readable.
    pub handle: OwnedFd,
    /// Its path.
    pub path: PathBuf,
    /// What was passed on the way.
    pub trail: Trail,
}

/// Opens a directory.
pub fn open_folder(path: &Path, scope: Scope<'_>) -> io::Result<OpenFolder> {
    let Followed {
        mut walk,
        shown,
        file,
    } = follow(path, scope)?;
    let folder = walk.folders.pop().filter(|_| file.is_none());
    Ok(OpenFolder {
        handle: folder.ok_or(io::ErrorKind::NotADirectory)?,
        path: shown,
        trail: walk.trail,
    })
}

/// A path that was followed.
struct Followed {
    walk: FolderWalk,
    /// The path to show.
    shown: PathBuf,
    /// The file at the end; `None` if it is a folder, the last one of the walk.
    file: Option<File>,
}

/// Follows a path.
fn follow(path: &Path, scope: Scope<'_>) -> io::Result<Followed> {
    // The first part of the way may lead through links of `/proc`: all of it, or the way to the folder.
    let (folder, bounds, may_use_proc) = match scope {
        Scope::Named => (None, Bounds::None, true),
        Scope::Recorded => (None, Bounds::None, false),
        Scope::From(folder) => (Some(folder), Bounds::None, true),
        Scope::Root(folder) => (Some(folder), Bounds::Root, true),
        Scope::Beneath(folder) => (Some(folder), Bounds::Beneath, true),
        Scope::BeneathRecorded(folder) => (Some(folder), Bounds::Beneath, false),
    };
    let mut walk = FolderWalk {
        may_use_proc,
        ..FolderWalk::default()
    };
    let Some(folder) = folder else {
        let file = walk.follow(path)?;
        let shown = path.to_owned();
        return Ok(Followed { walk, shown, file });
    };
    walk.enter(folder)?;
    walk.may_use_proc = false;
    walk.bounds = bounds;
    let inside = match bounds {
        Bounds::Root => path.strip_prefix("/").unwrap_or(path),
        Bounds::None | Bounds::Beneath => path,
    };
    let file = walk.follow(path)?;
    let shown = folder.join(inside);
    Ok(Followed { walk, shown, file })
}

/// What a path may not leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Bounds {
    #[default]
    None,
    Root,
    Beneath,
}

#[derive(Debug, Default)]
struct FolderWalk {
    /// The folders from the outermost one that may be returned to; only the last one without bounds.
    folders: Vec<OwnedFd>,
    bounds: Bounds,
    may_use_proc: bool,
    links: u32,
    /// Whether the present folder is one like `/tmp`.
    is_sticky: bool,
    trail: Trail,
}

impl FolderWalk {
    /// Returns the file at the end of a path, with what was passed on the way.
    fn finish(mut self, found: Option<File>, shown: &Path) -> io::Result<OpenFile> {
        let file = found.ok_or(io::ErrorKind::IsADirectory)?;
        let mut file = OpenFile::from_file(file, shown)?;
        self.note_owner(file.origin.owner);
        file.origin.trail = self.trail;
        if !file.origin.trail.link_owners.is_empty() {
            let number = file.file.as_raw_fd();
            file.origin.trail.target = kernel::read_link(format!("/proc/self/fd/{number}")).ok();
        }
        Ok(file)
    }

    /// Goes to a folder, which is the outermost one from then on.
    fn enter(&mut self, folder: &Path) -> io::Result<()> {
        match self.follow(folder)? {
            Some(_) => Err(io::ErrorKind::NotADirectory.into()),
            None => Ok(()),
        }
    }

    /// Follows a path. Returns the file at its end, open for reading; `None` if it ends in a folder.
    fn follow(&mut self, path: &Path) -> io::Result<Option<File>> {
        if path.as_os_str().is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        if self.folders.is_empty() && !path.has_root() {
            self.push(rustix::fs::openat(CWD, ".", PATH_FLAGS, Mode::empty())?);
            self.is_sticky = is_sticky(&rustix::fs::fstat(self.here()?)?);
            self.trail.starts_here = true;
        }
        let mut remaining = steps(path)?;
        while let Some(step) = remaining.pop() {
            match step.as_bytes() {
                b"/" => self.go_to_root()?,
                b".." => self.go_up()?,
                b"." => {}
                _ => {
                    let file = self.step(&step, &mut remaining)?;
                    match (file, remaining.is_empty()) {
                        (None, _) => {}
                        (Some(file), true) => return Ok(Some(file)),
                        (Some(_), false) => return Err(io::ErrorKind::NotADirectory.into()),
                    }
                }
            }
        }
        Ok(None)
    }

    /// Goes into a folder, opens a file, or adds the steps of a link to the `remaining` ones, of which the last is the
    /// next.
    fn step(&mut self, name: &OsStr, remaining: &mut Vec<OsString>) -> io::Result<Option<File>> {
        let flags = PATH_FLAGS | OFlags::NOFOLLOW;
        // DIRECTORY first: it makes an automounter mount the folder, and most components are folders.
        let found = match rustix::fs::openat(self.here()?, name, flags | OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => self.open_here(name, flags)?,
            other => other?,
        };
        let stat = rustix::fs::fstat(&found)?;
        self.note_owner(stat.st_uid);
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return self.go_to(found, &stat, name, OFlags::NOFOLLOW);
        }
        self.links = self.links.saturating_add(1);
        if self.bounds == Bounds::Beneath {
            return Err(io::Error::other("a symbolic link, or in a directory that is one"));
        }
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        if rustix::fs::fstatfs(self.here()?)?.f_type == PROC_SUPER_MAGIC {
            if !self.may_use_proc {
                return Err(io::Error::other("a link of /proc"));
            }
            // The text of these links is no path.
            let target = self.open_here(name, PATH_FLAGS)?;
            let stat = rustix::fs::fstat(&target)?;
            return self.go_to(target, &stat, name, OFlags::empty());
        }
        if !self.trail.link_owners.contains(&stat.st_uid) {
            self.trail.link_owners.push(stat.st_uid);
        }
        let target = rustix::fs::readlinkat(&found, "", Vec::new())?.into_bytes();
        remaining.extend(steps(Path::new(&OsString::from_vec(target)))?);
        Ok(None)
    }

    /// Goes into `found` if it is a folder. Opens a regular file again, for reading: what counts is what this descriptor is.
    fn go_to(
        &mut self,
        found: OwnedFd,
        stat: &Stat,
        name: &OsStr,
        flags: OFlags,
    ) -> io::Result<Option<File>> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                self.is_sticky = is_sticky(stat);
                let is_open = stat.st_mode & OTHERS_WRITE != 0;
                self.trail.is_shared |= !is_trusted(stat.st_uid) || is_open && !self.is_sticky;
                self.trail.is_closed |= stat.st_mode & OTHERS_SEARCH == 0;
                self.push(found);
                Ok(None)
            }
            FileType::RegularFile => {
                self.trail.is_shared |= rustix::fs::fstat(self.here()?)?.st_mode & OTHERS_WRITE != 0;
                Ok(Some(self.open_here(name, READ_FLAGS | flags)?.into()))
            }
            _ => Err(io::Error::other("not a regular file")),
        }
    }

    fn go_to_root(&mut self) -> io::Result<()> {
        match self.bounds {
            Bounds::None => self.push(rustix::fs::open("/", PATH_FLAGS, Mode::empty())?),
            Bounds::Root => self.folders.truncate(1),
            Bounds::Beneath => return Err(outside()),
        }
        self.is_sticky = is_sticky(&rustix::fs::fstat(self.here()?)?);
        Ok(())
    }

    /// Goes to the folder that was passed before, even if the present one was moved elsewhere meanwhile.
    fn go_up(&mut self) -> io::Result<()> {
        match self.bounds {
            Bounds::None => self.push(self.open_here(OsStr::new(".."), PATH_FLAGS)?),
            _ if self.folders.len() > 1 => drop(self.folders.pop()),
            Bounds::Root => {}
            Bounds::Beneath => return Err(outside()),
        }
        self.is_sticky = is_sticky(&rustix::fs::fstat(self.here()?)?);
        Ok(())
    }

    /// Notes the owner of what was found in the present folder.
    fn note_owner(&mut self, owner: u32) {
        if self.is_sticky && !self.trail.sticky_owners.contains(&owner) {
            self.trail.sticky_owners.push(owner);
        }
    }

    fn push(&mut self, folder: OwnedFd) {
        if self.bounds == Bounds::None {
            self.folders.clear();
        }
        self.folders.push(folder);
    }

    fn here(&self) -> io::Result<&OwnedFd> {
        self.folders.last().ok_or(io::ErrorKind::NotFound.into())
    }

    fn open_here(&self, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(self.here()?, name, flags, Mode::empty())?)
    }
}

/// Whether everybody can create files in a folder, but not replace those of others, as in `/tmp`.
fn is_sticky(folder: &Stat) -> bool {
    folder.st_mode & STICKY != 0 && folder.st_mode & OTHERS_WRITE != 0
}

/// Whether the working directory, or one above it, is closed to other users, or not known.
pub(super) fn is_working_folder_closed() -> bool {
    let Ok(working) = std::env::current_dir() else {
        return true;
    };
    working.ancestors().any(|folder| {
        let found = rustix::fs::stat(folder);
        found.map_or(true, |stat| stat.st_mode & OTHERS_SEARCH == 0)
    })
}

fn outside() -> io::Error {
    io::Error::other("it is outside of the folder")
}

/// Returns the components of a path, the first one last.
fn steps(path: &Path) -> io::Result<Vec<OsString>> {
    if path.as_os_str().len() >= MAX_PATH {
        return Err(Errno::NAMETOOLONG.into());
    }
    let steps = path.components().map(Component::as_os_str);
    Ok(steps.rev().map(OsStr::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn file_id(path: &Path) -> (u64, u64) {
        let found = fs::metadata(path).unwrap();
        (found.dev(), found.ino())
    }

    #[test]
    fn paths_are_followed_as_by_the_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let me = fs::metadata(&root).unwrap().uid();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "").unwrap();
        symlink("b", root.join("a/relative")).unwrap();
        symlink(root.join("a/relative/../b"), root.join("absolute")).unwrap();
        symlink("absolute/file", root.join("file")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        for (path, is_linked) in [
            ("a/b/file", false),
            ("a/./b/../b/file", false),
            ("a/relative/file", true),
            ("absolute/file", true),
            ("file", true),
        ] {
            let path = root.join(path);
            for scope in [Scope::Named, Scope::Recorded, Scope::From(Path::new("/"))] {
                let found = open(&path, scope).unwrap();
                assert_eq!(found.file_id(), file_id(&path), "{path:?}");
                let owners = &found.origin().trail.link_owners;
                assert_eq!(*owners, vec![me; usize::from(is_linked)], "{path:?}");
            }
        }
        for path in ["circle", "missing", "a/missing/../b", "a/b/file/c", "a/b", ""] {
            let path = match path {
                "" => Path::new("").to_owned(),
                _ => root.join(path),
            };
            let error = open(&path, Scope::Recorded).unwrap_err();
            let expected = fs::read(&path).unwrap_err();
            assert_eq!(error.kind(), expected.kind(), "{path:?}");
        }
    }

    #[test]
    fn links_and_paths_have_the_limits_of_the_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::write(root.join("0"), "").unwrap();
        for links in 1..=42 {
            let link = root.join(links.to_string());
            symlink((links - 1).to_string(), &link).unwrap();
            assert_eq!(open(&link, Scope::Recorded).is_ok(), links <= 40, "{links}");
            assert_eq!(fs::metadata(&link).is_ok(), links <= 40, "{links}");
        }
        for size in 4090..4100 {
            let mut path = root.as_os_str().to_owned();
            path.push("/".repeat(size - path.len() - 1));
            path.push("0");
            let path = Path::new(&path);
            assert_eq!(open(path, Scope::Recorded).is_ok(), size < 4096, "{size}");
            assert_eq!(fs::metadata(path).is_ok(), size < 4096, "{size}");
        }
    }

    #[test]
    fn links_of_the_kernel_are_for_paths_of_users_only() {
        for path in [
            "/proc/self/exe",
            "/proc/self/root/proc/version",
            "/proc/thread-self/status",
        ] {
            let path = Path::new(path);
            let found = open(path, Scope::Named).unwrap();
            assert_eq!(found.origin().trail.link_owners, [0u32; 0], "{path:?}");
            assert_eq!(found.file_id().1, fs::metadata(path).unwrap().ino(), "{path:?}");
            assert!(open(path, Scope::Recorded).is_err(), "{path:?}");
            let inside = path.strip_prefix("/proc").unwrap();
            for scope in [Scope::From(Path::new("/proc")), Scope::Root(Path::new("/proc"))] {
                assert!(open(inside, scope).is_err(), "{path:?}");
            }
        }
        let folder = tempfile::tempdir().unwrap();
        symlink("/proc/self/root/etc/passwd", folder.path().join("link")).unwrap();
        assert!(open(&folder.path().join("link"), Scope::Recorded).is_err());
    }

    #[test]
    fn a_root_is_not_left() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        fs::write(root.join("usr/lib/file"), "inside").unwrap();
        fs::write(folder.path().join("file"), "outside").unwrap();
        symlink("usr/lib", root.join("lib")).unwrap();
        symlink("/usr", root.join("absolute")).unwrap();
        symlink("../../../../../../../usr/lib/file", root.join("up")).unwrap();
        symlink(folder.path().join("file"), root.join("out")).unwrap();
        let read = |path: &str| open(Path::new(path), Scope::Root(&root)).and_then(|file| file.read_start());
        for path in [
            "/usr/lib/file",
            "usr/lib/file",
            "/lib/file",
            "/absolute/lib/file",
            "/up",
            "/../usr/../lib/file",
        ] {
            assert_eq!(read(path).unwrap(), b"inside", "{path}");
        }
        for path in ["/out", "/../file", "/usr/../../file"] {
            assert_eq!(read(path).unwrap_err().kind(), io::ErrorKind::NotFound, "{path}");
        }
    }

    #[test]
    fn folders_of_others_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        fs::create_dir_all(inside.join("deep")).unwrap();
        fs::write(inside.join("file"), "").unwrap();
        fs::write(inside.join("deep/file"), "").unwrap();
        let is_shared = |mode, file: &str| {
            fs::set_permissions(&inside, fs::Permissions::from_mode(mode)).unwrap();
            let file = open(Path::new(file), Scope::From(&inside));
            file.unwrap().origin().trail.is_shared
        };
        for (mode, expected) in [
            (0o755, (false, false)),
            (0o775, (false, false)),
            (0o1777, (true, false)),
            (0o777, (true, true)),
        ] {
            assert_eq!(
                (is_shared(mode, "file"), is_shared(mode, "deep/file")),
                expected,
                "{mode:o}"
            );
        }
    }

    #[test]
    fn owners_in_folders_like_tmp_are_noted() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        fs::create_dir_all(inside.join("deep")).unwrap();
        fs::write(inside.join("deep/file"), "").unwrap();
        fs::write(inside.join("file"), "").unwrap();
        symlink("deep/file", inside.join("link")).unwrap();
        let me = fs::metadata(&inside).unwrap().uid();
        for (mode, path, is_noted) in [
            (0o755, "file", false),
            (0o777, "file", false),
            (0o1775, "file", false),
            (0o1777, "file", true),
            (0o1777, "deep/file", true),
            (0o1777, "deep/../file", true),
            (0o1777, "link", true),
        ] {
            fs::set_permissions(&inside, fs::Permissions::from_mode(mode)).unwrap();
            // From a folder that may itself be in `/tmp`.
            let mut walk = FolderWalk::default();
            walk.push(rustix::fs::open(folder.path(), PATH_FLAGS, Mode::empty()).unwrap());
            let found = walk.follow(&Path::new("inside").join(path)).unwrap();
            assert!(found.is_some());
            let owners = &walk.trail.sticky_owners;
            assert_eq!(*owners, vec![me; usize::from(is_noted)], "{mode:o} {path}");
        }
    }

    /// A folder and a link are exchanged while a path through them is looked up.
    #[test]
    fn what_is_believed_of_a_path_is_true_of_the_file_that_was_opened() {
        const TRIES: usize = 20_000;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, content) in [("real", "real"), ("other", "linked")] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), content).unwrap();
        }
        symlink("other", at("link")).unwrap();
        /// Ends the other thread even if the test fails.
        struct Done<'a>(&'a std::sync::atomic::AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let is_done = std::sync::atomic::AtomicBool::new(false);
        let exchange = || {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, at("real"), CWD, at("link"), flags).unwrap();
            }
        };
        let mut linked = 0;
        std::thread::scope(|scope| {
            scope.spawn(exchange);
            let _done = Done(&is_done);
            for _ in 0..TRIES {
                // The link may have become a folder after it was opened.
                let Ok(file) = open(&at("real/file"), Scope::Recorded) else {
                    continue;
                };
                let is_linked = !file.origin().trail.link_owners.is_empty();
                assert_eq!(file.read_start().unwrap() == b"linked", is_linked);
                linked += usize::from(is_linked);
            }
        });
        assert!((1..TRIES).contains(&linked), "{linked}");
    }
}
