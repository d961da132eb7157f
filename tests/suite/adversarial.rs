//! Files designed to be slow: they take about as long as ordinary files of the same size.

mod cases;
mod flooding;
mod limits;
mod many_files;
mod traces;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use jitinject::bytes::ByteOrder;
use serde_json::Value;
use std::collections::HashMap;

use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::{diagnostics, effort, has_code, inject, objects_of, said, scratch, tools};
use cases::{CASES, CODE, Case, LAST, PID};

const UNKNOWN: u32 = 77;

/// The files of a case.
struct CaseFiles {
    folder: tempfile::TempDir,
    input: PathBuf,
    bytes: u64,
    options: &'static [&'static str],
}

impl CaseFiles {
    fn new(case: &Case, count: u64) -> Self {
        let folder = scratch();
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

    /// Returns the CPU time of a run on these files, in seconds.
    fn cost(&self) -> f64 {
        let output = self.folder.path().join("out.data");
        cpu_seconds(&self.input, &output, self.options, "1 jitdump, ")
    }
}

/// Runs jitinject, which must succeed and print `expected`; returns its CPU time in seconds. It is infinite if
/// jitinject exceeds the limits.
fn cpu_seconds(input: &Path, output: &Path, options: &[&str], expected: &str) -> f64 {
    const LIMITS: &str = "ulimit -t 100; ulimit -v 12000000";
    const SIGKILL_OF_A_CHILD: i32 = 137;
    let files = [Path::new("-i"), input, Path::new("-o"), output];
    let arguments = files.into_iter().chain(options.iter().map(Path::new));
    let (ran, seconds) = effort::of_jitinject(LIMITS, arguments);
    if ran.status.code() == Some(SIGKILL_OF_A_CHILD) {
        return f64::INFINITY;
    }
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(said(&ran).contains(expected), "{}", said(&ran));
    seconds
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Returns the counts of the diagnostics of one code in a summary.
fn counts(summary: &Value, code: &str) -> Vec<u64> {
    let found = diagnostics(summary, code).into_iter();
    found
        .map(|diagnostic| diagnostic["count"].as_u64().unwrap())
        .collect()
}

#[test]
fn hostile_files_take_no_longer_than_their_size_justifies() {
    /// Quadratic code takes a hundred times as long for ten times as much input.
    const TIMES: u64 = 10;
    const AT_MOST: f64 = 4.0;
    /// Shorter times cannot be measured.
    const LEAST: f64 = 0.1;
    for case in CASES {
        let less = CaseFiles::new(case, 3000).cost();
        let files = CaseFiles::new(case, 3000 * TIMES);
        let more = files.cost();
        let allowed = less.max(LEAST) * TIMES as f64 * AT_MOST;
        assert!(
            more < allowed,
            "{}: {less} s, but {more} s for {} bytes",
            case.name,
            files.bytes
        );
    }
}

#[test]
#[ignore = "takes minutes; prints the CPU time of each case"]
fn hostile_files_take_no_longer_than_ordinary_ones() {
    const COUNT: u64 = 300_000;
    let mut ordinary: HashMap<&str, CaseFiles> = HashMap::new();
    let mut slow = Vec::new();
    for case in CASES {
        let like = CASES.iter().find(|other| other.name == case.like).unwrap();
        let like = ordinary
            .entry(like.name)
            .or_insert_with(|| CaseFiles::new(like, COUNT));
        let files = CaseFiles::new(case, COUNT);
        // Alternately, because other programs may slow down the processor.
        let mut pairs = [(); 3].map(|()| (files.cost(), like.cost()));
        pairs.sort_by(|(one, like), (other, other_like)| (one / like).total_cmp(&(other / other_like)));
        let (seconds, ordinary_seconds) = pairs[1];
        let ratio = seconds / files.bytes as f64 / (ordinary_seconds / like.bytes as f64);
        println!(
            "| {} | {:.0} MB | {seconds:.2} s | {ratio:.1} times {} |",
            case.name,
            files.bytes as f64 / 1e6,
            case.like
        );
        if ratio > case.at_most {
            slow.push(case.name);
        }
    }
    assert!(slow.is_empty(), "{slow:?}");
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

/// A sparse file of 1 GiB.
#[test]
fn a_gib_of_nothing_is_read_at_once() {
    let folder = scratch();
    let path = folder.path().join(format!("jit-{PID}.dump"));
    let header = DumpWriter::new(ByteOrder::Little, 62, PID).bytes;
    let input = folder.path().join("perf.data");
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    profile.sample(PID, LAST, &[CODE], None);
    fs::write(&input, profile.finish()).unwrap();
    // Zeros, and a single record of 1 GiB.
    for start in [
        header.clone(),
        [&header[..], &[UNKNOWN as u8, 0, 0, 0, 0, 0, 0, 0x40]].concat(),
    ] {
        let mut file = File::create(&path).unwrap();
        file.write_all(&start).unwrap();
        file.set_len((1 << 30) + header.len() as u64).unwrap();
        let seconds = cpu_seconds(&input, &folder.path().join("out.data"), &[], "1 jitdump, ");
        assert!(seconds < 30.0, "{seconds}");
    }
}
