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
    assert!(!folder.path().join("profile/perf.jit.data.elf").exists());
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
    let without_dump = profile.replace("jitinject -q -i", "rm -f jit-*.dump; jitinject -q -i");
    assert_ne!(without_dump, profile);
    let output = attempt_script(spoiled.path(), &without_dump, &[&["1"], &program[..]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(spoiled.path().join("profile.tar.gz").exists());
    // The archive is sufficient in another directory, without the original files.
    let elsewhere = scratch();
    run(
        folder.path(),
        &format!("mv profile.tar.gz '{}'", elsewhere.path().display()),
        &[],
    );
    run(folder.path(), "rm -r objects profile main perf.data", &[]);
    let report = run(elsewhere.path(), look, &[]);
    assert!(report.contains("inner_"), "{report}");
}
