//! Lookups of many files in a directory, mostly without success.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::collections::hash::{HashMap, HashSet};
use crate::files::search::folder_of;

/// Number of lookups after which a folder is listed. It may contain many more files than a profile has
/// processes.
const ONE_BY_ONE: usize = 100;

/// Maximum number of folders to list: a profile may have any number of paths for a folder.
const MAX_LISTED: usize = 64;

/// Maximum number of entries in a folder that is listed.
const MAX_ENTRIES: usize = 1 << 20;

/// Folder, next to the profile, in which `jitinject record` keeps the files of runtimes.
pub const RUNTIME_FILES: &str = "dumps";

/// Maximum number of folders in [`RUNTIME_FILES`] for files of one name. They are numbered from 2
/// ([`Folder::without`](crate::files::Folder::without)).
const MAX_NUMBERED: usize = 32;

/// The folders in which the files of a profile are looked for by their names.
#[derive(Debug)]
pub struct ProfileFolders {
    /// Folder of the profile.
    pub own: PathBuf,
    /// Folders of a recording: two runtimes of a process both name their jitdump `jit-PID.dump`.
    recorded: Vec<PathBuf>,
}

impl ProfileFolders {
    /// Returns those of a profile.
    pub fn of(profile: &Path) -> Self {
        let own = folder_of(profile).to_owned();
        let dumps = own.join(RUNTIME_FILES);
        let numbered = (2u32..)
            .take(MAX_NUMBERED)
            .map(|number| dumps.join(number.to_string()));
        let is_there = |folder: &PathBuf| fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir());
        let numbered: Vec<PathBuf> = numbered.take_while(is_there).collect();
        Self {
            own,
            recorded: std::iter::once(dumps).chain(numbered).collect(),
        }
    }

    /// Returns the paths that a file may have, the most likely one first.
    pub fn paths(&self, name: &OsStr) -> impl Iterator<Item = PathBuf> {
        let folders = std::iter::once(&self.own).chain(&self.recorded);
        folders.map(move |folder| folder.join(name))
    }
}

/// Contents of folders.
#[derive(Debug, Default)]
pub struct Folders {
    /// Folders by path.
    all: HashMap<Vec<u8>, ListedFolder>,
    listed: usize,
}

#[derive(Debug, Default)]
struct ListedFolder {
    /// Number of lookups.
    lookups: usize,
    /// Names of its entries, each after a slash; `None` if it was not listed.
    names: Option<HashSet<Vec<u8>>>,
}

impl Folders {
    /// Whether a file may exist. If not, opening it is unnecessary.
    pub fn may_have(&mut self, path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes();
        let parts = memchr::memrchr(b'/', bytes).and_then(|slash| bytes.split_at_checked(slash));
        let Some((parent, name)) = parts else {
            return true;
        };
        if matches!(name, b"/" | b"/." | b"/..") {
            return true;
        }
        let Some(folder) = self.all.get_mut(parent) else {
            let folder = ListedFolder {
                lookups: 1,
                names: None,
            };
            self.all.insert(parent.to_owned(), folder);
            return true;
        };
        folder.lookups = folder.lookups.saturating_add(1);
        if folder.lookups == ONE_BY_ONE && self.listed < MAX_LISTED {
            self.listed = self.listed.saturating_add(1);
            folder.names = names(parent);
        }
        let is_there = |names: &HashSet<Vec<u8>>| names.contains(name);
        folder.names.as_ref().is_none_or(is_there)
    }
}

/// Names of a folder's entries, each after a slash; `None` if it is unreadable or has too many.
fn names(folder: &[u8]) -> Option<HashSet<Vec<u8>>> {
    let folder = [folder, b"/"].concat();
    let entries = match fs::read_dir(OsStr::from_bytes(&folder)) {
        Ok(entries) => entries,
        Err(error) => {
            let is_missing = matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            );
            return is_missing.then(HashSet::default);
        }
    };
    let names = limited(entries).map(|entry| Some([b"/", entry?.file_name().as_bytes()].concat()));
    names.collect()
}

/// Returns the entries of a folder, and `None` for those that are unreadable or too many.
fn limited<T>(entries: impl Iterator<Item = io::Result<T>>) -> impl Iterator<Item = Option<T>> {
    let entries = entries.enumerate();
    entries.map(|(index, entry)| entry.ok().filter(|_| index < MAX_ENTRIES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_asked_often_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("there"), "").unwrap();
        let mut folders = Folders::default();
        let mut may_have = |name: &str| folders.may_have(&folder.path().join(name));
        assert!((1..100).all(|_| may_have("missing")));
        assert!(!may_have("missing"));
        assert!(may_have("there"));
        assert!(may_have(".."));
    }

    #[test]
    fn folders_of_a_recording_are_numbered_from_2_up_to_33() {
        let folder = tempfile::tempdir().unwrap();
        let dumps = folder.path().join("dumps");
        let count = || {
            ProfileFolders::of(&folder.path().join("perf.data"))
                .paths("jit-1.dump".as_ref())
                .count()
        };
        fs::create_dir(&dumps).unwrap();
        fs::create_dir(dumps.join("3")).unwrap();
        std::os::unix::fs::symlink("3", dumps.join("2")).unwrap();
        assert_eq!(count(), 2, "`record` makes no links");
        fs::remove_file(dumps.join("2")).unwrap();
        fs::create_dir(dumps.join("2")).unwrap();
        assert_eq!(count(), 4);
        for number in 4..40 {
            fs::create_dir(dumps.join(number.to_string())).unwrap();
        }
        assert_eq!(count(), 2 + 32);
    }

    #[test]
    fn nothing_is_in_a_folder_that_is_missing() {
        let mut folders = Folders::default();
        let path = Path::new("/nowhere/at/all");
        assert!((1..100).all(|_| folders.may_have(path)));
        assert!(!folders.may_have(path));
    }

    #[test]
    fn only_64_folders_are_listed() {
        let mut folders = Folders::default();
        let mut may_have = |folder: u32| {
            let path = PathBuf::from(format!("/nowhere/{folder}/file"));
            (0..100).all(|_| folders.may_have(&path))
        };
        assert!((0..64).all(|folder| !may_have(folder)));
        assert!(may_have(64), "every file may be there");
    }

    #[test]
    fn folders_of_up_to_1_048_576_entries_are_listed() {
        let endless = std::iter::repeat_with(|| Ok(()));
        let listed = limited(endless).take_while(Option::is_some);
        assert_eq!(listed.count(), 1_048_576);
    }
}
