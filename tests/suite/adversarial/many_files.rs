//! More files than anybody has: dumps and perf maps, there or not.

use std::fs;
use std::path::Path;

use jitinject::bytes::ByteOrder;

use super::cases::{CASES, CODE, LAST};
use super::{Made, processor_time};
use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::{inject, scratch, tools};

/// Numbers that no process here has.
const FIRST: u32 = 5_000_000;

/// More than are used.
const MANY: u32 = 50_100;

/// What nobody waits for any longer, in seconds.
const TOO_LONG: f64 = 60.0;

fn write_dump(path: &Path, pid: u32) {
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, pid);
    dump.load(1000, CODE, 0, b"named", &[0x90; 64]);
    fs::write(path, dump.bytes).unwrap();
}

/// A profile of processes that each have memory, and a sample in that of the first ones.
fn profile(pids: impl Iterator<Item = u32>) -> ProfileWriter {
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    for (at, pid) in pids.enumerate() {
        profile.mmap2(pid, CODE, 4096, 0, "//anon", 500);
        if at < 100 {
            profile.sample(pid, 2000, &[CODE + 4], None);
        }
    }
    profile
}

/// Of a folder with the dumps of a whole year, those of the profile are taken.
#[test]
fn a_few_dumps_are_found_among_any_number_of_others() {
    let folder = scratch();
    let dumps = folder.path().join("dumps");
    fs::create_dir(&dumps).unwrap();
    for pid in FIRST..FIRST + MANY {
        write_dump(&dumps.join(format!("jit-{pid}.dump")), pid);
    }
    let input = folder.path().join("perf.data");
    let wanted = [FIRST + 5, FIRST + MANY / 2, FIRST + MANY - 1];
    fs::write(&input, profile(wanted.into_iter()).finish()).unwrap();
    let output = folder.path().join("out.data");
    let said = inject(&input, &output, &["--jitdump", tools::text(&dumps)]);
    assert!(said.contains("3 in JIT code, 3 of them named"), "{said}");
}

#[test]
fn of_more_files_than_can_be_mapped_as_many_as_can_be_are_used() {
    let folder = scratch();
    let files = folder.path().join("files");
    fs::create_dir(&files).unwrap();
    let input = folder.path().join("perf.data");
    let pids = FIRST..FIRST + MANY;
    fs::write(&input, profile(pids.clone()).finish()).unwrap();
    let output = folder.path().join("out.data");
    for pid in pids.clone() {
        write_dump(&files.join(format!("jit-{pid}.dump")), pid);
    }
    let said = inject(&input, &output, &["--jitdump", tools::text(&files)]);
    assert!(
        said.contains("files in") && said.contains("were not looked at"),
        "{said}"
    );
    assert!(said.contains("49999 jitdumps, 49999 functions loaded"), "{said}");
    assert!(said.contains("100 in JIT code, 100 of them named"), "{said}");
    assert!(said.lines().count() < 300, "{}", said.lines().count());
    fs::remove_dir_all(&files).unwrap();
    fs::create_dir(&files).unwrap();
    for pid in pids {
        let path = files.join(format!("perf-{pid}.map"));
        fs::write(path, format!("{CODE:x} 40 named\n")).unwrap();
    }
    let said = inject(&input, &output, &["--perf-map", tools::text(&files)]);
    assert!(
        said.contains("is not used: 50000 other jitdumps and perf maps are"),
        "{said}"
    );
    assert!(said.contains("100 in JIT code, 100 of them named"), "{said}");
    assert!(said.lines().count() < 300, "{}", said.lines().count());
}

/// Each is looked for in several folders, which are listed rather than asked for each.
#[test]
fn dumps_that_are_not_there_take_little_longer_than_an_ordinary_file_and_are_counted() {
    const COUNT: u32 = 100_000;
    /// Each is a map and a warning of its own.
    const OF_ONE_PROCESS: f64 = 5.0;
    /// And each process has its tables in memory.
    const OF_MANY: f64 = 10.0;
    let ordinary = Made::new(&CASES[0], COUNT.into());
    let folder = scratch();
    let input = folder.path().join("perf.data");
    let output = folder.path().join("out.data");
    for (is_one_process, at_most) in [(true, OF_ONE_PROCESS), (false, OF_MANY)] {
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        for number in FIRST..FIRST + COUNT {
            let pid = if is_one_process { FIRST } else { number };
            let path = format!("/nowhere/jit-{number}.dump");
            profile.mmap2(pid, 0x6000_0000, 4096, 0, &path, number.into());
        }
        let profile = profile.finish();
        fs::write(&input, &profile).unwrap();
        let expected = "jitdumps of other processes that could not be had either (99990)";
        let seconds = processor_time(&input, &output, &[], expected) / profile.len() as f64;
        let usual = ordinary.cost() / ordinary.bytes as f64;
        let times = seconds / usual;
        println!("{times:.1} times ordinary");
        assert!(times < at_most, "{times:.1} times ordinary");
    }
}

/// Each process may have any of the dumps, so far as their names tell.
#[test]
fn dumps_of_one_name_are_not_compared_for_ever() {
    const COUNT: u32 = 3000;
    let folder = scratch();
    let dumps = folder.path().join("dumps");
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    for pid in FIRST..FIRST + COUNT {
        let container = dumps.join(pid.to_string());
        fs::create_dir_all(&container).unwrap();
        write_dump(&container.join("jit-1.dump"), 1);
        profile.mmap2(pid, 0x6000_0000, 4096, 0, "/tmp/jit-1.dump", 500);
    }
    profile.sample(FIRST, LAST, &[CODE], None);
    let input = folder.path().join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    let options = ["--jitdump", tools::text(&dumps)];
    let expected = "files of the same name are not compared with all processes";
    let seconds = processor_time(&input, &output, &options, expected);
    assert!(seconds < TOO_LONG, "{seconds}");
}
