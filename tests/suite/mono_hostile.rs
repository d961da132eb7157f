//! Damaged logs of Mono's profiler, through the whole program: each has a message of its own, and what is sound in it is
//! used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jitinject::runtime::mono::{Kind, Log};

use crate::mono::real;
use crate::support::capture::gunzipped;
use crate::support::mono_sums::{alone, of, sum};
use crate::support::{attempt, capture, inject, said, scratch, shown, tools};

/// Unpacks a damaged log.
fn damaged(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join("trace.mlpd");
    let packed = capture::folder("mono-bad").join(format!("bad-{name}.mlpd.gz"));
    std::fs::write(&path, gunzipped(&packed)).unwrap();
    path
}

/// The process of the recording, which the damaged logs are not of.
const RECORDED: [&str; 2] = ["--pid", "25926"];

#[test]
fn what_is_no_readable_log_is_refused_and_left_out_beside_a_profile() {
    for (name, expected) in [
        ("ver18", "has data version 18; known are 1 to 17"),
        (
            "ptr16",
            "is of a program with pointers of 16 bytes; known are 4 and 8",
        ),
        ("flags1", "has unknown flags 0x1"),
        ("trunc-hdr", "ends after 20 bytes, inside its header"),
        ("magic", "it starts with [00, 5a, 50, 4d], not with 01 5a 50 4d"),
    ] {
        let folder = scratch();
        let log = damaged(folder.path(), name);
        let output = folder.path().join("out.data");
        let ran = attempt(&log, &output, &[]);
        let told = said(&ran);
        assert_eq!(ran.status.code(), Some(1), "{name}: {told}");
        // Without its first bytes, nothing tells that it is a log.
        let of_input = if name == "magic" {
            "not a perf.data file"
        } else {
            expected
        };
        assert!(
            told.starts_with("jitinject: error: ") && told.contains(of_input),
            "{told}"
        );
        let errors = told.lines().filter(|line| line.starts_with("jitinject: error: "));
        assert!(told.contains("trace.mlpd") && errors.count() == 1, "{told}");
        assert!(!output.exists());

        let recorded = capture::profile("mono-joined");
        let more = [&["--mono-log", tools::text(&log)], &RECORDED[..]].concat();
        let told = inject(&recorded, &output, &more);
        assert!(told.contains(expected) && told.contains(": not used"), "{told}");
        assert_eq!(shown::events(&output), shown::events(&recorded));
    }
}

#[test]
fn damage_in_a_log_is_told_whether_it_stands_alone_or_beside_a_profile() {
    for (name, expected, functions) in [
        (
            "bufid",
            "bytes that are no buffers, passed over (208, the first at 0x64)",
            1032,
        ),
        (
            "evtype15",
            "events of unknown types, dropped with the rest of their buffers (at 0x94)",
            1032,
        ),
        (
            "leb-overlong",
            "events with numbers of more than 64 bits, dropped with the rest of their buffers (at 0x94)",
            1032,
        ),
        (
            "len-huge",
            "buffers larger than the rest of the file, read up to the next ones (at 0x64)",
            1032,
        ),
        (
            "trunc-buf",
            "last buffer cut off by the end of the file (at 0x64)",
            0,
        ),
        (
            "trunc-bufhdr",
            "last buffer cut off by the end of the file (at 0x64)",
            0,
        ),
    ] {
        let folder = scratch();
        let log = damaged(folder.path(), name);
        let output = folder.path().join("out.data");
        let beside = [&["--mono-log", tools::text(&log)], &RECORDED[..]].concat();
        for told in [
            inject(&log, &output, &[]),
            inject(&capture::profile("mono-joined"), &output, &beside),
        ] {
            assert!(told.contains(&format!("trace.mlpd: {expected}")), "{told}");
            // That nothing has a name, where the log has lost it all, is a warning of its own.
            let warnings = told.matches("warning: ").count() - told.matches("warning: no sample").count();
            assert_eq!(warnings, 1, "{told}");
            assert!(
                told.contains(&format!("{functions} functions loaded")),
                "{name}: {told}"
            );
        }
    }
}

#[test]
fn a_log_that_is_cut_before_its_first_event_has_none() {
    let folder = scratch();
    let log = damaged(folder.path(), "noheaderbuf");
    let told = inject(&log, &folder.path().join("out.data"), &[]);
    assert!(
        !told.contains("warning"),
        "a killed program leaves such a log: {told}"
    );
    assert!(
        told.contains("no log has events that can become samples"),
        "{told}"
    );
}

#[test]
fn a_cut_packed_log_gives_names_up_to_the_cut() {
    let folder = scratch();
    let log = capture::folder("mono-bad").join("bad-trunc-gz.mlpd");
    let told = inject(&log, &folder.path().join("out.data"), &["--all"]);
    assert!(
        told.contains("gzip data cut off by the end of the file (at 0xc714)"),
        "{told}"
    );
    assert!(
        told.contains("last buffer cut off by the end of the file"),
        "{told}"
    );
    assert!(told.contains("439 functions loaded"), "{told}");
}

#[test]
fn events_that_no_log_has_are_told_with_the_option_for_mono() {
    let folder = scratch();
    let log = capture::folder("mono-jit").join("trace.mlpd");
    let all = "alloc,exception,contention,gc,heap,sample,calls";
    let told = inject(&log, &folder.path().join("out.data"), &["--events", all]);
    for (event, option) in [
        ("alloc", "alloc"),
        ("exception", "exception"),
        ("contention", "monitor"),
        ("heap", "heapshot"),
        ("sample", "sample"),
        ("calls", "calls"),
    ] {
        let expected = format!("no log has events for {event}; start Mono with --profile=log:{option}");
        assert!(told.contains(&expected), "{told}");
    }
    let more = [
        "--mono-log",
        tools::text(&log),
        "--splice-stacks",
        "--pid",
        "25926",
    ];
    let told = inject(
        &capture::profile("mono-joined"),
        &folder.path().join("out.data"),
        &more,
    );
    assert!(
        told.contains(
            "tells of no calls, so no call chain was replaced; start Mono with --profile=log:jit,calls"
        ),
        "{told}"
    );
}

/// The bytes that were allocated in each buffer of a log, by the place of the buffer.
fn allocated(log: &[u8]) -> BTreeMap<u64, (u64, u64)> {
    let log = Log::parse(log).unwrap();
    let mut sums = BTreeMap::new();
    for buffer in log.buffers() {
        for event in buffer.events() {
            if let Kind::Allocation { size, .. } = event.kind {
                let sum: &mut (u64, u64) = sums.entry(buffer.offset).or_default();
                *sum = (sum.0 + size, sum.1 + 1);
            }
        }
    }
    sums
}

/// The sums of all but some buffers.
fn without(sums: &BTreeMap<u64, (u64, u64)>, buffer: u64) -> (u64, u64) {
    let left = sums.iter().filter(|&(&offset, _)| offset != buffer);
    left.fold((0, 0), |sum, (_, more)| (sum.0 + more.0, sum.1 + more.1))
}

#[test]
fn what_is_before_and_behind_damage_is_used() {
    let sound = real("mono-alloc");
    let sums = allocated(&sound);
    assert!(sums.len() > 3, "{sums:?}");
    let folder = scratch();
    let path = folder.path().join("trace.mlpd");
    for &buffer in sums.keys() {
        // The mark of the buffer, the first event in it, a number in it.
        for (place, bytes) in [(0, &[0; 4][..]), (48, &[0xff]), (49, &[0xff; 12])] {
            let mut file = sound.clone();
            let place = usize::try_from(buffer).unwrap() + place;
            file[place..place + bytes.len()].copy_from_slice(bytes);
            std::fs::write(&path, file).unwrap();
            let told = inject(&path, &folder.path().join("out.data"), &["--events", "alloc"]);
            assert!(told.contains("warning: "), "{told}");
            let shown = shown::events(&folder.path().join("out.data"));
            assert_eq!(sum(&of(&shown, "alloc-bytes")), without(&sums, buffer), "{place}");
        }
    }
    let (&last, _) = sums.last_key_value().unwrap();
    std::fs::write(&path, &sound[..usize::try_from(last).unwrap() + 20]).unwrap();
    let shown = alone(&path, &["--events", "alloc"]);
    assert_eq!(sum(&of(&shown, "alloc-bytes")), without(&sums, last));
}
