//! Writers of files, shared with the other tests, and the program that counts its work.

#![allow(dead_code)]

#[path = "../../../support/dump.rs"]
pub mod dump;
#[path = "../../../support/hostile/mod.rs"]
pub mod hostile;
#[path = "../../../support/mono_log.rs"]
pub mod mono_log;
#[path = "../../../support/profile.rs"]
pub mod profile;
#[path = "../../../support/tools.rs"]
pub mod tools;
#[path = "../../../support/xray_map.rs"]
pub mod xray_map;
#[path = "../../../support/xray_trace.rs"]
pub mod xray_trace;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// What a run of the program did.
pub struct Work {
    /// Blocks of the library's code that it passed: each pass through a loop counts, however long it takes.
    pub blocks: u64,
    /// Bytes of memory that it had at a time.
    pub most_bytes: u64,
    pub output: Output,
}

impl Work {
    /// Returns the standard error of the program.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// Runs the program in one thread.
pub fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Work {
    let count = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_counting"))
        .args(arguments)
        .env("COUNT", count.path())
        .env("RAYON_NUM_THREADS", "1")
        .output()
        .unwrap();
    let counts = std::fs::read_to_string(count.path()).unwrap();
    let counts: Vec<u64> = counts.split(' ').flat_map(str::parse).collect();
    let [blocks, most_bytes] = counts[..] else {
        panic!("{}", String::from_utf8_lossy(&output.stderr));
    };
    assert!(blocks > 0, "scripts/test builds the program that counts");
    Work {
        blocks,
        most_bytes,
        output,
    }
}

/// Runs jitinject, which must succeed and print `expected`; returns the blocks that it passed.
pub fn inject(input: &Path, output: &Path, options: &[&str], expected: &str) -> u64 {
    let files = [Path::new("-i"), input, Path::new("-o"), output];
    let work = run(files.into_iter().chain(options.iter().map(Path::new)));
    assert!(work.output.status.success(), "{}", work.said());
    assert!(work.said().contains(expected), "{}", work.said());
    work.blocks
}

/// Checks that work grows as its input does: `work` returns the blocks passed for an input of a size, which is
/// multiplied by ten. With the logarithm of sorting, and with code for small inputs, they become up to 20 times as many;
/// in quadratic code, a hundred times.
#[track_caller]
pub fn assert_linear(name: &str, size: u64, mut work: impl FnMut(u64) -> u64) {
    let (less, more) = (work(size), work(10 * size));
    println!(
        "{name}: {less} and {more} blocks, {:.1} times",
        more as f64 / less as f64
    );
    assert!(
        more < 25 * less,
        "{name}: {less} blocks, but {more} for ten times the input"
    );
}
