//! Damaged XRay traces: intact records are read, and damage is reported.

use jitdump::{ByteOrder, Tally};
use jitinject::Issue;
use jitinject::internals::traces::xray::format::{RecordKind, Trace, TraceMode};

use crate::support::capture;
use crate::support::xray_lines::real;
use crate::support::xray_trace::{Buffer, Record, Writer};

/// Returns all records with their offsets and ticks, in the order of the file, and all faults.
fn read<'a>(file: &'a [u8]) -> (Vec<(u64, u64, RecordKind<'a>)>, Tally<Issue>) {
    let trace = Trace::parse(file).unwrap();
    let index = trace.index();
    let mut faults = index.faults.clone();
    let mut all = Vec::new();
    for buffer in index.buffers() {
        let mut records = trace.records(buffer);
        all.extend(records.by_ref().map(|it| (it.offset, it.tick, it.kind)));
        faults.merge(records.faults());
    }
    all.sort_by_key(|&(offset, ..)| offset);
    (all, faults)
}

/// Returns each fault with its count and first offset.
fn fault_list(faults: &Tally<Issue>) -> Vec<(Issue, u64, u64)> {
    faults
        .iter()
        .map(|(fault, seen)| (fault, seen.count, seen.first_offset))
        .collect()
}

fn bad(name: &str) -> Vec<u8> {
    std::fs::read(capture::folder("xray-bad").join(name)).unwrap()
}

/// End of the first buffer in the recording that the damaged traces were made from.
const FIRST_END: u64 = 32 + 16 + 1742;

#[test]
fn headers_that_are_refused_say_why() {
    let error = |file: &[u8]| Trace::parse(file).unwrap_err().issue;
    assert_eq!(error(&bad("bad-ver6.xray")), Issue::XrayVersion);
    assert_eq!(error(&bad("bad-type2.xray")), Issue::XrayType);
    assert_eq!(error(&bad("bad-hdr.xray")), Issue::XrayTooShort);
    assert_eq!(error(&[]), Issue::XrayEmpty);
    assert_eq!(error(&[5, 0]), Issue::XrayTooShort);
    assert_eq!(error(b"PERFILE2"), Issue::NotAnXrayTrace);
    // Basic mode has no version 4.
    assert_eq!(error(&[0, 4, 0, 0]), Issue::XrayVersion);
}

#[test]
fn versions_and_types_below_100_are_those_of_a_newer_xray() {
    let error = |file: &[u8]| Trace::parse(file).unwrap_err().issue;
    assert_eq!(error(&[99, 0, 1, 0]), Issue::XrayVersion);
    assert_eq!(error(&[100, 0, 1, 0]), Issue::NotAnXrayTrace);
    assert_eq!(error(&[1, 0, 99, 0]), Issue::XrayType);
    assert_eq!(error(&[1, 0, 100, 0]), Issue::NotAnXrayTrace);
}

#[test]
fn damaged_files_keep_what_is_whole() {
    let intact = real("xray-fdr-pie14");
    let (good, faults) = read(&intact);
    assert!(faults.is_empty());
    let of_first = good.iter().filter(|it| it.0 < FIRST_END).count();
    let check = |name: &str, expected: &[(u64, u64, RecordKind<'_>)], faults: &[(Issue, u64, u64)]| {
        let file = bad(name);
        let (records, found) = read(&file);
        assert_eq!(fault_list(&found), faults, "{name}");
        assert!(
            records == expected,
            "{name}: {} of {}",
            records.len(),
            expected.len()
        );
    };
    let moved = |distance: u64| {
        let mut moved = good.clone();
        for (offset, ..) in moved.iter_mut().filter(|it| it.0 >= FIRST_END) {
            *offset += distance;
        }
        moved
    };
    let index = Trace::parse(&intact).unwrap().index();
    let last_buffer = index.buffers().iter().map(|it| it.offset).max().unwrap();
    check("bad-hdronly.xray", &[], &[]);
    check("bad-freq0.xray", &good, &[]);
    check(
        "bad-trunc-5.xray",
        &good[..good.len() - 1],
        &[(Issue::XrayCutTail, 1, last_buffer)],
    );
    check("bad-trunc-boundary.xray", &good[..of_first], &[]);
    let of_cut = good.iter().filter(|it| it.0 + 8 <= 919).count();
    check(
        "bad-trunc-mid.xray",
        &good[..of_cut],
        &[(Issue::XrayCutTail, 1, 32)],
    );
    check("bad-extents+8.xray", &good, &[(Issue::XrayBadSize, 1, 32)]);
    check("bad-extents-huge.xray", &good, &[(Issue::XrayBadSize, 1, 32)]);
    let mut without_last = good.clone();
    without_last.remove(of_first - 1);
    check(
        "bad-extents-8.xray",
        &without_last,
        &[(Issue::XraySkippedBytes, 8, FIRST_END - 8)],
    );
    check(
        "bad-noise-between.xray",
        &moved(24),
        &[(Issue::XraySkippedBytes, 24, FIRST_END)],
    );
    // A record of the first buffer has an unknown kind.
    let unknown = bad("bad-kind127.xray")
        .iter()
        .position(|&byte| byte == 0xff)
        .unwrap() as u64;
    assert!(unknown < FIRST_END);
    let whole: Vec<_> = good
        .iter()
        .filter(|it| it.0 < unknown || it.0 >= FIRST_END)
        .copied()
        .collect();
    assert!(whole.len() > good.len() / 2);
    check(
        "bad-kind127.xray",
        &whole,
        &[(Issue::XrayUnknownKind, 1, unknown)],
    );
    let without_pid: Vec<_> = good[..of_first]
        .iter()
        .map(|it| (it.0 - 16, it.1, it.2))
        .collect();
    check("bad-nopid.xray", &without_pid, &[]);
    let file = bad("bad-nopid.xray");
    let index = Trace::parse(&file).unwrap().index();
    assert!(
        index
            .buffers()
            .iter()
            .all(|it| it.process.is_none() && it.wall.is_some())
    );
    assert_eq!(
        Trace::parse(&bad("bad-freq0.xray")).unwrap().header().frequency,
        0
    );
}

#[test]
fn what_is_left_of_older_buffers_in_version_1_is_never_read() {
    let (stale, intact) = (bad("v1-stale-filler.xray"), real("xray-fdr-v1-synth"));
    let (records, faults) = read(&stale);
    assert!(faults.is_empty());
    assert_eq!(records, read(&intact).0);
    // If it is truncated, nothing is missing.
    let cut = &stale[..stale.len() - 3];
    let (cut, faults) = read(cut);
    assert!(faults.is_empty() && cut == records);
}

/// Returns a record of processor 0.
fn record(tick: u64, kind: RecordKind<'static>) -> Record<'static> {
    Record { tick, cpu: 0, kind }
}

/// Returns a trace with two buffers of one thread, and the offsets of their records. Each buffer has four records, the
/// second one an event.
fn made(version: u16, endian: ByteOrder) -> (Vec<u8>, [Vec<u64>; 2]) {
    let mut writer = Writer::new(TraceMode::Fdr, version, endian, 512);
    let buffer = |wall| {
        let records = vec![
            record(100, RecordKind::Enter { function: 5 }),
            record(110, RecordKind::Custom { payload: b"12345678" }),
            record(120, RecordKind::Enter { function: 6 }),
            record(130, RecordKind::Exit { function: 6 }),
        ];
        Buffer {
            process: 1,
            thread: 2,
            wall: (wall, 0),
            records,
        }
    };
    let offsets = [buffer(1), buffer(2)].map(|it| writer.buffer(&it));
    (writer.finish(), offsets)
}

/// Changes the trace of [`made`]; returns the indexes of the records that are still read, and each fault with its
/// count.
fn left(
    version: u16,
    endian: ByteOrder,
    change: impl Fn(&mut Vec<u8>, &[Vec<u64>; 2]),
) -> (Vec<usize>, Vec<(Issue, u64)>) {
    let (mut file, offsets) = made(version, endian);
    change(&mut file, &offsets);
    let (records, faults) = read(&file);
    let all: Vec<u64> = offsets.concat();
    let numbers = records
        .iter()
        .filter_map(|it| all.iter().position(|&at| at == it.0))
        .collect();
    (
        numbers,
        faults.iter().map(|(fault, seen)| (fault, seen.count)).collect(),
    )
}

/// Returns the versions in which each buffer has its size, with both byte orders.
fn forms() -> impl Iterator<Item = (u16, ByteOrder)> {
    (2..=5).flat_map(|version| [(version, ByteOrder::Little), (version, ByteOrder::Big)])
}

#[test]
fn a_record_that_cannot_be_costs_itself_or_the_rest_of_its_buffer() {
    let all: Vec<usize> = (0..8).collect();
    for (version, endian) in forms() {
        let action = left(version, endian, |file, offsets| {
            let bits = if endian == ByteOrder::Little {
                4 << 1
            } else {
                4 << 4
            };
            file[offsets[0][2] as usize] |= bits;
        });
        assert_eq!(
            action,
            (vec![0, 1, 3, 4, 5, 6, 7], vec![(Issue::XrayUnknownRecord, 1)])
        );
        let size = |value: u32| {
            left(version, endian, |file, offsets| {
                endian.set_u32(file, offsets[0][1] as usize + 1, value);
            })
        };
        assert_eq!(
            size(u32::MAX),
            (vec![0, 4, 5, 6, 7], vec![(Issue::XrayBadEventSize, 1)])
        );
        assert_eq!(
            size(1 << 30),
            (vec![0, 4, 5, 6, 7], vec![(Issue::XrayCutRecord, 1)])
        );
        assert_eq!(size(8), (all.clone(), Vec::new()));
        // Offset of the record with the first tick, from the first buffer.
        let at_tick = if version >= 3 { 64 } else { 48 };
        let kind = |value: u8| left(version, endian, |file, _| file[32 + at_tick] = value);
        assert_eq!(kind(0), (vec![4, 5, 6, 7], vec![(Issue::XrayNoTick, 1)]));
        let other = if endian == ByteOrder::Little {
            99 << 1 | 1
        } else {
            99 | 0x80
        };
        assert_eq!(kind(other), (vec![4, 5, 6, 7], vec![(Issue::XrayNoTick, 1)]));
    }
}

#[test]
fn a_buffer_ends_where_the_next_one_starts_whatever_its_size_says() {
    let all: Vec<usize> = (0..8).collect();
    for (version, endian) in forms() {
        let with_size = |value: u64| {
            left(version, endian, |file, _| {
                let mut bytes = Vec::new();
                endian.write_u64(&mut bytes, value);
                file[33..41].copy_from_slice(&bytes);
            })
        };
        let (file, _) = made(version, endian);
        let size = (file.len() as u64 - 32) / 2 - 16;
        assert_eq!(with_size(size), (all.clone(), Vec::new()));
        for wrong in [size + 1, size + 16, 500, 513, 1 << 20, 1 << 60, u64::MAX] {
            assert_eq!(
                with_size(wrong),
                (all.clone(), vec![(Issue::XrayBadSize, 1)]),
                "{wrong}"
            );
        }
        assert_eq!(
            with_size(size - 8),
            (vec![0, 1, 2, 4, 5, 6, 7], vec![(Issue::XraySkippedBytes, 8)])
        );
        assert_eq!(
            with_size(0),
            (vec![4, 5, 6, 7], vec![(Issue::XraySkippedBytes, size)])
        );
        // A buffer without its mark is skipped.
        let between = left(version, endian, |file, _| file[32] = 0);
        assert_eq!(
            between,
            (vec![4, 5, 6, 7], vec![(Issue::XraySkippedBytes, size + 16)])
        );
    }
}

#[test]
fn buffers_of_fixed_size_are_found_by_it() {
    let all: Vec<usize> = (0..8).collect();
    for endian in [ByteOrder::Little, ByteOrder::Big] {
        assert_eq!(left(1, endian, |_, _| {}), (all.clone(), Vec::new()));
        let first = left(1, endian, |file, _| file[32] = 0);
        assert_eq!(first, (vec![4, 5, 6, 7], vec![(Issue::XraySkippedBytes, 512)]));
        let without_size = left(1, endian, |file, _| file[16..24].fill(0));
        assert_eq!(without_size, (all.clone(), vec![(Issue::XrayBadSize, 2)]));
        let cut = left(1, endian, |file, offsets| file.truncate(offsets[1][3] as usize));
        assert_eq!(cut, (all[..7].to_vec(), vec![(Issue::XrayCutTail, 1)]));
        // An unknown kind costs only the rest of its buffer.
        let kind = left(1, endian, |file, offsets| file[offsets[0][1] as usize] = 0xff);
        assert_eq!(kind, (vec![0, 4, 5, 6, 7], vec![(Issue::XrayUnknownKind, 1)]));
    }
}

#[test]
fn fixed_sizes_below_48_bytes_are_not_those_of_buffers() {
    for endian in [ByteOrder::Little, ByteOrder::Big] {
        let with_size = |size| left(1, endian, |file, _| endian.set_u64(file, 16, size));
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(with_size(47), (all, vec![(Issue::XrayBadSize, 2)]));
        // With this size, the records are outside of the buffers.
        let (records, faults) = with_size(48);
        assert!(records.is_empty(), "{records:?}");
        assert!(
            faults.iter().all(|&(fault, _)| fault != Issue::XrayBadSize),
            "{faults:?}"
        );
    }
}

#[test]
fn a_buffer_after_damage_has_up_to_a_gibibyte_whatever_the_header_says() {
    for (version, endian) in forms() {
        let with_size = |size| {
            let (records, _) = left(version, endian, |file, _| {
                endian.set_u64(file, 16, u64::MAX);
                file[32] = 0;
                let second = 32 + (file.len() - 32) / 2;
                endian.set_u64(file, second + 1, size);
            });
            records
        };
        assert_eq!(with_size(1 << 30), [4, 5, 6, 7]);
        assert!(with_size((1 << 30) + 1).is_empty());
    }
}

#[test]
fn ticks_that_step_back_or_leave_64_bits_are_reported() {
    let mut writer = Writer::new(TraceMode::Fdr, 5, ByteOrder::Little, 512);
    let kind = RecordKind::Enter { function: 1 };
    let ticks = [u64::MAX - 3, u64::MAX - 2, 5, 6];
    let records: Vec<_> = ticks.into_iter().map(|tick| record(tick, kind)).collect();
    let made = Buffer {
        process: 1,
        thread: 2,
        wall: (0, 0),
        records,
    };
    let offsets = writer.buffer(&made);
    let mut file = writer.finish();
    let (records, faults) = read(&file);
    assert_eq!(records.iter().map(|it| it.1).collect::<Vec<_>>(), ticks);
    assert_eq!(fault_list(&faults), [(Issue::XrayTickBack, 1, offsets[2])]);
    // Now the second tick exceeds 64 bits.
    file[offsets[1] as usize + 4] = 4;
    let (records, faults) = read(&file);
    assert_eq!(records[1].1, u64::MAX);
    assert_eq!(fault_list(&faults)[1], (Issue::XrayTickOverflow, 1, offsets[1]));
}

#[test]
fn a_buffer_without_a_wall_clock_is_kept() {
    for (version, endian) in forms() {
        // The wall-clock record becomes one of the process, which changes nothing else.
        let mark = if endian == ByteOrder::Little {
            9 << 1 | 1
        } else {
            9 | 0x80
        };
        let (numbers, faults) = left(version, endian, |file, _| file[32 + 32] = mark);
        assert_eq!(numbers, (0..8).collect::<Vec<_>>());
        assert_eq!(faults, [(Issue::XrayNoWallTime, 1)]);
    }
}

#[test]
fn basic_mode_loses_only_what_is_damaged() {
    for endian in [ByteOrder::Little, ByteOrder::Big] {
        let mut writer = Writer::new(TraceMode::Basic, 3, endian, 0);
        let records = vec![
            record(7, RecordKind::Argument(1)),
            record(7, RecordKind::EnterWithArguments { function: 5 }),
            record(7, RecordKind::Argument(2)),
            record(9, RecordKind::Exit { function: 5 }),
        ];
        let buffer = Buffer {
            process: 1,
            thread: 2,
            wall: (0, 0),
            records,
        };
        let offsets = writer.buffer(&buffer);
        let mut file = writer.finish();
        // An argument without an entry is not a fault.
        let (records, faults) = read(&file);
        assert!(faults.is_empty());
        let expected: Vec<_> = offsets
            .iter()
            .zip(&buffer.records)
            .map(|(&at, it)| (at, it.tick, it.kind))
            .collect();
        assert_eq!(records, expected);
        let mut odd = file.clone();
        odd[32] = 9;
        odd[offsets[3] as usize + 3] = 4;
        let (records, faults) = read(&odd);
        assert_eq!(records, expected[1..3]);
        assert_eq!(fault_list(&faults), [(Issue::XrayUnknownRecord, 2, 32)]);
        file.truncate(file.len() - 1);
        let (records, faults) = read(&file);
        assert_eq!(records, expected[..3]);
        assert_eq!(fault_list(&faults), [(Issue::XrayCutTail, 1, offsets[3])]);
    }
}
