//! Other readers of perf.data understand the output, and other readers of jitdumps read the same in them.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use jitdump::symbolize::Jitdump;
use jitdump::{Address, ByteOrder, Time};
use linux_perf_data::jitdump::{JitCodeDebugInfoRecord, JitDumpReader, JitDumpRecord, JitDumpRecordType};
use linux_perf_data::linux_perf_event_reader::{EventRecord, RecordType};
use linux_perf_data::{PerfFileReader, PerfFileRecord};

use crate::check_made::clean_dump;
use crate::support::{capture, inject_capture, jitinject, scratch};

/// A record as linux-perf-data returns it.
#[derive(PartialEq, Eq, Debug)]
enum Seen {
    Record(RecordType, u16, Vec<u8>),
    Map(Map),
    PerfsOwn(u32, Vec<u8>),
}

/// A mapping.
#[derive(PartialEq, Eq, Debug)]
struct Map {
    name: String,
    pid: i32,
    addresses: Range<u64>,
    file_offset: u64,
}

impl Map {
    /// Whether it maps what follows another mapping, in memory and in the file.
    fn continues(&self, before: &Self) -> bool {
        let size = before.addresses.end.wrapping_sub(before.addresses.start);
        self.name == before.name
            && self.pid == before.pid
            && self.addresses.start == before.addresses.end
            && self.file_offset == before.file_offset.wrapping_add(size)
    }
}

fn read(path: &Path) -> Vec<Seen> {
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = PerfFileReader::parse_file(File::open(path).unwrap()).unwrap();
    let mut seen = Vec::new();
    while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
        seen.push(match record {
            PerfFileRecord::EventRecord { record, .. } => match record.parse() {
                Ok(EventRecord::Mmap2(map)) => Seen::Map(Map {
                    name: String::from_utf8_lossy(&map.path.as_slice()).into_owned(),
                    pid: map.pid,
                    addresses: map.address..map.address.wrapping_add(map.length),
                    file_offset: map.page_offset,
                }),
                Ok(EventRecord::Mmap(map)) => Seen::Map(Map {
                    name: String::from_utf8_lossy(&map.path.as_slice()).into_owned(),
                    pid: map.pid,
                    addresses: map.address..map.address.wrapping_add(map.length),
                    file_offset: map.page_offset,
                }),
                _ => Seen::Record(
                    record.record_type,
                    record.misc,
                    record.data.as_slice().into_owned(),
                ),
            },
            PerfFileRecord::UserRecord(record) => {
                Seen::PerfsOwn(u32::from(record.misc), record.data.as_slice().into_owned())
            }
        });
    }
    seen
}

/// Returns the records without the mappings that jitinject adds (objects), drops (markers) or trims (memory). Joins
/// those that it divides (files).
fn unchanged(seen: Vec<Seen>, objects: &str) -> Vec<Seen> {
    let is_ours = |name: &str| {
        let is_marker = name.rsplit('/').next().unwrap().starts_with("jit-");
        is_marker || name.starts_with(objects) || name.starts_with("//anon") || name == "[heap]"
    };
    let mut unchanged: Vec<Seen> = Vec::new();
    for seen in seen {
        match (&seen, unchanged.last_mut()) {
            (Seen::Map(map), _) if is_ours(&map.name) => {}
            (Seen::Map(map), Some(Seen::Map(before))) if map.continues(before) => {
                before.addresses.end = map.addresses.end;
            }
            _ => unchanged.push(seen),
        }
    }
    unchanged
}

#[test]
fn linux_perf_data_sees_the_same_records_but_for_the_changes() {
    for name in capture::WITH_TRUTH {
        let folder = scratch();
        let output = inject_capture(folder.path(), name, &["--no-unwind"]);
        let objects = format!("{}.elf/", output.display());
        let after = read(&output);
        let added = after
            .iter()
            .filter(|seen| matches!(seen, Seen::Map(map) if map.name.starts_with(&objects)));
        assert!(added.count() > 0, "{name}");
        let (before, after) = (
            unchanged(read(&capture::profile(name)), &objects),
            unchanged(after, &objects),
        );
        assert_eq!(before.len(), after.len(), "{name}");
        assert!(before == after, "{name}");
    }
}

/// Compares a dump as samply-symbols 0.24 reads it with linux-perf-data. A DEBUG_INFO record belongs to the next function, and
/// lines are found at the address that it states. Returns the number of functions and of lines.
fn compare_with_samply(path: &Path) -> (usize, usize) {
    let mut ours = Jitdump::open(path).unwrap();
    ours.finish().unwrap();
    let mut reader = JitDumpReader::new(File::open(path).unwrap()).unwrap();
    let endian = reader.endian();
    let mut pending: Option<Vec<u8>> = None;
    let (mut functions, mut lines) = (0, 0);
    while let Some(record) = reader.next_record().unwrap() {
        match record.record_type {
            JitDumpRecordType::JIT_CODE_DEBUG_INFO => pending = Some(record.body.as_slice().into_owned()),
            JitDumpRecordType::JIT_CODE_LOAD => {
                let JitDumpRecord::CodeLoad(loaded) = record.parse().unwrap() else {
                    panic!("{}", path.display());
                };
                let start = loaded.code_addr;
                let size = loaded.code_bytes.len() as u64;
                let pending = pending.take();
                if size == 0 {
                    continue;
                }
                functions += 1;
                let at = format!("{}: {start:#x} at {}", path.display(), record.timestamp);
                let function = ours.function_at(Address(start), Time(record.timestamp));
                let function = function.unwrap_or_else(|| panic!("{at}"));
                let name = loaded.function_name.as_slice();
                assert_eq!(ours.symbol(function).unwrap().name, *name, "{at}");
                let Some(pending) = &pending else { continue };
                let info = JitCodeDebugInfoRecord::parse(endian, pending[..].into()).unwrap();
                // Where a line starts, and before it.
                let starts = info.entries.iter().map(|entry| entry.code_addr);
                let starts = starts.map(|address| address.wrapping_sub(info.code_addr));
                let first = starts.clone().min().unwrap_or_default();
                let offsets: BTreeSet<u64> = starts
                    .flat_map(|start| [start.wrapping_sub(1), start])
                    .chain([0, size - 1])
                    .filter(|&offset| offset < size)
                    .collect();
                for offset in offsets {
                    // Code before the first line is in none there, and in that line here, unless it is 0.
                    let is_before = offset < first;
                    assert!(!is_before || info.lookup(info.code_addr + offset).is_none());
                    let found = info.lookup(info.code_addr + offset.max(first));
                    let found = found.filter(|entry| !is_before || entry.line > 0);
                    let found = found.map(|entry| (entry.line, entry.file_path.as_slice().into_owned()));
                    let frames = ours.frames(function, Address(start + offset));
                    let frame = frames.last().unwrap();
                    let own = frame.line.map(|line| (line, frame.file.unwrap()));
                    assert_eq!(own, found, "{at} + {offset:#x}");
                    lines += usize::from(own.is_some());
                }
            }
            _ => {}
        }
    }
    (functions, lines)
}

/// samply reads no DEBUG_INFO2 yet.
#[test]
fn samply_reads_the_same_functions_and_lines_in_files_without_findings() {
    let folder = scratch();
    let mut clean: Vec<_> = [
        (ByteOrder::Little, "jit-77.dump"),
        (ByteOrder::Big, "jit-78.dump"),
    ]
    .map(|(endian, name)| {
        let path = folder.path().join(name);
        std::fs::write(&path, clean_dump(endian).finish()).unwrap();
        path
    })
    .into();
    let output = jitinject()
        .args(["check", "--json"])
        .arg(capture::folder(""))
        .output()
        .unwrap();
    let checked: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for file in checked["files"].as_array().unwrap() {
        let findings = file["findings"].as_array().into_iter().flatten();
        let mut severities = findings.map(|finding| &finding["severity"]);
        if file["kind"] == "jitdump" && severities.all(|severity| severity == "note") {
            clean.push(file["path"].as_str().unwrap().into());
        }
    }
    assert!(clean.len() >= 9, "{clean:?}");
    let counts = clean.iter().map(|path| compare_with_samply(path));
    let (functions, lines) = counts.fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
    assert!(functions > 3000 && lines > 20_000, "{functions} {lines}");
}
