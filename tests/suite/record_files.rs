//! Files of runtimes in a recording: moved, copied, or left where they are. perf stands in with a recording of a process.

use std::path::Path;
use std::process::Command;

use jitdump::ByteOrder;
use rustix::process::geteuid;

use crate::record::{PERF, Scene};
use crate::support::profile::ProfileWriter;
use crate::support::recording::set_mapped_file;
use crate::support::reports::reports;
use crate::support::{said, tools};

/// Returns a scene with a perf that records a process, and a program that runs a script.
fn scene_of_process(pid: u32, script: &str) -> Scene {
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(pid, "program", true, 1000);
    profile.mmap2(pid, 0x7f00_0000, 0x1000, 0, "//anon", 1000);
    profile.sample(pid, 2000, &[0x7f00_0004], None);
    let scene = Scene::new(&PERF.replace("CAPTURE/perf.data", "RECORDED"));
    let recorded = scene.path("recorded");
    std::fs::write(&recorded, profile.finish()).unwrap();
    let perf = std::fs::read_to_string(scene.path("bin/perf")).unwrap();
    scene.add_file("perf", &perf.replace("RECORDED", tools::text(&recorded)));
    scene.add("program", script);
    scene
}

/// A copy would take the space on disk that the file does not.
#[test]
fn a_perf_map_of_holes_is_left_out() {
    const PID: u32 = 4_193_904;
    let map = format!("/tmp/perf-{PID}.map");
    let script = format!("echo '7f000000 10 function' > {map}; truncate -s 17M {map}");
    let scene = scene_of_process(PID, &script);
    let output = scene.run(&["record", "--pack", "-o", "r", "--", "program"]);
    let removed = std::fs::remove_file(&map);
    assert!(reports(&said(&output), "JI454", &map), "{}", said(&output));
    assert!(said(&output).contains("has all else ("), "{}", said(&output));
    removed.unwrap();
    let copy = scene.path("work/r/dumps").join(format!("perf-{PID}.map"));
    assert_eq!(copy.metadata().map_or(0, |copied| copied.len()), 0);
}

/// It may be somebody else's.
#[test]
fn a_file_that_is_not_copied_is_named() {
    const PID: u32 = 4_193_905;
    let map = format!("/tmp/perf-{PID}.map");
    let scene = scene_of_process(PID, &format!("echo text > {map}"));
    let output = scene.run(&["record", "-o", "r", "--", "program"]);
    let removed = std::fs::remove_file(&map);
    let left = format!("not copied, and left where they are: {map}\n");
    assert!(said(&output).contains(&left), "{}", said(&output));
    removed.unwrap();
}

#[test]
fn perf_maps_of_processes_that_have_ended_are_moved() {
    // Larger than the IDs of most machines, and of no other test.
    const PID: u32 = 4_193_900;
    let map = format!("/tmp/perf-{PID}.map");
    // V8 also writes a log.
    let log = format!("isolate0x1-{PID}-v8.log");
    let script = format!("echo '7f000000 10 function' > {map}; echo content > {log}");
    let scene = scene_of_process(PID, &script);
    // A recording of all CPUs also has processes that it has not started.
    let of_cpus = [&["-a"][..], &["--perf-args", "-a"], &["--perf-args", "-C 0"]];
    // Root does not know whose process it was: nobody has seen it.
    let is_own = !geteuid().is_root();
    for (options, is_moved) in of_cpus
        .map(|options| (options, false))
        .into_iter()
        .chain([(&[][..], is_own)])
    {
        let output = scene.run(&[&["record", "-o", "r"], options, &["--", "program"]].concat());
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        assert_eq!(Path::new(&map).exists(), !is_moved, "{said}");
        assert_eq!(said.contains("left where they are"), !is_moved, "{said}");
        assert!(said.contains("1 by a perf map"), "{said}");
        let copy = std::fs::read_to_string(scene.path("work/r/dumps").join(format!("perf-{PID}.map")));
        assert_eq!(copy.unwrap(), "7f000000 10 function\n");
        // Nobody else could have written to its directory.
        let place = if options.is_empty() { "r/dumps" } else { "" };
        assert!(scene.path("work").join(place).join(&log).exists(), "{said}");
        let _ = std::fs::remove_file(&map);
        std::fs::remove_dir_all(scene.path("work/r")).unwrap();
    }
}

/// The process still runs, and writes both files to the working directory.
#[test]
fn a_log_in_the_working_directory_is_copied_once() {
    let pid = std::process::id();
    let scene = Scene::new(&PERF.replace("CAPTURE/perf.data", "RECORDED"));
    let dump = scene.path("work").join(format!("jit-{pid}.dump"));
    let log = dump.with_file_name(format!("isolate0x1-{pid}-v8.log"));
    let (dump, log) = (tools::text(&dump), tools::text(&log));
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(pid, 0x6000_0000, 4096, 0, dump, 500);
    profile.sample(pid, 2000, &[0x4000_0004], None);
    let recorded = scene.path("recorded");
    std::fs::write(&recorded, profile.finish()).unwrap();
    let perf = std::fs::read_to_string(scene.path("bin/perf")).unwrap();
    scene.add_file("perf", &perf.replace("RECORDED", tools::text(&recorded)));
    scene.add("program", &format!("echo content > {dump}; echo content > {log}"));
    let output = scene.run(&["record", "-o", "r", "--", "program"]);
    let left = format!("left where they are: {dump}, {log}\n");
    assert!(said(&output).contains(&left), "{}", said(&output));
    // A second file of the same name would be in a folder.
    assert!(!scene.path("work/r/dumps/2").exists());
}

/// V8 removes it with --perf-prof-delete-file. The program of the process stands in for the jitdump that it has mapped.
#[test]
fn a_jitdump_that_is_not_at_its_path_is_copied_from_its_process() {
    let scene = Scene::new(&PERF.replace("CAPTURE/perf.data", "RECORDED"));
    let dump = scene.path("jit-7.dump");
    tools::copy_program("/bin/sleep", &dump);
    let content = std::fs::read(&dump).unwrap();
    let open = std::fs::File::open(&dump).unwrap();
    let file = open.metadata().unwrap();
    let mut process = Command::new(&dump).arg("60").stdin(open).spawn().unwrap();
    std::fs::remove_file(&dump).unwrap();
    let pid = process.id();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(pid, 0x6000_0000, 4096, 0, tools::text(&dump), 500);
    set_mapped_file(&mut profile, 0, &file);
    profile.sample(pid, 2000, &[0x4000_0004], None);
    let recorded = scene.path("recorded");
    std::fs::write(&recorded, profile.finish()).unwrap();
    let perf = std::fs::read_to_string(scene.path("bin/perf")).unwrap();
    scene.add_file("perf", &perf.replace("RECORDED", tools::text(&recorded)));
    let output = scene.run(&["record", "-o", "r", "-p", &pid.to_string()]);
    process.kill().unwrap();
    process.wait().unwrap();
    let said = said(&output);
    // Root of a container may not have the right to open what is mapped.
    let is_forbidden = geteuid().is_root() && reports(&said, "JI454", "not permitted");
    let copied = std::fs::read(scene.path("work/r/dumps/jit-7.dump"));
    assert!(
        is_forbidden || copied.is_ok_and(|copied| copied == content),
        "{said}"
    );
}
