//! Damaged, cut and packed logs of Mono's profiler against sound ones.

use std::collections::BTreeMap;

use jitinject::runtime::mono::{Fault, Log, packed};
use jitinject::tally::Seen;

use crate::mono::{events, real, report};
use crate::support::capture;
use crate::support::capture::gunzipped;
use crate::support::mono_log::{self, Writer};

fn damaged(name: &str) -> Vec<u8> {
    gunzipped(&capture::folder("mono-bad").join(format!("bad-{name}.mlpd.gz")))
}

#[test]
fn what_is_no_readable_log_is_told_apart() {
    for (name, expected) in [
        (
            "magic",
            "is not a log of Mono's profiler: it starts with [00, 5a, 50, 4d], not with 01 5a 50 4d",
        ),
        ("ver18", "has data version 18; known are 1 to 17"),
        (
            "ptr16",
            "is of a program with pointers of 16 bytes; known are 4 and 8",
        ),
        ("flags1", "has unknown flags 0x1"),
        ("trunc-hdr", "ends after 20 bytes, inside its header"),
    ] {
        assert_eq!(
            Log::parse(&damaged(name)).unwrap_err().to_string(),
            expected,
            "{name}"
        );
    }
}

/// How many events each buffer of the sound log has that the damaged ones were made from.
fn sound_counts() -> Vec<usize> {
    let file = real("mono-jit");
    let log = Log::parse(&file).unwrap();
    log.buffers().map(|buffer| buffer.events().count()).collect()
}

#[test]
fn damage_costs_no_more_than_the_buffer_it_is_in() {
    let counts = sound_counts();
    let all: usize = counts.iter().sum();
    for (name, lost, fault, count, first_offset) in [
        // The buffer's four events: no header, no values.
        ("bufid", counts[0], Fault::SkippedBytes, 208, 100),
        ("evtype15", counts[0], Fault::UnknownEvent, 1, 148),
        ("leb-overlong", counts[0], Fault::LongNumber, 1, 148),
        ("len-huge", 0, Fault::BadSize, 1, 100),
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
        assert_eq!(faults, [(fault, Seen { count, first_offset })], "{name}");
        let others = events.faults().iter().count() - 1;
        // Where the overlong size was, the events end and the next buffer starts.
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
        // The last event before a buffer ends before its header.
        assert!(
            (expected..=expected + 1).contains(&count),
            "{cut}: {count}, not {expected}"
        );
        let tail = found.faults().count(Fault::CutTail);
        assert!(tail <= 1 && found.faults().iter().all(|(fault, _)| fault == Fault::CutTail));
    }
    for (name, events) in [("noheaderbuf", 0), ("trunc-bufhdr", 0), ("trunc-buf", 2)] {
        let file = damaged(name);
        let mut found = Log::parse(&file).unwrap().events();
        assert_eq!(found.by_ref().count(), events, "{name}");
        let expected = u64::from(name != "noheaderbuf");
        assert_eq!(found.faults().count(Fault::CutTail), expected, "{name}");
    }
}

fn unpacked(file: &[u8]) -> (Vec<u8>, packed::Unpacked) {
    let mut out = Vec::new();
    let unpacked = packed::unpack(file, packed::largest(file.len() as u64), &mut out).unwrap();
    assert_eq!(unpacked.size, out.len() as u64);
    (out, unpacked)
}

#[test]
fn packed_logs_are_known_and_unpacked() {
    let file = real("mono-alloc-zip");
    assert!(packed::is_log(&file) && packed::is_log(&file[..200]) && packed::is_log(&real("mono-alloc")));
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
    let (log, told) = unpacked(&file);
    assert!(log == real("mono-jit")[..log.len()]);
    assert_eq!(log.len(), 50_964, "as zlib");
    assert_eq!(told.faults.count(Fault::CutPacking), 1);
    let mut events = Log::parse(&log).unwrap().events();
    assert!(events.by_ref().count() > 500);
    assert_eq!(events.faults().count(Fault::CutTail), 1);
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
            "zeros behind a header",
            gzip(&[&header[..], &zeros].concat()),
            2 << 20,
        ),
        (
            "a buffer of zeros",
            gzip(&[&header[..], b"\x01LPM\0\0\0\x3f", &zeros].concat()),
            u64::MAX,
        ),
    ] {
        let (out, told) = unpacked(&bomb);
        let largest = packed::largest(bomb.len() as u64).min(largest);
        assert!(out.len() as u64 <= largest, "{name}: {}", out.len());
        let stopped = told.faults.count(Fault::UnpackedJunk) + told.faults.count(Fault::TooMuch);
        assert_eq!(stopped, 1, "{name}: {:?}", told.faults);
    }
    let sound = real("mono-jit");
    let (out, told) = unpacked(&[gzip(&sound), b"more".to_vec()].concat());
    assert!(out == sound && told.faults.count(Fault::BehindPacking) == 1);
    let mut torn = gzip(&sound);
    let middle = torn.len() / 2;
    torn[middle..middle + 100].fill(0xff);
    let (out, told) = unpacked(&torn);
    assert!(
        !out.is_empty() && told.faults.count(Fault::BadPacking) + told.faults.count(Fault::UnpackedJunk) == 1
    );
    // Damage of the log that was packed is no damage of the packing.
    let (out, told) = unpacked(&gzip(&damaged("bufid")));
    assert!(out == damaged("bufid") && told.faults.is_empty());
}

#[test]
fn counts_and_strings_and_numbers_that_lie_end_their_buffer_only() {
    let mut number = Vec::new();
    mono_log::unsigned(&mut number, u64::MAX >> 1);
    for (content, fault) in [
        ([&[0x31, 0], &number[..]].concat(), Fault::BadCount),
        (vec![0x31, 0, 3, 0, 0, 0], Fault::BadCount),
        ([&[0x10, 0, 0, 0, 8], &number[..]].concat(), Fault::BadCount),
        (vec![0x02, 0, 5, 0, b'n', b'a'], Fault::UnendedString),
        ([&[0x23][..], &[0x80; 10], &[1]].concat(), Fault::LongNumber),
        ([&[0x23][..], &[0x80; 9], &[2]].concat(), Fault::LongNumber),
        (vec![0x23, 0x80], Fault::CutEvent),
        (vec![0x47, 0, 1, 9, 0, 0], Fault::UnknownCounter),
        (vec![0xc1, 0], Fault::UnknownEvent),
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
                Seen {
                    count: 1,
                    first_offset
                }
            )],
            "{content:x?}"
        );
        assert!(!fault.to_string().is_empty());
    }
}
