//! Resolves a path and collects the owners of its symbolic links, who control its target.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::PROC_SUPER_MAGIC;
use rustix::io::Errno;

/// Maximum number of links that the kernel follows (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

/// A path with all links resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedPath {
    /// User IDs of the owners of the links in the path.
    pub link_owners: BTreeSet<u32>,
    /// Device and inode of the target.
    pub file_id: (u64, u64),
}

/// Follows a path as the kernel does. Links in `/proc` belong to the kernel and can lead into other mount
/// namespaces: their owners are left out.
pub fn resolve(path: &Path) -> io::Result<ResolvedPath> {
    let mut link_owners = BTreeSet::new();
    let mut left = MAX_LINKS;
    // The resolved path. The only links in it are the kernel's.
    let mut at = PathBuf::from(".");
    let mut steps = steps(path);
    while let Some(step) = steps.pop() {
        let next = at.join(&step);
        let found = fs::symlink_metadata(&next)?;
        if !found.is_symlink() || rustix::fs::statfs(&at)?.f_type == PROC_SUPER_MAGIC {
            at = next;
            continue;
        }
        left = left.checked_sub(1).ok_or(Errno::LOOP)?;
        link_owners.insert(found.uid());
        steps.extend(self::steps(&fs::read_link(&next)?));
    }
    let end = fs::metadata(&at)?;
    Ok(ResolvedPath {
        link_owners,
        file_id: (end.dev(), end.ino()),
    })
}

/// Returns the components of a path, the first one last. If the first one is `/`, joining it discards the
/// path before it.
fn steps(path: &Path) -> Vec<OsString> {
    let steps = path.components().map(Component::as_os_str);
    steps.rev().map(OsStr::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn file_id(path: &Path) -> (u64, u64) {
        let found = fs::metadata(path).unwrap();
        (found.dev(), found.ino())
    }

    #[test]
    fn paths_resolve_as_in_the_kernel() {
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
            let resolve = resolve(&path).unwrap();
            assert_eq!(resolve.file_id, file_id(&path), "{path:?}");
            let link_owners: Vec<u32> = resolve.link_owners.into_iter().collect();
            assert_eq!(link_owners, vec![me; usize::from(is_linked)], "{path:?}");
        }
        for path in ["circle", "missing", "a/missing/../b"] {
            let path = root.join(path);
            assert_eq!(
                resolve(&path).map_err(|error| error.kind()).map(|_| ()),
                fs::metadata(&path).map_err(|error| error.kind()).map(|_| ()),
                "{path:?}"
            );
        }
    }

    #[test]
    fn links_of_the_kernel_have_no_owner() {
        for path in [
            "/proc/self/exe",
            "/proc/self/root/proc/version",
            "/proc/thread-self/cwd",
        ] {
            let path = Path::new(path);
            let found = resolve(path).unwrap();
            assert_eq!(
                (found.link_owners.len(), found.file_id),
                (0, file_id(path)),
                "{path:?}"
            );
        }
    }
}
