//! Source maps: files, lines and names of the original program (recording node20-typescript).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};

use crate::support::{capture, code_sites, has_code, inject, objects_of, scratch};

fn data(name: &str) -> Vec<u8> {
    std::fs::read(capture::folder("node20-typescript").join(name)).unwrap()
}

/// A folder with the script, and what jitinject makes of the recording with it.
struct Run {
    folder: tempfile::TempDir,
    said: String,
}

/// The name of the script and its map.
const SCRIPT: &str = "app.js";
const MAP: &str = "app.js.map";

fn run(files: &[(&str, &[u8])], more: &[&str]) -> Run {
    let folder = scratch();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let map = format!("/tmp/typescript/bundle={}", folder.path().display());
    let more = [&["--path-map", &map, "--verbose"], more].concat();
    let said = inject(
        &capture::profile("node20-typescript"),
        &folder.path().join("out.data"),
        &more,
    );
    Run { folder, said }
}

impl Run {
    fn objects(&self) -> Vec<PathBuf> {
        let mut objects = objects_of(&self.folder.path().join("out.data"));
        // The folder has the sources, too.
        objects.retain(|path| path.is_file());
        objects
    }

    /// Returns the innermost functions and lines of optimized code.
    fn lines(&self) -> BTreeSet<String> {
        let chains = code_sites::chains(&self.objects(), |name| name.starts_with("JS:*"));
        chains
            .iter()
            .map(|chain| code_sites::shown(&chain[..1]))
            .collect()
    }

    fn has_symbol(&self, start: &str, end: &str) -> bool {
        let symbols = code_sites::symbols(&self.objects());
        symbols
            .iter()
            .any(|name| name.starts_with(start) && name.ends_with(end))
    }

    /// Whether the lines are those of the script.
    fn is_unmapped(&self) -> bool {
        self.lines().iter().all(|line| line.contains("app.js:1")) && self.has_symbol("JS:*a ", "app.js:1:284")
    }
}

/// Asserts that all functions have the lines of the TypeScript files.
fn assert_mapped(run: &Run) {
    let lines = run.lines();
    for shown in &lines {
        let (function, place) = shown.split_once(' ').unwrap();
        let (file, line) = place.split_once(':').unwrap();
        let line: u32 = line.parse().unwrap();
        let (expected, range) = match function {
            "slowPath" => ("work.ts", 2..=8),
            "fastPath" => ("work.ts", 10..=14),
            "perimeter" => ("shapes.ts", 8..=12),
            "round" => ("main.ts", 7..=13),
            // The script itself.
            _ => ("main.ts", 1..=20),
        };
        assert!(
            file == expected && range.contains(&line),
            "{shown}: {lines:?}\n{}",
            run.said
        );
    }
    for expected in [
        "slowPath work.ts:5",
        "fastPath work.ts:12",
        "perimeter shapes.ts:10",
        "round main.ts:10",
    ] {
        assert!(lines.contains(expected), "{expected}: {lines:?}\n{}", run.said);
    }
    assert!(
        run.has_symbol("JS:*round ", "/src/main.ts:7:10"),
        "{:?}",
        code_sites::symbols(&run.objects())
    );
}

#[test]
fn lines_and_names_are_those_of_the_sources() {
    let run = run(&[(SCRIPT, &data(SCRIPT)), (MAP, &data(MAP))], &[]);
    assert_mapped(&run);
    // The texts that the map has are written next to the objects, and the lines lead there.
    let chains = code_sites::chains(&run.objects(), |name| name.starts_with("JS:*"));
    for site in chains.iter().flatten() {
        let path = Path::new(&site.file);
        assert!(
            path.starts_with(run.folder.path().join("out.data.elf/sources")),
            "{}",
            site.file
        );
        let name = format!("src/{}", path.file_name().unwrap().to_str().unwrap());
        assert_eq!(std::fs::read(path).unwrap(), data(&name));
    }
}

#[test]
fn maps_are_indexed_or_in_the_script_or_named() {
    let (script, map) = (data(SCRIPT), data(MAP));
    let parsed: Value = serde_json::from_slice(&map).unwrap();
    let indexed = json!({"version": 3, "sections": [{"offset": {"line": 0, "column": 0}, "map": parsed}]});
    assert_mapped(&run(
        &[(SCRIPT, &script), (MAP, indexed.to_string().as_bytes())],
        &[],
    ));

    let text = String::from_utf8(script.clone()).unwrap();
    let url = format!("data:application/json;base64,{}", Base64::encode_string(&map));
    let inline = text.replace("sourceMappingURL=app.js.map", &format!("sourceMappingURL={url}"));
    assert_mapped(&run(&[(SCRIPT, inline.as_bytes())], &[]));

    // A script without the comment.
    let bare = text.split("//#").next().unwrap();
    let named = capture::folder("node20-typescript");
    for path in [named.clone(), named.join(MAP)] {
        let path = path.to_str().unwrap();
        assert_mapped(&run(&[(SCRIPT, bare.as_bytes())], &["--source-map", path]));
    }
}

#[test]
fn maps_that_are_not_used_leave_the_lines_of_the_script() {
    let (script, map) = (data(SCRIPT), data(MAP));
    let off = run(&[(SCRIPT, &script), (MAP, &map)], &["--source-maps=off"]);
    assert!(off.is_unmapped(), "{:?}", off.lines());

    let missing = run(&[(SCRIPT, &script)], &[]);
    assert!(
        missing.is_unmapped() && has_code(&missing.said, "JI270"),
        "{}",
        missing.said
    );

    let mut outside: Value = serde_json::from_slice(&map).unwrap();
    let mappings = format!("{};;;;;AAAA", outside["mappings"].as_str().unwrap());
    outside["mappings"] = json!(mappings);
    for invalid in [&map[..map.len() / 2], b"{}", outside.to_string().as_bytes()] {
        let run = run(&[(SCRIPT, &script), (MAP, invalid)], &[]);
        assert!(run.is_unmapped() && has_code(&run.said, "JI271"), "{}", run.said);
    }

    let other = run(
        &[
            (SCRIPT, b"console.log(1);\n//# sourceMappingURL=app.js.map\n"),
            (MAP, &map),
        ],
        &[],
    );
    assert!(other.is_unmapped(), "{:?}", other.lines());

    // A script cannot make jitinject read files elsewhere.
    let text = String::from_utf8(script.clone()).unwrap();
    let outside = capture::folder("node20-typescript").join(MAP);
    for url in [
        "../app.js.map",
        outside.to_str().unwrap(),
        "http://localhost/app.js.map",
    ] {
        let script = text.replace("sourceMappingURL=app.js.map", &format!("sourceMappingURL={url}"));
        let run = run(&[(SCRIPT, script.as_bytes()), (MAP, &map)], &[]);
        assert!(
            run.is_unmapped() && has_code(&run.said, "JI270"),
            "{url}: {}",
            run.said
        );
    }
}

#[test]
fn a_map_of_500_megabytes_is_not_read() {
    let folder = scratch();
    let large = folder.path().join(MAP);
    std::fs::File::create(&large).unwrap().set_len(500 << 20).unwrap();
    let run = run(
        &[(SCRIPT, &data(SCRIPT))],
        &["--source-map", large.to_str().unwrap()],
    );
    assert!(run.is_unmapped() && has_code(&run.said, "JI272"), "{}", run.said);
}
