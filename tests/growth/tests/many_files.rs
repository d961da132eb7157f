//! Very many jitdumps, existing and missing.

use std::fs;

use crate::support::hostile::CaseFiles;
use crate::support::hostile::cases::CASES;
use crate::support::hostile::many_files::{absent_dumps, dumps_of_one_name};
use crate::support::{assert_linear, inject, tools};

/// First of a range of process IDs that no running process has.
const FIRST: u32 = 5_000_000;

/// Each is looked for in several folders. These are listed once instead of searched for each file.
#[test]
fn dumps_that_are_not_there_make_little_more_work_than_an_ordinary_file() {
    const COUNT: u64 = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("perf.data"), folder.path().join("out.data"));
    let ordinary = CaseFiles::new(&CASES[0], COUNT);
    let usual = inject(&ordinary.input, &output, &[], "1 jitdump, ") as f64 / ordinary.bytes as f64;
    for (is_one_process, at_most) in [(true, 10.0), (false, 20.0)] {
        let work = |count: u64| {
            let profile = absent_dumps(FIRST, count as u32, is_one_process);
            fs::write(&input, &profile).unwrap();
            (inject(&input, &output, &[], "warning[JI216]: "), profile.len())
        };
        assert_linear("dumps that are not there", COUNT / 10, |count| work(count).0);
        let (blocks, bytes) = work(COUNT);
        let times = blocks as f64 / bytes as f64 / usual;
        println!("{times:.1} times ordinary");
        assert!(times < at_most, "{times:.1} times ordinary");
    }
}

/// By their names, each process may have any of the dumps. So many pairs are tried, and no more.
#[test]
fn dumps_of_one_name_are_compared_to_a_limit() {
    let work = |count: u32| {
        let folder = tempfile::tempdir().unwrap();
        let (input, dumps) = dumps_of_one_name(folder.path(), FIRST, count);
        let options = ["--jitdump", tools::text(&dumps)];
        inject(
            &input,
            &folder.path().join("out.data"),
            &options,
            "warning[JI219]: ",
        )
    };
    let (less, more) = (work(1500), work(3000));
    println!("{less} and {more} blocks");
    assert!(more < 3 * less, "{less} blocks, but {more} for twice the dumps");
}
