//! Command lines: messages, outputs and the exit status.

use std::path::Path;

use jitinject::{Diagnostic, Issue};
use serde_json::Value;

use crate::support::FUNCTION_LAYOUT;
use crate::support::reports::reports;
use crate::support::{
    attempt, capture, codes, diagnostics, inject, inject_into, jitinject, objects_of, said, scratch, shown,
    tools,
};

#[test]
fn without_arguments_it_reads_and_writes_the_usual_files_here() {
    let folder = scratch();
    for file in ["perf.data", "jit-26234.dump"] {
        std::fs::copy(capture::folder("php82").join(file), folder.path().join(file)).unwrap();
    }
    let output = jitinject().current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let said = said(&output);
    assert!(said.contains("jitinject: 1 jitdump, 78 functions loaded, 19 touched by samples, 19 objects written to perf.jit.data.elf"), "{said}");
    assert!(
        said.contains("jitinject: 366 samples, 198 in JIT code, 198 of them named (100.0 %)"),
        "{said}"
    );
    assert!(
        said.ends_with("jitinject: next: perf report -i perf.jit.data\n"),
        "{said}"
    );
    assert!(output.stdout.is_empty());
    assert_eq!(shown::leaves(&folder.path().join("perf.jit.data")).len(), 366);
}

#[test]
fn the_summary_is_json_with_the_same_figures() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    let summary = folder.path().join("summary.json");
    let profile = capture::profile("multi");
    let said = inject(&profile, &output, &["-q", "--summary", tools::text(&summary)]);
    assert_eq!(said, "", "output despite -q");
    let json: Value = serde_json::from_slice(&std::fs::read(summary).unwrap()).unwrap();
    assert_eq!(json["format"], 3);
    assert_eq!(json["functions"]["loaded"], 832);
    assert_eq!(json["functions"]["written"], objects_of(&output).len());
    assert_eq!(json["samples"]["total"], 347);
    assert_eq!(json["samples"]["named"], 133);
    assert_eq!(json["samples"]["unnamed"]["not_in_dump"], 1);
    assert_eq!(json["dumps"].as_array().unwrap().len(), 4);
    let repaired = diagnostics(&json, "JI024");
    assert_eq!(repaired.len(), 1, "{json}");
    assert_eq!(repaired[0]["severity"], "note");
    assert!(repaired[0]["file"].as_str().unwrap().ends_with("/jit-4832.dump"));
    assert_eq!(repaired[0]["count"], 254);
    // Another process is one of CPython, whose interpreter keeps no frame pointers.
    assert_eq!(diagnostics(&json, "JI179").len(), 1, "{json}");
    assert_eq!(json["diagnostics"].as_array().unwrap().len(), 2, "{json}");
}

#[test]
fn fail_under_sets_the_status_and_still_writes() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    let profile = capture::profile("multi");
    for (percent, status) in [("99", 0), ("99.9", 3)] {
        let ran = attempt(&profile, &output, &["--fail-under", percent]);
        assert_eq!(ran.status.code(), Some(status), "{}", said(&ran));
        assert!(output.exists());
        let said = said(&ran);
        assert_eq!(reports(&said, "JI416", "99.25 %"), status == 3, "{said}");
    }
}

#[test]
fn usage_errors_have_a_status_of_their_own() {
    for arguments in [
        &["--no-such-option"][..],
        &["--fail-under", "many"],
        &["-q", "-v"],
        &["extra"],
    ] {
        let output = jitinject().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    let help = jitinject().arg("--help").output().unwrap();
    assert_eq!(help.status.code(), Some(0));
    let help = String::from_utf8(help.stdout).unwrap();
    for expected in [
        "--jitdump",
        "--perf-map",
        "--elf-dir",
        "--fail-under",
        "Examples:",
        "Exit status:",
    ] {
        assert!(help.contains(expected), "{expected}");
    }
    let version = jitinject().arg("--version").output().unwrap();
    assert!(
        String::from_utf8(version.stdout)
            .unwrap()
            .starts_with("jitinject 1.")
    );
}

/// A file `data`, as in directories of perf, may not be there at all.
#[test]
fn a_directory_that_cannot_be_searched_is_named_itself() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    // The longest path to it, so that none in it can be opened, even by root.
    let mut path = folder.path().join("profile");
    std::fs::create_dir(&path).unwrap();
    let dots = (4095 - path.as_os_str().len()) / 2;
    path.as_mut_os_string().push("/.".repeat(dots));
    let said = said(&attempt(&path, &output, &[]));
    assert!(reports(&said, "JI400", "/.: "), "{said}");
}

/// A mistyped path would otherwise look like missing symbols or lines.
#[test]
fn files_that_options_name_must_be_there() {
    let folder = scratch();
    let profile = capture::profile("php82");
    let profile = tools::text(&profile);
    let output = folder.path().join("out");
    for command in [
        &[][..],
        &["report"],
        &["timeline"],
        &["export", "--format", "folded"],
    ] {
        for option in ["--symfs", "--source-map", "--jitdump"] {
            // The page needs no files of the recorded machine.
            if command == ["timeline"] && option == "--symfs" {
                continue;
            }
            let mut run = jitinject();
            run.args(command).args([option, "/nonexistent", "-i", profile]);
            if command != ["report"] {
                run.arg("-o").arg(&output);
            }
            let ran = run.output().unwrap();
            assert_eq!(ran.status.code(), Some(1), "{command:?} {option}: {}", said(&ran));
            assert!(reports(&said(&ran), "JI400", "/nonexistent"), "{}", said(&ran));
        }
    }
    let record = ["record", "--print", "--java-agent", "/nonexistent", "--", "java"];
    let ran = jitinject().args(record).output().unwrap();
    assert!(reports(&said(&ran), "JI400", "/nonexistent"), "{}", said(&ran));
}

/// Otherwise a mistyped option would look as if it had changed nothing.
#[test]
fn options_without_an_effect_are_refused() {
    let folder = scratch();
    let profile = capture::profile("php82");
    let run = |line: &str| {
        let words = line.split(' ').map(|word| match word {
            "PROFILE" => tools::text(&profile),
            word => word,
        });
        let mut command = jitinject();
        command.args(words).current_dir(folder.path()).output().unwrap()
    };
    for line in [
        "PROFILE --splice-stacks",
        "PROFILE --resample 10us",
        "PROFILE --aggregate",
        "PROFILE --events calls",
        "PROFILE --pid 1",
        "timeline PROFILE --pid 1",
        "report PROFILE --log-pid 1",
        "export PROFILE -o x.folded --log-pid 1",
        "export PROFILE -o x.folded --markers",
        "report PROFILE --source-maps=off --source-map maps",
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_ne!(run("report PROFILE --pid 1").status.code(), Some(2));
}

#[test]
fn events_that_no_given_log_can_have_are_reported() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    let log = capture::folder("mono-calls").join("trace.mlpd");
    let trace = capture::folder("xray-fdr-pie14").join("trace.xray");
    for (input, event) in [(&log, "durations"), (&trace, "alloc")] {
        let ran = attempt(input, &output, &["--events", event]);
        assert!(reports(&said(&ran), "JI083", event), "{}", said(&ran));
        let ran = attempt(input, &output, &["--events", "calls"]);
        assert!(!codes(&said(&ran)).contains(&"JI083"), "{}", said(&ran));
    }
}

/// As messages advise.
#[test]
fn all_readers_of_logs_and_traces_take_their_program_and_process() {
    let folder = scratch();
    let run = |command: &str, more: &[&str]| {
        let output: &[&str] = match command {
            "report" => &[],
            "export" => &["-o", "x.folded"],
            _ => &["-o", "x.html"],
        };
        let mut ran = jitinject();
        ran.arg(command)
            .args(output)
            .args(more)
            .current_dir(folder.path());
        let ran = ran.output().unwrap();
        assert!(ran.status.success(), "{command} {more:?}: {}", said(&ran));
        said(&ran)
    };
    let traced = capture::folder("xray-fdr-pie14");
    let (trace, binary) = (traced.join("trace.xray"), traced.join("work"));
    let (trace, binary) = (
        ["-i", tools::text(&trace)],
        ["--xray-binary", tools::text(&binary)],
    );
    let (profile, log) = (
        capture::profile("mono-joined"),
        capture::folder("mono-calls").join("trace.mlpd"),
    );
    let joined = ["-i", tools::text(&profile), "--mono-log", tools::text(&log)];
    for (command, pid) in [
        ("report", "--log-pid"),
        ("export", "--log-pid"),
        ("timeline", "--pid"),
    ] {
        let without = run(command, &trace);
        assert!(reports(&without, "JI124", "--xray-binary"), "{without}");
        let with = run(command, &[trace, binary].concat());
        assert!(!codes(&with).contains(&"JI124"), "{with}");
        let without = run(command, &joined);
        assert!(reports(&without, "JI085", pid), "{without}");
        let with = run(command, &[&joined[..], &[pid, "25926"]].concat());
        assert!(!codes(&with).contains(&"JI085"), "{with}");
    }
}

#[test]
fn verbose_prints_each_dump() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    let profile = capture::profile("multi");
    let said = inject(&profile, &output, &["-v"]);
    let expected = "jit-4834.dump: process 4834, 78 functions, clock: CLOCK_MONOTONIC, as the profile's";
    assert!(said.contains(expected), "{said}");
}

/// Copies a recording without its dumps.
fn without_dumps(folder: &Path, name: &str) -> std::path::PathBuf {
    let profile = folder.join("perf.data");
    std::fs::copy(capture::profile(name), &profile).unwrap();
    profile
}

#[test]
fn dumps_are_found_where_the_user_says() {
    let folder = scratch();
    let profile = without_dumps(folder.path(), "postgres15");
    let output = folder.path().join("out.data");
    let said = inject(&profile, &output, &[]);
    let recorded = "/tmp/cap-postgres15/.debug/jit/llvm-IR-jit-20261121-24cc4e/jit-1115.dump";
    let missing = Diagnostic::new(Issue::DumpNotFound).in_file(Path::new(recorded));
    assert!(
        reports(&said, "JI213", &missing.with("pid", 1115).to_string()),
        "{said}"
    );
    assert!(
        said.contains("78 not named: the jitdump of the process is missing or unusable"),
        "{said}"
    );
    // A folder, searched recursively, and the file itself.
    let dumps = capture::folder("postgres15");
    let file = dumps.join(".debug/jit/llvm-IR-jit-20261121-24cc4e/jit-1115.dump");
    for path in [&dumps, &file] {
        let said = inject(&profile, &output, &["--jitdump", tools::text(path)]);
        assert!(said.contains("78 of them named (100.0 %)"), "{said}");
        assert!(codes(&said).is_empty(), "{said}");
    }
}

#[test]
fn profiles_can_share_a_folder_of_objects() {
    let folder = scratch();
    let shared = folder.path().join("objects");
    let share = |name: &str| {
        let output = folder.path().join(name);
        let dumps = capture::folder(name);
        let more = [
            "--elf-dir",
            tools::text(&shared),
            "--jitdump",
            tools::text(&dumps),
        ];
        inject(&capture::profile(name), &output, &more);
        output
    };
    // The second run on php82 finds the objects of the first one.
    let outputs = [share("php82"), share("wasmtime"), share("php82")];
    let count = std::fs::read_dir(&shared).unwrap().count();
    assert_eq!(count, 19 + 18);
    let named = |output: &Path, prefix: &str| {
        let leaves = shown::leaves(output);
        leaves
            .iter()
            .filter(|sample| sample.frames[0].starts_with(prefix))
            .count()
    };
    assert!(named(&outputs[0], "TRACE-") > 150);
    assert_eq!(named(&outputs[1], "sift"), 27);
}

#[test]
fn other_files_in_a_folder_of_objects_stay() {
    let folder = scratch();
    let shared = folder.path().join("objects");
    std::fs::create_dir(&shared).unwrap();
    let other = shared.join("jitted-26234-1.so");
    std::fs::write(&other, "somebody else's").unwrap();
    let output = folder.path().join("out.data");
    let profile = capture::profile("php82");
    inject(&profile, &output, &["--elf-dir", tools::text(&shared), "--all"]);
    assert_eq!(std::fs::read(&other).unwrap(), b"somebody else's");
    assert_eq!(std::fs::read_dir(&shared).unwrap().count(), 78 + 1);
    let leaves = shown::leaves(&output);
    assert!(
        leaves
            .iter()
            .filter(|sample| sample.frames[0].starts_with("TRACE-"))
            .count()
            > 150
    );
}

/// No output overwrites an input or another output, under whatever name.
#[test]
fn files_that_would_overwrite_each_other_are_refused() {
    let folder = scratch();
    for file in ["perf.data", "jit-26234.dump"] {
        std::fs::copy(capture::folder("php82").join(file), folder.path().join(file)).unwrap();
    }
    std::fs::copy(
        folder.path().join("jit-26234.dump"),
        folder.path().join("other.dump"),
    )
    .unwrap();
    let given = ["--jitdump", "other.dump", "--jitdump", "jit-26234.dump"];
    for more in [
        &["-o", "perf.data"][..],
        &["-o", "./jit-26234.dump"],
        &["-o", "other.dump"],
        &["--summary", "perf.data"],
        &["--summary", "other.dump"],
        &["--summary", "./perf.jit.data"],
        &["--summary", "perf.jit.data.elf"],
        &["--summary", "perf.jit.data.elf/jitted-26234-1.so"],
    ] {
        let ran = jitinject()
            .current_dir(folder.path())
            .args(given)
            .args(more)
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(1), "{more:?}");
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 3, "{more:?}: {}", said(&ran));
    }
    for (file, original) in [("perf.data", "perf.data"), ("other.dump", "jit-26234.dump")] {
        let original = std::fs::read(capture::folder("php82").join(original)).unwrap();
        assert!(std::fs::read(folder.path().join(file)).unwrap() == original);
    }
}

#[test]
fn the_summary_can_go_to_standard_output() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    for target in ["-", "/dev/stdout"] {
        let ran = attempt(&capture::profile("php82"), &output, &["--summary", target]);
        assert!(ran.status.success(), "{}", said(&ran));
        let json: Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(json["samples"]["named"], 198);
    }
}

#[test]
fn objects_can_go_to_any_folder() {
    let profile = capture::profile("php82");
    let named = |output: &Path| {
        let leaves = shown::leaves(output);
        let is_named = |name: &str| name.starts_with("TRACE-");
        leaves.iter().filter(|sample| is_named(&sample.frames[0])).count()
    };
    let expected = {
        let folder = scratch();
        named(&inject_into(folder.path(), &profile, &[]))
    };
    assert!(expected > 150);
    let folder = scratch();
    let below = folder.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let long = "n".repeat(240);
    for (directory, output, count) in [
        (".", "out.data", 19 + 1),
        ("..", "out.data", 19 + 1),
        ("new/deeper", "out.data", 1 + 1),
        ("objects", &long, 1 + 1),
    ] {
        let here = below.join(directory.replace(['/', '.'], "_"));
        std::fs::create_dir(&here).unwrap();
        let ran = jitinject()
            .current_dir(&here)
            .args(["-i", tools::text(&profile), "-o", output, "--elf-dir", directory])
            .args(FUNCTION_LAYOUT)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{directory}: {}", said(&ran));
        assert_eq!(named(&here.join(output)), expected, "{directory}");
        let place = if directory == ".." { &below } else { &here };
        let left = std::fs::read_dir(place).unwrap().count();
        let others = if directory == ".." { 1 } else { 0 };
        assert_eq!(left, count + others, "{directory}");
    }
}

/// The name of an object gives its content, so anything else of that name is damaged. Opening a FIFO without a writer
/// would block.
#[test]
fn what_has_the_name_of_an_object_but_not_its_content_is_replaced() {
    let folder = scratch();
    let objects = folder.path().join("objects");
    let output = folder.path().join("out.data");
    let run = || {
        let more = ["--all", "--elf-dir", tools::text(&objects)];
        inject(&capture::profile("php82"), &output, &more);
        let entries = std::fs::read_dir(&objects).unwrap();
        let mut all: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        all.sort();
        let read = |path| (std::fs::read(&path).unwrap(), path);
        all.into_iter().map(read).collect::<Vec<_>>()
    };
    let expected = run();
    assert_eq!(expected.len(), 78);
    let [damaged, longer, pipe] = [0, 1, 2].map(|at: usize| &expected[at].1);
    let size = expected[0].0.len();
    std::fs::write(damaged, vec![0; size]).unwrap();
    std::fs::write(longer, "somebody else's").unwrap();
    std::fs::remove_file(pipe).unwrap();
    let made = std::process::Command::new("mkfifo").arg(pipe).status().unwrap();
    assert!(made.success());
    assert_eq!(run(), expected);
}

#[test]
fn objects_of_an_earlier_run_go_with_its_profile() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    let without = without_dumps(folder.path(), "postgres15");
    // Scripts delete the profile alone.
    for is_deleted in [false, true] {
        inject(&capture::profile("php82"), &output, &[]);
        assert_eq!(objects_of(&output).len(), 19);
        if is_deleted {
            std::fs::remove_file(&output).unwrap();
        }
        inject(&without, &output, &[]);
        assert!(!folder.path().join("out.data.elf").exists());
    }
}

/// Concurrent runs add their objects to one folder.
#[test]
fn runs_at_the_same_time_can_share_a_folder() {
    let folder = scratch();
    let shared = folder.path().join("objects");
    let names = ["php82", "wasmtime", "bun", "node22"];
    let start = |name: &&str| {
        jitinject()
            .args(["-q", "--all", "-i", tools::text(&capture::profile(name))])
            .args(["--jitdump", tools::text(&capture::folder(name))])
            .args(["-o", tools::text(&folder.path().join(name))])
            .args(["--elf-dir", tools::text(&shared)])
            .args(FUNCTION_LAYOUT)
            .spawn()
            .unwrap()
    };
    let running: Vec<_> = names.iter().map(start).collect();
    for mut run in running {
        assert!(run.wait().unwrap().success());
    }
    let count = std::fs::read_dir(&shared).unwrap().count();
    assert_eq!(count, 78 + 90 + 244 + 67);
}
