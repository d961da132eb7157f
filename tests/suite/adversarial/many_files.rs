//! Unrealistic numbers of jitdumps and perf maps, existing and missing.

use std::fs;
use std::path::Path;

use jitdump::ByteOrder;

use super::counts;
use crate::support::hostile::cases::CODE;
use crate::support::hostile::many_files;
use crate::support::profile::ProfileWriter;
use crate::support::reports::inject_with_summary;
use crate::support::{diagnostics, has_code, inject, scratch, tools};

/// First of a range of process IDs that no running process has.
const FIRST: u32 = 5_000_000;

/// More files than the limit.
const MANY: u32 = 50_100;

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
        many_files::write_dump(&dumps.join(format!("jit-{pid}.dump")), pid);
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
        many_files::write_dump(&files.join(format!("jit-{pid}.dump")), pid);
    }
    let (said, summary) = inject_with_summary(&input, &output, &["--jitdump", tools::text(&files)]);
    assert!(has_code(&said, "JI205"), "{said}");
    assert_eq!(counts(&summary, "JI205"), [100]);
    assert_eq!(diagnostics(&summary, "JI205")[0]["file"], tools::text(&files));
    assert!(said.contains("50000 jitdumps, 50000 functions loaded"), "{said}");
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
    assert_eq!(unused.len(), 100);
    assert!(
        unused
            .iter()
            .all(|diagnostic| is_in_folder(diagnostic["file"].as_str().unwrap()))
    );
    assert!(said.contains("50000 perf maps, 50000 symbols"), "{said}");
    assert!(said.contains("100 in JIT code, 100 of them named"), "{said}");
    assert!(said.lines().count() < 300, "{}", said.lines().count());
}

#[test]
fn dumps_that_are_not_there_are_counted() {
    const COUNT: u32 = 100_000;
    let folder = scratch();
    let input = folder.path().join("perf.data");
    let output = folder.path().join("out.data");
    for is_one_process in [true, false] {
        fs::write(&input, many_files::absent_dumps(FIRST, COUNT, is_one_process)).unwrap();
        let (said, summary) = inject_with_summary(&input, &output, &[]);
        assert!(has_code(&said, "JI216"), "{said}");
        assert_eq!(counts(&summary, "JI213"), [1; 10]);
        assert_eq!(counts(&summary, "JI216"), [99_990]);
    }
}

/// By their names, each process may have any of the dumps.
#[test]
fn dumps_of_one_name_are_not_compared_for_ever() {
    let folder = scratch();
    let (input, dumps) = many_files::dumps_of_one_name(folder.path(), FIRST, 3000);
    let options = ["--jitdump", tools::text(&dumps)];
    let said = inject(&input, &folder.path().join("out.data"), &options);
    assert!(has_code(&said, "JI219"), "{said}");
}
