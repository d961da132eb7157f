//! Runs the commands of `README.md` on a live recording of Node.js.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{said, scratch};

/// Returns a line of output without what differs from run to run: numbers, and the functions with most samples.
fn form(line: &str) -> String {
    let is_number = |word: &str| word.starts_with(|first: char| first.is_ascii_digit());
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let is_share = |word: &&str| is_number(word) && word.contains('.');
    let kept = match &words[..] {
        [_, shares @ ..] if shares.len() > 3 && shares.iter().take(3).all(is_share) => 4,
        [_, "missing:" | "language", ..] => 2,
        all => all.len(),
    };
    words.truncate(kept);
    let words = words.into_iter().map(|word| {
        if is_number(word.trim_start_matches('(')) {
            "N"
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the commands of jitinject between backquotes in a table.
fn in_tables(text: &str) -> impl Iterator<Item = &str> {
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let cells = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    cells.filter(|cell| cell.starts_with("jitinject "))
}

#[test]
fn the_commands_of_the_readme_work() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let (start, rest) = readme.split_once("\n## Install\n").unwrap();
    let (_, rest) = rest.split_once("\n## Record\n").unwrap();
    let (rest, _) = rest.split_once("\n## Documentation\n").unwrap();
    let folder = scratch();
    std::fs::copy(root.join("testdata/node20/work.js"), folder.path().join("app.js")).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_jitinject")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let run = |command: &str| -> Output {
        let output = Command::new("sh")
            .args(["-c", command])
            .current_dir(folder.path())
            .env("PATH", &path)
            .output()
            .unwrap();
        // On a busy machine, the same program may take longer.
        let is_success =
            output.status.success() || (command.contains("--fail-on") && output.status.code() == Some(4));
        assert!(is_success, "{command}: {}", said(&output));
        output
    };

    let mut lines = start.lines().filter_map(|line| line.strip_prefix("    "));
    let record = lines.next().unwrap().strip_prefix("$ ").unwrap();
    let (commands, shown): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("$ "));
    let printed = said(&run(record));
    // Whether a recording lacks something is a matter of luck and of the machine.
    let always = |line: &&&str| !line.starts_with("jitinject: missing: ");
    let forms = |lines: &[&str]| {
        lines
            .iter()
            .filter(always)
            .map(|line| form(line))
            .collect::<Vec<_>>()
    };
    assert_eq!(forms(&printed.lines().collect::<Vec<_>>()), forms(&shown));
    for command in commands {
        let report = run(command.strip_prefix("$ ").unwrap()).stdout;
        assert!(String::from_utf8_lossy(&report).contains("JS:*"), "{command}");
    }
    for command in rest.lines().filter_map(|line| line.strip_prefix("    ")) {
        run(command);
    }
    for command in in_tables(rest) {
        run(command);
    }
    for name in ["perf.jit.data", "flame.svg", "timeline.html"] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
}
