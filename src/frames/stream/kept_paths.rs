//! Paths of source files in objects of an earlier run: those that the files had before `--keep-sources` copied them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::collections::hash::HashMap;
use crate::files::Reach;
use crate::files::objects::source_lists::{ListRoom, lists};
use crate::files::objects::stored_source::{SOURCES, read_list};
use crate::files::search::without_links;
use crate::files::walk::{self, MAX_PATH, Scope};
use crate::frames::native::files::profile_folder;
use crate::load::LoadOptions;

/// Finds the lists of source files in directories of objects.
#[derive(Debug)]
pub struct KeptPaths {
    reach: Reach,
    /// Folder of the profile; `None` for standard input.
    folder: Option<PathBuf>,
    room: ListRoom,
}

/// Lists of one directory of objects.
#[derive(Debug)]
pub struct OriginalPaths {
    /// Folder with the copies, as objects have it.
    sources: PathBuf,
    /// Paths that the files had, by those of their copies in the folder. Each may be that of any number of functions, so those
    /// that are no paths of Linux are left out.
    originals: HashMap<PathBuf, String>,
    /// Number of lists that cannot be read.
    pub unread: u64,
}

impl KeptPaths {
    /// Prepares the search.
    pub fn new(options: &LoadOptions) -> Self {
        Self {
            reach: options.reach(),
            folder: profile_folder(options),
            room: ListRoom::default(),
        }
    }

    /// Reads the lists of a directory of objects: there, and in one of the same name beside the profile, which may have been
    /// moved with it. Names of copies have a hash of the path and text, so lists do not contradict each other.
    pub fn of(&self, objects: &Path) -> OriginalPaths {
        let sources = objects.join(SOURCES);
        let inside = objects.file_name().map(|name| Path::new(name).join(SOURCES));
        let moved = self.folder.as_ref().zip(inside);
        let beside = moved.as_ref().map(|(folder, inside)| folder.join(inside));
        let is_here = self.reach.has(&sources);
        let is_same = |beside: &PathBuf| {
            let place = |path: &Path| without_links(path).ok();
            is_here && place(beside).is_some_and(|beside| place(&sources) == Some(beside))
        };
        let beside = beside.filter(|beside| !is_same(beside));
        let mut found = OriginalPaths {
            sources: sources.clone(),
            originals: HashMap::default(),
            unread: 0,
        };
        if is_here {
            let open = |name: &Path| self.reach.open_recorded(&sources.join(name));
            lists(&sources, open, &self.room).for_each(|list| found.add(list));
        }
        if let (Some(beside), Some((folder, inside))) = (beside, moved) {
            let open = |name: &Path| walk::open(&inside.join(name), Scope::Beneath(folder));
            lists(&beside, open, &self.room).for_each(|list| found.add(list));
        }
        found
    }
}

impl OriginalPaths {
    fn add(&mut self, list: Option<String>) {
        let Some(list) = list else {
            self.unread = self.unread.saturating_add(1);
            return;
        };
        let entries = read_list(&list).filter(|(original, ..)| original.len() <= MAX_PATH);
        let entries = entries.map(|(original, _, copy)| (PathBuf::from(copy), original.to_owned()));
        self.originals.extend(entries);
    }

    /// Returns the path that a file had, if it is a copy.
    pub fn of(&self, path: &[u8]) -> Option<&str> {
        let path = Path::new(OsStr::from_bytes(path));
        let copy = path.strip_prefix(&self.sources).ok()?;
        self.originals.get(copy).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use crate::files::objects::stored_source::{SourceList, StoredSource};

    /// Writes the list of a copy of `path` to a directory of objects, and returns its path.
    fn keep(objects: &Path, path: &str) -> PathBuf {
        let source = StoredSource::new(path.as_bytes(), b"let a;\n");
        let mut list = SourceList::default();
        list.add(&source);
        let (name, text) = list.file().unwrap();
        fs::create_dir_all(objects.join(SOURCES)).unwrap();
        fs::write(objects.join(SOURCES).join(name), text).unwrap();
        source.path()
    }

    #[test]
    fn lists_are_read_where_objects_were_and_beside_the_profile() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let recorded = at("old/perf.jit.data.elf");
        let copies = [
            keep(&recorded, "/src/a.js"),
            keep(&at("new/perf.jit.data.elf"), "/src/b.js"),
        ];
        let found = |input: &str, confine| {
            let options = LoadOptions {
                input: at(input),
                confine,
                ..LoadOptions::default()
            };
            let lists = KeptPaths::new(&options).of(&recorded);
            let of = |copy: &PathBuf| {
                lists
                    .of(recorded.join(copy).as_os_str().as_bytes())
                    .map(str::to_owned)
            };
            assert_eq!(lists.of(b"/src/a.js"), None);
            (copies.each_ref().map(of), lists.unread)
        };
        let [a, b] = ["/src/a.js", "/src/b.js"].map(|path| Some(path.to_owned()));
        assert_eq!(found("new/perf.jit.data", false), ([a.clone(), b.clone()], 0));
        assert_eq!(found("new/perf.jit.data", true), ([None, b], 0));
        assert_eq!(found("old/perf.jit.data", false), ([a.clone(), None], 0));
        assert_eq!(found("perf.jit.data", false), ([a, None], 0));
        // Each list that cannot be read is counted once.
        fs::create_dir(recorded.join(SOURCES).join("SHA256SUMS-0")).unwrap();
        assert_eq!(found("old/perf.jit.data", false).1, 1);
    }

    #[test]
    fn paths_have_up_to_4096_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let objects = folder.path().join("out.data.elf");
        let options = LoadOptions {
            input: folder.path().join("out.data"),
            ..LoadOptions::default()
        };
        for (size, is_found) in [(4096, true), (4097, false)] {
            let copy = keep(&objects, &format!("/{}", "a".repeat(size - 1)));
            let copy = objects.join(copy);
            let lists = KeptPaths::new(&options).of(&objects);
            let found = lists.of(copy.as_os_str().as_bytes());
            assert_eq!(found.map(str::len), is_found.then_some(size));
        }
    }
}
