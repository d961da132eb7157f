//! Generated processes with perf maps, and the recordings that have some.

use std::path::PathBuf;

use jitdump::ByteOrder;

use super::generator::Expected;
use super::profile::ProfileWriter;
use super::shown::assert_named;
use super::{inject, scratch};

pub const REGION: u64 = 0x7000_0000;

pub const SECOND: u64 = 1_000_000_000;

pub const UNKNOWN: &str = "[unknown]";

/// Recordings whose perf maps have an effect: PID, and the number of samples that only the map names.
pub const CAPTURES: [(&str, u32, u64); 3] = [
    ("cpython312-map", 12859, 0),
    ("mono-map", 12879, 64),
    ("node20-headeronly", 14184, 43),
];

/// Generated processes with perf maps, from second 10 on, and the expected names.
pub struct Case {
    pub folder: tempfile::TempDir,
    pub profile: ProfileWriter,
    pub expected: Vec<Expected>,
    pub time: u64,
}

impl Case {
    pub fn new() -> Self {
        Self {
            folder: scratch(),
            profile: ProfileWriter::new(ByteOrder::Little),
            expected: Vec::new(),
            time: 10 * SECOND,
        }
    }

    /// Creates a process that executed a program and has memory for code from [`REGION`] on.
    pub fn with_process(pid: u32) -> Self {
        let mut case = Self::new();
        case.exec(pid);
        case.anonymous(pid, REGION, 0x1_0000);
        case
    }

    pub fn tick(&mut self) -> u64 {
        self.time += SECOND;
        self.time
    }

    pub fn exec(&mut self, pid: u32) {
        let time = self.tick();
        self.profile.comm(pid, "program", true, time);
    }

    pub fn fork(&mut self, child: u32, parent: u32) {
        let time = self.tick();
        self.profile.fork(child, parent, time);
    }

    pub fn map(&mut self, pid: u32, address: u64, size: u64, name: &str) {
        let time = self.tick();
        self.profile.mmap2(pid, address, size, address, name, time);
    }

    pub fn anonymous(&mut self, pid: u32, address: u64, size: u64) {
        self.map(pid, address, size, "//anon");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Adds a sample at an offset in the region, and the name expected for it.
    pub fn sample(&mut self, pid: u32, offset: u64, name: &str) {
        let time = self.tick();
        self.profile.sample(pid, time, &[REGION + offset], None);
        self.expected.push(Expected {
            pid,
            time,
            frames: vec![name.to_owned()],
        });
    }

    pub fn input(&self) -> PathBuf {
        let input = self.path("perf.data");
        std::fs::write(&input, self.profile.finish()).unwrap();
        input
    }

    /// Injects and compares the result with the expected names; returns standard error.
    pub fn check(&self, more: &[&str]) -> String {
        let input = self.input();
        let output = self.path("out.data");
        let said = inject(&input, &output, more);
        assert_named(&output, &self.expected);
        let all = [more, &["--all"]].concat();
        inject(&input, &output, &all);
        assert_named(&output, &self.expected);
        said
    }
}

/// Returns the lines of a perf map from offsets in the region, sizes and names.
pub fn lines(symbols: &[(u64, u64, &str)]) -> String {
    let line = |&(offset, size, name): &(u64, u64, &str)| format!("{:x} {size:x} {name}\n", REGION + offset);
    symbols.iter().map(line).collect()
}
