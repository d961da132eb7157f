//! Source files of the same program in different directories.
//!
//! Checkouts, build directories and installations have other paths on every machine. A directory of one run matches a
//! directory of the earlier runs if files below both have the same names, and if it has moved as a whole.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::collections::hash::{HashMap, HashSet};
use crate::tools::compare::matching::identity::base_name;

/// Files of one name that a file is compared with. Names such as `index.js` occur in many folders.
const MAX_CANDIDATES: usize = 16;

/// Pairs of folders that are tried for one run.
const MAX_PAIRS: usize = 32;

/// Source files of all runs so far.
#[derive(Debug, Default)]
pub struct Folders {
    files: HashSet<String>,
}

/// Folders of one run, and what the earlier runs called them, both with a slash at the end.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MovedFolders(Vec<(String, String)>);

impl Folders {
    /// Finds the folders of one run among those of the earlier ones, and adds its files.
    pub fn align(&mut self, files: &HashSet<&str>) -> MovedFolders {
        let moved = match self.files.is_empty() {
            true => MovedFolders::default(),
            false => self.find_moved(files),
        };
        for &file in files {
            let file = moved.apply(file);
            if !self.files.contains(&*file) {
                self.files.insert(file.into_owned());
            }
        }
        moved
    }

    fn find_moved(&self, files: &HashSet<&str>) -> MovedFolders {
        let mut absent: HashMap<&str, Vec<&str>> = HashMap::default();
        let mut remaining: Vec<&str> = self.files.iter().map(|file| &**file).collect();
        remaining.sort_unstable();
        for file in remaining.into_iter().filter(|file| !files.contains(file)) {
            let same_name = absent.entry(base_name(file)).or_default();
            if same_name.len() < MAX_CANDIDATES {
                same_name.push(file);
            }
        }
        let mut votes: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for file in files.iter().filter(|file| !self.files.contains(**file)) {
            let candidates = absent.get(base_name(file)).into_iter().flatten();
            let suffixes = candidates.map(|other| (common_suffix(file, other), *other));
            let Some((size, other)) = longest(suffixes) else {
                continue;
            };
            let (Some(from), Some(to)) = (prefix(file, size), prefix(other, size)) else {
                continue;
            };
            let count = votes.entry((from, to)).or_default();
            *count = count.saturating_add(1);
        }
        let mut pairs: Vec<_> = votes.into_iter().collect();
        pairs.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        let mut moved = MovedFolders::default();
        for ((from, to), _) in pairs.into_iter().take(MAX_PAIRS) {
            // A folder whose files are partly where they were has not moved.
            let stayed = |file: &&&str| {
                let is_inside = is_below(file, from) || is_below(file, to);
                is_inside && self.files.contains(**file)
            };
            let is_taken = moved.0.iter().any(|(known, _)| known == from);
            if !is_taken && files.iter().find(stayed).is_none() {
                moved.0.push((from.to_owned(), to.to_owned()));
            }
        }
        // The innermost folder decides.
        moved.0.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
        moved
    }
}

impl MovedFolders {
    /// Returns what the earlier runs called a file.
    pub fn apply<'p>(&self, path: &'p str) -> Cow<'p, str> {
        let mut folders = self.0.iter();
        let found = folders.find(|(from, _)| is_below(path, from));
        match found.and_then(|(from, to)| Some((to, path.strip_prefix(&**from)?))) {
            Some((to, rest)) => Cow::Owned(format!("{to}{rest}")),
            None => Cow::Borrowed(path),
        }
    }
}

/// Whether a path is in a folder. Relative paths are in the folder without a name.
fn is_below(path: &str, folder: &str) -> bool {
    match folder.is_empty() {
        true => !path.starts_with('/') && !path.contains(':'),
        false => path.starts_with(folder),
    }
}

fn prefix(path: &str, suffix: usize) -> Option<&str> {
    path.get(..path.len().checked_sub(suffix)?)
}

/// Returns the size of the common end of two paths, in whole parts.
fn common_suffix(one: &str, other: &str) -> usize {
    let mut parts = one.rsplit('/').zip(other.rsplit('/'));
    let mut size = 0_usize;
    while let Some((part, _)) = parts.next().filter(|(one, other)| one == other) {
        size = size.saturating_add(part.len()).saturating_add(1);
    }
    // The first part of a path has no slash before it.
    size.saturating_sub(1)
}

/// Returns the longest suffix and its file; `None` if several are equally long.
fn longest<'p>(suffixes: impl Iterator<Item = (usize, &'p str)>) -> Option<(usize, &'p str)> {
    let mut found: Option<(usize, &str)> = None;
    let mut is_unique = true;
    for (size, path) in suffixes.filter(|&(size, _)| size > 0) {
        match found {
            Some((longest, _)) if longest > size => {}
            Some((longest, _)) if longest == size => is_unique = false,
            _ => {
                found = Some((size, path));
                is_unique = true;
            }
        }
    }
    found.filter(|_| is_unique)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<'p>(files: &[&'p str]) -> HashSet<&'p str> {
        files.iter().copied().collect()
    }

    #[test]
    fn folders_that_moved_as_a_whole_are_found() {
        let mut folders = Folders::default();
        folders.align(&set(&[
            "/home/a/app/main.js",
            "/home/a/app/lib/util.js",
            "/usr/lib/node/x.js",
            "node:fs",
        ]));
        let moved = folders.align(&set(&["/ci/7/main.js", "/ci/7/lib/util.js", "/ci/7/lib/new.js"]));
        assert_eq!(moved.apply("/ci/7/lib/util.js"), "/home/a/app/lib/util.js");
        assert_eq!(moved.apply("/ci/7/lib/new.js"), "/home/a/app/lib/new.js");
        assert_eq!(moved.apply("/usr/lib/node/x.js"), "/usr/lib/node/x.js");
        // The third run is aligned with all earlier ones.
        let moved = folders.align(&set(&["/ci/8/lib/new.js", "node:fs"]));
        assert_eq!(moved.apply("/ci/8/lib/new.js"), "/home/a/app/lib/new.js");
        assert_eq!(moved.apply("node:fs"), "node:fs");
    }

    #[test]
    fn files_that_stay_keep_their_folder() {
        let mut folders = Folders::default();
        folders.align(&set(&["/app/src/a.js", "/app/src/b.js", "/app/lib/c.js"]));
        let moved = folders.align(&set(&["/app/src/a.js", "/app/lib/b.js", "/app/lib/c.js"]));
        assert_eq!(moved, MovedFolders::default());
    }

    #[test]
    fn relative_paths_and_equal_names_are_handled() {
        let mut folders = Folders::default();
        folders.align(&set(&["/ci/src/a.js", "/ci/test/index.js", "/ci/src/index.js"]));
        let moved = folders.align(&set(&["src/a.js", "src/index.js", "index.js"]));
        assert_eq!(moved.apply("src/index.js"), "/ci/src/index.js");
        assert_eq!(moved.apply("node:fs"), "node:fs");
    }

    #[test]
    fn files_are_compared_with_sixteen_of_their_name() {
        let known: Vec<String> = (10..27).map(|number| format!("/old/{number}/index.js")).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let renamed = |file: &str| {
            let mut folders = Folders::default();
            folders.align(&set(&known));
            folders.align(&set(&[file])).apply(file).into_owned()
        };
        assert_eq!(renamed("/new/25/index.js"), "/old/25/index.js");
        assert_eq!(renamed("/new/26/index.js"), "/new/26/index.js");
    }

    #[test]
    fn of_the_folders_of_a_run_32_are_found() {
        let files = |root: &str| -> Vec<String> {
            let numbers = 10..43;
            numbers
                .map(|number| format!("/{root}-{number}/{number}.js"))
                .collect()
        };
        let (old, new) = (files("old"), files("new"));
        let [old, new]: [HashSet<&str>; 2] =
            [&old, &new].map(|files| files.iter().map(String::as_str).collect());
        let mut folders = Folders::default();
        folders.align(&old);
        let moved = folders.align(&new);
        assert_eq!(moved.apply("/new-41/41.js"), "/old-41/41.js");
        assert_eq!(moved.apply("/new-42/42.js"), "/new-42/42.js");
    }
}
