//! `jitinject check`: its findings in recordings, how they are printed, and the exit status.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;

use jitdump::ByteOrder;
use jitdump::internals::bytes::is_terminal_control;
use jitinject::internals::results::diagnostics;
use jitinject::internals::tools::check::rules;
use jitinject::internals::tools::check::rules::Severity;
use serde_json::Value;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::reports::reports;
use crate::support::{codes, jitinject, said, scratch};

/// Recordings, and the rules that they break: all recordings of `testdata/`, and all rules of each.
pub const RECORDINGS: &[(&[&str], &[&str])] = &[
    (
        &["node20-attached/jit-15716.dump"],
        &["JD008", "JD010", "JD025", "JD028", "JD046", "JD093", "JD095"],
    ),
    (
        &["node20-raw/jit-1558.dump"],
        &[
            "JD008", "JD010", "JD025", "JD028", "JD046", "JD056", "JD073", "JD074", "JD080", "JD081",
            "JD093", "JD095",
        ],
    ),
    (
        &["bun/jit-27165-27160.dump"],
        &["JD013", "JD025", "JD028", "JD046"],
    ),
    (
        &["cpython313-dwarf/jit-22564.dump"],
        &["JD008", "JD009", "JD010", "JD025", "JD028", "JD093"],
    ),
    (
        &["cpython313-fork/jit-23220.dump"],
        &[
            "JD008", "JD009", "JD010", "JD020", "JD023", "JD025", "JD028", "JD029", "JD093",
        ],
    ),
    (
        &["cpython313-fork/jit-23236.dump"],
        &[
            "JD008", "JD009", "JD010", "JD022", "JD025", "JD028", "JD091", "JD093",
        ],
    ),
    (
        &["cpython313-fork/jit-23237.dump"],
        &["JD008", "JD009", "JD010", "JD022", "JD025", "JD028", "JD093"],
    ),
    (&["erlang25/jit-2327.dump"], &["JD025", "JD028", "JD076", "JD081"]),
    (
        &["java17-tsc/.debug/jit/java-jit-20261121.XXuoA5P0/jit-10186.dump"],
        &["JD007", "JD025", "JD028"],
    ),
    (
        &["java17/.debug/jit/java-jit-20261121.XXxYh6sR/jit-6207.dump"],
        &["JD025", "JD080", "JD081"],
    ),
    (
        &["lli14-mcjit/.debug/jit/llvm-IR-jit-20261121-d20ec4/jit-29258.dump"],
        &["JD025", "JD028", "JD042", "JD073", "JD080"],
    ),
    (
        &["llvm19-jitlink/.debug/jit/llvm-IR-jit-20261121-69e37a/jit-31120.dump"],
        &[
            "JD006", "JD008", "JD025", "JD072", "JD073", "JD080", "JD092", "JD094",
        ],
    ),
    (
        &[
            "mono-alloc/trace.mlpd",
            "mono-alloc-zip/trace.mlpd",
            "mono-joined/trace.mlpd",
        ],
        &["ML030", "ML031", "ML032", "ML034"],
    ),
    (&["mono-bad/bad-bufid.mlpd.gz"], &["ML016", "ML030"]),
    (&["mono-bad/bad-evtype15.mlpd.gz"], &["ML010", "ML030"]),
    (&["mono-bad/bad-flags1.mlpd.gz"], &["ML005"]),
    (&["mono-bad/bad-leb-overlong.mlpd.gz"], &["ML014", "ML030"]),
    (&["mono-bad/bad-len-huge.mlpd.gz"], &["ML017", "ML030"]),
    (&["mono-bad/bad-noheaderbuf.mlpd.gz"], &["ML007"]),
    (&["mono-bad/bad-ptr16.mlpd.gz"], &["ML004"]),
    (&["mono-bad/bad-trunc-buf.mlpd.gz"], &["ML018", "ML033"]),
    (&["mono-bad/bad-trunc-bufhdr.mlpd.gz"], &["ML007", "ML018"]),
    (&["mono-bad/bad-trunc-gz.mlpd"], &["ML018", "ML020", "ML030"]),
    (&["mono-bad/bad-trunc-hdr.mlpd.gz"], &["ML002"]),
    (&["mono-bad/bad-ver18.mlpd.gz"], &["ML003"]),
    (&["mono-calls/trace.mlpd"], &["ML030", "ML032", "ML037"]),
    (&["mono-default/trace.mlpd", "mono-jit/trace.mlpd"], &["ML030"]),
    (
        &["node20-arm64-dwarf/jit-171.dump"],
        &[
            "JD008", "JD010", "JD025", "JD028", "JD056", "JD073", "JD074", "JD080", "JD093", "JD095",
        ],
    ),
    (
        &[
            "multi/jit-4832.dump",
            "node20/jit-11682.dump",
            "node20-arm64-dump/jit-10486.dump",
            "node20-buildid/jit-11255.dump",
            "node20-dir/jit-11948.dump",
            "node20-dwarf/jit-20241.dump",
            "node20-multievent/jit-11241.dump",
            "node20-nomono/jit-20283.dump",
            "node20-overwrite/jit-28772.dump",
            "node20-pipe/jit-20255.dump",
            "node20-ppc64le-dump/jit-10612.dump",
            "node20-s390x-dump/jit-10549.dump",
            "node20-zstd/jit-20269.dump",
            "node22/jit-9302.dump",
        ],
        &[
            "JD008", "JD010", "JD025", "JD028", "JD056", "JD073", "JD074", "JD080", "JD081", "JD093", "JD095",
        ],
    ),
    (
        &["node20-inlined/jit-7666.dump", "node20-typescript/jit-18825.dump"],
        &[
            "JD008", "JD010", "JD025", "JD028", "JD056", "JD073", "JD074", "JD080", "JD093", "JD095",
        ],
    ),
    (
        &["multi/jit-4833.dump"],
        &["JD009", "JD010", "JD025", "JD028", "JD093"],
    ),
    (&["multi/jit-4834.dump", "php82/jit-26234.dump"], &["JD025"]),
    // Each worker closes the file when it ends.
    (
        &["php82-workers/jit-5304.dump"],
        &["JD025", "JD026", "JD027", "JD045"],
    ),
    (&["multi/jit-4835.dump"], &["JD025", "JD028", "JD049"]),
    (
        &["node18-arm-dump/jit-1577.dump"],
        &[
            "JD008", "JD010", "JD025", "JD028", "JD056", "JD073", "JD080", "JD082", "JD095",
        ],
    ),
    (
        &["node18-i386/jit-1519.dump"],
        &[
            "JD008", "JD010", "JD025", "JD028", "JD056", "JD073", "JD074", "JD080", "JD081", "JD082",
        ],
    ),
    (
        &[
            "node18-mips64le-dump/jit-1733.dump",
            "node18-mipsle-dump/jit-1814.dump",
        ],
        &[
            "JD008", "JD010", "JD025", "JD028", "JD056", "JD073", "JD080", "JD082",
        ],
    ),
    (&["node20-headeronly/jit-14184.dump"], &["JD008", "JD015"]),
    (
        &["node20-pidns/jit-1.dump"],
        &[
            "JD008", "JD010", "JD012", "JD025", "JD028", "JD056", "JD073", "JD074", "JD080", "JD081",
            "JD093", "JD095",
        ],
    ),
    (
        &["node20-reuse/jit-13948.dump"],
        &[
            "JD008", "JD010", "JD025", "JD028", "JD046", "JD056", "JD073", "JD074", "JD080", "JD081",
            "JD093", "JD095",
        ],
    ),
    (
        &["node20-riscv64-dump/jit-1899.dump"],
        &["JD008", "JD010", "JD025", "JD028", "JD056", "JD073", "JD080"],
    ),
    (
        &["node20-wasm/jit-4317.dump"],
        &[
            "JD008", "JD010", "JD025", "JD028", "JD046", "JD056", "JD073", "JD080", "JD095",
        ],
    ),
    (
        &["postgres15/.debug/jit/llvm-IR-jit-20261121-24cc4e/jit-1115.dump"],
        &["JD025", "JD028", "JD042", "JD046"],
    ),
    (&["qemu/jit-28698.dump"], &["JD025", "JD028", "JD079"]),
    (&["wasmtime/jit-3317.dump"], &["JD025", "JD028"]),
    (
        &["xray-bad/bad-extents+8.xray", "xray-bad/bad-extents-huge.xray"],
        &["XR005", "XR018", "XR030"],
    ),
    (
        &["xray-bad/bad-extents-8.xray", "xray-bad/bad-noise-between.xray"],
        &["XR005", "XR017", "XR030"],
    ),
    (&["xray-bad/bad-freq0.xray"], &["XR004", "XR030"]),
    (&["xray-bad/bad-hdronly.xray"], &["XR005", "XR007"]),
    (&["xray-bad/bad-kind127.xray"], &["XR005", "XR010", "XR030"]),
    (
        &["xray-bad/v1-stale-filler.xray", "xray-fdr-v1-synth/trace.xray"],
        &["XR005", "XR008", "XR030", "XR036"],
    ),
    (&["xray-bad/bad-nopid.xray"], &["XR005", "XR008", "XR030"]),
    (
        &["xray-bad/bad-trunc-5.xray", "xray-bad/bad-trunc-mid.xray"],
        &["XR005", "XR022", "XR030"],
    ),
    (
        &[
            "xray-bad/bad-trunc-boundary.xray",
            "xray-fdr-pie14/trace.xray",
            "xray-fdr-threshold14/trace.xray",
            "xray-fdr-v3-synth/trace.xray",
            "xray-fdr-v4-synth/trace.xray",
            "xray-joined-mono14/trace.xray",
        ],
        &["XR005", "XR030"],
    ),
    (&["xray-basic19/trace.xray"], &["XR005", "XR006", "XR030"]),
    (
        &[
            "xray-fdr-tsc14/trace.xray",
            "xray-joined-tsc-defclock14/trace.xray",
        ],
        &["XR030"],
    ),
    (
        &["xray-fdr-typed19/trace.xray"],
        &["XR005", "XR016", "XR030", "XR034"],
    ),
    // Profiles.
    (
        &[
            "bun/perf.data",
            "cpython312-map/perf.data",
            "cpython313-dwarf/aslr.data",
            "cpython313-dwarf/perf.data",
            "cpython313-fork/perf.data",
            "erlang25/perf.data",
            "java17-tsc/perf.data",
            "java17/perf.data",
            "lli14-mcjit/perf.data",
            "llvm19-jitlink/perf.data",
            "mono-joined/perf.data",
            "mono-map/perf.data",
            "multi/perf.data",
            "node18-arm-dump/perf.data",
            "node18-i386/perf.data",
            "node18-mips64le-dump/perf.data",
            "node18-mipsle-dump/perf.data",
            "node20-arm64-dump/perf.data",
            "node20-attached/perf.data",
            "node20-buildid/perf.data",
            "node20-dir/perf.data/data",
            "node20-dwarf/perf.data",
            "node20-headeronly/perf.data",
            "node20-inlined/perf.data",
            "node20-multievent/perf.data",
            "node20-nomono/perf.data",
            "node20-overwrite/perf.data",
            "node20-pidns/perf.data",
            "node20-pipe/perf.pipe",
            "node20-ppc64le-dump/perf.data",
            "node20-raw/perf.data",
            "node20-reuse/perf.data",
            "node20-riscv64-dump/perf.data",
            "node20-s390x-dump/perf.data",
            "node20-typescript/perf.data",
            "node20-wasm/perf.data",
            "node20-zstd/perf.data",
            "node20/perf.data",
            "node22/perf.data",
            "php82-workers/perf.data",
            "php82/perf.data",
            "postgres15/perf.data",
            "qemu/perf.data",
            "wasmtime/perf.data",
            "xray-joined-mono14/perf.data",
            "xray-joined-tsc-defclock14/perf.data",
        ],
        &[],
    ),
];

pub const TESTDATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");

/// Runs `jitinject check`.
pub fn run(arguments: &[&str]) -> Output {
    jitinject().arg("check").args(arguments).output().unwrap()
}

/// Returns the standard output of a program.
pub fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs `jitinject check --json`; returns the document and the output.
pub fn json(arguments: &[&str]) -> (Value, Output) {
    let output = run(&[&["--json"], arguments].concat());
    (serde_json::from_slice(&output.stdout).unwrap(), output)
}

#[test]
fn the_document_for_authors_of_runtimes_has_what_check_prints() {
    let document = include_str!("../../docs/runtime-authors.md");
    let (_, example) = document.split_once("    jitinject check ").unwrap();
    let (path, example) = example.split_once('\n').unwrap();
    let path = path.replace("testdata", TESTDATA);
    let shown = example
        .lines()
        .skip(1)
        .map_while(|line| line.strip_prefix("    "));
    let output = printed(&run(&[&path]));
    for line in shown.filter(|line| *line != "...") {
        let line = line.replace("testdata/", &format!("{TESTDATA}/"));
        assert!(output.lines().any(|printed| printed == line), "{line}: {output}");
    }
    let (_, totals) = document.split_once("\"totals\": ").unwrap();
    let totals = totals.split_inclusive('}').next().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(totals).unwrap(),
        json(&[&path]).0["totals"]
    );
}

/// Returns whether a text has some parts in their order.
pub fn has_in_order(text: &str, parts: &[&str]) -> bool {
    let mut rest = text;
    parts.iter().all(|part| match rest.split_once(*part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Returns the rules that each file of a document breaks, by the file's path.
fn by_path(document: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let files = document["files"].as_array().unwrap().iter();
    files
        .map(|file| {
            let path = file["path"].as_str().unwrap();
            let path = path
                .strip_prefix(TESTDATA)
                .unwrap_or(path)
                .trim_start_matches('/');
            let findings = file["findings"].as_array().unwrap().iter();
            let rules = findings.map(|finding| finding["rule"].as_str().unwrap().to_owned());
            // This one depends on the source files of this machine.
            let rules = rules.filter(|rule| rule != "JD069");
            (path.to_owned(), rules.collect())
        })
        .collect()
}

#[test]
fn each_recording_breaks_exactly_the_rules_that_it_is_known_to_break() {
    let (document, output) = json(&[TESTDATA]);
    assert_eq!(output.status.code(), Some(1));
    let found = by_path(&document);
    let expected: BTreeMap<String, BTreeSet<String>> = RECORDINGS
        .iter()
        .flat_map(|(paths, ids)| {
            let ids: BTreeSet<String> = ids.iter().map(|&id| id.to_owned()).collect();
            paths.iter().map(move |&path| (path.to_owned(), ids.clone()))
        })
        .collect();
    let different = found
        .iter()
        .filter(|(path, rules)| expected.get(*path) != Some(rules));
    assert_eq!(different.collect::<Vec<_>>(), []);
    assert!(found.keys().eq(expected.keys()), "{:?}", found.keys());
}

#[test]
fn what_was_found_can_be_gone_to() {
    let dump = format!("{TESTDATA}/node20/jit-11682.dump");
    let (document, _) = json(&[&dump]);
    assert_eq!(document["format"], 2);
    let file = &document["files"][0];
    assert_eq!(file["kind"], "jitdump");
    assert_eq!(file["records"], 4570);
    let findings = file["findings"].as_array().unwrap();
    let finding = |id: &str| findings.iter().find(|finding| finding["rule"] == id).unwrap();
    let damaged = finding("JD074");
    assert_eq!(damaged["severity"], "error");
    assert_eq!(damaged["count"], 449);
    let place = &damaged["places"][0];
    assert_eq!(place["offset"], 0x1d_4a20);
    assert_eq!(place["record"], "DEBUG_INFO");
    assert_eq!(place["function"], "JS:^term /tmp/cap-node20/work.js:29:7");
    let message = place["message"].as_str().unwrap();
    assert!(message.starts_with("20 "), "{message}");
    assert_eq!(finding("JD073")["count"], 68);
    assert_eq!(finding("JD095")["count"], 2223);
    assert!(
        findings
            .iter()
            .all(|it| it["places"].as_array().unwrap().len() <= 5)
    );
    let severities: Vec<_> = findings
        .iter()
        .map(|it| it["severity"].as_str().unwrap())
        .collect();
    assert!(severities.is_sorted_by_key(|it| ["error", "warning", "note"].iter().position(|of| of == it)));
    let total = |severity| severities.iter().filter(|it| **it == severity).count();
    assert_eq!(document["totals"]["errors"], total("error"));
    assert_eq!(document["totals"]["notes"], total("note"));

    let text = printed(&run(&[&dump]));
    let line = text.lines().next().unwrap();
    let start = format!("{dump}: error[JD074]: ");
    assert!(line.starts_with(&start), "{line}");
    let parts = [
        diagnostics::find("JD074").unwrap().title,
        "449",
        "0x1d4a20 in DEBUG_INFO of JS:^term /tmp/cap-node20/work.js:29:7",
        message,
        "0x1d5a8e, 0x1d609f",
    ];
    assert!(has_in_order(&line[start.len()..], &parts), "{line}");
    assert_eq!(
        text.lines().last().unwrap(),
        "1 file: 1 error, 2 warnings, 8 notes; see jitinject explain CODE"
    );
    assert_eq!(text.lines().count(), findings.len() + 1);
}

#[test]
fn what_is_less_severe_can_be_left_out() {
    let dump = format!("{TESTDATA}/node20/jit-11682.dump");
    for (level, lines) in [("note", 12), ("warning", 4), ("error", 2)] {
        let output = run(&["--level", level, &dump]);
        assert_eq!(printed(&output).lines().count(), lines, "{level}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn every_rule_can_be_explained() {
    for rule in rules::all() {
        let output = run(&["--explain", &rule.id.to_lowercase()]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let text = printed(&output);
        let first = format!("{} ({}): {}\n", rule.id, rule.severity, rule.title);
        assert!(text.starts_with(&first), "{text}");
        assert!(
            text.contains("\nReaders: ") && text.contains("\nRemedy: "),
            "{text}"
        );
        for part in [rule.problem, rule.readers, rule.remedy, rule.unit, rule.seen] {
            assert!(text.contains(part));
            assert!(part.is_empty() || part.ends_with('.'), "{part}");
        }
    }
    let unknown = run(&["--explain", "JD999"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert_eq!(codes(&said(&unknown)), ["JI420"]);
    assert!(said(&unknown).contains("JD999"), "{}", said(&unknown));
    let list = printed(&run(&["--list"]));
    assert_eq!(list.lines().count(), rules::all().count());
    for (line, rule) in list.lines().zip(rules::all()) {
        let columns = format!("{}  {:<7}  {}", rule.id, rule.severity.to_string(), rule.title);
        assert_eq!(line, columns);
    }
    assert!(list.contains("\nJD073  warning  "), "{list}");
    let all = printed(&jitinject().arg("explain").output().unwrap());
    assert!(
        list.lines().all(|line| all.lines().any(|other| other == line)),
        "{all}"
    );
}

/// A rule is an error if a reader loses something, a warning if one gets something wrong or loses something in some
/// cases, and otherwise a note.
#[test]
fn severities_are_those_that_the_effect_on_readers_asks_for() {
    for (id, severity, effect) in [
        ("JD007", Severity::Warning, "only some profiles fail"),
        ("JD015", Severity::Warning, "only some processes lose names"),
        ("JD061", Severity::Error, "the wrong object and name"),
        ("JD080", Severity::Note, "nearly all dumps have it"),
        ("XR007", Severity::Error, "llvm-xray rejects the file"),
        ("XR030", Severity::Warning, "calls are counted wrongly"),
        ("XR031", Severity::Warning, "some commands stop there"),
        ("XR034", Severity::Warning, "numbers in place of names"),
    ] {
        let rule = diagnostics::find(id).unwrap();
        assert_eq!(rule.severity, severity, "{id}: {effect}");
        assert!(!rule.readers.is_empty(), "{id}");
    }
}

#[test]
fn the_unit_of_counts_is_explained_unless_it_is_records() {
    for (id, unit) in [("JD024", "bytes"), ("JD074", "entries"), ("ML034", "types")] {
        let text = printed(&run(&["--explain", id]));
        assert!(text.contains(&format!("\nCounted: {unit}.\n")), "{text}");
    }
    for id in ["JD023", "XR008"] {
        assert!(!printed(&run(&["--explain", id])).contains("Counted"), "{id}");
    }
}

/// Users have IDs in their scripts.
#[test]
fn ids_stay_what_they_are() {
    let ids: Vec<&str> = rules::all().map(|rule| rule.id).collect();
    assert!(ids.is_sorted_by(|one, next| one < next || one[..2] != next[..2]));
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    let mut runs = BTreeMap::new();
    for id in ids {
        let numbers: &mut Vec<u32> = runs.entry(&id[..2]).or_default();
        numbers.push(id[2..].parse().unwrap());
    }
    let of = |ranges: &[std::ops::RangeInclusive<u32>]| ranges.iter().cloned().flatten().collect::<Vec<_>>();
    assert_eq!(runs["JD"], of(&[1..=15, 20..=31, 40..=56, 60..=101]));
    assert_eq!(runs["ML"], of(&[1..=7, 10..=23, 30..=43]));
    assert_eq!(runs["PD"], of(&[1..=10, 20..=25]));
    assert_eq!(runs["XR"], of(&[1..=8, 10..=25, 30..=37]));
}

#[test]
fn names_cannot_steer_the_terminal_and_colors_can_be_asked_for() {
    let folder = scratch();
    let path = folder.path().join("jit-7\u{1b}[31m\u{7f}\u{9b}\u{202e}.dump");
    let name = "bad\u{1b}[2J\r\nname\u{7f}\u{9b}2J\u{202e}\u{2066}";
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 7);
    dump.load(1_000_000_000_000, 0x1000, 1, name.as_bytes(), b"code");
    std::fs::write(&path, &dump.bytes).unwrap();
    let path = path.to_str().unwrap();
    let output = run(&[path]);
    let steers = |character| character != '\n' && is_terminal_control(character);
    assert!(!printed(&output).contains(steers), "{:?}", printed(&output));
    assert!(printed(&output).contains("JD050") && printed(&output).contains("bad\\u{1b}[2J"));
    assert!(printed(&output).contains("name\\u{7f}\\u{9b}2J\\u{202e}\\u{2066}"));
    let damaged = folder.path().join("jit-8\u{9b}2J\u{202e}.dump");
    std::fs::write(&damaged, b"damaged").unwrap();
    let output = run(&[folder.path().to_str().unwrap()]);
    assert!(!said(&output).contains(steers), "{:?}", said(&output));
    let name = "jit-8\\u{9b}2J\\u{202e}.dump";
    assert!(reports(&said(&output), "JI422", name), "{}", said(&output));
    let (document, _) = json(&[path]);
    let findings = document["files"][0]["findings"].as_array().unwrap();
    let finding = findings
        .iter()
        .find(|finding| finding["rule"] == "JD050")
        .unwrap();
    let function = finding["places"][0]["function"].as_str().unwrap();
    assert!(function.starts_with("bad\u{1b}[2J\r\nname"), "{function:?}");
    let colored = printed(&run(&["--color", "always", path]));
    assert!(
        colored.contains("\u{1b}[1m\u{1b}[33mwarning[JD050]\u{1b}[0m"),
        "{colored:?}"
    );
}
