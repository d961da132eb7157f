//! Objects in a build ID cache, as perf and debuginfod find them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jitdump::ByteOrder;

use crate::support::build_id_cache::{elf_dir, inject_with_cache, tree};
use crate::support::debuginfod::Server;
use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::{inject, objects_of, perf, said, scratch, tools};

/// Moves the objects of an output to a directory where no reader looks for them.
fn hide_objects(output: &Path) -> PathBuf {
    let hidden = output.with_extension("hidden");
    fs::rename(elf_dir(output), &hidden).unwrap();
    hidden
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
    // Static probes, which perf stores in its cache.
    expected.retain(|path, _| path.file_name().unwrap() != "probes");
    assert_eq!(objects.len(), 35);
    assert_eq!(tree(&ours), expected);
    let list = |cache| perf::perf_with_cache("perf", cache, &["buildid-cache", "-l"]);
    assert_eq!(list(&ours).lines().count(), 35);
    assert_eq!(list(&ours), list(&perfs));
}

/// node20 has a table of build IDs, node20-buildid has them in its mappings; stacks of CPython are unwound with
/// the objects' tables.
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
        // If an object is missing, perf 6.1 may be killed by a signal when its addr2line exits.
        let text = perf::printed_with_cache("perf", cache, &[&show[..], &fields].concat());
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

/// Runs perf without a named build ID cache, for a user with the home directory `home`.
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

/// perf archive packs the objects of sampled addresses, not those of their callers.
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

/// For a live process, perf looks for objects in the mount namespace of the process. They are missing there,
/// because the profile has paths outside of it.
#[test]
fn perf_finds_objects_of_live_containers_in_the_cache() {
    // Starts a process in a mount namespace where the directory seems empty, then runs perf on the profile, first
    // without and then with the cache.
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
