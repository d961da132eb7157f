//! Files designed to be slow or large. The `growth` package counts the work that they make.

mod limits;
mod many_files;

use std::fs::{self, File};
use std::io::Write;

use jitdump::ByteOrder;
use serde_json::Value;

use crate::support::dump::DumpWriter;
use crate::support::hostile::cases::{CODE, LAST, PID};
use crate::support::profile::ProfileWriter;
use crate::support::{diagnostics, has_code, inject, objects_of, scratch, tools};

const UNKNOWN: u32 = 77;

/// Returns the counts of the diagnostics of one code in a summary.
fn counts(summary: &Value, code: &str) -> Vec<u64> {
    let found = diagnostics(summary, code).into_iter();
    found
        .map(|diagnostic| diagnostic["count"].as_u64().unwrap())
        .collect()
}

/// Without a limit, a function of 1 MiB that moves a thousand times becomes a thousand objects of 1 MiB.
#[test]
fn objects_are_not_without_bounds() {
    let folder = scratch();
    let path = folder.path().join(format!("jit-{PID}.dump"));
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, PID);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    dump.load(900, CODE, 1, b"f", &vec![0x90; 1 << 20]);
    for at in 0..1000 {
        dump.moved(1000 + at, CODE + (at << 20), CODE + ((at + 1) << 20), 1 << 20, 1);
    }
    fs::write(&path, &dump.bytes).unwrap();
    profile.sample(PID, LAST, &[CODE], None);
    let input = folder.path().join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    let said = inject(&input, &output, &["--all"]);
    assert!(has_code(&said, "JI265"), "{said}");
    let sizes = objects_of(&output)
        .into_iter()
        .map(|path| fs::metadata(path).unwrap().len());
    let (least, size) = (64 << 20, sizes.sum::<u64>());
    assert!((least..3 * least).contains(&size), "{size}");
}

/// A sparse file of 256 MiB.
#[test]
fn a_large_file_of_nothing_is_read() {
    let folder = scratch();
    let path = folder.path().join(format!("jit-{PID}.dump"));
    let header = DumpWriter::new(ByteOrder::Little, 62, PID).bytes;
    let input = folder.path().join("perf.data");
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    profile.sample(PID, LAST, &[CODE], None);
    fs::write(&input, profile.finish()).unwrap();
    // Zeros, and a single record of 64 MiB.
    for start in [
        header.clone(),
        [&header[..], &[UNKNOWN as u8, 0, 0, 0, 0, 0, 0, 4]].concat(),
    ] {
        let mut file = File::create(&path).unwrap();
        file.write_all(&start).unwrap();
        file.set_len((1 << 26) + header.len() as u64).unwrap();
        let said = inject(&input, &folder.path().join("out.data"), &[]);
        assert!(said.contains("1 jitdump, "), "{said}");
    }
}
