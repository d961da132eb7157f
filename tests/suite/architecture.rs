//! The order of the folders of `src/`, as `docs/design.md` states it, and no circles of files that import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Most folders in `src/`, so that its listing shows the parts of the program.
const MAX_FOLDERS: usize = 12;

/// Most files that import each other in a circle, and in codecs, where records contain records.
const MAX_CIRCLE: usize = 2;
const MAX_CIRCLE_IN_CODEC: usize = 3;

/// Folders of codecs.
const CODECS: [&str; 5] = [
    "perf/",
    "elf/",
    "format/",
    "traces/mono/format/",
    "traces/xray/format/",
];

/// Circles that are larger: a file of each, how many files it has, and why.
const LARGER_CIRCLES: [(&str, usize, &str); 0] = [];

/// The names in a path, from the root of the crate.
type Names = Vec<String>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The source files of a crate, by module.
struct Sources {
    files: BTreeMap<Names, String>,
    texts: BTreeMap<String, String>,
}

impl Sources {
    fn of(folder: &Path) -> Self {
        let mut sources = Self {
            files: BTreeMap::new(),
            texts: BTreeMap::new(),
        };
        let mut open = vec![PathBuf::new()];
        while let Some(inside) = open.pop() {
            for entry in std::fs::read_dir(folder.join(&inside)).unwrap() {
                let path = inside.join(entry.unwrap().file_name());
                if folder.join(&path).is_dir() {
                    open.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    sources.add(folder, &path);
                }
            }
        }
        sources
    }

    fn add(&mut self, folder: &Path, path: &Path) {
        let name = path.to_str().unwrap().to_owned();
        if name.ends_with("tests.rs") || name == "main.rs" {
            return;
        }
        let mut module: Names = name
            .trim_end_matches(".rs")
            .split('/')
            .map(str::to_owned)
            .collect();
        module.pop_if(|last| last == "mod" || (last == "lib" && !name.contains('/')));
        let text = std::fs::read_to_string(folder.join(path)).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default());
        self.texts
            .insert(name.clone(), lines.collect::<Vec<_>>().join(" "));
        self.files.insert(module, name);
    }

    /// Returns the file that defines what a path names, through `pub use` of the module on the way.
    fn definition(&self, path: &[String], depth: usize) -> Option<&str> {
        let (length, file) = (1..=path.len())
            .rev()
            .find_map(|length| Some((length, self.files.get(&path[..length])?)))?;
        let (module, rest) = path.split_at(length);
        if let Some((name, inside)) = rest.split_first().filter(|_| depth < 4) {
            let exported = imports(&self.texts[file], module, true)
                .into_iter()
                .find(|path| path.last() == Some(name));
            if let Some(mut exported) = exported.filter(|exported| exported.as_slice() != path) {
                exported.extend_from_slice(inside);
                return self.definition(&exported, depth + 1);
            }
        }
        Some(file)
    }

    /// Returns the files that each file imports something of.
    fn edges(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut edges = BTreeMap::new();
        for (module, file) in self.files.iter().filter(|(module, _)| !module.is_empty()) {
            let text = &self.texts[file];
            let paths = imports(text, module, false)
                .into_iter()
                .chain(inline_paths(text, module));
            let imported = paths.filter_map(|path| self.definition(&path, 0));
            let imported = imported.filter(|other| other != file).collect();
            edges.insert(file.as_str(), imported);
        }
        edges
    }
}

/// Returns the paths of `use` items as paths from the root of the crate; only those that are exported if `is_public`.
fn imports(text: &str, module: &[String], is_public: bool) -> Vec<Names> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("use ") {
        let starts_word = before.is_empty() || before.ends_with([' ', '\n', '{', '}', ';', ')', ']']);
        let (tree, after) = match after.split_once(';') {
            Some(split) if starts_word => split,
            _ => {
                rest = after;
                continue;
            }
        };
        let before = before.trim_end();
        if !is_public
            || before.ends_with("pub")
            || before.ends_with("pub(crate)")
            || before.ends_with("pub(super)")
        {
            leaves(tree, &[], &mut found);
        }
        rest = after;
    }
    found
        .into_iter()
        .filter_map(|path| from_root(path, module, is_public))
        .collect()
}

/// Adds the paths of a tree of imports.
fn leaves(tree: &str, prefix: &[String], found: &mut Vec<Names>) {
    let tree = tree.trim();
    let segments = |text: &str| -> Names {
        let named = text
            .split("::")
            .map(str::trim)
            .filter(|segment| !segment.is_empty() && *segment != "self");
        prefix.iter().cloned().chain(named.map(str::to_owned)).collect()
    };
    let Some((head, inside)) = tree.split_once('{') else {
        let own = tree.split(" as ").next().unwrap_or_default();
        // `self` alone starts a path, and ends one.
        let is_relative = prefix.is_empty() && own.starts_with("self::");
        let mut path = segments(own);
        if is_relative {
            path.insert(0, "self".to_owned());
        }
        found.push(path);
        return;
    };
    let head = segments(head);
    let inside = &inside[..inside.rfind('}').unwrap_or(inside.len())];
    let (mut depth, mut start) = (0, 0);
    for (at, character) in inside.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                leaves(&inside[start..at], &head, found);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inside[start..].trim().is_empty() {
        leaves(&inside[start..], &head, found);
    }
}

/// Returns a path from the root of the crate; `None` for a path into another crate.
fn from_root(path: Names, module: &[String], may_be_relative: bool) -> Option<Names> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let ups = path.iter().take_while(|segment| *segment == "super").count();
            Some([&module[..module.len().checked_sub(ups)?], &path[ups..]].concat())
        }
        _ if may_be_relative => Some([module, &path].concat()),
        _ => None,
    }
}

/// Returns the paths in expressions and types, which start with `crate` or `super`.
fn inline_paths(text: &str, module: &[String]) -> Vec<Names> {
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in text.match_indices(start) {
            let is_path = |character: char| character.is_alphanumeric() || matches!(character, '_' | ':');
            let end = text[at..]
                .find(|character| !is_path(character))
                .map_or(text.len(), |length| at + length);
            let path = text[at..end].split("::").filter(|segment| !segment.is_empty());
            found.extend(from_root(path.map(str::to_owned).collect(), module, false));
        }
    }
    found
}

fn jitinject() -> Sources {
    Sources::of(&root().join("src"))
}

/// Returns the folders in the first list of `docs/design.md`, the lowest first.
fn listed_folders() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/design.md")).unwrap();
    let list = text.lines().skip_while(|line| !line.starts_with("- `"));
    let items = list
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("- `"));
    items
        .map(|item| item.split('`').nth(1).unwrap().trim_end_matches('/').to_owned())
        .collect()
}

fn folder_of(file: &str) -> Option<&str> {
    file.split_once('/').map(|(folder, _)| folder)
}

#[test]
fn folders_are_few_and_listed() {
    let folders = std::fs::read_dir(root().join("src")).unwrap().map(Result::unwrap);
    let folders = folders.filter(|entry| entry.path().is_dir());
    let folders: BTreeSet<String> = folders
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert!(folders.len() <= MAX_FOLDERS, "{folders:?}");
    assert_eq!(listed_folders().into_iter().collect::<BTreeSet<_>>(), folders);
}

#[test]
fn lower_folders_do_not_import_higher_ones() {
    let (sources, folders) = (jitinject(), listed_folders());
    let height = |folder: &str| folders.iter().position(|listed| listed == folder);
    let mut wrong = Vec::new();
    let mut count = 0;
    for (file, imported) in sources.edges() {
        for other in imported {
            let (Some(of_file), Some(of_other)) = (folder_of(file), folder_of(other)) else {
                continue;
            };
            count += 1;
            if height(of_file) < height(of_other) {
                wrong.push(format!("{file} imports {other}"));
            }
        }
    }
    assert!(count > 500, "only {count} imports found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the circles among files: sets that all reach each other.
fn circles<'s>(edges: &BTreeMap<&'s str, BTreeSet<&'s str>>) -> Vec<BTreeSet<&'s str>> {
    let reached = |from: &'s str| {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            let new = edges
                .get(file)
                .into_iter()
                .flatten()
                .filter(|other| reached.insert(**other));
            open.extend(new.copied().collect::<Vec<_>>());
        }
        reached
    };
    let all: BTreeMap<&str, BTreeSet<&str>> = edges.keys().map(|&file| (file, reached(file))).collect();
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for (&file, others) in &all {
        let back = |other: &&&str| all.get(**other).is_some_and(|from| from.contains(file));
        let circle: BTreeSet<&str> = others.iter().filter(back).copied().collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

#[test]
fn files_do_not_import_each_other_in_circles() {
    let mut wrong = Vec::new();
    let mut known = 0;
    for sources in [jitinject(), Sources::of(&root().join("crates/jitdump/src"))] {
        for circle in circles(&sources.edges()) {
            let is_codec = |file: &&str| CODECS.iter().any(|codec| file.starts_with(codec));
            let limit = if circle.iter().all(is_codec) {
                MAX_CIRCLE_IN_CODEC
            } else {
                MAX_CIRCLE
            };
            let is_known =
                |(file, size, _): &(&str, usize, &str)| circle.contains(file) && circle.len() <= *size;
            if LARGER_CIRCLES.iter().any(is_known) {
                known += 1;
            } else if circle.len() > limit {
                wrong.push(format!("{circle:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        known,
        LARGER_CIRCLES.len(),
        "a circle is smaller than its exception allows"
    );
}

/// Returns the modules in brackets in the pictures of a module's documentation.
fn modules_in_pictures(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_picture = false;
    for line in text.lines().filter_map(|line| line.strip_prefix("//!")) {
        is_picture = match line.trim() {
            "```text" => true,
            "```" => false,
            _ => is_picture,
        };
        let names = line.split('[').skip(1).filter_map(|rest| rest.split_once(']'));
        let names = names.map(|(name, _)| name.trim_matches('`'));
        let is_module = |name: &&str| {
            name.chars()
                .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || "_:".contains(it))
        };
        found.extend(names.filter(is_module).filter(|_| is_picture));
    }
    found
}

#[test]
fn modules_in_pictures_exist() {
    let mut checked = 0;
    for folder in ["src", "crates/jitdump/src"] {
        let folder = root().join(folder);
        let sources = Sources::of(&folder);
        for (module, file) in &sources.files {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            for name in modules_in_pictures(&text) {
                let names = |path: &str| path.split("::").map(str::to_owned).collect::<Names>();
                let path = match name.strip_prefix("crate::") {
                    Some(path) => names(path),
                    None => [&module[..], &names(name)].concat(),
                };
                assert!(sources.files.contains_key(&path), "{file}: no module {name}");
                checked += 1;
            }
        }
    }
    assert!(checked > 50, "{checked}");
}
