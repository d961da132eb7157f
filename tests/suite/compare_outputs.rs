//! `jitinject compare`: its arguments, rules, outputs and diagnostics.

use std::path::Path;
use std::process::Output;

use crate::compare::write;
use crate::support::summaries::{Profile, Program};
use crate::support::{codes, jitinject, said, scratch, tools};

fn slow() -> Program {
    Program {
        samples: [1000, 2000, 3600, 2500, 1500],
        ..Program::default()
    }
}

fn runs(program: &Program, first: u64) -> Vec<Profile> {
    (first..first + 5).map(|number| program.run(number)).collect()
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = jitinject();
    command.arg("compare").args(arguments).current_dir(folder);
    command.output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Writes five runs of each side to the folders `before` and `after`.
fn write_sides(folder: &Path, before: &Program, after: &Program) {
    write(folder, "before", &runs(before, 0));
    write(folder, "after", &runs(after, 5));
}

#[test]
fn folders_and_files_are_sides() {
    let folder = scratch();
    write_sides(folder.path(), &Program::default(), &slow());
    std::fs::write(folder.path().join("before/notes.txt"), "not a summary").unwrap();
    let by_folder = run(folder.path(), &["before", "after"]);
    assert!(by_folder.status.success(), "{}", said(&by_folder));
    let text = printed(&by_folder);
    assert!(text.starts_with("before  5 runs: "), "{text}");
    assert!(text.contains("verdict: slower; 1 function slower\n"), "{text}");
    let row = text.lines().find(|line| line.contains("parse")).unwrap();
    assert!(
        row.contains("+5.9") && row.contains("* parse src/app.js"),
        "{text}"
    );
    let files = [
        "before/0.json",
        "before/1.json",
        "--",
        "after/0.json",
        "after/1.json",
    ];
    assert!(run(folder.path(), &files).status.success());
    let pair = run(folder.path(), &["before/0.json", "after/0.json"]);
    assert!(printed(&pair).contains("the variation from run to run is assumed"));
    for usage in [
        &["before/0.json"][..],
        &["before/0.json", "before/1.json", "after/0.json"],
        &["--", "after/0.json"],
        // As with a pattern that fits no file.
        &["before/0.json", "before/1.json", "--"],
        &["before/0.json", "--"],
    ] {
        let output = run(folder.path(), usage);
        assert_eq!(output.status.code(), Some(2), "{usage:?}: {}", said(&output));
    }
}

/// As in docs/ci.md, where the last recording stays beside the summaries of all runs.
#[test]
fn a_recording_beside_summaries_of_all_runs_is_one_of_them() {
    let folder = scratch();
    write_sides(folder.path(), &Program::default(), &slow());
    let recording = folder.path().join("after/recording");
    std::fs::create_dir(&recording).unwrap();
    std::fs::copy(folder.path().join("after/4.json"), recording.join("summary.json")).unwrap();
    std::fs::write(recording.join("manifest.json"), "{}").unwrap();
    let text = printed(&run(folder.path(), &["before", "after"]));
    assert!(text.contains("\nafter   5 runs: "), "{text}");
    let text = printed(&run(folder.path(), &["before", "after/recording"]));
    assert!(text.contains("\nafter   perf.data: "), "{text}");
}

#[test]
fn broken_rules_are_lines_and_a_status() {
    let folder = scratch();
    write_sides(folder.path(), &Program::default(), &slow());
    let fail_on = |rules: &[&str]| {
        let options = rules.iter().flat_map(|rule| ["--fail-on", rule]);
        run(
            folder.path(),
            &options.chain(["before", "after"]).collect::<Vec<_>>(),
        )
    };
    let output = fail_on(&["self > 2%", "total>5", "cpu > 50%", "named < 95"]);
    assert_eq!(output.status.code(), Some(4));
    let text = printed(&output);
    let broken: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("rule broken: "))
        .collect();
    assert_eq!(broken.len(), 2, "{text}");
    assert!(
        broken[0].starts_with("rule broken: self > 2%: parse src/app.js:21 +5.9"),
        "{text}"
    );
    assert!(broken[1].starts_with("rule broken: total > 5%: "), "{text}");
    assert_eq!(fail_on(&["self > 20%"]).status.code(), Some(0));
    assert_eq!(fail_on(&["named < 100"]).status.code(), Some(0));
    let refused = fail_on(&["self < 2%"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("expected 'self > N%', 'total > N%', 'cpu > N%' or 'named < N%'"));
    let unnamed = Program::default().run(0).set("/samples/named_percent", 90.0);
    write(folder.path(), "unnamed", &[unnamed]);
    let output = run(folder.path(), &["--fail-on", "named < 95", "before", "unnamed"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(printed(&output).contains("90.00 % of the samples in JIT code have a name"));
}

#[test]
fn rules_that_cannot_be_checked_are_errors() {
    let folder = scratch();
    let profile = Program::default()
        .run(0)
        .set("/profile/cpu_time_ns", serde_json::Value::Null);
    write(folder.path(), "before", std::slice::from_ref(&profile));
    let output = run(folder.path(), &["--fail-on", "cpu > 3%", "before", "before"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(codes(&said(&output)), ["JI429"], "{}", said(&output));
    write(folder.path(), "timed", &[Program::default().run(0)]);
    let output = run(
        folder.path(),
        &["--shares", "--fail-on", "cpu > 3%", "timed", "timed"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(codes(&said(&output)), ["JI429"], "{}", said(&output));
    // Other events are compared by shares only.
    let cycles = profile.set("/profile/events/0/name", "cycles:u");
    write(folder.path(), "after", &[cycles]);
    let output = run(folder.path(), &["--per-run", "before", "after"]);
    assert!(output.status.success());
    assert_eq!(codes(&said(&output)), ["JI430"], "{}", said(&output));
}

#[test]
fn totals_of_runs_with_and_without_call_stacks_are_not_compared() {
    let folder = scratch();
    let without = Profile::new(100)
        .jit("JS:*main /a.js:1:1", 10)
        .jit("JS:*eat /a.js:9:1", 90);
    write(folder.path(), "with", &[without.clone().total(0, 100)]);
    write(folder.path(), "without", &[without]);
    for (before, after) in [("with", "without"), ("without", "with")] {
        let output = run(folder.path(), &[before, after]);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(codes(&said(&output)), ["JI439"], "{}", said(&output));
        let output = run(folder.path(), &["--fail-on", "total > 5%", before, after]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(codes(&said(&output)), ["JI429"], "{}", said(&output));
        assert!(
            run(folder.path(), &["--fail-on", "self > 5%", before, after])
                .status
                .success()
        );
    }
}

#[test]
fn summaries_that_cannot_be_compared_are_refused() {
    let folder = scratch();
    write(folder.path(), "good", &[Program::default().run(0)]);
    let refused = |name: &str, content: &[u8]| {
        std::fs::write(folder.path().join(name), content).unwrap();
        let output = run(folder.path(), &["good", name]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        let said = said(&output);
        assert!(said.contains(&format!("]: {name}: ")), "{said}");
        codes(&said).join(" ")
    };
    let old = Program::default().run(0).set("/format", 2);
    let bad = Program::default()
        .run(0)
        .set("/profile/functions/1/callers", serde_json::json!([[99, 1]]));
    assert_eq!(refused("elf", b"\x7fELF"), "JI417");
    assert_eq!(refused("new", br#"{"format": 99}"#), "JI418");
    assert_eq!(refused("old", &old.json()), "JI419");
    assert_eq!(refused("bad", &bad.json()), "JI427");
    let flooded = Program::default()
        .run(0)
        .set("/profile/functions/1/total", serde_json::json!([1_000_000]));
    assert_eq!(refused("flooded", &flooded.json()), "JI427");
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let output = run(folder.path(), &["good", "empty"]);
    assert_eq!(codes(&said(&output)), ["JI428"], "{}", said(&output));
}

/// Names that would be markup, mentions or scripts.
const HOSTILE: [&str; 4] = [
    "JS:*a|b`</code></td><img src=x onerror=alert(1)> @everyone /a.js:1:1",
    "JS:*[link](https://example.org) **bold** /a.js:2:1",
    "JS:*</title></svg><script>alert(1)</script>;x\u{1b}[31m\u{202e} /a.js:3:1",
    "JS:*line\nbreak | cell /a.js:4:1",
];

fn hostile() -> Profile {
    let functions = HOSTILE
        .iter()
        .fold(Profile::new(400), |profile, name| profile.jit(name, 100));
    functions.stacks(&[(-1, 0, 100), (0, 1, 100), (1, 2, 100), (2, 3, 100)])
}

#[test]
fn names_are_text_in_every_output() {
    let folder = scratch();
    write(folder.path(), "before", &[hostile()]);
    write(
        folder.path(),
        "after",
        &[HOSTILE[..3]
            .iter()
            .fold(Profile::new(600), |it, name| it.jit(name, 200))],
    );
    let graph = folder.path().join("graph.svg");
    let options = ["--min-change", "0", "--assume-variation", "0", "before", "after"];
    for format in [
        &["--markdown", "--flame-graph", tools::text(&graph)][..],
        &["--json"],
        &[],
    ] {
        let output = run(folder.path(), &[format, &options].concat());
        assert!(output.status.success(), "{}", said(&output));
        let text = printed(&output);
        let controls = text.chars().filter(|it| it.is_control() && *it != '\n');
        assert_eq!(controls.count(), 0, "{text:?}");
        if format.first() == Some(&"--markdown") {
            assert!(
                !text.contains("</td>") && !text.contains("<img src=x onerror=alert(1)> @everyone |"),
                "{text}"
            );
            let rows = text
                .lines()
                .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
            for row in rows {
                assert_eq!(row.matches('|').count(), 7, "{row}");
            }
        }
    }
    let svg = std::fs::read_to_string(graph).unwrap();
    assert_eq!(svg.matches("<script").count(), 1);
    assert!(
        !svg.contains('\u{1b}') && !svg.contains("</title></svg><script"),
        "{svg}"
    );
}

#[test]
fn markdown_has_the_verdict_first() {
    let folder = scratch();
    write_sides(folder.path(), &Program::default(), &slow());
    let output = run(
        folder.path(),
        &[
            "--markdown",
            "--min-change",
            "0",
            "--fail-on",
            "self > 2%",
            "--fail-on",
            "cpu > 90%",
            "before",
            "after",
        ],
    );
    assert_eq!(output.status.code(), Some(4));
    let text = printed(&output);
    assert!(
        text.starts_with("### Profile: failed: slower; 1 function slower\n"),
        "{text}"
    );
    assert!(
        text.contains("- ❌ `self > 2%`: `parse src/app.js:21 +5.9"),
        "{text}"
    );
    assert!(text.contains("- ✅ `cpu > 90%`\n"), "{text}");
    assert!(!text.contains("&#"), "{text}");
    let (top, rest) = text.split_once("<details>").unwrap();
    assert!(
        top.contains("| `parse src/app.js:21` |") && !top.contains("`hash"),
        "{text}"
    );
    assert!(rest.contains("`hash") && rest.contains("</details>"), "{text}");
}

#[test]
fn the_flame_graph_is_written_at_once() {
    let folder = scratch();
    write_sides(folder.path(), &Program::default(), &slow());
    let graph = folder.path().join("graph.svg");
    std::fs::write(&graph, "old").unwrap();
    let output = run(folder.path(), &["--flame-graph", "graph.svg", "before", "after"]);
    assert!(output.status.success(), "{}", said(&output));
    let svg = std::fs::read_to_string(&graph).unwrap();
    assert!(svg.starts_with("<?xml") && svg.ends_with("</svg>\n"));
    assert!(
        svg.contains("memcpy [libc.so.6]: ") && svg.contains("rgb(255,40,40)"),
        "{svg}"
    );
    // The only address is the name of the format.
    assert_eq!(svg.matches("http").count(), 1);
    let refused = run(
        folder.path(),
        &["--flame-graph", "none/graph.svg", "before", "after"],
    );
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(codes(&said(&refused)), ["JI401"]);
}
