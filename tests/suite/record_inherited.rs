//! What a program inherits below `jitinject record`: the same as without it.

use std::process::Command;

use rustix::process::Signal;

use crate::record::{PERF, Scene};
use crate::support::{said, tools};

/// Returns what a program prints that is recorded.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// perf has set them before it starts the program.
#[test]
fn variables_that_perf_sets_for_itself_are_the_users() {
    let set = "export PATH=/perf:$PATH PREFIX=/perf PERF_BUILDID_DIR=/perf DEBUGINFOD_URLS=\n";
    let scene = Scene::new(&format!("{set}{PERF}"));
    let record = |name: &str| scene.command(&["record", "-q", "--no-env", "-o", name, "--", "env"]);
    let variables = |command: &mut Command| {
        let text = printed(command);
        // Without those of shells.
        let is_own = |line: &&str| {
            !["_=", "PWD=", "OLDPWD=", "SHLVL="]
                .iter()
                .any(|name| line.starts_with(name))
        };
        let mut lines: Vec<String> = text.lines().filter(is_own).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let path = format!("PATH={}:/usr/bin:/bin", tools::text(&scene.path("bin")));
    assert_eq!(variables(&mut record("none")), [&*path]);
    let mut own = record("own");
    own.env("PREFIX", "/mine")
        .env("DEBUGINFOD_URLS", "https://x.example");
    let expected = ["DEBUGINFOD_URLS=https://x.example", &*path, "PREFIX=/mine"];
    assert_eq!(variables(&mut own), expected);
}

/// perf ignores SIGUSR2, blocks SIGWINCH, and has an open file.
#[test]
fn signals_and_open_files_are_not_those_of_perf() {
    let change = "trap '' USR2; exec 8</dev/null; /usr/bin/env --block-signal=WINCH \"$@\"";
    let scene = Scene::new(&PERF.replace("\"$@\"", change));
    let record = |name: &str, signals: &str, program: &str| {
        let start = "exec 8<&- 9</dev/null; exec /usr/bin/env";
        let script = format!("{start} {signals} \"$0\" record -q -o {name} -- {program}");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_jitinject")]);
        let path = format!("{}:/usr/bin:/bin", tools::text(&scene.path("bin")));
        printed(shell.current_dir(scene.path("work")).env("PATH", path))
    };
    let has = |status: &str, set: &str, signal: Signal| {
        let set = status.lines().find_map(|line| line.strip_prefix(set));
        u64::from_str_radix(set.unwrap().trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
    };
    for (name, signals, is_user) in [
        ("default", "--default-signal=USR2", false),
        ("own", "--ignore-signal=USR2 --block-signal=WINCH", true),
    ] {
        let status = record(name, signals, "cat /proc/self/status");
        assert_eq!(has(&status, "SigIgn:", Signal::USR2), is_user, "{status}");
        assert_eq!(has(&status, "SigBlk:", Signal::WINCH), is_user, "{status}");
    }
    let files = record("files", "", "ls /proc/self/fd");
    let files: Vec<&str> = files.lines().collect();
    assert!(files.contains(&"9") && !files.contains(&"8"), "{files:?}");
}
