//! The same input gives the same bytes in every process, although each process seeds its hash tables anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::generator::{self, Plan, Runtimes};
use crate::support::{capture, jitinject, said, scratch, tools};

/// Number of runs of each command.
const TIMES: usize = 5;

/// Results of a run: exit status, outputs, and the files in a folder.
#[derive(PartialEq)]
struct Left {
    status: Option<i32>,
    stdout: Vec<u8>,
    stderr: String,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// Adds the files in a folder and below, with their content.
fn files_in(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_in(&path, files);
        } else {
            let content = fs::read(&path).unwrap();
            files.insert(path, content);
        }
    }
}

/// Runs a command several times, each time with a new folder for its output; the results must be equal.
fn repeat(folder: &Path, command: impl Fn() -> Command) {
    let run = || {
        fs::create_dir(folder).unwrap();
        let ran = command().output().unwrap();
        let mut files = BTreeMap::new();
        files_in(folder, &mut files);
        fs::remove_dir_all(folder).unwrap();
        let stderr = said(&ran);
        let left = Left {
            status: ran.status.code(),
            stdout: ran.stdout,
            stderr,
            files,
        };
        // `check` exits with 1 if it finds errors.
        assert!(matches!(left.status, Some(0 | 1)), "{}", left.stderr);
        left
    };
    let first = run();
    for _ in 1..TIMES {
        let again = run();
        let program = command();
        assert_eq!(again.stderr, first.stderr, "{program:?}");
        let differ = |(path, content): &(&PathBuf, &Vec<u8>)| first.files.get(*path) != Some(*content);
        let differing: Vec<_> = again.files.iter().filter(differ).map(|it| it.0).collect();
        assert!(again == first, "{program:?}: {differing:?}");
    }
}

/// Repeats all commands for an input, a profile or a log, and for files of a runtime. `more` are options of all commands
/// that read profiles, `own` those of the main one.
fn repeat_all(input: &Path, more: &[&str], own: &[&str], files: &[PathBuf]) {
    let folder = scratch();
    let folder = folder.path().join("out");
    let path = |name: &str| tools::text(&folder.join(name)).to_owned();
    let input = tools::text(input);
    repeat(&folder, || {
        let mut command = jitinject();
        command.args(["-v", "--tiers=symbols", "-i", input, "-o", &path("out.data")]);
        command.args(["--summary", &path("summary.json")]);
        command.args(more).args(own);
        command
    });
    repeat(&folder, || {
        let mut command = jitinject();
        command.args(["--all", "--layout", "function", "--dwarf", "5"]);
        command.args(["-i", input, "-o", &path("out.data")]);
        command.args(more).args(own);
        command
    });
    repeat(&folder, || {
        let mut command = jitinject();
        command
            .args(["timeline", "-i", input, "-o", &path("page.html")])
            .args(more);
        command
    });
    for file in files {
        for what in ["check", "dump"] {
            repeat(&folder, || {
                let mut command = jitinject();
                command.arg(what).arg(file);
                command
            });
        }
    }
}

/// Returns the files of a recording whose names have an ending.
fn files_of(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files = BTreeMap::new();
    files_in(folder, &mut files);
    let names = files.into_keys();
    names.filter(|path| tools::text(path).ends_with(ending)).collect()
}

#[test]
fn recordings_give_the_same_bytes() {
    for name in [
        "multi",
        "cpython313-fork",
        "node20-multievent",
        "node20-wasm",
        "java17",
    ] {
        let folder = capture::folder(name);
        let more = [
            "--jitdump",
            tools::text(&folder),
            "--perf-map",
            tools::text(&folder),
        ];
        repeat_all(&capture::profile(name), &more, &[], &files_of(&folder, ".dump"));
    }
}

#[test]
fn a_whole_machine_gives_the_same_bytes() {
    let folder = scratch();
    let plan = Plan {
        functions: 400,
        samples: 2000,
        processes: 12,
        places: 100,
        moves: true,
        runtimes: Runtimes::Many,
        two_events: true,
        ..Plan::default()
    };
    let made = generator::generate(folder.path(), &plan);
    let dumps = files_of(folder.path(), ".dump");
    repeat_all(&made.profile, &[], &[], &dumps[..3]);
}

#[test]
fn logs_of_mono_give_the_same_bytes() {
    for name in ["mono-default", "mono-jit", "mono-alloc"] {
        let log = capture::folder(name).join("trace.mlpd");
        repeat_all(&log, &[], &[], std::slice::from_ref(&log));
    }
    let log = capture::folder("mono-joined").join("trace.mlpd");
    let more = ["--mono-log", tools::text(&log), "--pid", "25926"];
    repeat_all(&capture::profile("mono-joined"), &more, &["--splice-stacks"], &[]);
}

#[test]
fn traces_of_xray_give_the_same_bytes() {
    for name in ["xray-fdr-typed19", "xray-basic19"] {
        let trace = capture::folder(name).join("trace.xray");
        let binary = capture::folder(name).join("work");
        for how in [&[][..], &["--aggregate"]] {
            let own = [&["--xray-binary", tools::text(&binary)], how].concat();
            repeat_all(&trace, &[], &own, std::slice::from_ref(&trace));
        }
    }
    let trace = capture::folder("xray-joined-mono14").join("trace.xray");
    let own = ["--xray-log", tools::text(&trace), "--splice-stacks"];
    repeat_all(&capture::profile("xray-joined-mono14"), &[], &own, &[]);
}
