//! Dependencies of jitinject: licences that `deny.toml` allows, one registry, and one version of each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// Returns cargo's metadata of all dependencies on this platform.
fn metadata() -> Value {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--locked", "--offline", "--format-version", "1"])
        .args(["--filter-platform", &platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the packages that the program is built from, including itself, without dev-dependencies.
fn built_from(metadata: &Value) -> Vec<&Value> {
    let nodes = array(&metadata["resolve"]["nodes"]).iter();
    let nodes: BTreeMap<&str, &Value> = nodes.map(|node| (text(&node["id"]), node)).collect();
    let mut used = BTreeSet::new();
    let mut open = vec![text(&metadata["resolve"]["root"])];
    while let Some(id) = open.pop() {
        if !used.insert(id) {
            continue;
        }
        let is_built = |kind: &Value| kind["kind"] != "dev";
        let needed = array(&nodes[id]["deps"]).iter();
        let needed = needed.filter(|it| array(&it["dep_kinds"]).iter().any(is_built));
        open.extend(needed.map(|it| text(&it["pkg"])));
    }
    let packages = array(&metadata["packages"]).iter();
    packages
        .filter(|package| used.contains(text(&package["id"])))
        .collect()
}

/// Returns the licences that `deny.toml` allows.
fn allowed() -> BTreeSet<String> {
    let file = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deny.toml")).unwrap();
    let (_, licenses) = file.split_once("[licenses]\nallow = [").unwrap();
    let (list, _) = licenses.split_once(']').unwrap();
    let names = list.split('"').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

/// Returns the names and versions that `deny.toml` allows beside another version.
fn skipped() -> Vec<(String, String)> {
    let file = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deny.toml")).unwrap();
    let (_, list) = file.split_once("\nskip = [").unwrap();
    let (list, _) = list.split_once("]\n").unwrap();
    let crates = list.split("crate = \"").skip(1);
    crates
        .map(|rest| {
            let (name, version) = rest.split_once('"').unwrap().0.split_once('@').unwrap();
            (name.to_owned(), format!("{version}."))
        })
        .collect()
}

/// Returns whether an SPDX expression can be satisfied with the allowed licences.
fn is_satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let is_satisfied = any_of(&mut words, allowed);
    assert!(words.next().is_none(), "{expression}");
    is_satisfied
}

type Words<'w> = std::iter::Peekable<std::str::SplitWhitespace<'w>>;

fn any_of(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut is_satisfied = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        is_satisfied |= all_of(words, allowed);
    }
    is_satisfied
}

fn all_of(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut is_satisfied = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        is_satisfied &= one(words, allowed);
    }
    is_satisfied
}

fn one(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let is_satisfied = any_of(words, allowed);
        assert_eq!(words.next(), Some(")"));
        return is_satisfied;
    }
    let name = words.next().unwrap();
    match words.next_if_eq(&"WITH") {
        Some(_) => allowed.contains(&format!("{name} WITH {}", words.next().unwrap())),
        None => allowed.contains(name),
    }
}

#[test]
fn expressions_of_licences_are_understood() {
    let allowed = BTreeSet::from(["MIT", "Zlib"].map(str::to_owned));
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-2.0", false),
        ("MIT/Apache-2.0", true),
        ("Apache-2.0 OR MIT", true),
        ("Apache-2.0 AND MIT", false),
        ("(Apache-2.0 OR MIT) AND Zlib", true),
        ("(Apache-2.0 OR MIT) AND Unicode-3.0", false),
        ("Apache-2.0 WITH LLVM-exception OR Zlib", true),
    ] {
        assert_eq!(is_satisfied(expression, &allowed), expected, "{expression}");
    }
}

#[test]
fn all_licences_are_allowed() {
    let (metadata, allowed) = (metadata(), allowed());
    let packages = built_from(&metadata);
    assert!(packages.len() > 50, "{}", packages.len());
    let others = packages
        .iter()
        .filter(|package| !is_satisfied(text(&package["license"]), &allowed));
    let others: Vec<_> = others
        .map(|it| (text(&it["name"]), text(&it["license"])))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn all_libraries_come_from_one_registry_and_none_in_two_versions() {
    let metadata = metadata();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut packages = built_from(&metadata);
    for (name, version) in skipped() {
        let all = packages.len();
        packages.retain(|it| text(&it["name"]) != name || !text(&it["version"]).starts_with(&version));
        assert_eq!(packages.len(), all - 1, "{name} {version}");
    }
    for package in packages {
        let known = versions.entry(text(&package["name"])).or_default();
        known.push(text(&package["version"]));
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(versions.is_empty(), "{versions:?}");
    // Only the packages of this repository have no source.
    let packages = array(&metadata["packages"]).iter();
    let sources: BTreeSet<&str> = packages
        .filter_map(|package| package["source"].as_str())
        .collect();
    assert_eq!(sources.len(), 1, "{sources:?}");
    assert!(
        sources.iter().all(|source| source.starts_with("registry+")),
        "{sources:?}"
    );
}

#[test]
fn no_library_is_wanted_in_any_version() {
    let metadata = metadata();
    let own = array(&metadata["packages"])
        .iter()
        .filter(|package| package["source"].is_null());
    for package in own {
        let any = array(&package["dependencies"])
            .iter()
            .filter(|dependency| dependency["req"] == "*" && dependency["path"].is_null());
        assert_eq!(any.count(), 0, "{}", package["name"]);
    }
}

#[test]
fn the_crate_jitdump_has_at_most_eight_dependencies() {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["tree", "--locked", "--offline", "-p", "jitdump"])
        .args(["-e", "normal", "--prefix", "none", "--no-dedupe"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("jitdump") && crates.contains("gimli"), "{tree}");
    assert!(crates.len() <= 9, "{crates:?}");
}
