//! Limits where little input can cause much output. Exceeding a limit is reported.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use jitdump::ByteOrder;
use serde_json::{Value, json};

use super::counts;
use crate::support::dump::DumpWriter;
use crate::support::hostile::CaseFiles;
use crate::support::hostile::cases::{CASES, CODE, LAST, PID};
use crate::support::profile::ProfileWriter;
use crate::support::reports::{inject_with_summary, reports};
use crate::support::{capture, code_sites, has_code, inject, jitinject, objects_of, said, scratch, tools};

/// Runs jitinject on a case of size `count`, which must be reported with `code`. Returns the total size of the
/// objects in bytes.
fn run_case(name: &str, count: u64, code: &str) -> u64 {
    let case = CASES.iter().find(|case| case.name == name).unwrap();
    let files = CaseFiles::new(case, count);
    let output = files.folder.path().join("out.data");
    let said = inject(&files.input, &output, files.options);
    assert!(has_code(&said, code), "{said}");
    let sizes = objects_of(&output)
        .into_iter()
        .map(|path| fs::metadata(path).unwrap().len());
    sizes.sum()
}

/// Without a limit, a function with a table of 60 KB that was at 3,000 addresses has 180 MB of tables.
#[test]
fn tables_for_unwinding_are_not_without_bounds() {
    let bytes = run_case("entries for unwinding under a function that moves", 3000, "JI261");
    assert!(((16 << 20)..(64 << 20)).contains(&bytes), "{bytes}");
}

/// Without a limit, 313 objects with a source file of 1 MB have 313 MB of source text.
#[test]
fn texts_of_sources_are_not_without_bounds() {
    let bytes = run_case("one source file of all functions, apart", 20_000, "JI264");
    assert!(((32 << 20)..(128 << 20)).contains(&bytes), "{bytes}");
}

/// Writes a jitdump and a profile of its process to a folder, with what `fill` adds; returns the profile.
fn recorded(folder: &Path, fill: impl FnOnce(&mut DumpWriter, &mut ProfileWriter)) -> PathBuf {
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, PID);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    let path = folder.join(format!("jit-{PID}.dump"));
    profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    fill(&mut dump, &mut profile);
    fs::write(&path, &dump.bytes).unwrap();
    let input = folder.join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    input
}

/// Writes a script of six functions with its source map, and a recording of the functions in some of its lines, with those of
/// one line next to each other. Returns the profile.
fn recorded_script(folder: &Path, map: &Value, lines: impl Iterator<Item = u64>) -> PathBuf {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let script = folder.join("a.js");
    let functions = NAMES
        .iter()
        .map(|name| format!("function {name}(x){{return x}}\n"));
    let text: String = functions.collect();
    fs::write(&script, text + "//# sourceMappingURL=a.js.map\n").unwrap();
    fs::write(folder.join("a.js.map"), map.to_string()).unwrap();
    recorded(folder, |dump, profile| {
        for (at, line) in (0..).zip(lines) {
            let address = CODE + (line << 24) + 64 * at;
            let name = NAMES[line as usize - 1];
            let name = format!("JS:*{name} {}:{line}:11", script.display());
            dump.load(900, address, at, name.as_bytes(), &[0x90; 64]);
            profile.sample(PID, LAST, &[address + 1], None);
        }
    })
}

/// A source map that names the functions by two names, two words of a text and two paths.
fn map_of_six(names: [&str; 2], words: [&str; 2], paths: [&str; 2]) -> Value {
    json!({
        "version": 3, "sources": ["s.ts", paths[0], paths[1]], "sourcesContent": [words.join("\n")], "names": names,
        "mappings": "SAAAA;SAAAC;SAAA;SACA;SCAA;SCAA",
    })
}

#[test]
fn names_in_source_maps_have_up_to_1024_bytes_and_paths_4096() {
    let folder = scratch();
    let at = tools::text(folder.path());
    let name = |letter: &str, more: usize| letter.repeat(1024 + more);
    let path = |more: usize| "x".repeat(4096 + more - at.len() - 1);
    let map = map_of_six(
        [&name("n", 0), &name("n", 1)],
        [&name("t", 0), &name("t", 1)],
        [&path(0), &path(1)],
    );
    let input = recorded_script(folder.path(), &map, 1..=6);
    let output = folder.path().join("out.data");
    inject(&input, &output, &[]);
    let mut objects = objects_of(&output);
    objects.retain(|path| path.is_file());
    let mut symbols = code_sites::symbols(&objects);
    symbols.retain(|name| name.starts_with("JS:"));
    let expected = [
        format!("JS:*{} {at}/s.ts:1:1", name("n", 0)),
        format!("JS:*b {at}/s.ts:1:1"),
        format!("JS:*{} {at}/s.ts:1:1", name("t", 0)),
        format!("JS:*d {at}/s.ts:2:1"),
        format!("JS:*e {at}/{}:2:1", path(0)),
        format!("JS:*f {at}/a.js:6:11"),
    ];
    assert!(
        symbols.iter().eq(expected.iter().collect::<BTreeSet<_>>()),
        "{symbols:?}"
    );
}

/// Without a limit, the objects of 6,000 functions have 100 MB.
#[test]
fn names_in_one_object_are_not_without_bounds() {
    let folder = scratch();
    let path = "x".repeat(4096 - tools::text(folder.path()).len() - 1);
    let map = map_of_six(["a", "b"], ["c", "d"], [&path, "f"]);
    let lines = std::iter::once(1).chain(std::iter::repeat_n(5, 6000));
    let input = recorded_script(folder.path(), &map, lines);
    let output = folder.path().join("out.data");
    let said = inject(&input, &output, &["--names", "{file}{file}{file}"]);
    assert!(reports(&said, "JI265", "3953 functions "), "{said}");
    let objects = objects_of(&output);
    let sizes = objects.iter().map(|path| fs::metadata(path).unwrap().len());
    let size: u64 = sizes.sum();
    assert!(size < 72 << 20, "{size}");
}

/// Each function has a thousand ranges of inlined calls in a record of 4 KB.
#[test]
fn inlined_calls_are_not_without_bounds() {
    const FUNCTIONS: u64 = 1100;
    let folder = scratch();
    let input = recorded(folder.path(), |dump, profile| {
        for at in 0..FUNCTIONS {
            let address = CODE + 64 * at;
            dump.alternating_calls(900, address, 60);
            dump.load(1000, address, at, b"outer", &[0x90; 64]);
            profile.sample(PID, LAST, &[address + 1], None);
        }
    });
    let said = inject(&input, &folder.path().join("out.data"), &["--layout", "function"]);
    assert!(reports(&said, "JI276", "76 functions "), "{said}");
}

/// Nearly all of 300,000 frames are in a stack that no other sample has.
#[test]
fn stacks_of_a_summary_are_not_without_bounds() {
    const FUNCTIONS: u64 = 500;
    let folder = scratch();
    let input = recorded(folder.path(), |dump, profile| {
        for at in 0..FUNCTIONS {
            dump.load(1000, CODE + 64 * at, at, b"function", &[0x90; 64]);
        }
        let mut state = 1u64;
        for _ in 0..3000 {
            let mut address = || {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                CODE + 64 * ((state >> 33) % FUNCTIONS) + 1
            };
            let chain: Vec<u64> = (0..100).map(|_| address()).collect();
            profile.sample(PID, LAST, &chain, None);
        }
    });
    let (said, summary) = inject_with_summary(&input, &folder.path().join("out.data"), &[]);
    assert!(has_code(&said, "JI277"), "{said}");
    let omitted = summary["profile"]["without_callers"].as_u64().unwrap();
    assert!((1..3000).contains(&omitted), "{omitted}");
}

#[test]
fn loads_are_not_copied_to_any_number_of_processes() {
    run_case("processes that share a dump from the start", 6000, "JI031");
}

/// Writes `count` files of the same content into a new folder; returns the folder.
fn copies(folder: &Path, name: &str, content: &[u8], count: usize) -> PathBuf {
    let below = folder.join("many");
    fs::create_dir(&below).unwrap();
    for at in 0..count {
        fs::write(below.join(format!("{at}{name}")), content).unwrap();
    }
    below
}

#[test]
fn logs_of_mono_beyond_a_thousand_are_left_out() {
    let folder = scratch();
    let log = fs::read(capture::folder("mono-jit").join("trace.mlpd")).unwrap();
    let input = folder.path().join("input.mlpd");
    fs::write(&input, &log[..4096]).unwrap();
    let logs = copies(folder.path(), ".mlpd", &log[..4096], 1001);
    let more = ["--mono-log", tools::text(&logs)];
    let (said, summary) = inject_with_summary(&input, &folder.path().join("out.data"), &more);
    assert!(has_code(&said, "JI087"), "{said}");
    assert_eq!(counts(&summary, "JI087"), [2]);
    assert_eq!(summary["dumps"].as_array().unwrap().len(), 1000);
}

#[test]
fn traces_of_xray_beyond_ten_thousand_are_left_out() {
    let folder = scratch();
    let trace = fs::read(capture::folder("xray-fdr-v4-synth").join("trace.xray")).unwrap();
    let input = folder.path().join("input.xray");
    fs::write(&input, &trace[..32]).unwrap();
    let traces = copies(folder.path(), ".xray", &trace[..32], 10_002);
    let more = ["--xray-log", tools::text(&traces)];
    let (said, summary) = inject_with_summary(&input, &folder.path().join("out.data"), &more);
    assert!(has_code(&said, "JI129"), "{said}");
    assert_eq!(counts(&summary, "JI129"), [3]);
    assert_eq!(summary["traces"].as_array().unwrap().len(), 10_000);
}

/// Each new mapping of the memory repeats all symbols in it.
#[test]
fn symbols_that_no_sample_touches_have_a_limit() {
    const SYMBOLS: u64 = 2100;
    const MAPS: u64 = 500;
    let folder = scratch();
    let mut map = String::new();
    for at in 0..SYMBOLS {
        map.push_str(&format!("{:x} 10 s{at}\n", CODE + at * 16));
    }
    fs::write(folder.path().join(format!("perf-{PID}.map")), map).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    for at in 0..MAPS {
        profile.mmap2(PID, CODE, 1 << 20, 0, "/lib/x.so", 1000 + 2 * at);
        profile.mmap2(PID, CODE, 1 << 20, 0, "//anon", 1001 + 2 * at);
    }
    profile.sample(PID, LAST, &[CODE], None);
    let input = folder.path().join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    let said_of_all = inject(&input, &folder.path().join("out.data"), &["--all"]);
    assert!(has_code(&said_of_all, "JI165"), "{said_of_all}");
    let page = folder.path().join("page.html");
    let ran = jitinject()
        .arg("timeline")
        .arg(&input)
        .arg("-o")
        .arg(&page)
        .output()
        .unwrap();
    assert!(has_code(&said(&ran), "JI305"), "{}", said(&ran));
}

/// Writes a profile with a function that `pieces` later ones split, and with the records that `processes` adds
/// after it is loaded. Returns its path.
fn inherited(folder: &Path, pieces: u64, processes: impl FnOnce(&mut ProfileWriter)) -> PathBuf {
    let path = folder.join(format!("jit-{PID}.dump"));
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, PID);
    dump.load(900, CODE, 0, b"inherited", &vec![0x90; 64 + 2 * pieces as usize]);
    for at in 1..=pieces {
        dump.load(900 + at, CODE + 64 + 2 * at, at, b"over", &[0x90]);
    }
    fs::write(&path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    profile.mmap2(PID, CODE, 1 << 20, 0, "//anon", 501);
    processes(&mut profile);
    let input = folder.join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    input
}

/// Each of a thousand child processes inherits a function in a thousand pieces.
#[test]
fn pieces_of_inherited_code_have_a_limit_on_a_page() {
    let folder = scratch();
    let input = inherited(folder.path(), 1100, |profile| {
        for child in 1..=1000 {
            profile.fork(PID + child, PID, 5000);
            profile.sample(PID + child, 6000, &[CODE + 4], None);
        }
    });
    let page = folder.path().join("page.html");
    let ran = jitinject()
        .arg("timeline")
        .arg(&input)
        .arg("-o")
        .arg(&page)
        .output()
        .unwrap();
    assert!(has_code(&said(&ran), "JI304"), "{}", said(&ran));
}

/// Each of two thousand child processes inherits a thousand functions, and has a mapping of its own.
#[test]
fn functions_that_forked_processes_inherit_have_a_limit() {
    let folder = scratch();
    let input = inherited(folder.path(), 1100, |profile| {
        for child in 1..=2000 {
            profile.fork(PID + child, PID, 5000);
            profile.mmap2(PID + child, 0x5000_0000, 4096, 0, "//anon", 5001);
        }
        profile.sample(PID, 6000, &[CODE + 4], None);
    });
    let (said, summary) = inject_with_summary(&input, &folder.path().join("out.data"), &["--all"]);
    assert!(reports(&said, "JI163", tools::text(&input)), "{said}");
    let [hidden] = counts(&summary, "JI163")[..] else {
        panic!("{summary:#}");
    };
    assert!((1..1000).contains(&hidden), "{hidden}");
}

/// Each of a thousand child processes moves a function that it inherited in 2,300 pieces.
#[test]
fn moves_of_inherited_code_in_pieces_have_a_limit() {
    const PIECES: u64 = 2300;
    let folder = scratch();
    let input = inherited(folder.path(), PIECES, |profile| {
        for child in 1..=1000 {
            profile.fork(PID + child, PID, 5000);
        }
        profile.sample(PID + 1, 7000, &[CODE + 4], None);
    });
    let path = folder.path().join(format!("jit-{PID}.dump"));
    let mut dump = DumpWriter {
        endian: ByteOrder::Little,
        bytes: fs::read(&path).unwrap(),
        pid: PID,
    };
    for child in 1..=1000 {
        dump.pid = PID + child;
        dump.moved(6000, CODE, CODE + (1 << 24), 64 + 2 * PIECES, 0);
    }
    fs::write(&path, dump.bytes).unwrap();
    let (said, summary) = inject_with_summary(&input, &folder.path().join("out.data"), &[]);
    assert!(reports(&said, "JI164", tools::text(&input)), "{said}");
    let [lost] = counts(&summary, "JI164")[..] else {
        panic!("{summary:#}");
    };
    assert!((1..500).contains(&lost), "{lost}");
}

#[test]
fn code_is_inherited_through_a_hundred_generations() {
    for (generations, named) in [(95, 1), (105, 0)] {
        let folder = scratch();
        let input = inherited(folder.path(), 0, |profile| {
            for child in 1..=generations {
                profile.fork(PID + child, PID + child - 1, 5000 + u64::from(child));
                // Only generations with mappings of their own count.
                profile.mmap2(
                    PID + child,
                    0x5000_0000,
                    4096,
                    0,
                    "//anon",
                    5000 + u64::from(child),
                );
            }
            profile.sample(PID + generations, 6000, &[CODE + 4], None);
        });
        let said = inject(&input, &folder.path().join("out.data"), &[]);
        assert!(
            said.contains(&format!("1 in JIT code, {named} of them named")) || named == 0,
            "{said}"
        );
        assert_eq!(said.contains("1 of them named"), named == 1, "{said}");
    }
}
