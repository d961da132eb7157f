//! `jitinject record` as another user: what may be recorded, and whom the recording belongs to.

use std::os::unix::fs::PermissionsExt;

use rustix::fs::StatVfsMountFlags;
use rustix::process::geteuid;

use crate::record::{PERF, Scene};
use crate::support::reports::reports;
use crate::support::{has_code, said};

/// Whether this process is root.
fn is_root() -> bool {
    geteuid().is_root()
}

/// The kernel ends a recording when such a program starts, and perf then ends the program.
#[test]
fn a_program_with_more_rights_than_the_user_is_refused() {
    let scene = Scene::new(PERF);
    scene.add("tool", ": > ran");
    scene.add_file("engine", "\x7fELF");
    scene.add_file("start", "#!/usr/bin/env engine\n");
    let engine = scene.path("bin/engine");
    // Root can read everything. A user cannot give files to others.
    let (mode, cause) = if is_root() {
        (0o4755, "it runs with the rights of another user or group")
    } else {
        (0o311, "it is not readable")
    };
    if is_root() {
        std::os::unix::fs::chown(&engine, Some(12345), None).unwrap();
    }
    std::fs::set_permissions(&engine, std::fs::Permissions::from_mode(mode)).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mount = rustix::fs::statvfs(&engine).unwrap().f_flag;
    let is_ignored = status.contains("NoNewPrivs:\t1") || mount.contains(StatVfsMountFlags::NOSUID);
    for command in [&["engine"][..], &["start"], &["env", "A=1", "engine"]] {
        let output = scene.run(&[&["record", "-o", "r", "--"], command].concat());
        let said = said(&output);
        let program = command.last().unwrap();
        let is_refused = reports(&said, "JI450", &format!("{program} cannot be recorded: {cause}"));
        assert_eq!(is_refused, !(is_root() && is_ignored), "{said}");
        if is_refused {
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains("help: Record as root: put sudo before"), "{said}");
        }
        assert!(!scene.path("work/r").exists());
    }
    // A recording of whole CPUs goes on.
    let output = scene.run(&["record", "-a", "-o", "r", "--", "engine"]);
    assert!(!has_code(&said(&output), "JI450"), "{}", said(&output));
    let output = scene.run(&["record", "-q", "-o", "s", "--", "tool"]);
    assert!(output.status.success() && scene.path("work/ran").exists());
}

#[test]
fn sudo_or_su_before_the_program_is_said_to_lose_the_variables() {
    let scene = Scene::new(PERF);
    scene.add("sudo", "exit 0");
    scene.add("su", "exit 0");
    for (options, command, is_said) in [
        (&[][..], &["sudo", "-u", "other", "node", "app.js"][..], true),
        (&[], &["env", "A=1", "sudo", "node", "app.js"], true),
        (&[], &["sudo", "--preserve-env", "node", "app.js"], false),
        (&["--no-env"], &["sudo", "node", "app.js"], false),
        (&[], &["sh", "-c", "exit 0", "sudo"], false),
        (&[], &["su", "-", "other", "-c", "node app.js"], true),
        (&[], &["su", "other", "-c", "node app.js"], false),
    ] {
        let output = scene.run(&[&["record", "-o", "r"], options, &["--"], command].concat());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let is_reported = reports(&said, "JI451", "resets the environment");
        assert_eq!(is_reported, is_said, "{command:?}: {said}");
        std::fs::remove_dir_all(scene.path("work/r")).unwrap();
    }
}

#[test]
fn a_recording_by_sudo_belongs_to_root_and_says_so() {
    let scene = Scene::new(PERF);
    let run = |user: &str, arguments: &[&str]| {
        let mut command = scene.command(arguments);
        command.env("SUDO_UID", user).env("SUDO_USER", "joe x");
        said(&command.output().unwrap())
    };
    let said = run("1000", &["record", "--pack", "-o", "r", "--", "true"]);
    let line = "jitinject: r belongs to root; to make it yours: sudo chown -R 'joe x' r r.tar.zst\n";
    assert_eq!(said.contains(line), is_root(), "{said}");
    let said = run("0", &["record", "-o", "again", "--", "true"]);
    assert!(!said.contains("chown"), "{said}");
    // sudo has a PATH of its own.
    let said = run("1000", &["record", "-o", "third", "--", "absent"]);
    assert!(reports(&said, "JI441", "no such program"), "{said}");
    assert_eq!(
        said.contains("sudo env \"PATH=$PATH\" jitinject"),
        is_root(),
        "{said}"
    );
}

#[test]
fn what_perf_may_not_record_depends_on_what_is_recorded() {
    let scene = Scene::new("echo 'Access to performance monitoring is limited.' >&2; exit 255");
    for (options, text, help) in [
        (
            &["-p", "1"][..],
            "process 1 belongs to another user",
            "Record it as root",
        ),
        (&["-a"], "", "sudo before jitinject"),
    ] {
        let output = scene.run(&[&["record", "-o", "r"], options].concat());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
        let is_free = options[0] == "-a" && level.trim().parse::<i32>().unwrap() <= 0;
        // Root is only refused in a container.
        let is_explained = said.contains(text) && said.contains(help);
        assert_eq!(is_explained, !is_root() && !is_free, "{said}");
        assert!(!scene.path("work/r").exists());
    }
}

/// Some kernels forbid stacks at level 2.
#[test]
fn a_refusal_of_stacks_is_not_one_of_the_container() {
    let refused = "[ \"$1\" != record ] || case \" $* \" in *' -g '*) echo 'Access to performance monitoring is limited.' >&2; exit 255;; esac";
    let scene = Scene::new(&format!("{refused}\n{PERF}"));
    let output = scene.run(&["record", "-o", "r", "--", "true"]);
    let said = said(&output);
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    let is_high = level.trim().parse::<i32>().unwrap() > 1;
    let is_level = reports(
        &said,
        "JI444",
        &format!("perf_event_paranoid is {}", level.trim()),
    );
    assert_eq!(is_level, is_high && !is_root(), "{said}");
    assert_eq!(has_code(&said, "JI445"), !is_level, "{said}");
    assert!(!scene.path("work/r").exists());
}

#[test]
fn a_process_that_has_ended_is_named() {
    // No process has this ID.
    let absent = "4193906";
    let scene = Scene::new("echo 'Couldn'\\''t create thread/CPU maps: No such process' >&2; exit 255");
    let pids = format!("{},{absent}", std::process::id());
    let output = scene.run(&["record", "-o", "r", "-p", &pids]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        reports(&said, "JI443", &format!("there is no process {absent}")),
        "{said}"
    );
    assert!(
        said.contains("It may have ended") && !said.contains("--print"),
        "{said}"
    );
}
