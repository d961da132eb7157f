//! Profiles that name many jitdumps.

use std::fs;
use std::path::{Path, PathBuf};

use jitdump::ByteOrder;

use super::cases::{CODE, LAST};
use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;

/// Writes a dump with one function.
pub fn write_dump(path: &Path, pid: u32) {
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, pid);
    dump.load(1000, CODE, 0, b"named", &[0x90; 64]);
    fs::write(path, dump.bytes).unwrap();
}

/// Returns a profile that names `count` dumps that do not exist, of one process or of one each.
pub fn absent_dumps(first: u32, count: u32, is_one_process: bool) -> Vec<u8> {
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    for number in first..first + count {
        let pid = if is_one_process { first } else { number };
        let path = format!("/nowhere/jit-{number}.dump");
        profile.mmap2(pid, 0x6000_0000, 4096, 0, &path, number.into());
    }
    profile.finish()
}

/// Writes `count` dumps of one name in different folders, and a profile that names one for each process. Returns the
/// profile and the folder of the dumps.
pub fn dumps_of_one_name(folder: &Path, first: u32, count: u32) -> (PathBuf, PathBuf) {
    let dumps = folder.join("dumps");
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    for pid in first..first + count {
        let container = dumps.join(pid.to_string());
        fs::create_dir_all(&container).unwrap();
        write_dump(&container.join("jit-1.dump"), 1);
        profile.mmap2(pid, 0x6000_0000, 4096, 0, "/tmp/jit-1.dump", 500);
    }
    profile.sample(first, LAST, &[CODE], None);
    let input = folder.join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    (input, dumps)
}
