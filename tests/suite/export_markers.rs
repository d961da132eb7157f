//! Markers in exports for the Firefox Profiler: functions that runtimes compiled, and garbage collections.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use flate2::read::GzDecoder;
use jitdump::{ByteOrder, printable};
use serde_json::Value;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::mono_report::Report;
use crate::support::profile::ProfileWriter;
use crate::support::{capture, jitinject, said, scratch, tools};

/// A marker with the thread that it is on; times in nanoseconds since the first record.
#[derive(Debug)]
struct Marker {
    tid: u64,
    name: String,
    start: u64,
    end: Option<u64>,
    category: String,
    /// Its data, with strings in place of their indices.
    data: Value,
}

fn nanoseconds(milliseconds: &Value) -> Option<u64> {
    milliseconds.as_f64().map(|time| (time * 1e6).round() as u64)
}

/// Exports a profile, and returns the markers of runtimes, and what the program printed.
fn markers(arguments: &[&str]) -> (Vec<Marker>, String) {
    let folder = scratch();
    let output = folder.path().join("out.json.gz");
    let ran = jitinject()
        .args(["export", "-o", tools::text(&output)])
        .args(arguments)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    let file: Value = serde_json::from_reader(GzDecoder::new(&fs::read(&output).unwrap()[..])).unwrap();
    let string = |index: &Value| file["shared"]["stringArray"][index.as_u64().unwrap() as usize].clone();
    let mut found = Vec::new();
    for thread in file["threads"].as_array().unwrap() {
        let table = &thread["markers"];
        let length = table["length"].as_u64().unwrap() as usize;
        for column in ["name", "data", "startTime", "endTime", "phase", "category"] {
            assert_eq!(table[column].as_array().unwrap().len(), length, "{column}");
        }
        for at in 0..length {
            let mut data = table["data"][at].clone();
            let name = string(&table["name"][at]).as_str().unwrap().to_owned();
            assert_eq!(data["type"], *name);
            for key in ["function", "position", "tier"] {
                if let Some(index) = data.get(key).cloned() {
                    data[key] = string(&index);
                }
            }
            let category = table["category"][at].as_u64().unwrap() as usize;
            found.push(Marker {
                // Without samples, there is a thread without an ID.
                tid: thread["tid"].as_u64().unwrap_or_default(),
                name,
                start: nanoseconds(&table["startTime"][at]).unwrap(),
                end: nanoseconds(&table["endTime"][at]),
                category: file["meta"]["categories"][category]["name"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
                data,
            });
        }
    }
    found.retain(|marker| marker.name != "Missing" && marker.name != "Thread name");
    (found, said(&ran))
}

/// Returns the LOAD records of a jitdump.
fn loads(dump: &Path) -> Vec<Value> {
    let ran = jitinject().args(["dump", "--json"]).arg(dump).output().unwrap();
    let lines = String::from_utf8(ran.stdout).unwrap();
    let entries = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    entries.filter(|entry: &Value| entry["type"] == "LOAD").collect()
}

/// Time, name, size and thread of functions.
type Functions = BTreeSet<(u64, String, u64, u64)>;

fn text<'v>(data: &'v Value, key: &str) -> &'v str {
    data[key].as_str().unwrap_or_default()
}

#[test]
fn all_functions_of_a_jitdump_are_markers_with_its_names_times_and_sizes() {
    for (name, dump) in [("multi", "jit-4835.dump"), ("php82", "jit-26234.dump")] {
        let folder = capture::folder(name);
        let loads = loads(&folder.join(dump));
        let pid = loads[0]["pid"].to_string();
        let profile = capture::profile(name);
        let (found, printed) = markers(&[
            "--markers",
            "--jitdump",
            tools::text(&folder),
            "--pid",
            &pid,
            tools::text(&profile),
        ]);
        let number = |load: &Value, key: &str| load[key].as_u64().unwrap();
        let first = number(&loads[0], "time");
        let expected: Functions = loads
            .iter()
            .map(|load| {
                let recorded = printable(text(load, "name").as_bytes());
                (
                    number(load, "time") - first,
                    recorded,
                    number(load, "code_size"),
                    number(load, "tid"),
                )
            })
            .collect();
        let start = found.iter().map(|marker| marker.start).min().unwrap();
        let by_load = |marker: &Marker| {
            let tid = marker.data["thread"].as_u64().unwrap_or(marker.tid);
            let size = marker.data["size"].as_u64().unwrap();
            let time = marker.start - start;
            let (function, position) = (text(&marker.data, "function"), text(&marker.data, "position"));
            let mut same = expected
                .iter()
                .filter(|load| (load.0, load.2, load.3) == (time, size, tid));
            let load = same.find(|load| load.1.contains(function) && load.1.ends_with(position));
            load.unwrap_or_else(|| panic!("{name}: {marker:?}")).clone()
        };
        let matched: Functions = found.iter().map(by_load).collect();
        assert_eq!(matched, expected, "{name}");
        assert_eq!(found.len(), loads.len(), "{name}");
        assert!(
            found
                .iter()
                .all(|marker| marker.end.is_none() && marker.category == "Compiler")
        );
        let expected = format!("markers: {} functions compiled", found.len());
        assert!(printed.contains(&expected), "{printed}");
    }
}

#[test]
fn functions_without_samples_are_counted_in_place_of_markers() {
    let profile = capture::profile("node20");
    let dumps = capture::folder("node20");
    let arguments = ["--jitdump", tools::text(&dumps), tools::text(&profile)];
    let (some, printed) = markers(&arguments);
    let (all, _) = markers(&[&["--markers"][..], &arguments].concat());
    assert!((10..200).contains(&some.len()), "{}", some.len());
    let names = |markers: &[Marker]| -> BTreeSet<String> {
        let places = markers
            .iter()
            .map(|marker| format!("{} {}", marker.start, marker.data));
        places.collect()
    };
    assert!(names(&some).is_subset(&names(&all)));
    let left_out = all.len() - some.len();
    let expected = format!(
        "markers: {} functions compiled; left out: {left_out} functions without samples (--markers adds them)",
        some.len()
    );
    assert!(printed.contains(&expected), "{printed}");
    let optimized = some
        .iter()
        .find(|marker| marker.data["tier"] == "TurboFan")
        .unwrap();
    assert!(
        text(&optimized.data, "position").contains("work.js:"),
        "{optimized:?}"
    );
}

#[test]
fn markers_of_threads_without_samples_are_on_the_main_thread() {
    const START: u64 = 0x7f00_0000_0000;
    let folder = scratch();
    let dump_path = folder.path().join("jit-10.dump");
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(10, START, 0x10_0000, 0, "//anon", 1_000_000);
    profile.mmap2(
        10,
        0x7fff_0000_0000,
        0x1000,
        0,
        tools::text(&dump_path),
        1_000_001,
    );
    profile.sample(10, 1_002_000, &[START + 0x10], None);
    profile.sample(10, 1_009_000, &[START + 0x110], None);
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 10);
    let load = |dump: &mut DumpWriter, tid: u32, time: u64, index: u64, name: &str| {
        let at = dump.bytes.len();
        dump.load(time, START + 0x100 * index, index, name.as_bytes(), &[0x90; 64]);
        // After the prefix of the record and the process.
        dump.bytes[at + 20..at + 24].copy_from_slice(&tid.to_le_bytes());
    };
    load(&mut dump, 10, 1_001_000, 0, "one");
    load(&mut dump, 77, 1_005_000, 1, "two");
    // As Erlang: not an ID.
    load(&mut dump, u32::MAX, 1_006_000, 2, "three");
    load(&mut dump, 10, 2_000_000, 3, "late");
    fs::write(&dump_path, &dump.bytes).unwrap();
    let input = folder.path().join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    let input = tools::text(&input);
    let of = |more: &[&str]| {
        let (found, printed) = markers(&[&["--clock-offset", "0", "--markers", input], more].concat());
        let row = |marker: &Marker| {
            let name = text(&marker.data, "function").to_owned();
            (name, marker.start, marker.tid, marker.data["thread"].as_u64())
        };
        (found.iter().map(row).collect::<Vec<_>>(), printed)
    };
    let one = ("one".to_owned(), 1_000, 10, None);
    let two = ("two".to_owned(), 5_000, 10, Some(77));
    let three = ("three".to_owned(), 6_000, 10, None);
    let (all, printed) = of(&[]);
    assert_eq!(all, [one.clone(), two.clone(), three.clone()]);
    assert!(
        printed.contains("left out: 1 before or after the recording"),
        "{printed}"
    );
    // A thread that the runtime did not name may be the wanted one.
    assert_eq!(of(&["--tid", "10"]).0, [one, three]);
    assert_eq!(of(&["--time", "0.000002,0.0000055"]).0, [two]);
    assert_eq!(of(&["--pid", "11"]).0, []);
}

#[test]
fn the_limit_of_markers_is_that_of_the_selected_threads() {
    const START: u64 = 0x7f00_0000_0000;
    let folder = scratch();
    let dump_path = folder.path().join("jit-10.dump");
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(10, START, 0x20_0000, 0, "//anon", 1_000_000);
    let marker = tools::text(&dump_path);
    profile.mmap2(10, 0x7fff_0000_0000, 0x1000, 0, marker, 1_000_001);
    profile.sample(10, 1_900_000, &[START + 0x10], None);
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 10);
    let mut load = |tid: u32, index: u64| {
        let at = dump.bytes.len();
        dump.load(1_001_000 + index, START + 16 * index, index, b"f", &[0x90; 16]);
        // After the prefix of the record and the process.
        dump.bytes[at + 20..at + 24].copy_from_slice(&tid.to_le_bytes());
    };
    (0..100_001).for_each(|index| load(77, index));
    load(10, 100_001);
    fs::write(&dump_path, &dump.bytes).unwrap();
    let input = folder.path().join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    let arguments = ["--clock-offset", "0", "--markers", tools::text(&input)];
    let (all, printed) = markers(&arguments);
    assert_eq!(all.len(), 100_000);
    assert!(printed.contains("left out: 2 over the limit"), "{printed}");
    let (own, printed) = markers(&[&arguments[..], &["--tid", "10"]].concat());
    assert_eq!(own.len(), 1);
    assert!(printed.contains("markers: 1 function compiled\n"), "{printed}");
}

#[test]
fn garbage_collections_of_mono_are_intervals_as_long_as_its_own_reader_prints() {
    for name in ["mono-default", "mono-alloc", "mono-joined"] {
        let folder = capture::folder(name);
        let log = folder.join("trace.mlpd");
        let report = Report::kept(&folder.join("report.txt"));
        let profile = capture::profile(name);
        let log_arguments = ["--mono-log", tools::text(&log)];
        let arguments = if profile.exists() {
            [&log_arguments[..], &[tools::text(&profile)]].concat()
        } else {
            vec![tools::text(&log)]
        };
        let (found, printed) = markers(&arguments);
        let collections: Vec<&Marker> = found.iter().filter(|marker| marker.name == "GC").collect();
        assert!(
            collections
                .iter()
                .all(|marker| marker.category == "Garbage collector"),
            "{name}"
        );
        let mut count = 0;
        for generation in 0..2 {
            let of = collections
                .iter()
                .filter(|marker| marker.data["generation"] == generation);
            let durations: Vec<u64> = of.map(|marker| marker.end.unwrap() - marker.start).collect();
            let longest = durations.iter().max().copied().unwrap_or_default() / 1000;
            let found = [
                durations.len() as u64,
                longest,
                durations.iter().sum::<u64>() / 1000,
            ];
            let expected = report.collections(generation).unwrap_or_default();
            assert_eq!(found, expected, "{name}: generation {generation}");
            count += found[0];
        }
        assert!(
            count > 0 && printed.contains(&format!("{count} garbage collections")),
            "{printed}"
        );
    }
}
