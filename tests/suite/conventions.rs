//! Conventions of command-line programs: a manual, completions, colours, hints.

use std::path::Path;
use std::process::Output;

use jitinject::internals::results::diagnostics::issues::RECORD_FIRST;

use crate::support::reports::reports;
use crate::support::{attempt, capture, codes, commands, has_code, inject, jitinject, said, scratch, tools};

fn run(arguments: &[&str]) -> Output {
    jitinject().args(arguments).output().unwrap()
}

/// Runs jitinject, which must succeed; returns its standard output.
fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_command_has_a_page_in_the_manual() {
    let folder = scratch();
    printed(&["man", "--output-dir", tools::text(folder.path())]);
    let page = printed(&["man"]);
    let version = concat!("1 \"\" \"jitinject ", env!("CARGO_PKG_VERSION"), "\"");
    assert!(page.contains(&format!(".TH jitinject {version}")), "{page}");
    assert!(page.contains("Exit status:"), "{page}");
    let commands = commands();
    assert!(commands.contains(&"compare".to_owned()), "{commands:?}");
    for command in &commands {
        let page = printed(&["man", command]);
        let title = format!(".TH jitinject-{command} {version}");
        assert!(page.contains(&title), "{page}");
        assert!(page.contains(".SH DESCRIPTION"), "{page}");
        let file = folder.path().join(format!("jitinject-{command}.1"));
        assert_eq!(std::fs::read_to_string(file).unwrap(), page);
        assert!(!printed(&["help", command]).is_empty());
    }
    let pages = std::fs::read_dir(folder.path()).unwrap();
    assert_eq!(
        pages.count(),
        commands.len() + 1,
        "one page for each command, and one for all"
    );
    assert_eq!(run(&["man", "nonsense"]).status.code(), Some(1));
}

/// Returns what bash offers when Tab is pressed behind the last word.
fn offered(script: &Path, words: &[&str]) -> Vec<String> {
    // bash calls the function with the program, the word and the word before.
    let ask = "source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        _jitinject \"$1\" \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = std::process::Command::new("bash");
    bash.args(["--noprofile", "--norc", "-c", ask])
        .arg(script)
        .args(words);
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn bash_offers_nothing_that_is_refused() {
    let folder = scratch();
    let script = folder.path().join("jitinject.bash");
    std::fs::write(&script, printed(&["completions", "bash"])).unwrap();
    let offered = |words: &[&str]| offered(&script, words);
    assert_eq!(offered(&["jitinject", "ti"]), ["timeline"]);
    let mut first = offered(&["jitinject", ""]);
    first.retain(|word| !word.starts_with('-') && word != "help");
    first.sort();
    let mut all = commands();
    all.sort();
    assert_eq!(first, all);
    for before in [
        &["-i", "p.data"][..],
        &["p.data"],
        &["-q"],
        &["-i", "p.data", "-f"],
    ] {
        let words: Vec<&str> = [&["jitinject"], before, &["ti"]].concat();
        assert_eq!(offered(&words), [""; 0], "{before:?}");
        let command: Vec<&str> = [before, &["timeline"]].concat();
        assert_eq!(run(&command).status.code(), Some(2), "{command:?}");
        let words: Vec<&str> = [&["jitinject"], before, &["--summ"]].concat();
        assert!(offered(&words).contains(&"--summary".to_owned()), "{before:?}");
    }
    assert_eq!(offered(&["jitinject", "timeline", "--jit"]), ["--jitdump"]);
}

/// bash offers files where the script has nothing, and takes `=` for a word.
#[test]
fn bash_offers_files_where_they_belong_and_values_behind_an_equals_sign() {
    let folder = scratch();
    let script = folder.path().join("jitinject.bash");
    std::fs::write(&script, printed(&["completions", "bash"])).unwrap();
    let offered = |words: &[&str]| offered(&script, words);
    for command in [
        "inject", "report", "export", "compare", "dump", "timeline", "check",
    ] {
        assert_eq!(offered(&["jitinject", command, ""]), [""; 0], "{command}");
        let options = offered(&["jitinject", command, "-"]);
        assert!(options.contains(&"--help".to_owned()), "{command}: {options:?}");
    }
    assert_eq!(offered(&["jitinject", "-q", ""]), [""; 0]);
    assert_eq!(offered(&["jitinject", "report", "--by", "=", "th"]), ["thread"]);
}

#[test]
fn codes_and_commands_are_completed() {
    let folder = scratch();
    let script = folder.path().join("jitinject.bash");
    std::fs::write(&script, printed(&["completions", "bash"])).unwrap();
    let codes = offered(&script, &["jitinject", "explain", "JI01"]);
    assert!(
        codes.len() > 5 && codes.contains(&"JI012".to_owned()),
        "{codes:?}"
    );
    for code in codes {
        assert!(run(&["explain", &code]).status.success(), "{code}");
    }
    let rules = offered(&script, &["jitinject", "check", "--explain", ""]);
    assert!(rules.len() > 50, "{rules:?}");
    let step = rules.len() / 10;
    for rule in rules.iter().step_by(step) {
        assert!(run(&["check", "--explain", rule]).status.success(), "{rule}");
    }
    for (shell, place) in [("zsh", "explain="), ("fish", "-l explain ")] {
        let script = printed(&["completions", shell]);
        let line = script.split(place).nth(1).unwrap();
        assert!(
            line.split("complete -c").next().unwrap().contains("JD073"),
            "{shell}"
        );
        assert!(script.contains("JI012"), "{shell}");
    }
}

#[test]
fn every_shell_has_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]);
        assert!(script.contains("fail-under"), "{shell}");
    }
}

#[test]
fn colours_are_there_where_they_are_asked_for() {
    let colour = '\x1b';
    let fail = |arguments: &[&str], variable: Option<(&str, &str)>| {
        let mut program = jitinject();
        program
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .args(["-i", "/does/not/exist"]);
        let output = program.envs(variable).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        said(&output)
    };
    assert!(!fail(&[], None).contains(colour), "colours without a terminal");
    let coloured = fail(&["--color", "always"], None);
    assert!(
        coloured.starts_with("jitinject: \x1b[1m\x1b[31merror[JI400]\x1b[0m: "),
        "{coloured:?}"
    );
    assert!(fail(&[], Some(("CLICOLOR_FORCE", "1"))).contains(colour));
    assert!(!fail(&["--color=never"], Some(("CLICOLOR_FORCE", "1"))).contains(colour));
    assert!(!fail(&[], Some(("NO_COLOR", "1"))).contains(colour));
    let usage = |arguments: &[&str]| said(&run(arguments));
    assert!(usage(&["--color", "always", "--nonsense"]).contains(colour));
    assert!(!usage(&["--nonsense"]).contains(colour));
}

#[test]
fn a_pipe_that_is_closed_early_is_not_an_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = jitinject().arg("man").stdout(writer).output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        said(&output)
    );
}

/// Runs jitinject on a recording without the files of its runtimes. Returns the standard error.
fn without_files(folder: &Path, name: &str) -> String {
    let input = folder.join(name);
    std::fs::copy(capture::profile(name), &input).unwrap();
    inject(&input, &folder.join("out.data"), &[])
}

#[test]
fn a_profile_without_files_of_runtimes_gets_the_options_for_its_runtime() {
    let folder = scratch();
    // The process did not map a jitdump.
    let said = without_files(folder.path(), "cpython312-map");
    assert!(has_code(&said, "JI173"), "{said}");
    assert!(
        reports(&said, "JI175", "CPython: python3.13 -X perf_jit app.py"),
        "{said}"
    );
    assert!(
        !said.contains("Node.js"),
        "a runtime that was not sampled: {said}"
    );
    let said = without_files(folder.path(), "mono-map");
    assert!(
        reports(&said, "JI175", "Mono: it had --jitmap; its file was not found"),
        "{said}"
    );
    let said = inject(
        &capture::profile("xray-joined-mono14"),
        &folder.path().join("out.data"),
        &[],
    );
    assert_eq!(codes(&said), ["JI174"], "{said}");
}

#[test]
fn inputs_that_are_none_say_what_to_type() {
    let folder = scratch();
    let said_of = |input: &Path| said(&attempt(input, &folder.path().join("out.data"), &[]));
    let profile = folder.path().join("perf.data");
    let missing = said_of(&profile);
    assert!(reports(&missing, "JI400", tools::text(&profile)), "{missing}");
    assert!(missing.contains(&format!("help: {RECORD_FIRST}\n")), "{missing}");
    let dump = capture::folder("node20").join("jit-11682.dump");
    let refused = said_of(&dump);
    assert!(reports(&refused, "JI140", tools::text(&dump)), "{refused}");
    let help = refused.lines().find(|line| line.contains("help: ")).unwrap();
    assert!(help.contains("--jitdump"), "{refused}");
}

#[test]
fn usage_that_makes_no_sense_has_status_2() {
    for arguments in [
        &["man", "-i", "x"][..],
        &["-i", "x", "man"],
        &["compare", "one"],
        &["nonsense"],
        &["completions", "tcsh"],
    ] {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let folder = scratch();
    let output = attempt(&folder.path().join("none"), &folder.path().join("out"), &[]);
    assert_eq!(output.status.code(), Some(1));
}
