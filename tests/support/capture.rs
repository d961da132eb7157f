//! The recordings in `testdata/`.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

/// Recordings in perf's usual format with known samples per symbol (`truth.tsv`).
pub const WITH_TRUTH: [&str; 26] = [
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
    "php82-workers",
    "postgres15",
    "qemu",
    "wasmtime",
];

/// The last file of an overwritten recording, also with `truth.tsv`. Its process has no mappings, so that no
/// marker mapping refers to the dump.
pub const WITHOUT_MAPS: &str = "node20-overwrite";

/// Recordings that are not a regular file with plain records: written to a pipe, compressed, or a directory with a
/// file per CPU.
pub const OTHER_FORMATS: [&str; 3] = ["node20-pipe", "node20-zstd", "node20-dir"];

/// Dumps of other machines, written under QEMU; the profile is that of QEMU.
pub const FOREIGN: [&str; 7] = [
    "node18-arm-dump",
    "node18-mips64le-dump",
    "node18-mipsle-dump",
    "node20-arm64-dump",
    "node20-ppc64le-dump",
    "node20-riscv64-dump",
    "node20-s390x-dump",
];

/// Returns the directory of a recording.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    assert!(folder.is_dir(), "{} is missing", folder.display());
    folder
}

/// Returns the path of a recording's profile.
pub fn profile(name: &str) -> PathBuf {
    let pipe = folder(name).join("perf.pipe");
    if pipe.exists() {
        return pipe;
    }
    folder(name).join("perf.data")
}

/// For each process and symbol, the number of samples in it, and the number of samples with it in the recorded
/// call chain.
pub type Truth = HashMap<(u32, String), (u64, u64)>;

/// Returns the content of a recording's `truth.tsv`, which was made from the dumps without perf inject.
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

/// Returns the uncompressed content of a gzip file.
pub fn gunzipped(path: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    let file = File::open(path).unwrap();
    GzDecoder::new(file).read_to_end(&mut out).unwrap();
    out
}
