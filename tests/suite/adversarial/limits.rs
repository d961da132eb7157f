//! What little input asks much output for has a limit, and what exceeds it is told.

use std::fs;
use std::path::{Path, PathBuf};

use jitinject::bytes::ByteOrder;

use super::Made;
use super::cases::{CASES, CODE, LAST, PID};
use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::{attempt, capture, inject, jitinject, objects_of, said, scratch, tools};

/// Runs the files of a case for so many things, of which `warning` must be said. Returns the bytes of all objects.
fn run_case(name: &str, count: u64, warning: &str) -> u64 {
    let case = CASES.iter().find(|case| case.name == name).unwrap();
    let made = Made::new(case, count);
    let output = made.folder.path().join("out.data");
    let said = inject(&made.input, &output, made.options);
    assert!(said.contains(warning), "{said}");
    let sizes = objects_of(&output)
        .into_iter()
        .map(|path| fs::metadata(path).unwrap().len());
    sizes.sum()
}

/// Without a limit, 3,000 places of a function with a table of 60 KB have 180 MB of tables.
#[test]
fn tables_for_unwinding_are_not_without_bounds() {
    let bytes = run_case(
        "entries for unwinding under a function that moves",
        3000,
        "functions written without their unwinding tables",
    );
    assert!(((16 << 20)..(64 << 20)).contains(&bytes), "{bytes}");
}

/// Without a limit, 313 objects with a source of 1 MB have 313 MB of texts.
#[test]
fn texts_of_sources_are_not_without_bounds() {
    let bytes = run_case(
        "one source file of all functions, apart",
        20_000,
        "functions written without the text of their sources",
    );
    assert!(((32 << 20)..(128 << 20)).contains(&bytes), "{bytes}");
}

#[test]
fn loads_are_not_copied_to_any_number_of_processes() {
    run_case(
        "processes that share a dump from the start",
        6000,
        "records left out for processes that had the dump before",
    );
}

/// Files of one content in a folder.
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
    let ran = attempt(
        &input,
        &folder.path().join("out.data"),
        &["--mono-log", tools::text(&logs)],
    );
    assert!(
        said(&ran).contains("2 logs of Mono are left out: no more than 1000"),
        "{}",
        said(&ran)
    );
}

#[test]
fn traces_of_xray_beyond_ten_thousand_are_left_out() {
    let folder = scratch();
    let trace = fs::read(capture::folder("xray-fdr-v4-synth").join("trace.xray")).unwrap();
    let input = folder.path().join("input.xray");
    fs::write(&input, &trace[..32]).unwrap();
    let traces = copies(folder.path(), ".xray", &trace[..32], 10_002);
    let more = ["--xray-log", tools::text(&traces)];
    let ran = attempt(&input, &folder.path().join("out.data"), &more);
    assert!(
        said(&ran).contains("3 traces are left out: no more than 10000"),
        "{}",
        said(&ran)
    );
}

/// Each of a few symbols is there as often as memory was mapped anew.
#[test]
fn symbols_that_no_sample_touches_have_a_limit() {
    const SYMBOLS: u64 = 2100;
    const MAPS: u64 = 2000;
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
    assert!(
        said_of_all.contains("not all symbols of perf maps are written"),
        "{said_of_all}"
    );
    let page = folder.path().join("page.html");
    let ran = jitinject()
        .arg("timeline")
        .arg(&input)
        .arg("-o")
        .arg(&page)
        .output()
        .unwrap();
    assert!(
        said(&ran).contains("not all symbols of perf maps are shown"),
        "{}",
        said(&ran)
    );
}

/// A profile of a function, and what its processes do after it is loaded.
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

/// Each of a thousand children has the thousand pieces that are left of a function.
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
    assert!(
        said(&ran).contains("not all code that processes inherited is shown"),
        "{}",
        said(&ran)
    );
}

#[test]
fn code_is_inherited_through_a_hundred_generations() {
    for (generations, named) in [(95, 1), (105, 0)] {
        let folder = scratch();
        let input = inherited(folder.path(), 0, |profile| {
            for child in 1..=generations {
                profile.fork(PID + child, PID + child - 1, 5000 + u64::from(child));
                // Those that change nothing are passed over.
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
