//! Unrealistic numbers of jitdumps and perf maps, existing and missing.

use std::fs;
use std::path::Path;

use jitinject::bytes::ByteOrder;

use super::cases::{CASES, CODE, LAST};
use super::{CaseFiles, counts, cpu_seconds, read_json};
use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::reports::inject_with_summary;
use crate::support::{diagnostics, has_code, inject, scratch, tools};

/// First of a range of process IDs that no running process has.
const FIRST: u32 = 5_000_000;

/// More files than the limit.
const MANY: u32 = 50_100;

/// Longest acceptable CPU time, in seconds.
const TOO_LONG: f64 = 60.0;

fn write_dump(path: &Path, pid: u32) {
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, pid);
    dump.load(1000, CODE, 0, b"named", &[0x90; 64]);
    fs::write(path, dump.bytes).unwrap();
}

/// Returns a profile in which each process has executable memory, and the first 100 have a sample there.
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

/// A folder with 50,100 jitdumps, three of them of processes in the profile.
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
    let (said, summary) = inject_with_summary(&input, &output, &["--jitdump", tools::text(&files)]);
    assert!(has_code(&said, "JI205"), "{said}");
    assert_eq!(counts(&summary, "JI205"), [101]);
    assert_eq!(diagnostics(&summary, "JI205")[0]["file"], tools::text(&files));
    assert!(said.contains("49999 jitdumps, 49999 functions loaded"), "{said}");
    assert!(said.contains("100 in JIT code, 100 of them named"), "{said}");
    assert!(said.lines().count() < 300, "{}", said.lines().count());
    fs::remove_dir_all(&files).unwrap();
    fs::create_dir(&files).unwrap();
    for pid in pids {
        let path = files.join(format!("perf-{pid}.map"));
        fs::write(path, format!("{CODE:x} 40 named\n")).unwrap();
    }
    let (said, summary) = inject_with_summary(&input, &output, &["--perf-map", tools::text(&files)]);
    assert!(has_code(&said, "JI204"), "{said}");
    let is_in_folder = |file: &str| Path::new(file).starts_with(&files);
    let unused = diagnostics(&summary, "JI204");
    assert_eq!(unused.len(), 101);
    assert!(
        unused
            .iter()
            .all(|diagnostic| is_in_folder(diagnostic["file"].as_str().unwrap()))
    );
    assert!(said.contains("49999 perf maps, 49999 symbols"), "{said}");
    assert!(said.contains("100 in JIT code, 100 of them named"), "{said}");
    assert!(said.lines().count() < 300, "{}", said.lines().count());
}

/// Each is looked for in several folders. These are listed once instead of searched for each file.
#[test]
fn dumps_that_are_not_there_take_little_longer_than_an_ordinary_file_and_are_counted() {
    const COUNT: u32 = 100_000;
    /// Each jitdump has a mapping and a diagnostic.
    const OF_ONE_PROCESS: f64 = 10.0;
    /// Each process has tables in memory as well.
    const OF_MANY: f64 = 20.0;
    let ordinary = CaseFiles::new(&CASES[0], COUNT.into());
    let folder = scratch();
    let input = folder.path().join("perf.data");
    let output = folder.path().join("out.data");
    let summary = folder.path().join("summary.json");
    let options = ["--summary", tools::text(&summary)];
    for (is_one_process, at_most) in [(true, OF_ONE_PROCESS), (false, OF_MANY)] {
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        for number in FIRST..FIRST + COUNT {
            let pid = if is_one_process { FIRST } else { number };
            let path = format!("/nowhere/jit-{number}.dump");
            profile.mmap2(pid, 0x6000_0000, 4096, 0, &path, number.into());
        }
        let profile = profile.finish();
        fs::write(&input, &profile).unwrap();
        let seconds = cpu_seconds(&input, &output, &options, "warning[JI216]: ") / profile.len() as f64;
        let usual = ordinary.cost() / ordinary.bytes as f64;
        let times = seconds / usual;
        println!("{times:.1} times ordinary");
        assert!(times < at_most, "{times:.1} times ordinary");
        let summary = read_json(&summary);
        assert_eq!(counts(&summary, "JI213"), [1; 10]);
        assert_eq!(counts(&summary, "JI216"), [99_990]);
    }
}

/// By their names, each process may have any of the dumps.
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
    let seconds = cpu_seconds(&input, &output, &options, "warning[JI219]: ");
    assert!(seconds < TOO_LONG, "{seconds}");
}
