//! Dumps with many functions, of which samples touch few: the others are left out early, which changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jitdump::{ByteOrder, Dump, Machine};
use serde_json::Value;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::{capture, inject, objects_of, scratch, tools};

/// Enough that it pays to leave some out.
const MANY: u64 = 20_000;

/// Far from all code and all maps of the recordings.
const ELSEWHERE: u64 = 0x1234_0000_0000;

/// Size of a jitdump's header, in bytes.
const HEADER: usize = 40;

/// Adds functions that are never sampled to the end of a dump.
fn add_functions(dump: &mut Vec<u8>) {
    let parsed = Dump::parse(dump, Machine::host()).unwrap();
    let last = parsed.events().next_back().unwrap().time.0;
    let mut more = DumpWriter::new(ByteOrder::Little, X86_64, parsed.header().pid);
    for number in 0..MANY {
        more.load(
            last,
            ELSEWHERE + number * 64,
            1_000_000 + number,
            b"unused",
            &[0xc3; 48],
        );
    }
    dump.extend(&more.bytes[HEADER..]);
}

/// Returns the files in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.is_file()).collect()
}

/// What a run writes: the profile, objects by name, and the summary.
fn outputs(input: &Path, output: &Path, more: &[&str]) -> (Vec<u8>, BTreeMap<String, Vec<u8>>, Value) {
    let summary = output.with_extension("json");
    let folder = tools::text(input.parent().unwrap());
    let options = [
        "--jitdump",
        folder,
        "--perf-map",
        folder,
        "--summary",
        tools::text(&summary),
    ];
    inject(input, output, &[&options, more].concat());
    let objects = objects_of(output).into_iter().map(|path| {
        let name = tools::text(&path).to_owned();
        (name, fs::read(path).unwrap())
    });
    let summary = serde_json::from_slice(&fs::read(summary).unwrap()).unwrap();
    (fs::read(output).unwrap(), objects.collect(), summary)
}

#[test]
fn functions_without_samples_change_nothing() {
    for (name, more) in [
        ("node20", &["--layout", "image"][..]),
        ("node20-reuse", &["--layout", "image"]),
        // The clock is estimated, by samples in code that was replaced.
        ("node20-nomono", &[]),
        // Code in the program is left out, and words of stacks may be return addresses.
        ("node20-dwarf", &["--no-unwind"]),
        // A dump and a perf map of one process.
        ("multi", &[]),
        ("cpython313-fork", &[]),
    ] {
        let folder = scratch();
        let dumps = folder.path().join("recording");
        fs::create_dir(&dumps).unwrap();
        for path in files(&capture::folder(name)) {
            fs::copy(&path, dumps.join(path.file_name().unwrap())).unwrap();
        }
        let input = dumps.join(capture::profile(name).file_name().unwrap());
        let output = folder.path().join("out.data");
        let (profile, objects, summary) = outputs(&input, &output, more);
        assert!(!objects.is_empty());

        let is_dump = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "dump");
        for path in files(&dumps).into_iter().filter(is_dump) {
            let mut content = fs::read(&path).unwrap();
            add_functions(&mut content);
            fs::write(path, content).unwrap();
        }
        let (padded_profile, padded_objects, padded_summary) = outputs(&input, &output, more);
        assert!(padded_profile == profile, "{name}");
        assert!(padded_objects == objects, "{name}");
        let loaded = |summary: &Value| summary["functions"]["loaded"].as_u64().unwrap();
        assert!(loaded(&padded_summary) >= loaded(&summary) + MANY, "{name}");
        for part in ["touched", "written", "objects"] {
            assert_eq!(
                padded_summary["functions"][part], summary["functions"][part],
                "{name}"
            );
        }
        for part in ["samples", "symbols", "profile"] {
            assert_eq!(padded_summary[part], summary[part], "{name}");
        }
    }
}
