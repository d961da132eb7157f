//! Files that are made to be slow: whatever is in them, the time is that of an ordinary file of their size.

mod cases;
mod flooding;
mod limits;
mod many_files;
mod traces;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use jitinject::bytes::ByteOrder;
use std::collections::HashMap;

use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::{effort, inject, objects_of, said, scratch, tools};
use cases::{CASES, CODE, Case, LAST, PID};

const UNKNOWN: u32 = 77;

/// The files of a case.
struct Made {
    folder: tempfile::TempDir,
    input: PathBuf,
    bytes: u64,
    options: &'static [&'static str],
}

impl Made {
    fn new(case: &Case, count: u64) -> Self {
        let folder = scratch();
        let path = folder.path().join(format!("jit-{PID}.dump"));
        let mut dump = DumpWriter::new(ByteOrder::Little, 62, PID);
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&path), 500);
        (case.make)(count, &mut dump, &mut profile, tools::text(&path));
        // All of the dump is of the time of the profile.
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

    /// How many seconds of a processor the program takes for them.
    fn cost(&self) -> f64 {
        let output = self.folder.path().join("out.data");
        processor_time(&self.input, &output, self.options, "1 jitdump, ")
    }
}

/// Runs the program, which must succeed and say something; returns the seconds of a processor that it took. More than
/// some minutes are too many to wait for.
fn processor_time(input: &Path, output: &Path, options: &[&str], expected: &str) -> f64 {
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

#[test]
fn hostile_files_take_no_longer_than_their_size_justifies() {
    /// What is quadratic takes a hundred times as long for ten times as much.
    const TIMES: u64 = 10;
    const AT_MOST: f64 = 4.0;
    /// Less than that can't be measured.
    const LEAST: f64 = 0.1;
    for case in CASES {
        let less = Made::new(case, 3000).cost();
        let made = Made::new(case, 3000 * TIMES);
        let more = made.cost();
        let allowed = less.max(LEAST) * TIMES as f64 * AT_MOST;
        assert!(
            more < allowed,
            "{}: {less} s, but {more} s for {} bytes",
            case.name,
            made.bytes
        );
    }
}

#[test]
#[ignore = "takes minutes; prints what each kind of file takes"]
fn hostile_files_take_no_longer_than_ordinary_ones() {
    const COUNT: u64 = 300_000;
    let mut ordinary: HashMap<&str, Made> = HashMap::new();
    let mut slow = Vec::new();
    for case in CASES {
        let like = CASES.iter().find(|other| other.name == case.like).unwrap();
        let like = ordinary
            .entry(like.name)
            .or_insert_with(|| Made::new(like, COUNT));
        let made = Made::new(case, COUNT);
        // In turns, since others may use the processor as well.
        let mut pairs = [(); 3].map(|()| (made.cost(), like.cost()));
        pairs.sort_by(|(one, like), (other, other_like)| (one / like).total_cmp(&(other / other_like)));
        let (seconds, ordinary_seconds) = pairs[1];
        let ratio = seconds / made.bytes as f64 / (ordinary_seconds / like.bytes as f64);
        println!(
            "| {} | {:.0} MB | {seconds:.2} s | {ratio:.1} times {} |",
            case.name,
            made.bytes as f64 / 1e6,
            case.like
        );
        if ratio > case.at_most {
            slow.push(case.name);
        }
    }
    assert!(slow.is_empty(), "{slow:?}");
}

/// A function of a MiB that is moved a thousand times would become a thousand objects of a MiB.
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
    assert!(said.contains("functions left out, since the objects"), "{said}");
    let sizes = objects_of(&output)
        .into_iter()
        .map(|path| fs::metadata(path).unwrap().len());
    let (least, size) = (64 << 20, sizes.sum::<u64>());
    assert!((least..3 * least).contains(&size), "{size}");
}

/// A GiB that takes no room on the disk.
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
    // Zeros, and one record of all.
    for start in [
        header.clone(),
        [&header[..], &[UNKNOWN as u8, 0, 0, 0, 0, 0, 0, 0x40]].concat(),
    ] {
        let mut file = File::create(&path).unwrap();
        file.write_all(&start).unwrap();
        file.set_len((1 << 30) + header.len() as u64).unwrap();
        let seconds = processor_time(&input, &folder.path().join("out.data"), &[], "1 jitdump, ");
        assert!(seconds < 30.0, "{seconds}");
    }
}
