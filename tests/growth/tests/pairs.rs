//! Pairs of a jitdump and a profile that are designed to be slow.

use crate::support::hostile::CaseFiles;
use crate::support::hostile::cases::CASES;
use crate::support::{assert_linear, inject};

/// Also prints the work for each case.
#[test]
fn hostile_files_make_no_more_work_than_their_size_justifies() {
    const COUNT: u64 = 600;
    /// Against the first case, of ordinary files.
    const MAX_FACTOR: f64 = 60.0;
    let mut usual = None;
    for case in CASES.iter().filter(|case| !case.has_limit) {
        let work = |count: u64| {
            let files = CaseFiles::new(case, count);
            let output = files.folder.path().join("out.data");
            let blocks = inject(&files.input, &output, case.options, "1 jitdump, ");
            let per_byte = blocks as f64 / files.bytes as f64;
            if count > COUNT {
                println!(
                    "| {} | {:.1} MB | {per_byte:.0} |",
                    case.name,
                    files.bytes as f64 / 1e6
                );
                let factor = per_byte / *usual.get_or_insert(per_byte);
                assert!(
                    factor < MAX_FACTOR,
                    "{}: {factor:.0} times the usual work",
                    case.name
                );
            }
            blocks
        };
        assert_linear(case.name, COUNT, work);
    }
}
