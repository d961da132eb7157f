//! Records that are not changed are copied byte for byte.

use jitdump::ByteOrder;
use jitinject::internals::perf::Profile;

use crate::support::generator::{self, Plan};
use crate::support::model::{self, Parts};
use crate::support::perf::Event;
use crate::support::profile::ProfileWriter;
use crate::support::{
    bare_records, capture, has_code, inject, inject_capture, inject_into, objects_of, scratch, shown, tools,
};

/// Numbers of records that were dropped, trimmed and added, and of parts that mappings of files were divided into.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    markers: usize,
    trimmed: usize,
    added: usize,
    file_parts: usize,
}

/// Compares two profiles record by record; returns the expected differences. Panics on any other.
fn changes(before: &Parts, after: &Parts, folder: &str) -> Changes {
    let mut changes = Changes::default();
    let mut after = after.records.iter().peekable();
    let endian = before.endian;
    let name = |record: &[u8]| model::map_name(record, endian);
    for record in &before.records {
        let is_object = |added: &&Vec<u8>| name(added).is_some_and(|name| name.starts_with(folder));
        while after.next_if(is_object).is_some() {
            changes.added += 1;
        }
        if after.peek() == Some(&record) {
            after.next();
            continue;
        }
        let map =
            name(record).unwrap_or_else(|| panic!("record of type {} differs", model::kind(record, endian)));
        if map.contains("/jit-") {
            changes.markers += 1;
            continue;
        }
        let mut parts = Vec::new();
        while let Some(part) = after.next_if(|part| is_part(part, record, endian)) {
            parts.push(part);
        }
        if map.starts_with("//anon") || map.starts_with("/dev/zero") || map == "[heap]" {
            changes.trimmed += 1;
        } else {
            check_division(&parts, record, endian);
            changes.file_parts += parts.len();
        }
    }
    for added in after {
        assert!(name(added).unwrap().starts_with(folder));
        changes.added += 1;
    }
    changes
}

/// Returns whether a record maps a part of another's addresses, and differs only in address, size and offset.
fn is_part(part: &[u8], of: &[u8], endian: ByteOrder) -> bool {
    if part.len() != of.len() || part[..16] != of[..16] || part[40..] != of[40..] {
        return false;
    }
    let ((start, end), (part_start, part_end)) =
        (model::map_range(of, endian), model::map_range(part, endian));
    start <= part_start && part_end <= end
}

/// Checks that parts of a mapping of a file map the same bytes at the same addresses, one after the other.
fn check_division(parts: &[&Vec<u8>], whole: &[u8], endian: ByteOrder) {
    let file_offset = |record: &[u8]| model::word(record, endian, 32);
    let (start, end) = model::map_range(whole, endian);
    let mut at = start;
    for part in parts {
        let (part_start, part_end) = model::map_range(part, endian);
        assert_eq!(part_start, at);
        assert_eq!(file_offset(part) - file_offset(whole), at - start);
        at = part_end;
    }
    assert_eq!(at, end);
}

fn compare(name: &str) -> Changes {
    let folder = scratch();
    let output = inject_capture(folder.path(), name, &["--no-unwind"]);
    let before = model::parse(&std::fs::read(capture::profile(name)).unwrap());
    let after = model::parse(&std::fs::read(&output).unwrap());
    assert_eq!(before.attrs, after.attrs, "{name}");
    assert_eq!(before.ids, after.ids, "{name}");
    assert_eq!(before.features.len(), after.features.len(), "{name}");
    for ((id, before), (other, after)) in before.features.iter().zip(&after.features) {
        assert_eq!(id, other);
        const BUILD_ID: usize = 2;
        if *id == BUILD_ID {
            assert!(after.starts_with(before), "{name}: build-ids are only added");
        } else {
            assert_eq!(before, after, "{name}: feature {id}");
        }
    }
    let objects = format!("{}.elf/", output.display());
    changes(&before, &after, &objects)
}

#[test]
fn all_other_records_keep_their_bytes_and_their_order() {
    for name in capture::WITH_TRUTH {
        let changes = compare(name);
        assert!(changes.markers > 0, "{name}: {changes:?}");
        assert!(changes.added > 0, "{name}: {changes:?}");
    }
}

#[test]
fn maps_that_would_hide_code_are_reduced_and_no_others() {
    // LLVM changes the protection of memory for each module; PHP and JavaScriptCore map theirs once, before the
    // first function.
    assert_eq!(compare("postgres15").trimmed, 7);
    assert_eq!(compare("php82").trimmed, 0);
    assert_eq!(compare("bun").trimmed, 0);
}

/// Samples of `node20` touch nine of V8's built-in functions that are in the text of `node`. For `node20-reuse`, V8 had
/// copied them.
#[test]
fn maps_of_files_are_divided_at_code_in_them() {
    assert_eq!(compare("node20").file_parts, 9 + 10);
    assert_eq!(compare("node20-reuse").file_parts, 0);
}

/// A profile with AUX data, such as that of Intel PT, and an index of them.
#[test]
fn aux_data_stay_whole_and_their_index_leads_to_them() {
    const AUXTRACE_INFO: u32 = 70;
    const AUXTRACE: u32 = 71;
    const INDEX: u32 = 18;
    let folder = scratch();
    // The new mapping is not as long as the marker that it replaces.
    let dumps = folder.path().join("dumps of another machine");
    std::fs::create_dir(&dumps).unwrap();
    let path = dumps.join("jit-5000.dump");
    let mut dump = crate::support::dump::DumpWriter::new(ByteOrder::Little, 62, 5000);
    dump.load(1000, 0x7000_0000, 0, b"touched_by_no_sample", &[0x90; 64]);
    std::fs::write(&path, dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.record(AUXTRACE_INFO, 0, &[1, 0, 0, 0, 0, 0, 0, 0]);
    profile.mmap2(5000, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    profile.sample(5000, 2000, &[0x1234], None);
    let aux_at = profile.records.len();
    let mut body = vec![0; 40];
    let payload = b"packets of some processor, of an odd length";
    body[..8].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    profile.record(AUXTRACE, 0, &body);
    profile.records.extend_from_slice(payload);
    profile.comm(5000, "end", false, 3000);
    let aux_at = 104 + 144 + aux_at;
    let mut index = Vec::new();
    for word in [1, aux_at as u64, 48 + payload.len() as u64] {
        index.extend_from_slice(&word.to_le_bytes());
    }
    profile.features.push((INDEX, index));
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();

    let output = folder.path().join("out.data");
    let said = inject(&input, &output, &["-v"]);
    let after = model::parse(&std::fs::read(&output).unwrap());
    let found = after
        .records
        .iter()
        .position(|record| model::kind(record, after.endian) == AUXTRACE);
    let found = found.unwrap();
    assert!(after.records[found].ends_with(payload));
    let index = &after.features[0].1;
    assert_eq!(model::word(index, after.endian, 8), after.offsets[found] as u64);
    assert_ne!(after.offsets[found], aux_at, "the records have moved");
    // Only a decoder knows the addresses in the packets, so all functions are written.
    assert_eq!(objects_of(&output).len(), 1);
    assert!(has_code(&said, "JI169"), "{said}");
}

/// A new mapping precedes the first record that is not earlier, so that no reader gets it late.
#[test]
fn new_maps_stand_where_their_time_belongs() {
    let folder = scratch();
    let plan = Plan {
        places: 100,
        ..Plan::default()
    };
    let generated = generator::generate(folder.path(), &plan);
    let output = inject_into(folder.path(), &generated.profile, &[]);
    let after = model::parse(&std::fs::read(&output).unwrap());
    // The trailer of these profiles ends in time and processor.
    let time = |record: &[u8]| match model::kind(record, after.endian) {
        9 => Some(model::word(record, after.endian, 24)),
        3 | 10 => Some(model::word(record, after.endian, record.len() - 16)),
        _ => None,
    };
    let mut latest = 0;
    let mut added = 0;
    for record in &after.records {
        let Some(time) = time(record) else { continue };
        let is_added = model::map_name(record, after.endian).is_some_and(|name| name.ends_with(".so"));
        if is_added {
            assert!(time > latest, "a record of {latest} precedes a mapping of {time}");
            added += 1;
        } else {
            latest = latest.max(time);
        }
    }
    assert!(added > 500, "{added}");
}

/// perf 7.3 stops at a record that lacks the trailer which its attribute requires. Older versions parse the record's own
/// fields as a trailer.
#[test]
fn records_without_a_trailer_get_an_empty_one() {
    let folder = scratch();
    let log = folder.path().join("a.mlpd");
    std::fs::write(&log, bare_records::log()).unwrap();
    let input = folder.path().join("perf.data");
    let output = folder.path().join("out.data");
    for (events, has_ids) in [(1, false), (1, true), (2, true)] {
        std::fs::write(&input, bare_records::profile(events, has_ids).finish()).unwrap();
        let before = model::parse(&std::fs::read(&input).unwrap()).records;
        inject(&input, &output, &[]);
        let after = model::parse(&std::fs::read(&output).unwrap()).records;
        assert_eq!(before.len(), after.len(), "{events} {has_ids}");
        let trailer = bare_records::TRAILER + if has_ids { 8 } else { 0 };
        let (mut same, mut grown) = (0, 0);
        for (before, after) in before.iter().zip(&after) {
            if before == after {
                same += 1;
                continue;
            }
            let size = before.len();
            let expected = [&before[8..], &vec![0; trailer]].concat();
            assert_eq!(after[8..], expected, "{events} {has_ids}");
            assert_eq!(after[..6], before[..6]);
            assert_eq!(
                usize::from(u16::from_le_bytes([after[6], after[7]])),
                size + trailer
            );
            grown += 1;
        }
        assert_eq!((same, grown), (12, 11), "{events} {has_ids}");

        let more = ["--mono-log", tools::text(&log), "--events", "exception"];
        inject(&input, &output, &more);
        let after = model::parse(&std::fs::read(&output).unwrap()).records;
        let of_kind = |kind| {
            let records = after.iter();
            records.filter(move |record| model::kind(record, ByteOrder::Little) == kind)
        };
        let sizes: Vec<usize> = of_kind(bare_records::SWITCH).map(Vec::len).collect();
        assert_eq!(sizes, [8 + bare_records::TRAILER + 8; 10], "{events} {has_ids}");
        let names = of_kind(bare_records::MMAP2).map(|record| model::map_name(record, ByteOrder::Little));
        let names: Vec<String> = names.map(Option::unwrap).collect();
        assert!(
            names.contains(&"/usr/lib/libsomewhere.so.1234567".to_owned()),
            "{names:?}"
        );
        let events = shown::events(&output);
        let is_ours = |event: &&Event| event.name == "mono/exception/";
        assert_eq!((events.len(), events.iter().filter(is_ours).count()), (11, 1));
    }
}

/// A record that has its trailer is never classified as one that lacks it.
#[test]
fn the_records_of_all_recordings_have_their_trailers() {
    const SAMPLE: u32 = 9;
    const USER_TYPE_START: u32 = 64;
    let mut seen = 0;
    for name in capture::WITH_TRUTH.iter().chain([&capture::WITHOUT_MAPS]) {
        let bytes = std::fs::read(capture::profile(name)).unwrap();
        let profile = Profile::parse(&bytes).unwrap();
        for record in profile.records_in_memory().unwrap() {
            let missing = profile.attrs.missing_trailer(&record, profile.endian);
            assert_eq!(missing, None, "{name}: {record:?}");
            let attr = profile.attrs.event_of(&record, profile.endian).unwrap();
            seen += u32::from(attr.has_trailer && record.kind != SAMPLE && record.kind < USER_TYPE_START);
        }
    }
    assert!(seen > 1000, "{seen}");
}
