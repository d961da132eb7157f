//! Profiles without times, as `perf record --per-thread` and `--no-timestamp` write them.

use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use jitdump::ByteOrder;
use serde_json::{Value, json};

use crate::support::dump::DumpWriter;
use crate::support::profile::{ProfileWriter, field};
use crate::support::timeline::{Values, page_of};
use crate::support::tools::text;
use crate::support::{has_code, jitinject, said, scratch};

const PID: u32 = 4_190_000;
const CODE: u64 = 0x4000_0000;

/// Writes a profile of a process with two functions, each with a sample, and an end.
fn profile(folder: &Path) -> PathBuf {
    let dump = folder.join(format!("jit-{PID}.dump"));
    let mut writer = DumpWriter::new(ByteOrder::Little, 62, PID);
    writer.load(1000, CODE, 0, b"one", &[0x90; 64]);
    writer.load(1500, CODE + 0x100, 1, b"two", &[0x90; 64]);
    std::fs::write(&dump, writer.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.sample_type &= !field::TIME;
    profile.comm(PID, "before", true, 0);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, text(&dump), 0);
    profile.mmap2(PID, CODE, 4096, 0, "//anon", 0);
    profile.sample(PID, 0, &[CODE + 4], None);
    profile.comm(PID, "after", false, 0);
    profile.sample(PID, 0, &[CODE + 0x104], None);
    profile.exit(PID, PID, 0);
    let input = folder.join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    input
}

#[test]
fn samples_have_no_offsets_for_times() {
    let folder = scratch();
    let output = folder.path().join("profile.json.gz");
    let ran = jitinject()
        .args(["export", text(&profile(folder.path())), "-o", text(&output)])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    let bytes = std::fs::read(&output).unwrap();
    let exported: Value = serde_json::from_reader(GzDecoder::new(&bytes[..])).unwrap();
    let thread = &exported["threads"][0];
    assert_eq!(thread["samples"]["time"], json!([1.0, 2.0]));
    assert_eq!(thread["registerTime"], json!(1.0));
    assert_eq!(thread["name"], "after");
}

#[test]
fn they_have_none_to_select() {
    let folder = scratch();
    let input = profile(folder.path());
    for time in ["0.000001,", ",1"] {
        let ran = jitinject()
            .args(["report", text(&input), "--time", time])
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
        assert!(has_code(&said(&ran), "JI462"), "{}", said(&ran));
    }
}

#[test]
fn the_timeline_has_the_code_of_processes_that_ended() {
    let folder = scratch();
    let (page, said) = page_of(folder.path(), &profile(folder.path()), &[]);
    assert!(has_code(&said, "JI306"), "{said}");
    let boxes = Values::of(&page).boxes();
    let found: Vec<_> = boxes
        .iter()
        .map(|placed| (&*placed.name, placed.from, placed.until, placed.samples))
        .collect();
    assert_eq!(found, [("one", None, None, 1), ("two", None, None, 1)]);
}
