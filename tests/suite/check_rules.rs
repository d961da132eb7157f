//! Files with one fault each: they break the rule for it, and no other one.

use std::collections::{BTreeMap, BTreeSet};

use jitdump::{ByteOrder, Tally};
use jitinject::internals::results::FileKind;
use jitinject::internals::tools::check::{CheckReport, Place, check, rules};
use jitinject::internals::tools::dump::{Options, dump};

use crate::check::{RECORDINGS, has_in_order};
use crate::check_made::{CleanDump, TestFile, clean_dump, dumps, rich_dump, source};
use crate::check_made_logs::{log_with_content, logs, traces};
use crate::check_profiles::profiles;
use crate::support::capture;
use crate::support::generator::{Plan, generate};
use crate::support::scratch;

/// Size in bytes of files that take long, and have what smaller ones have: they go up to a limit.
const LARGE: usize = 1 << 20;

/// Returns the rules that a report has findings of, sorted.
pub fn ids(report: &CheckReport) -> Vec<&'static str> {
    let mut ids: Vec<_> = report.findings.iter().map(|finding| finding.rule.id).collect();
    ids.sort_unstable();
    ids
}

/// Checks a jitdump.
fn check_dump(file: &[u8], name: &str) -> CheckReport {
    check(
        FileKind::Jitdump,
        file,
        name.as_bytes(),
        &Tally::default(),
        &source,
    )
}

/// Checks files; returns which of them break other rules than expected.
fn mismatches(kind: FileKind, all: Vec<TestFile>) -> Vec<String> {
    let mut mismatches = Vec::new();
    for (number, made) in all.into_iter().enumerate() {
        let report = check(kind, &made.file, made.name.as_bytes(), &made.unpacking, &source);
        if ids(&report) != made.rules {
            let (found, expected) = (ids(&report), made.rules);
            mismatches.push(format!("{number}: {found:?}, not {expected:?}"));
        }
        for finding in &report.findings {
            assert!(finding.count > 0);
            let size = made.file.len() as u64;
            assert!(finding.places.iter().all(|place| place.offset <= size));
        }
    }
    mismatches
}

#[test]
fn each_rule_finds_what_is_made_for_it_and_nothing_else() {
    let mismatches = [
        mismatches(FileKind::Jitdump, dumps()),
        mismatches(FileKind::MonoLog, logs()),
        mismatches(FileKind::XrayTrace, traces()),
    ];
    assert!(mismatches.iter().all(Vec::is_empty), "{mismatches:#?}");
}

#[test]
fn no_rule_is_left_without_a_file_that_breaks_it() {
    let mut broken: BTreeSet<&str> = RECORDINGS
        .iter()
        .flat_map(|(_, ids)| ids.iter().copied())
        .collect();
    let made = dumps()
        .into_iter()
        .chain(logs())
        .chain(traces())
        .chain(profiles());
    broken.extend(made.flat_map(|made| made.rules));
    // It takes a huge file; a unit test of the checker breaks this rule.
    broken.insert("XR021");
    let all: BTreeSet<&str> = rules::all().map(|rule| rule.id).collect();
    let missing: Vec<_> = all.symmetric_difference(&broken).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_clean_dump_of_either_order_breaks_no_rule() {
    for endian in [ByteOrder::Little, ByteOrder::Big] {
        let report = check_dump(&clean_dump(endian).finish(), "jit-77.dump");
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        assert!(report.records > 4);
    }
}

/// Even dumps of correct writers break some rules for notes.
#[test]
fn made_up_dumps_break_no_rule_but_what_is_so_by_nature() {
    let plan = Plan {
        functions: 300,
        samples: 10,
        ..Plan::default()
    };
    for plan in [
        plan.clone(),
        Plan {
            endian: ByteOrder::Big,
            ..plan.clone()
        },
        Plan {
            moves: true,
            places: 90,
            ..plan.clone()
        },
        Plan {
            has_tables: true,
            ..plan.clone()
        },
    ] {
        let folder = scratch();
        generate(folder.path(), &plan);
        let file = std::fs::read(folder.path().join("jit-5000.dump")).unwrap();
        let report = check_dump(&file, "jit-5000.dump");
        // No alignment, no CLOSE, no entry for the end of the lines, relative names.
        let mut expected = vec!["JD025", "JD028", "JD080", "JD081"];
        if plan.moves {
            // Memory is reused.
            expected.push("JD046");
        }
        if plan.has_tables {
            // The order of the tables that perf reads.
            expected.push("JD093");
        }
        expected.sort_unstable();
        assert_eq!(ids(&report), expected, "{:#?}", report.findings);
    }
}

/// Returns the places of the only finding in a dump to which `add` adds records.
fn places(rule: &str, add: impl FnOnce(&mut CleanDump)) -> Vec<Place> {
    let mut dump = clean_dump(ByteOrder::Little);
    add(&mut dump);
    let mut findings = check_dump(&dump.finish(), "jit-77.dump").findings;
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].rule.id, rule);
    findings.remove(0).places
}

#[test]
fn a_move_with_the_number_of_another_function_says_of_which() {
    /// Names of functions that a message may have.
    const NAMES: [&str; 2] = ["second", "fn_0001"];
    for (from, index, parts, names) in [
        (0x1000, 3, &["3", "second", "0x1000", "fn_0001"][..], &NAMES[..]),
        (0x7000, 3, &["3", "second", "0x7000"], &["second"]),
        (0x1000, 9, &["9", "77"], &[]),
    ] {
        let places = places("JD061", |dump| {
            dump.function(0x3000);
            dump.load(0x4000, b"second", 65);
            dump.moved(from, 0x5000, 65, index);
        });
        let message = &places[0].message;
        assert!(has_in_order(message, parts), "{message}");
        for name in NAMES {
            assert_eq!(message.contains(name), names.contains(&name), "{message}");
        }
        assert_eq!(places[0].record, "MOVE");
    }
    let size = places("JD061", |dump| dump.moved(0x1000, 0x5000, 60, 0));
    let message = &size[0].message;
    assert!(has_in_order(message, &["60", "64"]), "{message}");
}

#[test]
fn a_move_over_other_code_is_the_place_of_the_finding() {
    let mut at = 0;
    let places = places("JD046", |dump| {
        at = dump.dump.bytes.len() as u64;
        dump.moved(0x2000, 0x1010, 64, 1);
    });
    assert_eq!((places[0].offset, places[0].record), (at, "MOVE"));
    let message = &places[0].message;
    assert!(has_in_order(message, &["0x1010..0x1050", "fn_0001"]), "{message}");
}

#[test]
fn damaged_extensions_say_which_list_is_wrong() {
    let message = |kind: u32, content: &[u8]| {
        let mut dump = clean_dump(ByteOrder::Little);
        dump.record(kind, content);
        dump.function(0x3000);
        let report = check_dump(&dump.finish(), "jit-77.dump");
        let finding = report.findings.iter().find(|it| it.rule.id == "JD087").unwrap();
        assert_eq!((finding.count, finding.places.len()), (1, 1));
        (finding.places[0].record, finding.places[0].message.clone())
    };
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let lists = 827_346_259;
    let positions = 827_346_260;
    for (kind, content, expected) in [
        (
            lists,
            [words(&[2, 8, 0, 0, 1, 0, 0, 0]), b"a\0bcdefg".to_vec()].concat(),
            "file list: 2 strings, and 1 are there",
        ),
        (
            lists,
            words(&[0, 0, 0, 0, 1, 0, 0, 9]),
            "functions: 20 bytes, and 0 are left",
        ),
        (lists, words(&[1, 2]), "ends inside its counts"),
        (
            positions,
            words(&[0x3000, 0, 3, 0, 1, 0, 1, 0, 0, 0]),
            "code offsets: 24 bytes, and 8 are left",
        ),
    ] {
        let found = message(kind, &content);
        assert_eq!(found, ("DEBUG_INFO2", expected.to_owned()));
    }
}

/// A type of many objects is counted once.
#[test]
fn types_are_counted_once() {
    let count = |log: &[u8], rule: &str| {
        let report = check(FileKind::MonoLog, log, b"trace.mlpd", &Tally::default(), &source);
        let finding = report.findings.iter().find(|it| it.rule.id == rule).unwrap();
        finding.count
    };
    assert_eq!(count(&crate::mono::real("mono-alloc"), "ML034"), 8);
    let unnamed = logs()
        .into_iter()
        .filter(|made| made.file.len() < LARGE && made.rules.contains(&"ML035"));
    let counts: Vec<u64> = unnamed.map(|made| count(&made.file, "ML035")).collect();
    assert_eq!(counts, [1, 1]);
    // Zeros are objects of one unknown type.
    let zeros = log_with_content(&[], &[0; 1000]);
    assert_eq!(count(&zeros.file, "ML035"), 1);
}

/// Returns the types of records by offset, as `jitinject dump` prints them.
fn dumped(kind: FileKind, file: &[u8]) -> BTreeMap<u64, String> {
    let mut types = BTreeMap::new();
    let result: Result<(), ()> = dump(file, kind, &Options::default(), &mut |entry| {
        types.insert(entry.offset, entry.kind.to_owned());
        Ok(())
    });
    result.unwrap();
    types
}

#[test]
fn records_have_the_names_that_dump_gives_them() {
    /// Names that are not types of records.
    const OTHERS: [&str; 6] = ["", "header", "file", "buffer", "event", "record"];
    let mut seen = BTreeSet::new();
    let recorded = |folder: &str, name: &str| std::fs::read(capture::folder(folder).join(name)).unwrap();
    let mut files = vec![
        (FileKind::MonoLog, crate::mono::real("mono-alloc")),
        (FileKind::MonoLog, crate::mono::real("mono-calls")),
        (FileKind::XrayTrace, recorded("xray-fdr-typed19", "trace.xray")),
        (FileKind::XrayTrace, recorded("xray-basic19", "trace.xray")),
        (FileKind::Jitdump, recorded("node20", "jit-11682.dump")),
    ];
    for (kind, made) in [
        (FileKind::Jitdump, dumps()),
        (FileKind::MonoLog, logs()),
        (FileKind::XrayTrace, traces()),
    ] {
        let made = made.into_iter().filter(|made| made.file.len() < LARGE);
        files.extend(made.map(|made| (kind, made.file)));
    }
    for (kind, file) in files {
        let report = check(kind, &file, b"jit-77.dump", &Tally::default(), &source);
        let dumped = dumped(kind, &file);
        for place in report.findings.iter().flat_map(|finding| &finding.places) {
            if OTHERS.contains(&place.record) {
                continue;
            }
            let name = dumped.get(&place.offset).map(String::as_str);
            assert_eq!(name, Some(place.record), "{kind} {:#x}", place.offset);
            seen.insert(place.record);
        }
    }
    let expected = [
        "DEBUG_INFO2",
        "JIT_TIER",
        "LOAD",
        "MOVE",
        "allocation",
        "argument",
        "code_buffer",
        "custom_event",
        "enter",
        "exit",
        "jit",
        "leave",
        "typed_event",
    ];
    assert!(expected.iter().all(|name| seen.contains(name)), "{seen:?}");
}

/// Bytes of dumps, a log and a trace are damaged one at a time, and each file is truncated there.
#[test]
fn whatever_is_damaged_is_checked_to_its_end() {
    let log = crate::mono::real("mono-jit");
    let trace = std::fs::read(capture::folder("xray-fdr-typed19").join("trace.xray")).unwrap();
    let dump = std::fs::read(capture::folder("php82").join("jit-26234.dump")).unwrap();
    let rich = rich_dump();
    for (kind, file) in [
        (FileKind::Jitdump, &rich),
        (FileKind::Jitdump, &dump),
        (FileKind::MonoLog, &log),
        (FileKind::XrayTrace, &trace),
    ] {
        let step = 1 + file.len() / 200;
        for at in (0..file.len()).step_by(step) {
            let cut = check(kind, &file[..at], b"jit-1.dump", &Tally::default(), &source);
            assert!(cut.findings.iter().all(|finding| finding.count > 0));
            for bits in [0x01, 0x80, 0xff] {
                let mut damaged = file.clone();
                damaged[at] ^= bits;
                let report = check(kind, &damaged, b"jit-1.dump", &Tally::default(), &source);
                let places = report.findings.iter().map(|finding| finding.places.len());
                assert!(places.max().unwrap_or(0) <= jitdump::internals::collections::tally::MAX_OFFSETS);
            }
        }
    }
}

/// Files of the recordings, by the names that their programs had.
fn recorded_source(name: &[u8]) -> Option<Vec<u8>> {
    let name = std::str::from_utf8(name).ok()?;
    let folders = [
        ("/tmp/inlined/", "node20-inlined"),
        ("/tmp/typescript/bundle/", "node20-typescript"),
        ("/tmp/cap-node20/", "node20"),
        ("/tmp/cap-node22/", "node22"),
    ];
    let found = folders
        .iter()
        .find_map(|(start, folder)| Some((name.strip_prefix(start)?, folder)));
    let (file, folder) = found?;
    std::fs::read(capture::folder(folder).join(file)).ok()
}

/// In node20-inlined, `hot` of a.js has lines of `small` of lib.js. The bundle of node20-typescript is one file.
#[test]
fn lines_of_other_files_are_found_in_recordings() {
    let check = |folder: &str, name: &str| {
        let file = std::fs::read(capture::folder(folder).join(name)).unwrap();
        check(
            FileKind::Jitdump,
            &file,
            name.as_bytes(),
            &Tally::default(),
            &recorded_source,
        )
    };
    let report = check("node20-inlined", "jit-7666.dump");
    let finding = report
        .findings
        .iter()
        .find(|finding| finding.rule.id == "JD069")
        .unwrap();
    let functions = finding
        .places
        .iter()
        .map(|place| place.function.as_deref().unwrap());
    assert!(
        functions
            .into_iter()
            .all(|function| function == "JS:*hot /tmp/inlined/a.js:5:13"),
        "{finding:?}"
    );
    assert!(
        finding.places[0].message.contains("/tmp/inlined/a.js:5:"),
        "{finding:?}"
    );
    for (folder, name) in [
        ("node20-typescript", "jit-18825.dump"),
        ("node20", "jit-11682.dump"),
        ("node22", "jit-9302.dump"),
    ] {
        let report = check(folder, name);
        let rules = ids(&report);
        assert!(!rules.contains(&"JD069"), "{folder}: {:#?}", report.findings);
    }
}
