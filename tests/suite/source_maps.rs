//! Source maps: files, lines and names of the original program (recording node20-typescript).

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64ct::{Base64, Encoding};
use jitdump::ByteOrder;
use serde_json::{Value, json};

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::profile::ProfileWriter;
use crate::support::reports::{inject_with_summary, reports};
use crate::support::timeline::page_of;
use crate::support::tools::text;
use crate::support::{capture, code_sites, has_code, inject, jitinject, objects_of, said, scratch};

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
    run_in(folder, more)
}

/// Runs jitinject with the files in a folder in place of those of the recorded one.
fn run_in(folder: tempfile::TempDir, more: &[&str]) -> Run {
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

/// A short map could otherwise take gigabytes: all sources have the root of the map.
#[test]
fn a_long_root_of_many_sources_is_not_used() {
    let mut map: Value = serde_json::from_slice(&data(MAP)).unwrap();
    let mut sources = map["sources"].as_array().unwrap().clone();
    sources.extend((0..3_000).map(|_| json!("x")));
    map["sources"] = json!(sources);
    map["sourceRoot"] = json!("r".repeat(32 << 10));
    let run = run(&[(SCRIPT, &data(SCRIPT)), (MAP, map.to_string().as_bytes())], &[]);
    assert!(run.is_unmapped() && has_code(&run.said, "JI271"), "{}", run.said);
}

/// Maps come with packages, whose authors could name any file of the user.
#[test]
fn files_that_only_a_map_names_are_kept_near_the_script() {
    let elsewhere = scratch();
    let key = elsewhere.path().join("id_key");
    std::fs::write(&key, "secret\n").unwrap();
    let mut map: Value = serde_json::from_slice(&data(MAP)).unwrap();
    map.as_object_mut().unwrap().remove("sourcesContent");
    let sources = map["sources"].as_array().unwrap().iter();
    let is_work = |source: &&Value| source.as_str().unwrap().ends_with("work.ts");
    let sources = sources.map(|source| {
        if is_work(&source) {
            json!("work.ts")
        } else {
            json!(key.to_str().unwrap())
        }
    });
    map["sources"] = sources.collect();
    let files = [
        (SCRIPT, data(SCRIPT)),
        (MAP, map.to_string().into()),
        ("work.ts", b"work\n".to_vec()),
    ];
    let files = files.each_ref().map(|(name, content)| (*name, &content[..]));
    let kept = |more: &[&str]| {
        let run = run(&files, &[&["-v", "--keep-sources"], more].concat());
        let folders = std::fs::read_dir(run.folder.path().join("out.data.elf/sources")).unwrap();
        let folders = folders
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir());
        let names = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let names: BTreeSet<String> = names
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        (names, run.said)
    };
    let (names, said) = kept(&[]);
    assert!(
        names.contains("work.ts") && !names.contains("id_key"),
        "{names:?}: {said}"
    );
    assert!(has_code(&said, "JI274"), "{said}");
    let (names, said) = kept(&["--source-dir", elsewhere.path().to_str().unwrap()]);
    assert!(names.contains("id_key"), "{names:?}: {said}");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (names, said) = kept(&["--source-dir", elsewhere.path().to_str().unwrap()]);
    assert!(!names.contains("id_key"), "{names:?}: {said}");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::create_dir(elsewhere.path().join(".hidden")).unwrap();
    for hidden in [".env", ".hidden/key"] {
        let hidden = elsewhere.path().join(hidden);
        std::fs::copy(&key, &hidden).unwrap();
        let files = files.map(|(name, content)| match name {
            MAP => (
                name,
                String::from_utf8_lossy(content).replace(text(&key), text(&hidden)),
            ),
            _ => (name, String::from_utf8_lossy(content).into_owned()),
        });
        let files = files
            .each_ref()
            .map(|(name, content)| (*name, content.as_bytes()));
        let run = run(
            &files,
            &["-v", "--keep-sources", "--source-dir", text(elsewhere.path())],
        );
        assert!(has_code(&run.said, "JI274"), "{}", run.said);
    }
}

/// A repository of others may have it.
#[test]
fn a_map_that_is_a_link_is_not_read() {
    let folder = scratch();
    let elsewhere = scratch();
    std::fs::write(folder.path().join(SCRIPT), data(SCRIPT)).unwrap();
    std::fs::write(elsewhere.path().join(MAP), data(MAP)).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join(MAP), folder.path().join(MAP)).unwrap();
    let run = run_in(folder, &[]);
    assert!(run.is_unmapped(), "{}", run.said);
    assert!(has_code(&run.said, "JI270"), "{}", run.said);
}

/// The name of `round` in all outputs of a run.
#[test]
fn outputs_have_the_same_names() {
    let folder = scratch();
    for name in [SCRIPT, MAP] {
        std::fs::write(folder.path().join(name), data(name)).unwrap();
    }
    let map = format!("/tmp/typescript/bundle={}", folder.path().display());
    let profile = capture::profile("node20-typescript");
    let output = folder.path().join("out.data");
    let (_, summary) = inject_with_summary(&profile, &output, &["--path-map", &map]);
    let functions = summary["profile"]["functions"].as_array().unwrap();
    let name = |function: &Value| function["name"].as_str().unwrap().to_owned();
    let round = functions
        .iter()
        .find(|function| name(function).starts_with("JS:*round "))
        .unwrap();
    let file = round["file"].as_str().unwrap();
    assert!(file.ends_with("/src/main.ts"), "{round}");
    assert_eq!(
        (name(round), &round["line"]),
        (format!("JS:*round {file}:7:10"), &json!(7))
    );
    let mut objects = objects_of(&output);
    objects.retain(|path| path.is_file());
    assert!(code_sites::symbols(&objects).contains(&name(round)));
    let is_generated = |function: &Value| {
        function["file"]
            .as_str()
            .is_some_and(|file| file.ends_with(SCRIPT))
    };
    assert!(!functions.iter().any(is_generated));

    let page = |more: &[&str]| {
        let (page, _) = page_of(folder.path(), &profile, &[&["--path-map", &map], more].concat());
        std::fs::read_to_string(page).unwrap()
    };
    assert!(page(&[]).contains(&name(round)));
    assert!(!page(&["--source-maps=off"]).contains(&name(round)));
}

/// V8's `--perf-basic-prof` writes names only.
#[test]
fn symbols_of_perf_maps_have_the_original_names() {
    const START: u64 = 0x7000_0000;
    let folder = scratch();
    for name in [SCRIPT, MAP] {
        std::fs::write(folder.path().join(name), data(name)).unwrap();
    }
    let script = folder.path().join(SCRIPT);
    let names = [
        format!("JS:*a {}:1:284", script.display()),
        "JS:~gone /gone/b.js:3:4".to_owned(),
    ];
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, START, 0x1000, 0, "//anon", 500);
    let mut map = String::new();
    for (number, name) in (0..).zip(&names) {
        let start = START + 0x100 * number;
        map.push_str(&format!("{start:x} 40 {name}\n"));
        profile.sample(7, 1_000_000 + number, &[start + 5], None);
    }
    std::fs::write(folder.path().join("perf-7.map"), map).unwrap();
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    let run = |more: &[&str]| {
        let (_, summary) = inject_with_summary(&input, &output, more);
        let functions = summary["profile"]["functions"].as_array().unwrap();
        let summarized: BTreeSet<String> = functions
            .iter()
            .map(|function| {
                let name = function["name"].as_str().unwrap();
                let place = format!("{}:{}:", function["file"].as_str().unwrap(), function["line"]);
                assert!(name.contains(&place), "{function}");
                name.to_owned()
            })
            .collect();
        let symbols = code_sites::symbols(&objects_of(&output));
        assert_eq!(symbols, summarized);
        symbols
    };
    let folder_above = folder.path().parent().unwrap();
    let original = format!("JS:*round {}/src/main.ts:7:10", folder_above.display());
    let set = |names: [&str; 2]| names.map(str::to_owned).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(run(&[]), set([&original, &names[1]]));
    assert_eq!(run(&["--source-maps=off"]), set([&names[0], &names[1]]));
}

/// Writes a perf map and a profile of the minified function of each script; returns the path of the profile.
fn sampled(folder: &Path, scripts: &[PathBuf]) -> PathBuf {
    const START: u64 = 0x7000_0000;
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, START, 0x10000, 0, "//anon", 500);
    let mut perf_map = String::new();
    for (number, script) in (0..).zip(scripts) {
        let start = START + 0x100 * number;
        perf_map.push_str(&format!("{start:x} 40 JS:*a {}:1:284\n", script.display()));
        profile.sample(7, 1_000_000 + number, &[start + 5], None);
    }
    std::fs::write(folder.join("perf-7.map"), perf_map).unwrap();
    let path = folder.join("perf.data");
    std::fs::write(&path, profile.finish()).unwrap();
    path
}

/// Programs have many files of one name, such as `index.js`.
#[test]
fn of_scripts_with_one_name_those_without_a_map_have_the_named_one() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    for name in ["a", "b", "maps"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    let scripts = ["a/app.js", "b/app.js"].map(path);
    for script in &scripts {
        std::fs::write(script, data(SCRIPT)).unwrap();
    }
    std::fs::write(path("a/app.js.map"), data(MAP)).unwrap();
    let other = String::from_utf8(data(MAP)).unwrap();
    std::fs::write(path("maps/app.js.map"), other.replace("main.ts", "other.ts")).unwrap();
    let input = sampled(folder.path(), &scripts);
    let output = path("out.data");
    inject(&input, &output, &["--source-map", text(&path("maps"))]);
    let symbols = code_sites::symbols(&objects_of(&output));
    let files: Vec<&str> = symbols
        .iter()
        .map(|name| name.rsplit('/').next().unwrap())
        .collect();
    assert_eq!(files, ["main.ts:7:10", "other.ts:7:10"], "{symbols:?}");
}

/// Some of them are hard links to one file, as in pnpm's store.
#[test]
fn scripts_that_are_more_than_files_may_be_open_are_all_used() {
    const SCRIPTS: usize = 40;
    let folder = scratch();
    let path = |number: usize| folder.path().join(format!("{number}/app.js"));
    let scripts: Vec<PathBuf> = (0..SCRIPTS).map(path).collect();
    for (number, script) in scripts.iter().enumerate() {
        std::fs::create_dir(script.parent().unwrap()).unwrap();
        match number % 4 {
            3 => std::fs::hard_link(&scripts[0], script).unwrap(),
            _ => std::fs::write(script, data(SCRIPT)).unwrap(),
        }
        std::fs::write(script.with_file_name(MAP), data(MAP)).unwrap();
    }
    let input = sampled(folder.path(), &scripts);
    let output = folder.path().join("out.data");
    let ran = std::process::Command::new("sh")
        .args([
            "-c",
            "ulimit -n 24; exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_jitinject"),
        ])
        .args(["-i", text(&input), "-o", text(&output)])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    let original = format!("JS:*round {}/src/main.ts:7:10", folder.path().display());
    let symbols = code_sites::symbols(&objects_of(&output));
    assert_eq!(symbols, BTreeSet::from([original]), "{}", said(&ran));
}

/// Deno compiles JavaScript that it makes of TypeScript and keeps in its cache, under the URL of the TypeScript.
#[test]
fn deno_has_the_lines_of_typescript() {
    let folder = scratch();
    let script = folder.path().join("work.ts");
    let source = "interface A {}\nexport function slow(n: number) {\n\n\n  return n;\n\n}\n";
    std::fs::write(&script, source).unwrap();
    let url = format!("file://{}", script.display());
    let map = json!({
        "version": 3, "sources": [url], "sourcesContent": [source], "names": [], "mappings": "AACA;AAGA;AAEA",
    });
    let map = Base64::encode_string(map.to_string().as_bytes());
    let compiled = format!(
        "export function slow(n) {{\n  return n;\n}}\n//# sourceMappingURL=data:application/json;base64,{map}\n// denoCacheMetadata=1,2\n"
    );
    let cache = folder.path().join("deno");
    let cached = cache
        .join("gen/file")
        .join(script.strip_prefix("/").unwrap())
        .with_extension("ts.js");
    std::fs::create_dir_all(cached.parent().unwrap()).unwrap();
    std::fs::write(&cached, compiled).unwrap();

    let start = 0x7000_0000;
    let dump_path = folder.path().join("jit-7.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 7);
    dump.lines(1000, start, url.as_bytes(), &[(start, 2)]);
    dump.load(
        1000,
        start,
        1,
        format!("JS:~slow {url}:1:21").as_bytes(),
        &[0x90; 24],
    );
    std::fs::write(&dump_path, dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, 0x6000_0000, 4096, 0, text(&dump_path), 500);
    profile.sample(7, 1_000_000, &[start + 1], None);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    let run = |cache: &Path| {
        let ran = jitinject()
            .args(["-v", "-i", text(&input), "-o", text(&output)])
            .env("DENO_DIR", cache)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", said(&ran));
        let mut objects = objects_of(&output);
        objects.retain(|path| path.is_file());
        let chains = code_sites::chains(&objects, |name| name.starts_with("JS:"));
        let lines: BTreeSet<String> = chains
            .iter()
            .map(|chain| code_sites::shown(&chain[..1]))
            .collect();
        (lines, code_sites::symbols(&objects), said(&ran))
    };
    let only = |line: &str| std::iter::once(line.to_owned()).collect::<BTreeSet<_>>();
    let (lines, symbols, said) = run(&cache);
    assert_eq!(lines, only("slow work.ts:5"), "{said}");
    assert_eq!(symbols, only(&format!("JS:~slow {url}:2:1")));
    // Without the cache, nothing shows the right lines.
    let (lines, _, said) = run(&folder.path().join("elsewhere"));
    assert_eq!(lines, only("slow work.ts:2"));
    assert!(reports(&said, "JI029", "work.ts"), "{said}");
}

/// `--confine` opens no scripts outside of the folder of the profile, unless an option names them.
#[test]
fn confined_runs_read_no_scripts_elsewhere() {
    let folder = scratch();
    let elsewhere = scratch();
    for (name, content) in [(SCRIPT, data(SCRIPT)), (MAP, data(MAP))] {
        std::fs::write(elsewhere.path().join(name), content).unwrap();
    }
    for name in ["perf.data", "jit-18825.dump"] {
        std::fs::write(folder.path().join(name), data(name)).unwrap();
    }
    let map = format!("/tmp/typescript/bundle={}", elsewhere.path().display());
    let input = folder.path().join("perf.data");
    let run = |more: &[&str]| {
        let output = folder.path().join("out.data");
        let said = inject(&input, &output, &[&["--confine", "--verbose"], more].concat());
        let mut objects = objects_of(&output);
        objects.retain(|path| path.is_file());
        let symbols = code_sites::symbols(&objects);
        (symbols.iter().any(|name| name.starts_with("JS:*round ")), said)
    };
    let (is_mapped, said) = run(&["--path-map", &map]);
    assert!(is_mapped, "{said}");
    let (is_mapped, said) = run(&[]);
    assert!(!is_mapped, "{said}");
}

#[test]
fn scripts_that_are_too_large_are_counted() {
    let folder = scratch();
    let script = std::fs::File::create(folder.path().join(SCRIPT)).unwrap();
    script.set_len((64 << 20) + 1).unwrap();
    let said = run_in(folder, &[]).said;
    assert!(reports(&said, "JI279", "1 script on this machine"), "{said}");
}
