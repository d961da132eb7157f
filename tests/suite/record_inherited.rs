//! What a program inherits below `jitinject record`: the same as without it.

use std::process::Command;

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
