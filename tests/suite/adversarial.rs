//! Files that are made to be slow: whatever is in them, the time is that of an ordinary file of their size.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use jitinject::bytes::ByteOrder;

use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::{inject, objects_of, said, scratch, tools};

const PID: u32 = 7;
const CODE: u64 = 0x4000_0000;
/// When the profile ends, in nanoseconds.
const LAST: u64 = 1 << 62;

/// What is made of each kind, `count` times over.
struct Case {
    name: &'static str,
    make: fn(u64, &mut DumpWriter, &mut ProfileWriter),
}

const fn case(name: &'static str, make: fn(u64, &mut DumpWriter, &mut ProfileWriter)) -> Case {
    Case { name, make }
}

const MOVE: u32 = 1;
const DEBUG_INFO: u32 = 2;
const CLOSE: u32 = 3;
const UNKNOWN: u32 = 77;

const CASES: [Case; 17] = [
    case("ordinary", |count, dump, profile| {
        for at in 0..count {
            dump.load(
                1000 + at,
                CODE + at * 64,
                at,
                format!("fn_{at}").as_bytes(),
                &[0x90; 48],
            );
            profile.sample(PID, 1000 + at, &[CODE + at % 16 * 64 + 4], None);
        }
    }),
    case("functions at one address", |count, dump, profile| {
        for at in 0..count {
            dump.load(1000 + at, CODE, at, b"f", &[0x90; 48]);
            if at % 64 == 0 {
                profile.sample(PID, 1000 + at, &[CODE + 4], None);
            }
        }
    }),
    case("functions that overlap the next ones", |count, dump, profile| {
        for at in 0..count {
            dump.load(1000 + at, CODE + at, at, b"f", &[0x90; 48]);
        }
        profile.sample(PID, 1000 + count, &[CODE + count], None);
    }),
    case("smallest records", |count, dump, _| {
        for at in 0..4 * count {
            dump.record(if at % 2 == 0 { UNKNOWN } else { CLOSE }, 1000 + at, b"");
        }
    }),
    case("functions without code", |count, dump, _| {
        for at in 0..count {
            dump.load(1000 + at, CODE + at, at, b"", b"");
        }
    }),
    case("lines that wait for ever", |count, dump, _| {
        for at in 0..2 * count {
            dump.record(DEBUG_INFO, 1000, &[at.to_le_bytes(), [0; 8]].concat());
        }
        for at in 0..count {
            dump.load(1000 + at, CODE + at * 8, at, b"", &[0x90]);
            dump.record(DEBUG_INFO, 1000, &[(1 << 40 | at).to_le_bytes(), [0; 8]].concat());
        }
    }),
    case("names that are all the same", |count, dump, _| {
        let name = [b'n'; 1000];
        for at in 0..count / 8 {
            dump.load(1000 + at, CODE + at * 64, 0, &name, &[0x90; 48]);
        }
    }),
    case("zeros", |count, dump, _| {
        dump.bytes.resize(100 * count as usize, 0)
    }),
    case("zeros and then something", |count, dump, _| {
        dump.bytes.resize(100 * count as usize, 0);
        dump.bytes.extend_from_slice(b"junk");
    }),
    case("ones", |count, dump, _| {
        dump.bytes.resize(100 * count as usize, 0xff)
    }),
    case("a record that may start at every byte", |count, dump, _| {
        for _ in 0..50 * count {
            dump.bytes.extend_from_slice(&[16, 0]);
        }
    }),
    case("records that are cut short", |count, dump, _| {
        for at in 0..2 * count {
            let start = dump.bytes.len();
            dump.record(MOVE, 1000 + at, &[0; 48]);
            dump.bytes.truncate(start + 30);
        }
    }),
    case("records that all reach to the end", |count, dump, _| {
        let start = dump.bytes.len();
        for at in 0..count {
            dump.load(1000 + at, CODE, at, b"", &[0x90; 7]);
        }
        let end = dump.bytes.len();
        for at in (start..end).step_by((end - start) / count as usize) {
            dump.bytes[at + 4..at + 8].copy_from_slice(&((end - at) as u32 - 5).to_le_bytes());
        }
    }),
    case("one function moved again and again", |count, dump, profile| {
        dump.load(900, CODE, 1, b"f", &[0x90; 64]);
        for at in 0..count {
            dump.moved(1000 + at, CODE + at % 2 * 4096, CODE + (at + 1) % 2 * 4096, 64, 1);
        }
        profile.sample(PID, 1000 + count, &[CODE + 4], None);
    }),
    case("forks, each of the one before", |count, dump, profile| {
        dump.load(900, CODE, 1, b"f", &[0x90; 64]);
        for at in 0..count as u32 {
            profile.fork(PID + at + 1, PID + at, 1000 + u64::from(at));
        }
        profile.sample(PID + count as u32, 1000 + count, &[CODE + 4], None);
    }),
    case("forks, all of one", |count, dump, profile| {
        dump.load(900, CODE, 1, b"f", &[0x90; 64]);
        for at in 0..count as u32 {
            profile.fork(PID + at + 1, PID, 1000 + u64::from(at));
            profile.mmap2(PID + at + 1, CODE, 4096, 0, "//anon", 1000 + u64::from(at));
        }
        profile.sample(PID + count as u32, 1000 + count, &[CODE + 4], None);
    }),
    case("maps over code", |count, dump, profile| {
        for at in 0..64 {
            dump.load(900 + at, CODE + at * 128, at, b"f", &[0x90; 64]);
        }
        for at in 0..count {
            profile.mmap2(PID, CODE, 64 * 128, 0, "//anon", 1000 + at);
            profile.sample(PID, 1000 + at, &[CODE + at % 64 * 128], None);
        }
    }),
];

/// Makes a case and runs the program on it; returns how many bytes it had, and how many seconds of a processor
/// that took.
fn cost(case: &Case, count: u64) -> (u64, f64) {
    let folder = scratch();
    let path = folder.path().join(format!("jit-{PID}.dump"));
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, PID);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    (case.make)(count, &mut dump, &mut profile);
    // All of the dump is of the time of the profile.
    profile.sample(PID, LAST, &[CODE], None);
    let input = folder.path().join("perf.data");
    let profile = profile.finish();
    fs::write(&path, &dump.bytes).unwrap();
    fs::write(&input, &profile).unwrap();
    let seconds = processor_time(&input, &folder.path().join("out.data"));
    ((dump.bytes.len() + profile.len()) as u64, seconds)
}

/// Runs the program, which must succeed; returns the seconds of a processor that it took.
fn processor_time(input: &Path, output: &Path) -> f64 {
    let ran = Command::new("bash")
        .args(["-c", "\"$@\" && times", "bash", env!("CARGO_BIN_EXE_jitinject")])
        .args([Path::new("-i"), input, Path::new("-o"), output])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(said(&ran).contains("1 jitdump, "), "{}", said(&ran));
    // Its own, and then its children's: "0m0.003s 0m0.002s" each.
    let text = String::from_utf8(ran.stdout).unwrap();
    let times = text.lines().nth(1).unwrap().split_whitespace();
    let seconds = times.map(|time| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
    });
    seconds.sum()
}

#[test]
fn hostile_files_take_no_longer_than_their_size_justifies() {
    /// What is quadratic takes a hundred times as long for ten times as much.
    const TIMES: u64 = 10;
    const AT_MOST: f64 = 4.0;
    /// Less than that can't be measured.
    const LEAST: f64 = 0.1;
    for case in &CASES {
        let (_, less) = cost(case, 3000);
        let (bytes, more) = cost(case, 3000 * TIMES);
        let allowed = less.max(LEAST) * TIMES as f64 * AT_MOST;
        assert!(
            more < allowed,
            "{}: {less} s, but {more} s for {bytes} bytes",
            case.name
        );
    }
}

#[test]
#[ignore = "takes minutes; prints what each kind of file takes"]
fn hostile_files_take_no_longer_than_ordinary_ones() {
    let mut ordinary = 0.0;
    for case in &CASES {
        let (bytes, seconds) = cost(case, 1_000_000);
        let rate = seconds / bytes as f64;
        if case.name == "ordinary" {
            ordinary = rate;
        }
        println!(
            "{:44} {:6.1} MB {seconds:6.2} s, {:5.2} times as long for each byte",
            case.name,
            bytes as f64 / 1e6,
            rate / ordinary
        );
    }
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
        let seconds = processor_time(&input, &folder.path().join("out.data"));
        assert!(seconds < 30.0, "{seconds}");
    }
}
