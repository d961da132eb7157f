//! Objects in a build-id cache: perf and debuginfod find them there, and what others put there stays and does
//! no harm.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jitinject::bytes::ByteOrder;
use serde_json::Value;

use crate::support::debuginfod::Server;
use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::{attempt, capture, inject, jitinject, objects_of, perf, said, scratch, tools};

/// Runs the program on a recording, with a cache.
fn inject_with_cache(folder: &Path, name: &str, cache: &Path) -> PathBuf {
    let output = folder.join(format!("{name}.data"));
    let dumps = capture::folder(name);
    let more = [
        "--jitdump",
        tools::text(&dumps),
        "--build-id-cache",
        tools::text(cache),
    ];
    inject(&capture::profile(name), &output, &more);
    output
}

fn elf_dir(output: &Path) -> PathBuf {
    output.with_extension("data.elf")
}

/// Moves the objects of an output to where no reader looks for them.
fn hide_objects(output: &Path) -> PathBuf {
    let hidden = output.with_extension("hidden");
    fs::rename(elf_dir(output), &hidden).unwrap();
    hidden
}

/// All that lies below a folder, each by its path there.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        for entry in fs::read_dir(current).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.permissions().mode();
            let entry = if metadata.is_symlink() {
                Entry::Link(fs::read_link(&path).unwrap())
            } else if metadata.is_dir() {
                folders.push(path.clone());
                Entry::Folder(mode)
            } else {
                Entry::File(mode, fs::read(&path).unwrap())
            };
            found.insert(path.strip_prefix(folder).unwrap().to_owned(), entry);
        }
    }
    found
}

#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Link(PathBuf),
    Folder(u32),
    File(u32, Vec<u8>),
}

#[test]
fn the_cache_is_as_perf_makes_it() {
    let folder = scratch();
    let (ours, perfs) = (folder.path().join("a/cache"), folder.path().join("perfs"));
    let output = inject_with_cache(folder.path(), "node20", &ours);
    let objects = objects_of(&output);
    let objects: Vec<&str> = objects.iter().map(|path| tools::text(path)).collect();
    let said = perf::perf_with_cache("perf", &perfs, &["buildid-cache", "-a", &objects.join(",")]);
    assert_eq!(said, "");
    let mut expected = tree(&perfs);
    // What perf found out about static probes.
    expected.retain(|path, _| path.file_name().unwrap() != "probes");
    assert_eq!(objects.len(), 35);
    assert_eq!(tree(&ours), expected);
    let list = |cache| perf::perf_with_cache("perf", cache, &["buildid-cache", "-l"]);
    assert_eq!(list(&ours).lines().count(), 35);
    assert_eq!(list(&ours), list(&perfs));
}

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

/// node20 has a table of build-ids, node20-buildid has them in its maps; stacks of CPython are unwound by
/// tables in the objects.
#[test]
fn perf_needs_nothing_but_the_cache() {
    for name in ["node20", "node20-buildid", "cpython313-dwarf"] {
        let folder = scratch();
        let (cache, empty) = (folder.path().join("cache"), folder.path().join("empty"));
        let output = inject_with_cache(folder.path(), name, &cache);
        for program in perf::programs() {
            let stacks = |cache| perf::stacks_with_cache(&program, cache, &output, &[]);
            let expected = stacks(&empty);
            let hidden = hide_objects(&output);
            assert!(stacks(&empty) != expected, "{name}: where do names come from?");
            assert_eq!(stacks(&cache), expected, "{name}, {program}");
            fs::rename(hidden, elf_dir(&output)).unwrap();
        }
    }
}

#[test]
fn lines_come_from_the_cache() {
    let folder = scratch();
    let (cache, empty) = (folder.path().join("cache"), folder.path().join("empty"));
    let output = inject_with_cache(folder.path(), "llvm19-jitlink", &cache);
    let lines = |cache| {
        let fields = [
            "-F",
            "ip,sym,srcline",
            "--no-inline",
            "-G",
            "--comms",
            "llvm-jitlink",
        ];
        let show = ["script", "-i", tools::text(&output)];
        let text = perf::perf_with_cache("perf", cache, &[&show[..], &fields].concat());
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| line.starts_with("work.c:") || line.starts_with("util.h:"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = lines(&empty);
    assert!(expected.len() > 10, "{expected:?}");
    hide_objects(&output);
    assert_eq!(lines(&empty), Vec::<String>::new());
    assert_eq!(lines(&cache), expected);
}

/// Runs perf where a build-id cache is not named, for a user whose home is `home`.
fn perf_at_home(home: &Path, arguments: &[&str]) -> String {
    let ran = Command::new("perf")
        .args(arguments)
        .env("HOME", home)
        .stdin(Stdio::null())
        .output();
    let ran = ran.unwrap_or_else(|error| panic!("perf: {error}; scripts/test installs it"));
    assert!(ran.status.success(), "{}", said(&ran));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// perf archive packs those objects that samples were taken in, not those of their callers.
#[test]
fn an_archive_of_perf_carries_the_objects() {
    let folder = scratch();
    let (cache, home) = (folder.path().join("cache"), folder.path().join("home"));
    let output = inject_with_cache(folder.path(), "php82", &cache);
    let report = || {
        let sorting = ["--no-children", "-s", "sym", "-g", "none", "--stdio"];
        let show = ["report", "-i", tools::text(&output)];
        let text = perf_at_home(&home, &[&show[..], &sorting].concat());
        let symbols = text.lines().filter(|line| line.contains("%  ["));
        symbols.map(str::to_owned).collect::<Vec<_>>()
    };
    let named = |report: &[String]| report.iter().filter(|line| line.contains("TRACE-")).count();
    fs::create_dir_all(home.join(".debug")).unwrap();
    let expected = report();
    assert_eq!(named(&expected), 19);

    perf_at_home(
        &home,
        &[
            "--buildid-dir",
            tools::text(&cache),
            "archive",
            tools::text(&output),
        ],
    );
    hide_objects(&output);
    fs::rename(&cache, folder.path().join("moved")).unwrap();
    assert_eq!(named(&report()), 0);
    let archive = output.with_extension("data.tar.bz2");
    let unpack = ["-xf", tools::text(&archive), "-C"];
    let debug = home.join(".debug");
    let said = tools::errors("tar", &[&unpack[..], &[tools::text(&debug)]].concat());
    assert_eq!(said, "");
    assert_eq!(report(), expected);
}

#[test]
fn debuginfod_serves_the_objects() {
    let folder = scratch();
    let cache = folder.path().join("cache");
    let output = inject_with_cache(folder.path(), "php82", &cache);
    let hidden = hide_objects(&output);
    let mut server = Server::start(&cache);
    let mut count = 0;
    for entry in fs::read_dir(hidden).unwrap() {
        let object = entry.unwrap().path();
        let notes = tools::run("readelf", &["-n", tools::text(&object)]);
        let build_id = notes.split("Build ID: ").nth(1).unwrap().trim();
        assert!(server.executable(build_id) == fs::read(&object).unwrap());
        count += 1;
    }
    assert_eq!(count, 19);
}

/// What perf finds in a live process' file system is what is not there: the profile names objects by paths
/// outside.
#[test]
fn perf_finds_objects_of_live_containers_in_the_cache() {
    // In a file system of its own, where the folder seems empty; then perf on the profile, first without and
    // then with the cache.
    const SCRIPT: &str = "
        unshare --mount sh -c 'mount -t tmpfs none \"$0\" && echo $$ && exec sleep 600' \"$1\" &
        trap \"kill $!\" EXIT
        read go
        for cache in \"$2\" \"$3\"; do
            perf --buildid-dir \"$cache\" script -f -i \"$1/out.data\" -F ip,sym -G --no-inline
            echo end
        done";
    let folder = scratch();
    let (inside, cache) = (folder.path().join("inside"), folder.path().join("cache"));
    fs::create_dir(&inside).unwrap();
    let mut running = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT, "sh"])
        .args([&inside, &folder.path().join("empty"), &cache])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(running.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let pid = line.trim().parse().unwrap();

    let address = 0x4000_0000;
    let path = inside.join("jit-7.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, pid);
    dump.load(1000, address, 0, b"contained", &[0x90; 64]);
    fs::write(&path, dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(pid, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    profile.sample(pid, 2000, &[address + 4], None);
    let input = inside.join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    let more = ["--build-id-cache", tools::text(&cache)];
    inject(&input, &inside.join("out.data"), &more);

    running.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut shown = String::new();
    stdout.read_to_string(&mut shown).unwrap();
    assert!(running.wait().unwrap().success());
    let words: Vec<&str> = shown.split_whitespace().collect();
    let expected = ["40000004", "[unknown]", "end", "40000004", "contained", "end"];
    assert_eq!(words, expected);
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
        let told = format!(
            "{objects} objects in the build-id cache {}, {added} of them new\n",
            cache.display()
        );
        assert!(said.contains(&told), "{said}");
        assert_eq!(*path, *tools::text(&cache));
        serde_json::json!([objects, added, json["warnings"].as_array().unwrap().len()])
    };
    assert_eq!(run("php82", "a"), serde_json::json!([19, 19, 0]));
    let first = tree(&cache);
    assert_eq!(run("wasmtime", "b"), serde_json::json!([18, 18, 0]));
    // The same objects, in the same place and in another.
    assert_eq!(run("php82", "a"), serde_json::json!([19, 0, 0]));
    assert_eq!(run("php82", "c"), serde_json::json!([19, 0, 0]));
    let second = tree(&cache);
    assert!(first.iter().all(|(path, entry)| second[path] == *entry));
    assert_eq!(
        second.keys().filter(|path| path.ends_with("elf")).count(),
        19 + 18
    );

    // What claims to be an object and is not, and a link that leads nowhere.
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
    assert_eq!(run("php82", "a"), serde_json::json!([17, 0, 1]));
    assert_eq!(fs::read(&wrong).unwrap(), b"somebody else's");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("nowhere"));
}

/// The build-id that a link stands for.
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
        let expected = "the output is written, but not all of it could be added to the build-id cache";
        assert!(said(&ran).contains(expected), "{planted}: {}", said(&ran));
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{planted}");
        assert_eq!(objects_of(&output).len(), 19, "{planted}");
    }
}

/// A file system that is another than the one for temporary files, as far as that can be had, holds copies.
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
    // Twice the same objects, which both want to add.
    let runs = ["php82", "php82", "wasmtime", "bun"];
    let start = |(number, name): (usize, &&str)| {
        jitinject()
            .args(["-q", "--all", "-i", tools::text(&capture::profile(name))])
            .args(["--jitdump", tools::text(&capture::folder(name))])
            .args(["-o", tools::text(&folder.path().join(number.to_string()))])
            .args(["--build-id-cache", tools::text(&cache)])
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
        assert!(said(&ran).contains(cache), "{}", said(&ran));
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "{cache}: nothing is written"
        );
    }
}
