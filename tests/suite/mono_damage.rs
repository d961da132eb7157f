//! Compares damaged, truncated and compressed logs of Mono's profiler with intact ones.

use std::collections::BTreeMap;

use jitdump::FaultCount;
use jitinject::Issue;
use jitinject::internals::traces::detect::is_mono_log;
use jitinject::internals::traces::mono::format::{Log, packed};

use crate::mono::{events, real, report};
use crate::support::capture;
use crate::support::capture::gunzipped;
use crate::support::mono_log::{self, Writer};

/// Reads a damaged log.
fn damaged(name: &str) -> Vec<u8> {
    gunzipped(&capture::folder("mono-bad").join(format!("bad-{name}.mlpd.gz")))
}

#[test]
fn each_kind_of_unreadable_log_has_an_error() {
    for (name, issue, values) in [
        ("magic", Issue::NotAMonoLog, &["00 5a 50 4d"][..]),
        ("ver18", Issue::MonoDataVersion, &["18", "17"]),
        ("ptr16", Issue::MonoPointerSize, &["16"]),
        ("flags1", Issue::MonoFlags, &["0x1"]),
        ("trunc-hdr", Issue::MonoTooShort, &["20"]),
    ] {
        let error = Log::parse(&damaged(name)).unwrap_err();
        assert_eq!(error.issue, issue, "{name}");
        let message = error.message();
        assert!(
            values.iter().all(|value| message.contains(value)),
            "{name}: {message}"
        );
    }
}

/// Returns the number of events in each buffer of the log that the damaged ones were made from.
fn intact_counts() -> Vec<usize> {
    let file = real("mono-jit");
    let log = Log::parse(&file).unwrap();
    log.buffers().map(|buffer| buffer.events().count()).collect()
}

#[test]
fn damage_costs_no_more_than_the_buffer_it_is_in() {
    let counts = intact_counts();
    let all: usize = counts.iter().sum();
    for (name, lost, fault, count, first_offset) in [
        // All events of the first buffer, because its header or its first event is damaged.
        ("bufid", counts[0], Issue::MonoSkippedBytes, 208, 100),
        ("evtype15", counts[0], Issue::MonoUnknownEvent, 1, 148),
        ("leb-overlong", counts[0], Issue::MonoLongNumber, 1, 148),
        ("len-huge", 0, Issue::MonoBadSize, 1, 100),
    ] {
        let file = damaged(name);
        let log = Log::parse(&file).unwrap();
        let mut events = log.events();
        assert_eq!(
            events.by_ref().count(),
            all - lost,
            "{name}: {:?}",
            events.faults()
        );
        let faults: Vec<_> = events.faults().iter().filter(|(it, _)| *it == fault).collect();
        assert_eq!(faults, [(fault, FaultCount { count, first_offset })], "{name}");
        let others = events.faults().iter().count() - 1;
        // A buffer with too large a size ends with its events, where the next one starts.
        assert_eq!(others, 0, "{name}: {:?}", events.faults());
    }
}

#[test]
fn a_log_that_is_cut_anywhere_keeps_all_whole_events() {
    let file = real("mono-jit");
    let whole = events(&file);
    let header = Log::parse(&file).unwrap().header().size;
    for cut in (header..file.len()).step_by(97).chain(header..header + 400) {
        let log = Log::parse(&file[..cut]).unwrap();
        let mut found = log.events();
        let count = found.by_ref().count();
        let offsets = whole.iter().map(|event| event.offset);
        let ends = offsets.skip(1).chain([file.len() as u64]);
        let expected = ends.take_while(|&end| end <= cut as u64).count();
        // The last event of a buffer ends before the header of the next one.
        assert!(
            (expected..=expected + 1).contains(&count),
            "{cut}: {count}, not {expected}"
        );
        let tail = found.faults().count(Issue::MonoCutTail);
        assert!(
            tail <= 1
                && found
                    .faults()
                    .iter()
                    .all(|(fault, _)| fault == Issue::MonoCutTail)
        );
    }
    for (name, events) in [("noheaderbuf", 0), ("trunc-bufhdr", 0), ("trunc-buf", 2)] {
        let file = damaged(name);
        let mut found = Log::parse(&file).unwrap().events();
        assert_eq!(found.by_ref().count(), events, "{name}");
        let expected = u64::from(name != "noheaderbuf");
        assert_eq!(found.faults().count(Issue::MonoCutTail), expected, "{name}");
    }
}

/// Unpacks a compressed log; returns it with its size and the faults of the compressed data.
fn unpacked(file: &[u8]) -> (Vec<u8>, packed::Unpacked) {
    let mut out = Vec::new();
    let unpacked = packed::unpack(file, packed::max_unpacked_size(file.len() as u64), &mut out).unwrap();
    assert_eq!(unpacked.size, out.len() as u64);
    (out, unpacked)
}

#[test]
fn packed_logs_are_known_and_unpacked() {
    let file = real("mono-alloc-zip");
    assert!(is_mono_log(&file) && is_mono_log(&file[..200]) && is_mono_log(&real("mono-alloc")));
    let (log, unpacked_log) = unpacked(&file);
    assert!(unpacked_log.faults.is_empty());
    let kinds = |file: &[u8]| {
        let mut kinds: BTreeMap<_, u64> = BTreeMap::new();
        for event in events(file) {
            let name = format!("{:?}", event.kind);
            let name = name.split([' ', '(']).next().unwrap().to_owned();
            *kinds.entry(name).or_default() += 1;
        }
        kinds
    };
    let (zipped, plain) = (kinds(&log), kinds(&real("mono-alloc")));
    assert!(zipped.keys().eq(plain.keys()));
    assert_eq!(zipped["Allocation"], plain["Allocation"]);
    for (kind, count) in zipped {
        assert!(
            count.abs_diff(plain[&kind]) <= 4,
            "{kind}: {count}, {}",
            plain[&kind]
        );
    }
    assert!(report("mono-alloc-zip").contains("100360 bytes in 1996 objects"));
}

#[test]
fn a_cut_packed_log_gives_what_can_be_unpacked() {
    let file = std::fs::read(capture::folder("mono-bad").join("bad-trunc-gz.mlpd")).unwrap();
    let (log, unpacked_log) = unpacked(&file);
    assert!(log == real("mono-jit")[..log.len()]);
    assert_eq!(log.len(), 50_964, "as zlib unpacks");
    assert_eq!(unpacked_log.faults.count(Issue::MonoCutGzip), 1);
    let mut events = Log::parse(&log).unwrap().events();
    assert!(events.by_ref().count() > 500);
    assert_eq!(events.faults().count(Issue::MonoCutTail), 1);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn unpacking_stops_at_what_no_log_has() {
    let header = Writer::new(17).finish();
    let zeros = vec![0; 200 << 20];
    for (name, bomb, largest) in [
        ("zeros", gzip(&zeros), 1 << 17),
        (
            "zeros after a header",
            gzip(&[&header[..], &zeros].concat()),
            2 << 20,
        ),
        (
            "a buffer of zeros",
            gzip(&[&header[..], b"\x01LPM\0\0\0\x3f", &zeros].concat()),
            u64::MAX,
        ),
    ] {
        let (out, unpacked_bomb) = unpacked(&bomb);
        let largest = packed::max_unpacked_size(bomb.len() as u64).min(largest);
        assert!(out.len() as u64 <= largest, "{name}: {}", out.len());
        let faults = unpacked_bomb.faults;
        let stopped = faults.count(Issue::MonoInvalidGzipContent) + faults.count(Issue::MonoGzipTooLarge);
        assert_eq!(stopped, 1, "{name}: {faults:?}");
    }
    let intact = real("mono-jit");
    let (out, with_more) = unpacked(&[gzip(&intact), b"more".to_vec()].concat());
    assert!(out == intact && with_more.faults.count(Issue::MonoTrailingGzipBytes) == 1);
    let mut torn = gzip(&intact);
    let middle = torn.len() / 2;
    torn[middle..middle + 100].fill(0xff);
    let (out, unpacked_torn) = unpacked(&torn);
    let faults = unpacked_torn.faults;
    let damage = faults.count(Issue::MonoBadGzip) + faults.count(Issue::MonoInvalidGzipContent);
    assert!(!out.is_empty() && damage == 1, "{faults:?}");
    // Damage in the log is not damage of the compressed data.
    let (out, unpacked_log) = unpacked(&gzip(&damaged("bufid")));
    assert!(out == damaged("bufid") && unpacked_log.faults.is_empty());
}

#[test]
fn counts_and_strings_and_numbers_that_lie_end_their_buffer_only() {
    let mut number = Vec::new();
    mono_log::unsigned(&mut number, u64::MAX >> 1);
    for (content, fault) in [
        ([&[0x31, 0], &number[..]].concat(), Issue::MonoBadCount),
        (vec![0x31, 0, 3, 0, 0, 0], Issue::MonoBadCount),
        ([&[0x10, 0, 0, 0, 8], &number[..]].concat(), Issue::MonoBadCount),
        (vec![0x02, 0, 5, 0, b'n', b'a'], Issue::MonoUnterminatedString),
        ([&[0x23][..], &[0x80; 10], &[1]].concat(), Issue::MonoLongNumber),
        ([&[0x23][..], &[0x80; 9], &[2]].concat(), Issue::MonoLongNumber),
        (vec![0x23, 0x80], Issue::MonoCutEvent),
        (vec![0x47, 0, 1, 9, 0, 0], Issue::MonoUnknownCounter),
        (vec![0xc1, 0], Issue::MonoUnknownEvent),
    ] {
        let good = [0x23, 1, 0];
        let mut file = Writer::new(17).finish();
        let start = file.len() as u64;
        for content in [&[&good[..], &content].concat()[..], &good] {
            file.extend(b"\x01LPM");
            file.extend((content.len() as u32).to_le_bytes());
            file.extend([0; 40]);
            file.extend(content);
        }
        let mut found = Log::parse(&file).unwrap().events();
        assert_eq!(found.by_ref().count(), 2, "{content:x?}");
        let first_offset = start + 48 + 3;
        let faults: Vec<_> = found.faults().iter().collect();
        assert_eq!(
            faults,
            [(
                fault,
                FaultCount {
                    count: 1,
                    first_offset
                }
            )],
            "{content:x?}"
        );
        assert!(fault.to_string().starts_with(fault.id()));
    }
}
