//! Shells accept the generated completions.

use crate::support::{jitinject, scratch, tools};

#[test]
fn bash_completes_options() {
    let completions = jitinject().args(["completions", "bash"]).output().unwrap();
    let folder = scratch();
    let script = folder.path().join("jitinject.bash");
    std::fs::write(&script, completions.stdout).unwrap();
    let list = "source \"$0\"; COMP_WORDS=(jitinject --fail); COMP_CWORD=1; _jitinject jitinject --fail jitinject; echo ${COMPREPLY[@]}";
    assert_eq!(
        tools::run("bash", &["-c", list, tools::text(&script)]).trim(),
        "--fail-under"
    );
}
