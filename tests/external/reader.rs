//! Compares the plain reader of the other tests with perf.

use crate::support::perf::{self, UNKNOWN};
use crate::support::{inject_into, lives, reader, scratch};

#[test]
fn the_plain_reader_finds_the_names_that_perf_finds() {
    for number in 0..8 {
        let folder = scratch();
        let made = lives::make(folder.path(), number);
        let output = inject_into(folder.path(), &made.profile, &["--layout", "image"]);
        let plain = reader::samples(&output).into_iter().map(|sample| perf::Sample {
            pid: sample.pid,
            time: sample.time,
            frames: sample
                .frames
                .into_iter()
                .map(|frame| frame.unwrap_or(UNKNOWN.into()))
                .collect(),
        });
        assert_eq!(perf::stacks(&output, &[]), plain.collect::<Vec<_>>());
    }
}
