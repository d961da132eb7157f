//! Pairs of a jitdump and a profile that are designed to be slow.

use crate::support::hostile::CaseFiles;
use crate::support::hostile::cases::CASES;
use crate::support::{assert_linear, inject};

/// Also prints the work for each case.
#[test]
fn hostile_files_make_no_more_work_than_their_size_justifies() {
    const COUNT: u64 = 600;
    /// The first case, of ordinary files, has 6.
    const MAX_BLOCKS_PER_BYTE: f64 = 200.0;
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
                assert!(
                    per_byte < MAX_BLOCKS_PER_BYTE,
                    "{}: {per_byte} blocks per byte",
                    case.name
                );
            }
            blocks
        };
        assert_linear(case.name, COUNT, work);
    }
}
