//! Source files of the same program in different directories.
//!
//! Checkouts, build directories and installations have other paths on every machine. A directory matches an earlier one
//! if files below both have the same names, and if it has moved as a whole: several files, or all below its root.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

use crate::collections::hash::{HashMap, HashSet};
use crate::tools::compare::matching::identity::base_name;

/// Files of one name that a file is compared with. Names such as `index.js` occur in many folders.
const MAX_CANDIDATES: usize = 16;

/// Pairs of folders that are tried for one run.
const MAX_PAIRS: usize = 32;

/// Folders of a path that are known, the outermost ones.
const MAX_DEPTH: usize = 64;

/// Source files of all runs so far.
#[derive(Debug, Default)]
pub struct Folders<'r> {
    files: BTreeSet<Rc<str>>,
    /// The same by their base names.
    by_name: HashMap<Box<str>, BTreeSet<Rc<str>>>,
    /// Whether any of them is in the folder without a name.
    has_relative: bool,
    /// Runs of one program with files in a folder or below it, by their number.
    runs_below: HashMap<&'r str, Vec<usize>>,
    /// Whether a run has files in both of two folders, as far as it was asked.
    shared: RefCell<HashMap<(&'r str, &'r str), bool>>,
}

/// Folders of one run, and what the earlier runs called them, both with a slash at the end.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MovedFolders(Vec<(String, String)>);

impl<'r> Folders<'r> {
    /// Creates a table for runs of one program, in which no two folders are the same if a run has both.
    pub fn of_program(runs: &[HashSet<&'r str>]) -> Self {
        let mut runs_below: HashMap<&'r str, Vec<usize>> = HashMap::default();
        for (run, files) in runs.iter().enumerate() {
            for folder in files.iter().copied().flat_map(folders_of) {
                let runs = runs_below.entry(folder).or_default();
                if runs.last() != Some(&run) {
                    runs.push(run);
                }
            }
        }
        Self {
            runs_below,
            ..Self::default()
        }
    }

    /// Finds the folders of one run among those of the earlier ones, and adds its files.
    pub fn align(&mut self, files: &HashSet<&str>) -> MovedFolders {
        let moved = if self.files.is_empty() {
            MovedFolders::default()
        } else {
            self.find_moved(files)
        };
        for &file in files {
            self.add(moved.apply(file));
        }
        moved
    }

    fn add(&mut self, file: Cow<'_, str>) {
        if self.files.contains(&*file) {
            return;
        }
        let file: Rc<str> = file.into();
        self.has_relative |= is_below(&file, "");
        let same_name = self.by_name.entry(base_name(&file).into()).or_default();
        same_name.insert(file.clone());
        self.files.insert(file);
    }

    /// Returns the first files of a base name that are not among those of a run.
    fn absent(&self, name: &str, files: &HashSet<&str>) -> Vec<&str> {
        let same_name = self.by_name.get(name).into_iter().flatten();
        let absent = same_name.map(|file| &**file).filter(|file| !files.contains(file));
        absent.take(MAX_CANDIDATES).collect()
    }

    /// Finds the folders that are elsewhere on the other side, by files of the same names.
    fn find_moved(&self, files: &HashSet<&str>) -> MovedFolders {
        let mut pairs: Vec<_> = self.votes(files).into_iter().collect();
        pairs.sort_by_key(|&(_, votes)| std::cmp::Reverse(votes));
        let mut moved = MovedFolders::default();
        for ((from, to), votes) in pairs.into_iter().take(MAX_PAIRS) {
            let is_taken = moved.0.iter().any(|(known, _)| known == from);
            if !is_taken && self.is_moved((from, to), votes, files) {
                moved.0.push((from.to_owned(), to.to_owned()));
            }
        }
        // The innermost folder decides.
        moved.0.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
        moved
    }

    /// Returns pairs of a folder of the run and an earlier one, with the number of files that speak for the pair: no earlier run
    /// has them, and of the earlier files of their name, the one in the other folder has the longest common end.
    fn votes<'f>(&'f self, files: &HashSet<&'f str>) -> BTreeMap<(&'f str, &'f str), usize> {
        let mut absent: HashMap<&str, Vec<&str>> = HashMap::default();
        let mut votes: BTreeMap<(&'f str, &'f str), usize> = BTreeMap::new();
        for &file in files.iter().filter(|file| !self.files.contains(**file)) {
            let name = base_name(file);
            let candidates = absent.entry(name).or_insert_with(|| self.absent(name, files));
            let suffixes = candidates
                .iter()
                .map(|other| (common_suffix(file, other), *other));
            let Some((size, other)) = longest(suffixes) else {
                continue;
            };
            let (Some(from), Some(to)) = (prefix(file, size), prefix(other, size)) else {
                continue;
            };
            let of_pair = votes.entry((from, to)).or_default();
            *of_pair = of_pair.saturating_add(1);
        }
        votes
    }

    /// Whether a folder has moved as a whole, if `count` of its files have their names in both.
    fn is_moved(&self, (from, to): (&str, &str), count: usize, files: &HashSet<&str>) -> bool {
        // One file may be that of another package, such as `index.js`.
        let root = root_of(from);
        let is_root = || {
            files
                .iter()
                .all(|file| root_of(file) != root || is_below(file, from))
        };
        // A folder whose files are partly where they were has not moved.
        let stayed = |file: &str| (is_below(file, from) || is_below(file, to)) && self.files.contains(file);
        // Folders that have files at the same time are two, unless one of them is in the other.
        let is_nested = is_below(from, to) || is_below(to, from);
        let has_both = || self.has_below(from) || files.iter().any(|file| is_below(file, to));
        let is_certain = count > 1 || is_root();
        is_certain
            && !files.iter().any(|file| stayed(file))
            && !self.share_run(from, to)
            && (is_nested || !has_both())
    }

    /// Whether any file is in a folder or below it.
    fn has_below(&self, folder: &str) -> bool {
        if folder.is_empty() {
            return self.has_relative;
        }
        let bounds: (Bound<&str>, Bound<&str>) = (Bound::Included(folder), Bound::Unbounded);
        let mut following = self.files.range::<str, _>(bounds);
        following.next().is_some_and(|file| is_below(file, folder))
    }

    /// Whether a run of the program has files in both folders.
    fn share_run(&self, one: &str, other: &str) -> bool {
        let [one, other] = [one, other].map(|folder| self.runs_below.get_key_value(folder));
        let Some(((&one, runs), (&other, others))) = one.zip(other) else {
            return false;
        };
        let mut shared = self.shared.borrow_mut();
        *shared
            .entry((one, other))
            .or_insert_with(|| runs.iter().any(|run| others.binary_search(run).is_ok()))
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
    if folder.is_empty() {
        !path.starts_with('/') && !path.contains(':')
    } else {
        path.starts_with(folder)
    }
}

/// Returns the folders that a path is in, the outermost first.
fn folders_of(path: &str) -> impl Iterator<Item = &str> {
    let nameless = Some("").filter(|folder| is_below(path, folder));
    let folders = path
        .match_indices('/')
        .filter_map(move |(slash, _)| path.get(..=slash));
    nameless.into_iter().chain(folders).take(MAX_DEPTH)
}

/// Returns the outermost folder of a path; of absolute ones, the one in `/`.
fn root_of(path: &str) -> &str {
    if is_below(path, "") {
        return "";
    }
    let mut slashes = path.match_indices('/').filter(|&(slash, _)| slash > 0);
    let root = slashes.next().and_then(|(slash, _)| path.get(..=slash));
    root.unwrap_or(path)
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
    fn one_file_of_the_same_name_is_no_moved_folder() {
        let mut folders = Folders::default();
        folders.align(&set(&["/app/main.js", "/app/packages/auth/index.js"]));
        let moved = folders.align(&set(&["/app/main.js", "/app/packages/billing/index.js"]));
        assert_eq!(moved, MovedFolders::default());
        // It is, if nothing else is below its root.
        let moved = folders.align(&set(&["/ci/packages/auth/index.js", "node:fs"]));
        assert_eq!(
            moved.apply("/ci/packages/auth/index.js"),
            "/app/packages/auth/index.js"
        );
    }

    #[test]
    fn folders_with_files_at_the_same_time_are_two() {
        let [left, right] = [
            ["/app/left/a.js", "/app/left/b.js"],
            ["/app/right/a.js", "/app/right/b.js"],
        ];
        let runs = [
            set(&left),
            set(&right),
            set(&["/app/left/a.js", "/app/right/b.js"]),
        ];
        let mut folders = Folders::of_program(&runs);
        for run in &runs {
            assert_eq!(folders.align(run), MovedFolders::default());
        }
        let with_old = ["/app/right/a.js", "/app/right/b.js", "/app/left/c.js"];
        for (files, is_moved) in [(right.as_slice(), true), (with_old.as_slice(), false)] {
            let mut folders = Folders::default();
            folders.align(&set(&left));
            let moved = folders.align(&set(files)) != MovedFolders::default();
            assert_eq!(moved, is_moved, "{files:?}");
        }
    }

    #[test]
    fn runs_of_one_program_have_directories_of_their_own() {
        let runs = [
            set(&["/job-1/a.js", "/job-1/b.js"]),
            set(&["/job-2/a.js", "/job-2/b.js"]),
        ];
        let mut folders = Folders::of_program(&runs);
        folders.align(&runs[0]);
        assert_eq!(folders.align(&runs[1]).apply("/job-2/b.js"), "/job-1/b.js");
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
    fn relative_files_are_in_a_folder_of_their_own() {
        for (other, is_moved) in [("/ci/x.js", true), ("node:fs", true), ("lib/x.js", false)] {
            let mut folders = Folders::default();
            folders.align(&set(&["/ci/src/a.js", "/ci/src/b.js", other]));
            let moved = folders.align(&set(&["src/a.js", "src/b.js"]));
            assert_eq!(moved != MovedFolders::default(), is_moved, "{other}");
        }
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
    fn of_the_folders_of_a_path_64_are_known() {
        let count = |depth: usize| folders_of(&format!("/{}a.js", "d/".repeat(depth))).count();
        assert_eq!((count(5), count(63), count(64)), (6, 64, 64));
        assert_eq!(
            folders_of("src/lib/a.js").collect::<Vec<_>>(),
            ["", "src/", "src/lib/"]
        );
        assert_eq!(folders_of("node:fs").next(), None);
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
