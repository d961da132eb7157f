//! Files designed to be slow.

pub mod cases;
pub mod keys;
pub mod many_files;

use std::fs;
use std::path::PathBuf;

use jitdump::ByteOrder;

use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::tools;
use cases::{CODE, Case, LAST, PID};

/// The files of a case.
pub struct CaseFiles {
    pub folder: tempfile::TempDir,
    pub input: PathBuf,
    /// Size of the files, in bytes.
    pub bytes: u64,
    pub options: &'static [&'static str],
}

impl CaseFiles {
    /// Writes the files, with about 150 times `count` bytes.
    pub fn new(case: &Case, count: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("jit-{PID}.dump"));
        let mut dump = DumpWriter::new(ByteOrder::Little, 62, PID);
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&path), 500);
        (case.make)(count, &mut dump, &mut profile, tools::text(&path));
        // The sample makes the profile end after all records of the dump.
        profile.sample(PID, LAST, &[CODE], None);
        let input = folder.path().join("perf.data");
        let profile = profile.finish();
        fs::write(&path, &dump.bytes).unwrap();
        fs::write(&input, &profile).unwrap();
        Self {
            folder,
            input,
            bytes: (dump.bytes.len() + profile.len()) as u64,
            options: case.options,
        }
    }
}
