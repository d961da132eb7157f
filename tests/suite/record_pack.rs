//! `jitinject record --pack`: the archive of a recording.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jitinject::internals::files::walk::Scope;
use jitinject::internals::files::{Folder, NameInFolder};

use crate::record::{PERF, Scene};
use crate::support::reports::reports;
use crate::support::{said, scratch, tools};

#[test]
fn a_packed_recording_is_one_file() {
    let scene = Scene::new(PERF);
    scene.add("php", "exit 0");
    let output = scene.run(&["record", "--pack", "-o", "r", "--", "php"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("has all of it ("), "{}", said(&output));
    assert!(
        said(&output).contains("perf --buildid-dir r/debug report"),
        "{}",
        said(&output)
    );
    let (folder, archive) = (scene.path("work/r"), scene.path("work/r.tar.zst"));
    let packed = std::fs::read(&archive).unwrap();
    std::fs::write(scene.path("r.tar"), zstd::decode_all(&*packed).unwrap()).unwrap();
    std::fs::create_dir(scene.path("unpacked")).unwrap();
    let (tar, unpacked) = (scene.path("r.tar"), scene.path("unpacked"));
    tools::run("tar", &["-xf", tools::text(&tar), "-C", tools::text(&unpacked)]);
    let copy = unpacked.join("r");
    tools::run("diff", &["-r", tools::text(&folder), tools::text(&copy)]);
    // Users, modes and times are not in it.
    let listed = Command::new("tar")
        .args(["-tvf", tools::text(&tar)])
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.lines().all(|line| line.contains(" 0/0 ")), "{listed}");
    let again = scene.path("again.tar.zst");
    let folder_of_copy = Folder::open(&copy, Scope::Named).unwrap();
    jitinject::internals::record::pack(&folder_of_copy, NameInFolder::of(&again).unwrap()).unwrap();
    assert!(std::fs::read(again).unwrap() == packed);
    // Nothing is overwritten.
    std::fs::remove_dir_all(&folder).unwrap();
    let output = scene.run(&["record", "--pack", "-o", "r/", "--", "php"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(reports(&said(&output), "JI442", "r.tar.zst"), "{}", said(&output));
    assert!(!folder.exists() && std::fs::read(archive).unwrap() == packed);
}

/// Programs that still run may write to them.
#[test]
fn files_that_grow_are_packed_as_they_are() {
    let folder = scratch();
    let recording = folder.path().join("r");
    std::fs::create_dir(&recording).unwrap();
    let mut growing = std::fs::File::create(recording.join("growing")).unwrap();
    growing.write_all(&[1; 1 << 20]).unwrap();
    tools::run("mkfifo", &[tools::text(&recording.join("pipe"))]);
    std::fs::write(recording.join("last"), "last").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                growing.write_all(&[2; 4096]).unwrap();
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let opened = Folder::open(&recording, Scope::Named).unwrap();
        let archive = folder.path().join("r.tar.zst");
        let packed = jitinject::internals::record::pack(&opened, NameInFolder::of(&archive).unwrap());
        is_over.store(true, Ordering::Relaxed);
        packed.unwrap();
        let tar = zstd::decode_all(&*std::fs::read(archive).unwrap()).unwrap();
        std::fs::write(folder.path().join("r.tar"), tar).unwrap();
    });
    let tar = folder.path().join("r.tar");
    let unpacked = folder.path().join("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    tools::run("tar", &["-xf", tools::text(&tar), "-C", tools::text(&unpacked)]);
    assert!(
        std::fs::read(unpacked.join("r/growing"))
            .unwrap()
            .starts_with(&[1; 1 << 20])
    );
    assert_eq!(std::fs::read_to_string(unpacked.join("r/last")).unwrap(), "last");
    assert!(!unpacked.join("r/pipe").exists());
}
