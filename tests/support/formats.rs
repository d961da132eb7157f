//! Writes profiles in different formats and counts their records.

use std::fs::File;
use std::path::{Path, PathBuf};

use linux_perf_data::{PerfFileReader, PerfFileRecord};

use super::{FUNCTION_LAYOUT, jitinject, said};

/// Runs jitinject on `input`; returns the file with the profile, however it was written.
pub fn write(folder: &Path, input: &Path, output: &str, more: &[&str]) -> PathBuf {
    let elf_dir = folder.join("objects");
    let mut command = jitinject();
    command
        .current_dir(folder)
        .arg("-i")
        .arg(input)
        .args(["-q", "--no-unwind", "-o", output]);
    let ran = command
        .arg("--elf-dir")
        .arg(&elf_dir)
        .args(if more.contains(&"--layout") {
            &[][..]
        } else {
            &FUNCTION_LAYOUT
        })
        .args(more)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    assert_eq!(said(&ran), "");
    if output == "-" {
        let path = folder.join("out.pipe");
        std::fs::write(&path, ran.stdout).unwrap();
        return path;
    }
    assert!(ran.stdout.is_empty());
    folder.join(output)
}

/// Returns the number of records, and of samples among them, that linux-perf-data finds.
pub fn counts(profile: &Path) -> (usize, usize) {
    let file = File::open(profile).unwrap();
    let is_pipe = profile.extension().is_some_and(|extension| extension == "pipe");
    let mut counts = (0, 0);
    let mut count = |record: PerfFileRecord<'_>| {
        counts.0 += 1;
        if let PerfFileRecord::EventRecord { record, .. } = record {
            counts.1 += usize::from(record.record_type.0 == 9);
        }
    };
    if is_pipe {
        let mut reader = PerfFileReader::parse_pipe(file).unwrap();
        while let Some(record) = reader.record_iter.next_record(&mut reader.perf_file).unwrap() {
            count(record);
        }
    } else {
        let mut reader = PerfFileReader::parse_file(file).unwrap();
        while let Some(record) = reader.record_iter.next_record(&mut reader.perf_file).unwrap() {
            count(record);
        }
    }
    counts
}
