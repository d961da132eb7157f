//! Objects in a build-ID cache: perf and debuginfod find them there. Files of others stay and cannot mislead jitinject.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::FUNCTION_LAYOUT;
use crate::support::build_id_cache::{Entry, elf_dir, inject_with_cache, tree};
use crate::support::{attempt, capture, codes, inject, jitinject, objects_of, said, scratch, tools};

#[test]
fn the_rest_of_the_output_is_the_same_with_a_cache() {
    for name in ["node20", "node20-buildid"] {
        let folder = scratch();
        let outputs = |more: &[&str]| {
            let output = folder.path().join("out.data");
            inject(&capture::profile(name), &output, more);
            (
                fs::read(&output).unwrap(),
                tree(&folder.path().join("out.data.elf")),
            )
        };
        let cache = folder.path().join("cache");
        let with = outputs(&["--build-id-cache", tools::text(&cache)]);
        assert!(with == outputs(&[]), "{name}");
    }
}

#[test]
fn what_is_in_the_cache_stays() {
    let folder = scratch();
    let (cache, summary) = (folder.path().join("cache"), folder.path().join("summary"));
    let run = |name: &str, output: &str| -> Value {
        let dumps = capture::folder(name);
        let more = [
            "--jitdump",
            tools::text(&dumps),
            "--build-id-cache",
            tools::text(&cache),
            "--summary",
            tools::text(&summary),
        ];
        let said = inject(&capture::profile(name), &folder.path().join(output), &more);
        let json: Value = serde_json::from_slice(&fs::read(&summary).unwrap()).unwrap();
        let counts = &json["build_id_cache"];
        let (path, objects, added) = (&counts["path"], &counts["objects"], &counts["added"]);
        let expected = format!(
            "{objects} objects in the build-id cache {}, {added} of them new\n",
            cache.display()
        );
        assert!(said.contains(&expected), "{said}");
        assert_eq!(*path, *tools::text(&cache));
        let diagnostics = json["diagnostics"].as_array().unwrap().iter();
        let diagnostics: Vec<&Value> = diagnostics
            .flat_map(|found| {
                [
                    &found["code"],
                    &found["severity"],
                    &found["file"],
                    &found["count"],
                ]
            })
            .collect();
        serde_json::json!([objects, added, diagnostics])
    };
    assert_eq!(run("php82", "a"), serde_json::json!([19, 19, []]));
    let first = tree(&cache);
    assert_eq!(run("wasmtime", "b"), serde_json::json!([18, 18, []]));
    // The same objects, with the same path and with another.
    assert_eq!(run("php82", "a"), serde_json::json!([19, 0, []]));
    assert_eq!(run("php82", "c"), serde_json::json!([19, 0, []]));
    let second = tree(&cache);
    assert!(first.iter().all(|(path, entry)| second[path] == *entry));
    assert_eq!(
        second.keys().filter(|path| path.ends_with("elf")).count(),
        19 + 18
    );

    // A file that is not an object, and a dangling link.
    let mut files = first.keys().filter(|path| path.ends_with("elf"));
    let wrong = cache.join(files.next().unwrap());
    fs::remove_file(&wrong).unwrap();
    fs::write(&wrong, "somebody else's").unwrap();
    let is_link = |entry: &Entry| matches!(entry, Entry::Link(_));
    let of_other = |path: &&PathBuf| !tools::text(&wrong).ends_with(&format!("{}/elf", build_id(path)));
    let mut links = first.iter().filter(|(_, entry)| is_link(entry));
    let link = cache.join(links.find(|(path, _)| of_other(path)).unwrap().0);
    fs::remove_file(&link).unwrap();
    symlink("nowhere", &link).unwrap();
    let occupied = serde_json::json!(["JI266", "warning", tools::text(&cache), 2]);
    assert_eq!(run("php82", "a"), serde_json::json!([17, 0, occupied]));
    assert_eq!(fs::read(&wrong).unwrap(), b"somebody else's");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("nowhere"));
}

/// Returns the build ID of a link.
fn build_id(link: &Path) -> String {
    let names: Vec<&str> = link.iter().map(|name| name.to_str().unwrap()).collect();
    names[1..].concat()
}

#[test]
fn links_in_the_cache_lead_nowhere_else() {
    for planted in [".build-id", ".build-id/xx", "first"] {
        let folder = scratch();
        let (cache, outside) = (folder.path().join("cache"), folder.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        fs::create_dir_all(cache.join(".build-id")).unwrap();
        match planted {
            ".build-id" => {
                fs::remove_dir(cache.join(".build-id")).unwrap();
                symlink(&outside, cache.join(".build-id")).unwrap();
            }
            ".build-id/xx" => {
                for byte in 0..=255 {
                    symlink(&outside, cache.join(format!(".build-id/{byte:02x}"))).unwrap();
                }
            }
            _ => {
                let first = folder.path().iter().nth(1).unwrap();
                symlink(&outside, cache.join(first)).unwrap();
            }
        }
        let output = folder.path().join("out.data");
        let more = ["--build-id-cache", tools::text(&cache)];
        let ran = attempt(&capture::profile("php82"), &output, &more);
        assert_eq!(ran.status.code(), Some(1), "{planted}");
        let said = said(&ran);
        assert_eq!(codes(&said), ["JI407"], "{planted}: {said}");
        let expected = format!("error[JI407]: {}/", cache.display());
        assert!(said.contains(&expected), "{planted}: {said}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{planted}");
        assert_eq!(objects_of(&output).len(), 19, "{planted}");
    }
}

/// A cache on another file system has copies instead of links. /dev/shm is one if temporary files are elsewhere.
#[test]
fn objects_are_linked_where_that_can_be() {
    let folder = scratch();
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    for cache in [folder.path().join("cache"), elsewhere.path().join("cache")] {
        let output = inject_with_cache(folder.path(), "php82", &cache);
        let links = if device(&cache) == device(&output) { 2 } else { 1 };
        let below = elf_dir(&output);
        let below = cache.join(below.strip_prefix("/").unwrap());
        let mut count = 0;
        for object in objects_of(&output) {
            let mut entry = fs::read_dir(below.join(object.file_name().unwrap())).unwrap();
            let entry = entry.next().unwrap().unwrap().path();
            assert_eq!(fs::read_dir(&entry).unwrap().count(), 1);
            let stored = entry.join("elf");
            let metadata = fs::metadata(&stored).unwrap();
            assert_eq!(metadata.nlink(), links);
            assert_eq!(
                metadata.mode(),
                fs::metadata(&object).unwrap().mode(),
                "{stored:?}"
            );
            assert!(fs::read(&stored).unwrap() == fs::read(&object).unwrap());
            count += 1;
        }
        assert_eq!(count, 19);
        fs::remove_dir_all(cache).unwrap();
    }
}

#[test]
fn runs_at_the_same_time_can_share_a_cache() {
    let folder = scratch();
    let cache = folder.path().join("cache");
    // Two runs add the same objects.
    let runs = ["php82", "php82", "wasmtime", "bun"];
    let start = |(number, name): (usize, &&str)| {
        jitinject()
            .args(["-q", "--all", "-i", tools::text(&capture::profile(name))])
            .args(["--jitdump", tools::text(&capture::folder(name))])
            .args(["-o", tools::text(&folder.path().join(number.to_string()))])
            .args(["--build-id-cache", tools::text(&cache)])
            .args(FUNCTION_LAYOUT)
            .spawn()
            .unwrap()
    };
    let running: Vec<_> = runs.iter().enumerate().map(start).collect();
    for mut run in running {
        assert!(run.wait().unwrap().success());
    }
    let found = tree(&cache);
    let links: Vec<_> = found
        .iter()
        .filter(|(_, entry)| matches!(entry, Entry::Link(_)))
        .collect();
    assert_eq!(links.len(), 78 + 90 + 244);
    for (link, _) in links {
        let served = fs::read(cache.join(link).join("elf")).unwrap();
        assert!(served.starts_with(b"\x7fELF"));
    }
    let is_staged = |path: &PathBuf| tools::text(path).contains(".jitinject-");
    assert!(!found.keys().any(is_staged));
}

#[test]
fn a_cache_in_the_way_of_the_output_is_refused() {
    let folder = scratch();
    fs::write(folder.path().join("file"), "").unwrap();
    let profile = capture::profile("php82");
    for cache in ["out.data", "out.data.elf", "out.data.elf/cache", "file"] {
        let ran = jitinject()
            .current_dir(folder.path())
            .args(["-i", tools::text(&profile), "-o", "out.data"])
            .args(["--build-id-cache", cache])
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(1), "{cache}");
        // A file is not a folder to write to.
        let code = if cache == "file" { "JI401" } else { "JI406" };
        let said = said(&ran);
        assert_eq!(codes(&said), [code], "{said}");
        assert!(said.contains(&format!("error[{code}]: {cache}: ")), "{said}");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "{cache}: something was written"
        );
    }
}
