//! The public items of both crates are those in `docs/api`: nothing becomes public, or disappears, by accident.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A crate, its features, and the most items that it may have. Fields and variants are parts of their items.
const CRATES: [(&str, &[&str], usize); 2] = [
    ("jitdump", &["--features", "v8"], 200),
    ("jitinject", &["--no-default-features"], 40),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns what rustdoc writes of a crate.
fn documentation(name: &str, features: &[&str]) -> Value {
    // Build scripts of other crates look at the variable as well, so these crates are checked in a folder of their own.
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("public-items");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["rustdoc", "--quiet", "--locked", "--lib", "-p", name])
        .args(features)
        .arg("--target-dir")
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json"])
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let file = std::fs::read(target.join("doc").join(format!("{name}.json"))).unwrap();
    serde_json::from_slice(&file).unwrap()
}

/// Returns the item with an ID.
fn item<'d>(index: &'d Value, id: &Value) -> Option<&'d Value> {
    index.get(id.to_string())
}

/// The items of a crate, by path.
struct Items<'d> {
    index: &'d Value,
    lines: BTreeSet<String>,
    count: usize,
}

impl<'d> Items<'d> {
    fn of(documentation: &'d Value) -> Self {
        let mut items = Self {
            index: &documentation["index"],
            lines: BTreeSet::new(),
            count: 0,
        };
        let root = item(items.index, &documentation["root"]).unwrap();
        items.add_all(&root["inner"]["module"]["items"], root["name"].as_str().unwrap());
        items
    }

    fn add_all(&mut self, ids: &'d Value, path: &str) {
        let index = self.index;
        for listed in ids
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|id| item(index, id))
        {
            match listed["inner"].get("use") {
                None => self.add(listed, path, listed["name"].as_str().unwrap_or_default()),
                Some(import) => match item(index, &import["id"]) {
                    Some(module) if import["is_glob"] == true => {
                        self.add_all(&module["inner"]["module"]["items"], path);
                    }
                    Some(imported) => self.add(imported, path, import["name"].as_str().unwrap()),
                    None => self.line("use", path, import["name"].as_str().unwrap()),
                },
            }
        }
    }

    fn line(&mut self, kind: &str, path: &str, name: &str) {
        self.count += usize::from(self.lines.insert(format!("{path}::{name} ({kind})")));
    }

    fn add(&mut self, added: &'d Value, path: &str, name: &str) {
        let index = self.index;
        let (kind, inner) = added["inner"].as_object().unwrap().iter().next().unwrap();
        self.line(kind, path, name);
        let path = format!("{path}::{name}");
        match kind.as_str() {
            "module" => self.add_all(&inner["items"], &path),
            "trait" => self.add_all(&inner["items"], &path),
            _ => {}
        }
        let fields = [
            &inner["kind"]["plain"]["fields"],
            &inner["kind"]["tuple"],
            &inner["variants"],
        ];
        let parts = fields.into_iter().filter_map(Value::as_array).flatten();
        for part in parts.filter_map(|id| item(index, id)) {
            if part["visibility"] == "public" || kind == "enum" {
                self.lines
                    .insert(format!("{path}::{} (part)", part["name"].as_str().unwrap()));
            }
        }
        for of in inner["impls"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|id| item(index, id))
        {
            let of = &of["inner"]["impl"];
            if !of["trait"].is_null() {
                continue;
            }
            for method in of["items"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|id| item(index, id))
            {
                if method["visibility"] == "public" {
                    self.add(method, &path, method["name"].as_str().unwrap());
                }
            }
        }
    }
}

#[test]
fn public_items_are_those_of_the_lists() {
    let folder = root().join("docs/api");
    let mut differences = BTreeMap::new();
    for (name, features, limit) in CRATES {
        let documentation = documentation(name, features);
        let items = Items::of(&documentation);
        assert!(items.count <= limit, "{name}: {} items", items.count);
        let list: String = items.lines.iter().map(|line| format!("{line}\n")).collect();
        let path = folder.join(format!("{name}.txt"));
        if std::env::var_os("RENEW_PUBLIC_ITEMS").is_some() {
            std::fs::write(&path, &list).unwrap();
        }
        let listed = std::fs::read_to_string(&path).unwrap_or_default();
        let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
        let new = items.lines.difference(&listed).map(|line| format!("+ {line}"));
        let gone = listed.difference(&items.lines).map(|line| format!("- {line}"));
        let lines: Vec<String> = new.chain(gone).collect();
        if !lines.is_empty() {
            differences.insert(name, lines.join("\n"));
        }
    }
    let text: Vec<String> = differences
        .iter()
        .map(|(name, lines)| format!("{name}:\n{lines}"))
        .collect();
    assert!(
        differences.is_empty(),
        "{}\nIf this is intended: RENEW_PUBLIC_ITEMS=1 cargo test --test external public_items",
        text.join("\n"),
    );
}
