//! `--names`: forms of the names in symbols, DWARF and summary.

use std::collections::BTreeSet;
use std::path::PathBuf;

use jitdump::ByteOrder;
use serde_json::Value;

use crate::support::profile::ProfileWriter;
use crate::support::reports::inject_with_summary;
use crate::support::{attempt, capture, code_sites, inject_into, objects_of, said, scratch};

/// What a run on a recording names: the symbols of the objects, the functions of the call chains in their DWARF, and the JIT
/// code of the summary.
struct Named {
    symbols: BTreeSet<String>,
    functions: BTreeSet<String>,
    summary: BTreeSet<String>,
}

impl Named {
    /// Whether all names of the summary are those of symbols, or start with those of functions that are inlined into them.
    fn has_names_of_summary(&self) -> bool {
        let functions = || self.functions.iter().filter(|function| !function.is_empty());
        let is_inlined = |name: &String| functions().any(|function| name.starts_with(function));
        let mut others = self.summary.difference(&self.symbols);
        others.all(is_inlined)
    }
}

fn named(name: &str, style: &str, more: &[&str]) -> Named {
    let folder = scratch();
    let output = folder.path().join("out.data");
    let more = [&["--names", style], more].concat();
    let (_, summary) = inject_with_summary(&capture::profile(name), &output, &more);
    let mut objects: Vec<PathBuf> = objects_of(&output);
    objects.retain(|path| path.is_file());
    let chains = code_sites::chains(&objects, |_| true);
    let functions = chains.into_iter().flatten().map(|site| site.function);
    let is_jit = |function: &&Value| function["kind"] == "jit";
    let listed = summary["profile"]["functions"].as_array().unwrap().iter();
    let listed = listed.filter(is_jit);
    Named {
        symbols: code_sites::symbols(&objects),
        functions: functions.collect(),
        summary: listed
            .map(|function| function["name"].as_str().unwrap().to_owned())
            .filter(|name| !name.starts_with('['))
            .collect(),
    }
}

#[test]
fn plain_names_have_neither_tiers_nor_positions() {
    let scripts = format!("/tmp/inlined={}", capture::folder("node20-inlined").display());
    let full = named("node20-inlined", "full", &["--path-map", &scripts]);
    let plain = named("node20-inlined", "plain", &["--path-map", &scripts]);
    assert!(full.symbols.iter().any(|name| name.starts_with("JS:*hot ")));
    let has_mark = |name: &&String| ["JS:", "Script:", ".js:"].iter().any(|mark| name.contains(mark));
    // Code without a name and a file keeps the name that its runtime gave it.
    let marked: Vec<&String> = plain
        .symbols
        .iter()
        .filter(has_mark)
        .filter(|name| !name.contains(" :"))
        .collect();
    assert!(
        marked.iter().all(|name| name.starts_with("(anonymous) ")),
        "{marked:?}"
    );
    for names in [&plain.symbols, &plain.functions, &plain.summary] {
        assert!(names.contains("hot"), "{names:?}");
    }
    assert!(
        plain.functions.contains("small"),
        "inlined: {:?}",
        plain.functions
    );
    assert!(plain.has_names_of_summary());
    assert!(full.has_names_of_summary());
}

#[test]
fn patterns_place_the_parts_of_names() {
    let found = named("node20", "{name} ({file}:{line}) [{tier}]", &[]);
    assert!(
        found.symbols.contains("eat (work.js:23) [TurboFan]"),
        "{:?}",
        found.symbols
    );
    // The summary agrees with the symbols; functions have the names of their symbols in DWARF, too.
    assert!(found.summary.contains("eat (work.js:23) [TurboFan]"));
    assert!(
        found.functions.contains("eat (work.js:23) [TurboFan]"),
        "{:?}",
        found.functions
    );
    assert!(found.has_names_of_summary());
}

#[test]
fn symbols_of_perf_maps_have_the_same_style() {
    let folder = scratch();
    let map = "70000000 10 py::fib:/tmp/work.py\n70000010 10 py::<module>:<string>\n";
    std::fs::write(folder.path().join("perf-10.map"), map).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(10, 0x7000_0000, 0x1000, 0x7000_0000, "//anon", 1000);
    profile.sample(10, 2000, &[0x7000_0001], None);
    profile.sample(10, 2001, &[0x7000_0011], None);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = inject_into(folder.path(), &input, &["--names", "{name} [{tier}]"]);
    let symbols: Vec<String> = code_sites::symbols(&objects_of(&output)).into_iter().collect();
    assert_eq!(symbols, ["<module>:<string> [Python]", "fib [Python]"]);
}

#[test]
fn original_names_of_source_maps_have_the_style() {
    let scripts = format!(
        "/tmp/typescript/bundle={}",
        capture::folder("node20-typescript").display()
    );
    let plain = named("node20-typescript", "plain", &["--path-map", &scripts]);
    assert!(plain.symbols.contains("round"), "{:?}", plain.symbols);
    let pattern = named("node20-typescript", "{name} {file}", &["--path-map", &scripts]);
    assert!(pattern.symbols.contains("round main.ts"), "{:?}", pattern.symbols);
}

#[test]
fn full_names_are_the_default() {
    let folder = scratch();
    let files = |more: &[&str]| {
        let output = inject_into(folder.path(), &capture::profile("node20-inlined"), more);
        let mut files = vec![std::fs::read(&output).unwrap()];
        files.extend(
            objects_of(&output)
                .iter()
                .filter(|path| path.is_file())
                .map(|path| std::fs::read(path).unwrap()),
        );
        files
    };
    assert!(files(&[]) == files(&["--names", "full"]));
}

#[test]
fn unknown_styles_are_refused() {
    let folder = scratch();
    for (style, reason) in [
        ("short", "neither plain, full, nor a pattern"),
        (
            "{name} {module}",
            "unknown placeholder {module}; there are {name}, {file}",
        ),
        ("{name", "a brace without its counterpart"),
    ] {
        let ran = attempt(
            &capture::profile("node20"),
            &folder.path().join("out.data"),
            &["--names", style],
        );
        assert_eq!(ran.status.code(), Some(2));
        assert!(said(&ran).contains(reason), "{}", said(&ran));
    }
}
