//! Other readers of perf.data understand the output.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use linux_perf_data::linux_perf_event_reader::{EventRecord, RecordType};
use linux_perf_data::{PerfFileReader, PerfFileRecord};

use crate::support::{capture, inject_capture, scratch};

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
