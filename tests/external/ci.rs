//! Runs the scripts of `docs/ci.md`.

use std::path::Path;
use std::process::Command;

use crate::support::{said, scratch, tools};

/// Returns the scripts of a document, in order.
fn scripts(text: &str) -> Vec<&str> {
    let blocks = text.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap()).collect()
}

#[test]
fn the_scripts_of_the_document_work_on_a_live_recording() {
    let folder = scratch();
    let program = tools::compile(folder.path(), "jit.c", &[]);
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ci.md")).unwrap();
    let [profile, look, compare] = scripts(&text)[..] else {
        panic!("docs/ci.md does not have three scripts");
    };
    let binary = Path::new(env!("CARGO_BIN_EXE_jitinject")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let attempt_script = |place: &Path, script: &str, arguments: &[&str]| {
        let mut shell = Command::new("sh");
        shell
            .args(["-euc", script, "sh"])
            .args(arguments)
            .env("PATH", &path)
            .env("CI_COMMIT_SHA", "3f2a90c");
        shell.current_dir(place).output().unwrap()
    };
    let run = |place: &Path, script: &str, arguments: &[&str]| {
        let output = attempt_script(place, script, arguments);
        assert!(output.status.success(), "{script}\n{}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let program = [tools::text(&program), "frames", "truth"];
    run(folder.path(), profile, &[&["2"], &program[..]].concat());
    assert!(folder.path().join("profile/recording/perf.jit.data").exists());
    assert!(folder.path().join("profile/timeline.html").exists());
    let summary: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("profile/run2.json")).unwrap()).unwrap();
    assert_eq!(
        summary["profile"]["labels"],
        serde_json::json!({"commit": "3f2a90c", "run": "2"})
    );
    run(folder.path(), "cp -r profile main", &[]);
    run(folder.path(), compare, &[]);
    for name in ["comment.md", "flame.svg"] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
    // A recording whose runtime wrote no dump is packed as well.
    let spoiled = scratch();
    let without_dump = profile.replace("-- \"$@\"", "-- sh -c '\"$@\"; rm -f jit-*.dump' sh \"$@\"");
    assert_ne!(without_dump, profile);
    let output = attempt_script(spoiled.path(), &without_dump, &[&["1"], &program[..]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(spoiled.path().join("profile.tar.gz").exists());
    // So is what there is if nothing can be recorded.
    let nothing = scratch();
    let output = attempt_script(nothing.path(), profile, &["2", "no-such-program"]);
    assert!(!output.status.success(), "{}", said(&output));
    assert!(
        nothing.path().join("profile.tar.gz").exists(),
        "{}",
        said(&output)
    );
    // The archive is sufficient in another directory, without the original files.
    let elsewhere = scratch();
    run(
        folder.path(),
        &format!("mv profile.tar.gz '{}'", elsewhere.path().display()),
        &[],
    );
    run(folder.path(), "rm -r profile main", &[]);
    let report = run(elsewhere.path(), look, &[]);
    assert!(report.contains("inner_"), "{report}");
}

/// Commands of a job that must not run here, in the order of their names.
const STAND_INS: [(&str, &str); 5] = [
    ("apt-get", "exit 0"),
    ("cargo", "exit 0"),
    (
        "curl",
        r#"while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done; cp "$BASELINE" "$out""#,
    ),
    (
        "gh",
        r#"case "$1 $2" in
        "run list") echo 42 ;;
        "run download") mkdir main.tmp && cp "$BASELINE" main.tmp/profile.tar.gz ;;
        "pr comment") test -s comment.md ;;
        *) exit 1 ;;
        esac"#,
    ),
    ("sudo", "exit 0"),
];

/// Returns the commands of a GitLab job.
fn gitlab_commands(text: &str) -> String {
    let job = text.split("  script:\n").nth(1).unwrap();
    let lines = job.lines().map_while(|line| line.strip_prefix("    - "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the commands of a GitHub job.
fn github_commands(text: &str) -> String {
    let job = text
        .split("    steps:\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let mut commands = Vec::new();
    let mut is_block = false;
    for line in job.lines() {
        if let Some(command) = line.strip_prefix("      - run: ") {
            commands.push(command);
        }
        match line.strip_prefix("          ") {
            Some(command) if is_block => commands.push(command),
            _ => is_block = line == "        run: |",
        }
    }
    commands.join("\n").replace("${{ github.event.number }}", "7")
}

/// The main branch keeps its profile, which the jobs of a branch compare with theirs.
#[test]
fn the_jobs_of_the_document_compare_a_branch_with_the_main_branch() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ci.md")).unwrap();
    let [profile, _, compare] = scripts(&text)[..] else {
        panic!("docs/ci.md does not have three scripts");
    };
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/external/programs");
    let folder = scratch();
    let stand_ins = folder.path().join("bin");
    std::fs::create_dir(&stand_ins).unwrap();
    for (name, content) in STAND_INS {
        tools::add_program(
            &stand_ins.join(name),
            format!("#!/bin/sh\n{content}\n").as_bytes(),
        );
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_jitinject")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{}:{path}", stand_ins.display(), binary.display());
    let baseline = folder.path().join("main/profile.tar.gz");
    let run = |name: &str, branch: &str, commands: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).unwrap();
        tools::add_program(&place.join("profile.sh"), profile.as_bytes());
        tools::add_program(&place.join("compare.sh"), compare.as_bytes());
        std::fs::copy(programs.join("fib.js"), place.join("app.js")).unwrap();
        let output = Command::new("sh")
            .args(["-ec", commands])
            .current_dir(&place)
            .env("PATH", &path)
            .env("BASELINE", &baseline)
            .envs([("CI_COMMIT_BRANCH", branch), ("CI_DEFAULT_BRANCH", "main")])
            .envs([
                ("CI_JOB_TOKEN", "t"),
                ("CI_API_V4_URL", "u"),
                ("CI_PROJECT_ID", "1"),
            ])
            .output()
            .unwrap();
        // On a busy machine, even the same program may take longer.
        assert!(
            [Some(0), Some(4)].contains(&output.status.code()),
            "{name}: {}",
            said(&output)
        );
        place
    };
    let main = run("main", "main", &gitlab_commands(&text));
    assert!(baseline.exists() && !main.join("comment.md").exists());
    for (name, commands) in [
        ("gitlab", gitlab_commands(&text)),
        ("github", github_commands(&text)),
    ] {
        let place = run(name, "feature", &commands);
        let comment = std::fs::read_to_string(place.join("comment.md")).unwrap();
        assert!(
            comment.starts_with("### Profile") && comment.contains("5 runs"),
            "{comment}"
        );
        assert!(place.join("flame.svg").exists() && place.join("profile.tar.gz").exists());
    }
}
