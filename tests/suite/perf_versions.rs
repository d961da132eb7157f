//! Profiles of older and newer versions of perf, and what those can read of the output.

use std::path::{Path, PathBuf};

use crate::support::model::{self, word};
use crate::support::profile::ProfileWriter;
use crate::support::{inject, perf, scratch, tools};
use jitinject::bytes::ByteOrder;

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

/// A profile of two samples.
fn two_samples(order: ByteOrder) -> ProfileWriter {
    let mut profile = ProfileWriter::new(order);
    profile.comm(1, "program", false, 1);
    profile.sample(1, 2, &[0x1000], None);
    profile.sample(1, 3, &[0x2000], None);
    profile
}

/// Writes a profile, has the program read it and write another, and returns that.
fn through(folder: &Path, input: &[u8], more: &[&str]) -> PathBuf {
    let path = folder.join("perf.data");
    std::fs::write(&path, input).unwrap();
    let output = folder.join("out.data");
    assert_eq!(inject(&path, &output, &[&["-q"], more].concat()), "");
    output
}

/// How many samples Debian's perf, which is one of the older ones, finds.
fn samples(profile: &Path) -> usize {
    let shown = perf::perf(&["script", "-f", "-F", "ip", "-G", "-i", tools::text(profile)]);
    let lines = shown.lines().map(str::trim);
    lines.filter(|line| matches!(*line, "1000" | "2000")).count()
}

/// `PERF_ATTR_SIZE_VER9`, 16 bytes more than perf 6.1 has, and one that no perf has yet.
#[test]
fn attributes_that_end_in_zeros_do_not_shut_out_older_readers() {
    for size in [144, 256] {
        for order in ORDERS {
            let folder = scratch();
            let mut profile = two_samples(order);
            profile.attr_size = size;
            for input in [profile.finish(), profile.finish_pipe()] {
                let output = through(folder.path(), &input, &[]);
                assert_eq!(samples(&output), 2, "{size} {order:?}");
            }
        }
    }
}

/// Ids follow an attribute at the size that it says it has.
#[test]
fn attributes_in_pipes_are_shortened_before_their_ids() {
    let folder = scratch();
    let mut profile = two_samples(ByteOrder::Little);
    profile.sample_type |= crate::support::profile::field::IDENTIFIER;
    profile.ids = vec![0x71, 0x72];
    profile.attr_size = 144;
    profile.records.clear();
    profile.sample(1, 2, &[0x1000], None);
    let (file, pipe) = (profile.finish(), profile.finish_pipe());
    let expected = model::parse(&file);
    for input in [file, pipe] {
        let path = folder.path().join("perf.data");
        std::fs::write(&path, input).unwrap();
        let ran = crate::support::attempt(
            &path,
            Path::new("-"),
            &["-q", "--elf-dir", tools::text(folder.path())],
        );
        // clockid is the last field that is not 0
        let (size, order) = (96, ByteOrder::Little);
        assert_eq!(word(&ran.stdout, order, 16) >> 48, 8 + size + 8);
        assert_eq!(word(&ran.stdout, order, 24) >> 32, size);
        let back = model::parse(&std::fs::read(through(folder.path(), &ran.stdout, &[])).unwrap());
        assert!(back.attrs == expected.attrs && back.ids == expected.ids && back.records == expected.records);
    }
}
