//! The recordings in `testdata/`.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

/// Every recording in perf's usual format that comes with the truth about it.
pub const WITH_TRUTH: [&str; 25] = [
    "bun",
    "cpython313-dwarf",
    "cpython313-fork",
    "erlang25",
    "java17",
    "lli14-mcjit",
    "llvm19-jitlink",
    "multi",
    "node18-i386",
    "node20",
    "node20-attached",
    "node20-buildid",
    "node20-dwarf",
    "node20-headeronly",
    "node20-multievent",
    "node20-nomono",
    "node20-pidns",
    "node20-raw",
    "node20-reuse",
    "node20-wasm",
    "node22",
    "php82",
    "postgres15",
    "qemu",
    "wasmtime",
];

/// The last file of an overwritten recording, with truth too: its process has no maps, so no marker leads to the dump.
pub const WITHOUT_MAPS: &str = "node20-overwrite";

/// Those that are no regular file with plain records: what was written to a pipe, compressed records, and a
/// folder with a file for each processor.
pub const OTHER_FORMATS: [&str; 3] = ["node20-pipe", "node20-zstd", "node20-dir"];

/// Dumps of other machines, written under QEMU, and the profile of QEMU.
pub const FOREIGN: [&str; 7] = [
    "node18-arm-dump",
    "node18-mips64le-dump",
    "node18-mipsle-dump",
    "node20-arm64-dump",
    "node20-ppc64le-dump",
    "node20-riscv64-dump",
    "node20-s390x-dump",
];

/// A recording's folder.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    assert!(folder.is_dir(), "{} is missing", folder.display());
    folder
}

/// A recording's profile.
pub fn profile(name: &str) -> PathBuf {
    let pipe = folder(name).join("perf.pipe");
    if pipe.exists() {
        return pipe;
    }
    folder(name).join("perf.data")
}

/// How often each symbol of each process was sampled, and how often it was in the recorded call chain of a
/// sample.
pub type Truth = HashMap<(u32, String), (u64, u64)>;

/// The truth about a recording: `truth.tsv`, made from the dumps without perf inject.
pub fn truth(name: &str) -> Truth {
    let text = std::fs::read_to_string(folder(name).join("truth.tsv")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let parsed = lines.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[pid, symbol, leaf, stack] = &fields[..] else {
            panic!("odd line in truth.tsv: {line}");
        };
        let counts = (leaf.parse().unwrap(), stack.parse().unwrap());
        ((pid.parse().unwrap(), symbol.to_owned()), counts)
    });
    parsed.collect()
}

/// The content of a gzip file.
pub fn gunzipped(path: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    let file = File::open(path).unwrap();
    GzDecoder::new(file).read_to_end(&mut out).unwrap();
    out
}
