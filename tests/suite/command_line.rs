//! What can be typed, what is said, and the exit status.

use std::path::Path;

use serde_json::Value;

use crate::support::{attempt, capture, inject, jitinject, objects_of, perf, said, scratch, tools};

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
    assert_eq!(perf::leaves(&folder.path().join("perf.jit.data")).len(), 366);
}

#[test]
fn the_summary_is_json_with_the_same_figures() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    let summary = folder.path().join("summary.json");
    let profile = capture::profile("multi");
    let said = inject(&profile, &output, &["-q", "--summary", tools::text(&summary)]);
    assert_eq!(said, "", "quiet");
    let json: Value = serde_json::from_slice(&std::fs::read(summary).unwrap()).unwrap();
    assert_eq!(json["format"], 1);
    assert_eq!(json["functions"]["loaded"], 832);
    assert_eq!(json["functions"]["written"], objects_of(&output).len());
    assert_eq!(json["samples"]["total"], 347);
    assert_eq!(json["samples"]["named"], 133);
    assert_eq!(json["samples"]["unnamed"]["not_in_dump"], 1);
    assert_eq!(json["dumps"].as_array().unwrap().len(), 4);
    assert_eq!(json["warnings"], Value::Array(Vec::new()));
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
        assert_eq!(
            said(&ran).contains("99.25 % of the samples in JIT code have a name"),
            status == 3
        );
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
            .starts_with("jitinject 0.")
    );
}

#[test]
fn verbose_tells_of_each_dump() {
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
    assert!(
        said.contains("warning: the jitdump of process 1115, /tmp/cap-postgres15/.debug/jit/"),
        "{said}"
    );
    assert!(
        said.contains("78 not named: the jitdump of the process is missing or unusable"),
        "{said}"
    );
    // a folder, searched to the bottom, and the file itself
    let dumps = capture::folder("postgres15");
    let file = dumps.join(".debug/jit/llvm-IR-jit-20261121-24cc4e/jit-1115.dump");
    for path in [&dumps, &file] {
        let said = inject(&profile, &output, &["--jitdump", tools::text(path)]);
        assert!(said.contains("78 of them named (100.0 %)"), "{said}");
        assert!(!said.contains("warning"), "{said}");
    }
}

#[test]
fn a_dump_that_nobody_mapped_is_used_for_the_process_in_its_header() {
    let folder = scratch();
    let profile = without_dumps(folder.path(), "php82");
    // Another name than the marker's, so that no marker leads to it.
    let dump = folder.path().join("renamed");
    std::fs::copy(capture::folder("php82").join("jit-26234.dump"), &dump).unwrap();
    let output = folder.path().join("out.data");
    let said = inject(&profile, &output, &["--jitdump", tools::text(&dump)]);
    assert!(
        said.contains("renamed is used for process 26234, as its header says: no marker leads to it"),
        "{said}"
    );
    assert!(said.contains("198 of them named (100.0 %)"), "{said}");
    // of a process that the profile knows nothing of
    let other = capture::folder("node20-buildid").join("jit-11255.dump");
    let said = inject(&profile, &output, &["--jitdump", tools::text(&other)]);
    assert!(
        said.contains("is of process 11255, which is not in the profile"),
        "{said}"
    );
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
    // The second run of the first finds its own objects there.
    let outputs = [share("php82"), share("wasmtime"), share("php82")];
    let count = std::fs::read_dir(&shared).unwrap().count();
    assert_eq!(count, 19 + 18);
    let named = |output: &Path, prefix: &str| {
        let leaves = perf::leaves(output);
        leaves
            .iter()
            .filter(|sample| sample.frames[0].starts_with(prefix))
            .count()
    };
    assert!(named(&outputs[0], "TRACE-") > 150);
    assert_eq!(named(&outputs[1], "sift"), 27);
}

#[test]
fn objects_of_other_profiles_keep_their_names() {
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
    let leaves = perf::leaves(&output);
    assert!(
        leaves
            .iter()
            .filter(|sample| sample.frames[0].starts_with("TRACE-"))
            .count()
            > 150
    );
}
