//! Opens files in directories that others can write to.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::files::OpenFile;

/// Opens a regular file by its path relative to `folder`.
///
/// The kernel follows no symbolic link and no `..` out of the directory, even if others change the path
/// meanwhile. Fails with kind `Unsupported` before Linux 5.6.
pub fn open_within(folder: &Path, inside: &Path) -> io::Result<OpenFile> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::open(folder, flags, Mode::empty())?;
    // Opening a FIFO would otherwise wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file =
        rustix::fs::openat2(&parent, inside, flags, Mode::empty(), resolve).map_err(|error| match error {
            Errno::LOOP => io::Error::other("a symbolic link, or in a directory that is one"),
            Errno::XDEV => io::Error::other("it is outside of the folder"),
            Errno::NXIO => io::Error::other("not a regular file"),
            error => error.into(),
        })?;
    OpenFile::from_file(File::from(file), &folder.join(inside))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn opens_files_in_the_folder_and_follows_no_link() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("folder");
        fs::create_dir_all(folder.join("deep")).unwrap();
        fs::write(folder.join("deep/file"), "inside").unwrap();
        fs::write(scratch.path().join("secret"), "outside").unwrap();
        symlink("deep/file", folder.join("link")).unwrap();
        symlink("deep", folder.join("linked")).unwrap();
        symlink("/proc/self/root", folder.join("root")).unwrap();
        let open = |inside: &str| open_within(&folder, Path::new(inside));
        for inside in ["deep/file", "deep/../deep/file", "./deep/file"] {
            assert_eq!(open(inside).unwrap().read_start().unwrap(), b"inside", "{inside}");
        }
        let file = open("deep/file").unwrap().read().unwrap();
        assert_eq!(file.path(), folder.join("deep/file"));
        let secret = scratch.path().join("secret");
        let outside = ["../secret", "deep/../../secret", secret.to_str().unwrap()];
        let linked = ["link", "linked/file", "root/etc/passwd"];
        for inside in outside.iter().chain(&linked) {
            let error = open(inside).unwrap_err();
            assert_ne!(error.kind(), io::ErrorKind::NotFound, "{inside}: {error}");
        }
        assert_eq!(open("missing").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(open("deep").is_err());
    }
}
