//! On full or read-only file systems, the old output is kept.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::reports::line_of;
use crate::support::scene::Scene;
use crate::support::{capture, said, tools};

/// Checks that the error is that of a full disk with the file `path`, or files in it, and has a help line.
fn assert_is_disk_full(said: &str, path: &Path) {
    let error = format!("error[JI401]: {}", path.display());
    assert!(line_of(said, "JI401").contains(&error), "{said}");
    // The cause, as the system prints it.
    assert!(said.contains("No space left on device"), "{said}");
    assert!(said.contains("jitinject: help: "), "{said}");
}

#[test]
fn a_full_disk_is_an_error_and_the_old_output_stays() {
    let scene = Scene::new();
    // File systems with that many KiB of space, including the old output, and one with space for the profile
    // alone.
    const SCRIPT: &str = "
        set -e
        mount -t tmpfs -o size=$1k none \"$2\"
        cp \"$3\" \"$2/out.data\"
        \"$4\" --all --layout function -i \"$5\" -o \"$2/out.data\" || status=$?
        test \"${status:-0}\" != 0 || exit 0
        cmp \"$3\" \"$2/out.data\"
        test \"$(ls -A \"$2\")\" = out.data
        exit $status";
    let mounted = scene.folder.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    let old = fs::metadata(&scene.output).unwrap().len() / 1024;
    let mut failures = 0;
    for room in (old + 12..).step_by(60) {
        let ran = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT, "sh"])
            .args([
                &room.to_string(),
                tools::text(&mounted),
                tools::text(&scene.output),
            ])
            .args([env!("CARGO_BIN_EXE_jitinject"), tools::text(&scene.input)])
            .output()
            .unwrap();
        let said = said(&ran);
        if said.contains("next: perf report") {
            break;
        }
        assert_eq!(ran.status.code(), Some(1), "{room} KiB: {said}");
        assert_is_disk_full(&said, &mounted);
        failures += 1;
    }
    assert!(failures > 3, "{failures}");
}

#[test]
fn a_read_only_folder_stays_as_it_is() {
    const SCRIPT: &str = "
        mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && exec \"$2\" --all -i \"$3\" -o \"$1/out.data\"";
    let scene = Scene::new();
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT, "sh"])
        .args([tools::text(scene.folder.path()), env!("CARGO_BIN_EXE_jitinject")])
        .arg(&scene.input)
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    let said = said(&ran);
    assert!(
        line_of(&said, "JI401").contains("Read-only file system"),
        "{said}"
    );
    scene.assert_unchanged("read only");
}

/// The disk for the summary is full, the others are not.
#[test]
fn without_room_for_its_summary_the_old_output_stays() {
    const SCRIPT: &str = "
        set -e
        mount -t tmpfs -o size=4k none \"$1\"
        echo old > \"$1/summary.json\"
        \"$2\" --all -i \"$3\" -o \"$4\" --summary \"$1/summary.json\" || status=$?
        test \"$(cat \"$1/summary.json\")\" = old
        test \"$(ls -A \"$1\")\" = summary.json
        exit ${status:-0}";
    let scene = Scene::new();
    let mounted = scene.folder.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT, "sh"])
        .args([tools::text(&mounted), env!("CARGO_BIN_EXE_jitinject")])
        .args([&scene.input, &scene.output])
        .output()
        .unwrap();
    let said = said(&ran);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert_is_disk_full(&said, &mounted.join("summary.json"));
    scene.assert_unchanged(&said);
}

#[test]
fn a_profile_is_not_written_to_a_terminal() {
    let input = capture::profile("php82");
    let command = format!("{} -i {} -o -", env!("CARGO_BIN_EXE_jitinject"), input.display());
    let ran = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .output();
    let ran = ran.unwrap_or_else(|error| panic!("script: {error}; it is in Debian's bsdutils"));
    assert_eq!(ran.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ran.stdout).contains("error[JI412]"));
}
