//! A small recording whose files can be replaced.

use std::fs;
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
        Self::with_inode(|_| 0)
    }

    /// Creates a recording whose profile contains a given inode for the dump.
    pub fn with_inode(inode: impl Fn(&Path) -> u64) -> Self {
        Self::made(Path::new(""), inode)
    }

    /// Creates a recording with the dump in a directory of its own.
    pub fn below(name: &str) -> Self {
        Self::made(Path::new(name), |_| 0)
    }

    fn made(below: &Path, inode: impl Fn(&Path) -> u64) -> Self {
        let folder = scratch();
        let place = folder.path().join(below);
        fs::create_dir_all(&place).unwrap();
        let dump = place.join(format!("jit-{PID}.dump"));
        let mut writer = DumpWriter::new(ByteOrder::Little, 62, PID);
        writer.load(1000, 0x4000_0000, 0, b"named", &[0x90; 64]);
        fs::write(&dump, writer.bytes).unwrap();
        let mut writer = ProfileWriter::new(ByteOrder::Little);
        writer.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&dump), 500);
        // after the record's header, two integers of the process, three of the mapping and two of the device
        writer.records[48..56].copy_from_slice(&inode(&dump).to_le_bytes());
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
