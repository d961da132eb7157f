//! docs/hostile-input.md lists all unsafe code.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The compiler denies unsafe code without an attribute that names the lint, so this counts the attributes.
#[test]
fn every_use_of_unsafe_is_in_the_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut used = BTreeMap::new();
    count_uses(&root.join("src"), "", &mut used);
    let mut listed = BTreeMap::new();
    let document = fs::read_to_string(root.join("docs/hostile-input.md")).unwrap();
    let (_, section) = document.split_once("\n## Unsafe code\n").unwrap();
    for row in section.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (file, _) = row.split_once('`').unwrap();
        *listed.entry(file.to_owned()).or_default() += 1;
    }
    assert_eq!(used, listed);
}

/// Counts the exceptions from the lint in each file of a folder and below.
fn count_uses(folder: &Path, prefix: &str, used: &mut BTreeMap<String, usize>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().display());
        if entry.file_type().unwrap().is_dir() {
            count_uses(&entry.path(), &format!("{name}/"), used);
            continue;
        }
        let uses = fs::read_to_string(entry.path())
            .unwrap()
            .matches("unsafe_code")
            .count();
        if uses > 0 {
            used.insert(name, uses);
        }
    }
}
