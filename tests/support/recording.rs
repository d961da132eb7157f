//! A small recording whose files can be replaced.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jitdump::ByteOrder;

use super::dump::DumpWriter;
use super::profile::ProfileWriter;
use super::{inject, scratch, tools};

/// A process and its dump, with one sampled function.
pub struct Recording {
    pub folder: tempfile::TempDir,
    pub profile: PathBuf,
    pub dump: PathBuf,
    pub output: PathBuf,
}

/// A PID that no process has.
pub const PID: u32 = 4_190_000;

impl Recording {
    pub fn new() -> Self {
        Self::made(Path::new(""), false)
    }

    /// Creates a recording whose profile says that the process has mapped the very file.
    pub fn with_mapped_file() -> Self {
        Self::made(Path::new(""), true)
    }

    /// Creates a recording with the dump in a directory of its own.
    pub fn below(name: &str) -> Self {
        Self::made(Path::new(name), false)
    }

    fn made(below: &Path, is_mapped: bool) -> Self {
        let folder = scratch();
        let place = folder.path().join(below);
        fs::create_dir_all(&place).unwrap();
        let dump = place.join(format!("jit-{PID}.dump"));
        let mut writer = DumpWriter::new(ByteOrder::Little, 62, PID);
        writer.load(1000, 0x4000_0000, 0, b"named", &[0x90; 64]);
        fs::write(&dump, writer.bytes).unwrap();
        let mut writer = ProfileWriter::new(ByteOrder::Little);
        writer.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&dump), 500);
        if is_mapped {
            set_mapped_file(&mut writer, 0, &fs::metadata(&dump).unwrap());
        }
        writer.mmap2(PID, 0x4000_0000, 4096, 0, "//anon", 501);
        writer.sample(PID, 2000, &[0x4000_0004], None);
        let profile = folder.path().join("perf.data");
        fs::write(&profile, writer.finish()).unwrap();
        Self {
            output: folder.path().join("out.data"),
            folder,
            profile,
            dump,
        }
    }

    /// Replaces the dump by one whose function has a line of each file.
    pub fn name_files(&self, files: &[&Path]) {
        let mut dump = DumpWriter::new(ByteOrder::Little, 62, PID);
        let code: u64 = 0x4000_0000;
        let mut content = Vec::new();
        dump.endian.write_u64(&mut content, code);
        dump.endian.write_u64(&mut content, files.len() as u64);
        for (at, file) in files.iter().enumerate() {
            dump.endian.write_u64(&mut content, code + at as u64);
            dump.endian.write_u32(&mut content, 1 + at as u32);
            dump.endian.write_u32(&mut content, 0);
            content.extend_from_slice(tools::text(file).as_bytes());
            content.push(0);
        }
        dump.record(2, 999, &content);
        dump.load(1000, code, 0, b"named", &[0x90; 64]);
        fs::write(&self.dump, dump.bytes).unwrap();
    }

    pub fn inject(&self, more: &[&str]) -> String {
        inject(&self.profile, &self.output, more)
    }
}

pub const NAMED: &str = "1 in JIT code, 1 of them named";

/// Sets the device and the inode in the mapping whose record starts there.
pub fn set_mapped_file(profile: &mut ProfileWriter, record: usize, file: &Metadata) {
    // After the record's header, two integers of the process and three of the mapping.
    let mut numbers = Vec::new();
    let endian = profile.endian;
    endian.write_u32(&mut numbers, rustix::fs::major(file.dev()));
    endian.write_u32(&mut numbers, rustix::fs::minor(file.dev()));
    endian.write_u64(&mut numbers, file.ino());
    profile.records[record + 40..][..numbers.len()].copy_from_slice(&numbers);
}
