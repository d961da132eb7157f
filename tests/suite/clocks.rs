//! Clocks of profiles and dumps: brought together, and said on what grounds.

use std::path::Path;

use jitinject::bytes::ByteOrder;

use crate::support::dump::DumpWriter;
use crate::support::generator::{Expected, Generated, Plan, generate};
use crate::support::profile::ProfileWriter;
use crate::support::shown::assert_named;
use crate::support::{attempt, inject, model, said, scratch};

const SECOND: u64 = 1_000_000_000;
/// How far the dumps' clock is behind the profile's, unless a test says otherwise.
const DISTANCE: u64 = 123 * SECOND + 456_789;

/// A profile of one process and its dump.
fn generated(folder: &Path) -> Generated {
    let plan = Plan {
        functions: 300,
        samples: 2000,
        places: 60,
        ..Plan::default()
    };
    generate(folder, &plan)
}

/// Changes the flags and the times of a dump, that of its header as well.
fn change_dump(folder: &Path, flags: u64, header_time: u64, time: impl Fn(u64) -> u64) {
    let path = folder.join("jit-5000.dump");
    let mut dump = std::fs::read(&path).unwrap();
    dump[24..32].copy_from_slice(&header_time.to_le_bytes());
    dump[32..40].copy_from_slice(&flags.to_le_bytes());
    let mut at = 40;
    while at < dump.len() {
        let old = model::word(&dump, ByteOrder::Little, at + 8);
        dump[at + 8..at + 16].copy_from_slice(&time(old).to_le_bytes());
        at += (model::word(&dump, ByteOrder::Little, at) >> 32) as usize;
    }
    std::fs::write(path, dump).unwrap();
}

/// Changes the clock of a profile, and adds records in front of the others, and features.
fn change_profile(path: &Path, clock: Option<u32>, first: &[(u32, Vec<u8>)], features: Vec<(u32, Vec<u8>)>) {
    let parts = model::parse(&std::fs::read(path).unwrap());
    let mut profile = ProfileWriter::new(parts.order);
    profile.clock = clock;
    profile.features = features;
    for (kind, body) in first {
        profile.record(*kind, 0, body);
    }
    profile.records.extend(parts.records.concat());
    std::fs::write(path, profile.finish()).unwrap();
}

/// Runs the program, and checks that every frame is named; returns what was said.
fn check(folder: &Path, generated: &Generated, more: &[&str]) -> String {
    let output = folder.join("out.data");
    let said = inject(&generated.profile, &output, &[&["-v"], more].concat());
    assert_named(&output, &generated.expected);
    said
}

/// The content of a TIME_CONV record: a counter that counts twice a nanosecond from `zero` on.
fn time_conversion(zero: u64, short: Option<(u64, u64)>) -> Vec<u8> {
    let mut body = Vec::new();
    for word in [10u64, 512, zero] {
        body.extend_from_slice(&word.to_le_bytes());
    }
    if let Some((cycles, mask)) = short {
        for word in [cycles, mask] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        body.extend_from_slice(&[1, 1, 0, 0, 0, 0, 0, 0]);
    }
    body
}

#[test]
fn cycle_counts_become_times_as_the_profile_says() {
    const TIME_CONV: u32 = 79;
    const ARCH_TIMESTAMP: u64 = 1;
    const ZERO: u64 = 777 * SECOND;
    let cycles = |time: u64| (time - ZERO) * 2;
    let mask = (1u64 << 36) - 1;
    // A counter of 36 bits that ran over twice since a count that is known in full.
    let base = cycles(1000 * SECOND) - (1 << 20);
    for (short, mask) in [(None, u64::MAX), (Some((base, mask)), mask)] {
        let folder = scratch();
        let generated = generated(folder.path());
        change_dump(folder.path(), ARCH_TIMESTAMP, cycles(1000 * SECOND), |time| {
            cycles(time) & mask
        });
        let conversion = (TIME_CONV, time_conversion(ZERO, short));
        change_profile(
            &generated.profile,
            None,
            std::slice::from_ref(&conversion),
            Vec::new(),
        );
        let said = check(folder.path(), &generated, &[]);
        assert!(
            said.contains("clock: cycle counts, converted by the profile's TIME_CONV record"),
            "{said}"
        );
        // They are times of perf's own clock, and of no other.
        change_profile(&generated.profile, Some(1), &[], Vec::new());
        let output = folder.path().join("out.data");
        let said = inject(&generated.profile, &output, &[]);
        assert!(
            said.contains("recorded on clock 1 instead; record without -k"),
            "{said}"
        );
    }
}

#[test]
fn a_distance_that_is_given_is_used() {
    let folder = scratch();
    let generated = generated(folder.path());
    for (clock, sign) in [(None, 1), (Some(1), 1), (Some(4), -1)] {
        let offset = sign * DISTANCE as i64;
        change_profile(&generated.profile, clock, &[], Vec::new());
        change_dump(folder.path(), 0, 0, |time| (time as i64 - offset) as u64);
        let said = check(
            folder.path(),
            &generated,
            &["--clock-offset", &offset.to_string()],
        );
        assert!(said.contains("clock: moved by "), "{said}");
        assert!(said.contains("123.000457 s, as was asked for"), "{said}");
        change_dump(folder.path(), 0, 0, |time| (time as i64 + offset) as u64);
    }
}

#[test]
fn other_clocks_are_aligned_by_a_header_written_with_the_marker() {
    const BOOTTIME: u32 = 7;
    for clock in [None, Some(BOOTTIME)] {
        let folder = scratch();
        let generated = generated(folder.path());
        change_profile(&generated.profile, clock, &[], Vec::new());
        // The marker is mapped a nanosecond after the process has started.
        change_dump(folder.path(), 0, 1000 * SECOND + 1 - DISTANCE, |time| {
            time - DISTANCE
        });
        let said = check(folder.path(), &generated, &[]);
        assert!(
            said.contains("its header was written when the marker was mapped"),
            "{said}"
        );
    }
}

/// A process that had mapped its dump before the profile began. Its memory is mapped as it is needed.
fn attached_late(folder: &Path) -> Generated {
    const REGION: u64 = 0x7000_0000;
    let path = folder.join("jit-5000.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, 5000);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.clock = None;
    profile.comm(5000, "server", true, 0);
    profile.mmap2(5000, 0x6000_0000, 0x1000, 0, path.to_str().unwrap(), 0);
    profile.mmap2(5000, REGION, 0x1000, REGION, "//anon", 0);
    // Long before the profile, at an address that is used again while it is recorded.
    dump.load(10 * SECOND, REGION, 0, b"first", &[0x90; 64]);
    let mut expected = Vec::new();
    for number in 1..20u64 {
        let start = REGION + number * 0x1_0000;
        let mapped = 1000 * SECOND + number * SECOND / 10;
        profile.mmap2(5000, start, 0x1_0000, start, "//anon", mapped);
        for function in 0..5u64 {
            let time = mapped + 20_000 + function * 100_000;
            let address = start + function % 3 * 0x100;
            let name = format!("f{number}_{function}");
            dump.load(
                time - DISTANCE,
                address,
                number * 8 + function,
                name.as_bytes(),
                &[0x90; 64],
            );
            profile.sample(5000, time + 40_000, &[address + 4], None);
            expected.push(Expected {
                pid: 5000,
                time: time + 40_000,
                frames: vec![name],
            });
        }
    }
    std::fs::write(path, dump.bytes).unwrap();
    let profile_path = folder.join("perf.data");
    std::fs::write(&profile_path, profile.finish()).unwrap();
    Generated {
        profile: profile_path,
        expected,
    }
}

#[test]
fn without_a_marker_the_maps_of_code_tell_how_far_apart_clocks_are() {
    let folder = scratch();
    let generated = attached_late(folder.path());
    let said = check(folder.path(), &generated, &[]);
    assert!(
        said.contains("no function can have been loaded before its memory was mapped"),
        "{said}"
    );
}

#[test]
fn samples_before_every_load_are_told_with_the_way_out() {
    let folder = scratch();
    let generated = generated(folder.path());
    // Within the recording, but after all samples.
    change_dump(folder.path(), 0, 0, |_| 1009 * SECOND + 999_999_000);
    let parts = model::parse(&std::fs::read(&generated.profile).unwrap());
    let mut profile = ProfileWriter::new(parts.order);
    profile.records = parts.records.concat();
    profile.comm(5000, "end", false, 1020 * SECOND);
    std::fs::write(&generated.profile, profile.finish()).unwrap();
    let ran = attempt(
        &generated.profile,
        &folder.path().join("out.data"),
        &["--fail-under", "1"],
    );
    let told = said(&ran);
    assert!(
        told.contains("so its clock must be another than the profile's; record with perf record -k mono"),
        "{told}"
    );
    assert!(
        told.contains("give the distance with --clock-offset (2000)"),
        "{told}"
    );
    assert_eq!(ran.status.code(), Some(3));
    // After the recording it can't have been written, or its clock is another.
    change_dump(folder.path(), 0, 0, |time| time + 500 * SECOND);
    let told = inject(&generated.profile, &folder.path().join("out.data"), &[]);
    assert!(
        told.contains("its clock is none of the profile's: it was written after this recording ended"),
        "{told}"
    );
}
