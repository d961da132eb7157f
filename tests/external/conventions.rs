//! Shells accept the generated completions.

use std::process::{Command, Stdio};

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

/// zsh completes only on a terminal, which `script` has. Its first prompt asks for all lines, and ends it.
#[test]
fn zsh_offers_commands_first_and_options_and_files_everywhere() {
    const START: &str = "fpath=($ZDOTDIR $fpath)
        autoload -Uz compinit && compinit -u -D
        setopt no_auto_list no_beep
        complete_all() {
            local line
            while read -r line; do
                BUFFER=$line CURSOR=$#line
                zle complete-word
                print -r -- $BUFFER
            done <typed >completed
            exit
        }
        zle -N zle-line-init complete_all
    ";
    let (typed, expected): (Vec<&str>, Vec<&str>) = [
        ("jitinject rec", "jitinject record "),
        ("jitinject profile.d", "jitinject profile.data "),
        ("jitinject profile.data --lay", "jitinject profile.data --layout="),
        ("jitinject -q rec", "jitinject -q rec"),
        ("jitinject profile.data rec", "jitinject profile.data rec"),
        ("jitinject report --by th", "jitinject report --by thread "),
        ("jitinject report prof", "jitinject report profile.data "),
        (
            "jitinject report profile.data --mark",
            "jitinject report profile.data --markdown ",
        ),
        ("jitinject record --no-s", "jitinject record --no-sources "),
        ("jitinject record node --no-s", "jitinject record node --no-s"),
        ("jitinject help rec", "jitinject help record "),
    ]
    .into_iter()
    .unzip();
    let folder = scratch();
    let write = |name: &str, content: &[u8]| std::fs::write(folder.path().join(name), content).unwrap();
    let completions = jitinject().args(["completions", "zsh"]).output().unwrap();
    write("_jitinject", &completions.stdout);
    write(".zshrc", START.as_bytes());
    write("profile.data", b"");
    write("typed", (typed.join("\n") + "\n").as_bytes());
    let ran = Command::new("script")
        .args(["-q", "-e", "-c", "zsh -d -i", "/dev/null"])
        .envs([("SHELL", "/bin/sh"), ("TERM", "dumb")])
        .env("ZDOTDIR", folder.path())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let completed = std::fs::read_to_string(folder.path().join("completed"));
    let completed = completed.unwrap_or_else(|error| panic!("{error}: {ran:?}; scripts/test installs zsh"));
    assert_eq!(completed.lines().collect::<Vec<_>>(), expected);
}
