//! Arbitrary profiles, as a file or from a pipe: damage is skipped, and what is intact is written again in both
//! formats, also with synthesized events.

use std::io::Cursor;

use jitdump::internals::format::marker;
use jitdump::internals::units::Pid;
use jitdump::{Address, Time};
use jitinject::Issue;
use jitinject::internals::code::profile_index::ProfileIndex;
use jitinject::internals::perf::output::{Edits, Rewrite};
use jitinject::internals::perf::process_records::{Fork, Mmap};
use jitinject::internals::perf::record::data::ProfileBytes;
use jitinject::internals::perf::record::{Record, resync};
use jitinject::internals::perf::sample::Sample;
use jitinject::internals::perf::synthetic::SyntheticThread;
use jitinject::internals::perf::{Container, Profile, process_records, record};
use jitinject::internals::traces::conversion::synthesis;
use jitinject::internals::traces::conversion::synthesis::{Definition, SampleContent, Synthesis};

pub fn run(input: &[u8]) {
    let Ok(mut profile) = Profile::parse(input) else {
        return;
    };
    let mut repaired = Vec::new();
    let mut profile_index = ProfileIndex::of(&profile, marker::dump_path);
    if profile_index.has_damage {
        let damage = resync::repair(profile.data, &profile.attrs, profile.endian, &mut repaired).unwrap();
        let (before, kept) = (profile.data.len(), repaired.len() as u64);
        profile = profile.with_records(ProfileBytes::from(&repaired[..]));
        // A record may get an empty trailer, of up to six integers, and padding to a multiple of 8.
        let added = profile.records_in_memory().unwrap().count() as u64 * (6 * 8 + 7);
        assert!(damage.bytes + kept <= before + added);
        profile_index = ProfileIndex::of(&profile, marker::dump_path);
    }
    for record in profile.records_in_memory().unwrap() {
        look_into(&profile, &record);
    }
    assert!(profile_index.data_end <= profile.data.len());
    if let Some((first, last)) = profile_index.times {
        assert!(first <= last);
    }
    let rewrite = || Rewrite {
        profile: &profile,
        data_end: profile_index.data_end,
        auxtrace: &profile_index.auxtrace,
        edits: Edits::default(),
        build_ids: Vec::new(),
        compression: None,
    };
    let mut file = Cursor::new(Vec::new());
    rewrite().write_file(&mut file).unwrap();
    check_file(&profile, profile_index.data_end, &file.into_inner());
    let mut pipe = Vec::new();
    if rewrite().write_pipe(&mut pipe).is_ok() {
        check_pipe(&profile, profile_index.data_end, &pipe);
    }
    let (first, last) = profile_index.times.unwrap_or_default();
    check_synthesis(&profile, [Time(0), first, last, Time::MAX]);
}

/// Parses a record in all supported ways.
fn look_into(profile: &Profile<'_>, record: &Record<'_>) {
    let endian = profile.endian;
    let _ = profile.attrs.time_of(record, endian);
    let _ = (Mmap::parse(record, endian), Fork::parse(record, endian));
    let _ = (
        process_records::exec_pid(record, endian),
        process_records::mount_namespace(record, endian),
    );
    if let Some(attr) = profile.attrs.event_of(record, endian)
        && record.kind == record::SAMPLE
    {
        let sample = Sample::parse(record, attr, endian);
        let most = record.bytes.len();
        assert!(sample.chain_addresses().count() <= most);
        assert!(sample.branches.iter().count() <= most);
        assert!(sample.stack.iter().count() <= most);
    }
}

/// Returns the records up to byte `end` that are not part of a pipe's head.
fn records<'a>(profile: &Profile<'a>, end: u64) -> Vec<&'a [u8]> {
    let head = &profile.header_records;
    let records = profile.records_in_memory().unwrap();
    let records = records.take_while(|record| record.end() <= end);
    let records = records.filter(|record| head.binary_search_by_key(&record.offset, |it| it.0).is_err());
    records.map(|record| record.bytes).collect()
}

fn check_file(profile: &Profile<'_>, end: u64, written: &[u8]) {
    let again = Profile::parse(written).expect("what was written can be read");
    assert_eq!(again.container, Container::File);
    // A file without any record looks like an unfinished one.
    if records(profile, end).is_empty() {
        return;
    }
    assert!(again.faults.is_empty(), "{:?}", again.faults);
    assert_eq!(records(profile, end), records(&again, u64::MAX));
    assert_eq!(profile.attr_entries.len(), again.attr_entries.len());
    for (before, after) in profile.attr_entries.iter().zip(&again.attr_entries) {
        assert_eq!(before.ids, after.ids);
    }
}

fn check_pipe(profile: &Profile<'_>, end: u64, written: &[u8]) {
    let again = Profile::parse(written).expect("what was written can be read");
    assert_eq!(again.container, Container::Pipe);
    assert_eq!(without_head(profile, end), without_head(&again, u64::MAX));
}

/// Returns the records up to byte `end` of types that are never in a pipe's head: others move to it, even from a
/// file.
fn without_head<'a>(profile: &Profile<'a>, end: u64) -> Vec<&'a [u8]> {
    use record::{HEADER_ATTR, HEADER_BUILD_ID, HEADER_FEATURE, HEADER_TRACING_DATA};
    let head = [HEADER_ATTR, HEADER_BUILD_ID, HEADER_FEATURE, HEADER_TRACING_DATA];
    let records = profile.records_in_memory().unwrap();
    let records = records.take_while(|record| record.end() <= end);
    let records = records.filter(|record| !head.contains(&record.kind));
    records.map(|record| record.bytes).collect()
}

/// At the end of each synthesized sample.
const OWN: &[u8; 12] = b"of our own..";

/// Adds synthesized samples, and checks that the other records are unchanged.
fn check_synthesis(profile: &Profile<'_>, times: [Time; 4]) {
    let definitions = [Definition {
        name: b"own/",
        measure: SampleContent::Bytes,
    }];
    let mut synthesis = Synthesis::with_recording(profile, &definitions, Vec::new()).unwrap();
    for time in times {
        let sample = synthesis::SyntheticSample {
            event: 0,
            thread: SyntheticThread::first_of(Pid(1)),
            time,
            cpu: 0,
            period: 1,
            chain: &[Address(1)],
            raw: OWN,
        };
        synthesis.sample(&sample).unwrap();
    }
    let (synthesized, written) = synthesis.finish().unwrap();
    let again = synthesized.profile(ProfileBytes::from(&written[..]));
    assert_eq!(again.attr_entries.len(), profile.attr_entries.len() + 1);
    let is_own = |record: &Record<'_>| record.kind == record::SAMPLE && record.bytes.ends_with(OWN);
    let own = again.records_in_memory().unwrap().filter(is_own).count();
    let others: Vec<_> = again
        .records_in_memory()
        .unwrap()
        .filter(|record| !is_own(record))
        .collect();
    let head = &profile.header_records;
    let before = profile.records_in_memory().unwrap();
    let before: Vec<_> = before
        .filter(|record| !is_own(record) && head.binary_search_by_key(&record.offset, |it| it.0).is_err())
        .collect();
    assert!(own >= times.len());
    let lost = synthesized.faults.count(Issue::RecordWithoutId);
    // The first one may be the name of our own event.
    let name = (others.len() as u64 + lost).saturating_sub(before.len() as u64);
    assert!(name <= 1);
    let others = &others[name as usize..];
    assert_eq!(others.len() as u64 + lost, before.len() as u64);
    // Samples with an ID that several events or none have may be assigned to another event than before.
    if lost > 0 || profile.attr_entries.len() > 1 || !profile.attrs.has_times() {
        return;
    }
    for (before, after) in before.iter().zip(others) {
        assert_eq!((before.kind, before.misc), (after.kind, after.misc));
        let time = profile.attrs.time_of(before, profile.endian);
        assert_eq!(time, again.attrs.time_of(after, profile.endian));
    }
}
