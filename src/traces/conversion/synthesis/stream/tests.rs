//! Tests of synthetic streams.

use jitdump::Address;

use super::*;
use crate::perf::attr::AttrEntry;
use crate::perf::profile::Container;
use crate::perf::record;
use crate::perf::record::data::ProfileBytes;
use crate::perf::synthetic::SyntheticThread;
use crate::perf::testing::{self, ORDER, SAMPLE_ID_ALL, attr};
use crate::traces::conversion::synthesis::definition::SampleContent;
use crate::units::{Pid, Tid};

const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ID: u64 = 1 << 6;
const ORIGIN: EventOrigin<'static> = EventOrigin {
    endian: ORDER,
    clock_id: None,
    architecture: b"",
};
const DEFINITIONS: [Definition<'static>; 1] = [Definition {
    name: b"mono/exception/",
    measure: SampleContent::Count,
}];

fn record(kind: u32, words: &[u64]) -> Vec<u8> {
    testing::record(kind, 0, words)
}

fn profile(attr_entries: Vec<AttrEntry>, data: &[u8]) -> Profile<'_> {
    Profile {
        container: Container::File,
        endian: ORDER,
        attrs: Attrs::read(&attr_entries, ORDER),
        attr_entries,
        data: ProfileBytes::from(data),
        data_offset: 0,
        features: Vec::new(),
        header_records: Vec::new(),
        faults: Tally::default(),
    }
}

fn sample(time: u64) -> SyntheticSample<'static> {
    SyntheticSample {
        event: 0,
        thread: SyntheticThread {
            pid: Pid(5),
            tid: Tid(6),
        },
        time: Time(time),
        cpu: 0,
        period: 1,
        chain: &[Address(0x1000)],
        raw: &[],
    }
}

/// A recording with synthetic samples at these times.
fn merged<'p>(recorded: &'p Profile<'p>, times: &[u64]) -> (Synthesized, Vec<u8>) {
    let mut synthesis = Synthesis::with_recording(recorded, &DEFINITIONS, Vec::new()).unwrap();
    for &time in times {
        synthesis.sample(&sample(time)).unwrap();
    }
    synthesis.finish().unwrap()
}

/// Type and time of each record.
fn shape(profile: &Profile<'_>) -> Vec<(u32, Option<u64>)> {
    let time = |record: &_| profile.attrs.time_of(record, ORDER).map(|time| time.0);
    let records = profile
        .records_in_memory()
        .unwrap()
        .filter(|record| record.kind != record::EVENT_UPDATE);
    records.map(|record| (record.kind, time(&record))).collect()
}

#[test]
fn synthetic_records_precede_the_first_later_record() {
    let attr = attr(64, TIME, SAMPLE_ID_ALL);
    let entries = vec![AttrEntry {
        attr,
        ids: Vec::new(),
    }];
    let round = record(record::FINISHED_ROUND, &[]);
    let data = [
        record(record::COMM, &[1, 2, 10]),
        round.clone(),
        record(record::SAMPLE, &[30]),
        record(record::SAMPLE, &[20]),
        round,
        record(record::SAMPLE, &[40]),
    ];
    let data = data.concat();
    let recorded = profile(entries, &data);
    let (synthesized, records) = merged(&recorded, &[5, 10, 25, 30, 35, 40, 50, 45]);
    let found = shape(&synthesized.profile(ProfileBytes::from(&records[..]))).into_iter();
    // 0 for the end of a round.
    let times: Vec<u64> = found.map(|(_, time)| time.unwrap_or(0)).collect();
    assert_eq!(times, [5, 10, 0, 10, 25, 30, 20, 0, 30, 35, 40, 40, 50, 45]);
    assert_eq!(synthesized.faults.count(Issue::EventsOutOfOrder), 1);
}

#[test]
fn oversized_parts_are_truncated_and_counted() {
    let definitions = [Definition {
        name: b"xray/custom/",
        measure: SampleContent::Bytes,
    }];
    let mut synthesis = Synthesis::stand_alone(&ORIGIN, &definitions, Vec::new());
    let chain = vec![Address(1); 10_000];
    let raw = vec![0; 70_000];
    let thread = sample(0).thread;
    synthesis
        .sample(&SyntheticSample {
            chain: &chain,
            ..sample(1)
        })
        .unwrap();
    synthesis
        .sample(&SyntheticSample {
            raw: &raw,
            ..sample(2)
        })
        .unwrap();
    let comm = Comm {
        thread,
        time: Time(3),
        name: &[b'n'; 300],
        is_exec: false,
    };
    synthesis.comm(&comm).unwrap();
    let (synthesized, _) = synthesis.finish().unwrap();
    for issue in [Issue::ChainCut, Issue::EventDataCut, Issue::ThreadNameCut] {
        assert_eq!(synthesized.faults.count(issue), 1, "{issue}");
    }
}

#[test]
fn thread_names_of_255_bytes_are_kept_and_longer_ones_cut() {
    for (size, cut) in [(255, 0), (256, 1)] {
        let mut synthesis = Synthesis::stand_alone(&ORIGIN, &DEFINITIONS, Vec::new());
        let comm = Comm {
            thread: sample(0).thread,
            time: Time(3),
            name: &vec![0xee; size],
            is_exec: false,
        };
        synthesis.comm(&comm).unwrap();
        let (synthesized, records) = synthesis.finish().unwrap();
        assert_eq!(synthesized.faults.count(Issue::ThreadNameCut), cut, "{size}");
        assert_eq!(records.iter().filter(|&&byte| byte == 0xee).count(), 255);
    }
}

#[test]
fn attributes_of_4096_bytes_are_kept_and_longer_ones_cut() {
    for size in [4096, 4104] {
        let entries = vec![AttrEntry {
            attr: attr(size, TIME, SAMPLE_ID_ALL),
            ids: Vec::new(),
        }];
        let recorded = profile(entries, &[]);
        let (synthesized, _) = merged(&recorded, &[]);
        let entries = synthesized.attr_entries.iter();
        let sizes: Vec<usize> = entries.map(|entry| entry.attr.len()).collect();
        assert_eq!(sizes, [4096, 4096], "{size}");
    }
}

#[test]
fn without_times_synthetic_records_follow_the_recorded_ones() {
    let attr = attr(64, TID, SAMPLE_ID_ALL);
    let entries = vec![AttrEntry {
        attr,
        ids: Vec::new(),
    }];
    let data = [record(record::SAMPLE, &[7]), record(record::COMM, &[1, 2, 7])].concat();
    let recorded = profile(entries, &data);
    let (synthesized, records) = merged(&recorded, &[1, 2]);
    let again = synthesized.profile(ProfileBytes::from(&records[..]));
    assert!(!again.attrs.has_times());
    let kinds: Vec<u32> = shape(&again).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(
        kinds,
        [record::SAMPLE, record::COMM, record::SAMPLE, record::SAMPLE]
    );
}

#[test]
fn ids_inside_records_become_identifiers() {
    let attrs = [
        attr(72, TIME | ID, SAMPLE_ID_ALL),
        attr(64, TIME | ID, SAMPLE_ID_ALL),
    ];
    let ids = [3u64.to_le_bytes(), 4u64.to_le_bytes()];
    let entries = attrs.into_iter().zip(ids).map(|(attr, ids)| AttrEntry {
        attr,
        ids: ids.to_vec(),
    });
    let data = [
        record(record::SAMPLE, &[10, 4]),
        record(record::COMM, &[1, 2, 11, 3]),
        // An ID of no event.
        record(record::SAMPLE, &[12, 0]),
        record(record::FINISHED_ROUND, &[]),
    ];
    let data = data.concat();
    let recorded = profile(entries.collect(), &data);
    let (synthesized, records) = merged(&recorded, &[100]);
    let again = synthesized.profile(ProfileBytes::from(&records[..]));
    let found: Vec<_> = again
        .records_in_memory()
        .unwrap()
        .filter(|it| it.kind != record::EVENT_UPDATE)
        .collect();
    assert_eq!(found[0].bytes, record(record::SAMPLE, &[4, 10, 4]));
    assert_eq!(found[1].bytes, record(record::COMM, &[1, 2, 11, 3, 3]));
    assert_eq!(found[2].bytes, record(record::SAMPLE, &[3, 12, 0]));
    assert_eq!(found[3].bytes, record(record::FINISHED_ROUND, &[]));
    let times = found
        .iter()
        .map(|it| again.attrs.time_of(it, ORDER).map(|time| time.0));
    assert_eq!(
        times.collect::<Vec<_>>(),
        [Some(10), Some(11), Some(12), None, Some(100)]
    );
    let sizes = again
        .attr_entries
        .iter()
        .map(|entry| (entry.attr.len(), crate::perf::attr::size(&entry.attr, ORDER)));
    assert!(sizes.into_iter().all(|size| size == (72, Some(72))));
}

#[test]
fn an_event_without_ids_gets_one_and_records_without_trailers_stay_so() {
    let attr = attr(112, TIME, 0);
    let entries = vec![AttrEntry {
        attr,
        ids: Vec::new(),
    }];
    let comm = record(record::COMM, &[1, 2]);
    let data = [comm.clone(), record(record::SAMPLE, &[10])].concat();
    let recorded = profile(entries, &data);
    let (synthesized, records) = merged(&recorded, &[100]);
    let again = synthesized.profile(ProfileBytes::from(&records[..]));
    let found: Vec<_> = again
        .records_in_memory()
        .unwrap()
        .filter(|it| it.kind != record::EVENT_UPDATE)
        .collect();
    assert_eq!(found[0].bytes, comm);
    let id = ORDER.u64_at(&again.attr_entries[0].ids, 0).unwrap();
    assert_eq!(found[1].bytes, record(record::SAMPLE, &[id, 10]));
    let own = ORDER.u64_at(&again.attr_entries[1].ids, 0).unwrap();
    assert_ne!(own, id);
    assert!(!again.attrs.by_id(own).unwrap().has_trailer);
}

#[test]
fn unknown_identifiers_of_a_single_event_are_corrected() {
    const IDENTIFIER: u64 = 1 << 16;
    let attr = attr(64, TIME | IDENTIFIER, SAMPLE_ID_ALL);
    let ids = 3u64.to_le_bytes();
    let entries = vec![AttrEntry {
        attr,
        ids: ids.to_vec(),
    }];
    let data = [
        record(record::SAMPLE, &[9, 10]),
        record(record::SAMPLE, &[3, 10]),
        record(record::COMM, &[1, 2, 10, 9]),
        record(record::COMM, &[1, 2, 10, 0]),
    ];
    let data = data.concat();
    let recorded = profile(entries, &data);
    let (synthesized, records) = merged(&recorded, &[]);
    let again = synthesized.profile(ProfileBytes::from(&records[..]));
    let found: Vec<_> = again
        .records_in_memory()
        .unwrap()
        .filter(|it| it.kind != record::EVENT_UPDATE)
        .collect();
    let found: Vec<_> = found.iter().map(|it| it.bytes.to_vec()).collect();
    let expected = [
        record(record::SAMPLE, &[3, 10]),
        record(record::SAMPLE, &[3, 10]),
        record(record::COMM, &[1, 2, 10, 3]),
        record(record::COMM, &[1, 2, 10, 0]),
    ];
    assert_eq!(found, expected);
}

#[test]
fn perfs_own_records_and_unreadable_bytes_are_unchanged() {
    let attr = attr(64, TIME, SAMPLE_ID_ALL);
    let entries = vec![AttrEntry {
        attr,
        ids: Vec::new(),
    }];
    let mut data = record(record::AUXTRACE, &[5]);
    data.extend_from_slice(b"trace");
    data.extend(record(record::TIME_CONV, &[1, 2]));
    let whole = data.len();
    data.extend_from_slice(b"no record");
    let recorded = profile(entries, &data);
    let (synthesized, records) = merged(&recorded, &[7]);
    let again = synthesized.profile(ProfileBytes::from(&records[..]));
    let own = again.records_in_memory().unwrap().last().unwrap();
    assert_eq!(again.attrs.time_of(&own, ORDER), Some(Time(7)));
    let start = own.offset as usize;
    assert!(records[..start].ends_with(&data[..whole]));
    assert_eq!(&records[own.end() as usize..], b"no record");
}

#[test]
fn the_largest_sample_loses_a_stack_word_to_the_identifier() {
    const STACK_USER: u64 = 1 << 13;
    let attr = attr(64, TIME | STACK_USER, SAMPLE_ID_ALL);
    let entries = || {
        vec![AttrEntry {
            attr: attr.clone(),
            ids: Vec::new(),
        }]
    };
    let words = 65_528 / 8 - 1 - 3;
    let mut body = vec![10, 8 * words];
    body.extend(0..words);
    body.push(8 * words);
    let data = record(record::SAMPLE, &body);
    let recorded = profile(entries(), &data);
    let (synthesized, records) = merged(&recorded, &[]);
    assert_eq!(synthesized.faults.count(Issue::StackWordLost), 1);
    let again = synthesized.profile(ProfileBytes::from(&records[..]));
    let found = again
        .records_in_memory()
        .unwrap()
        .find(|it| it.kind == record::SAMPLE)
        .unwrap();
    assert_eq!(found.bytes.len(), data.len());
    let parsed = crate::perf::sample::Sample::parse(&found, &again.attrs.all()[0], ORDER);
    assert!(!parsed.is_truncated);
    assert!(parsed.stack.iter().map(|it| it.0).eq(0..words - 1));

    // A record of another type has no stack copy.
    let data = record(record::COMM, &vec![7; 65_528 / 8 - 1]);
    let recorded = profile(entries(), &data);
    let (synthesized, records) = merged(&recorded, &[]);
    assert_eq!(synthesized.faults.count(Issue::RecordWithoutId), 1);
    assert!(shape(&synthesized.profile(ProfileBytes::from(&records[..]))).is_empty());
}

#[test]
fn event_desc_has_names_if_all_events_have_one() {
    let attr = attr(64, TIME, SAMPLE_ID_ALL);
    let entries = || {
        vec![AttrEntry {
            attr: attr.clone(),
            ids: Vec::new(),
        }]
    };
    let names = |profile: &Profile<'_>| {
        let content = profile.feature(feature::EVENT_DESC)?;
        let names = event_desc::names(content, ORDER, profile.attr_entries.len())?;
        Some(names.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>())
    };
    let mut recorded = profile(entries(), &[]);
    let (synthesized, records) = merged(&recorded, &[]);
    let again = synthesized.profile(ProfileBytes::from(&records[..]));
    assert_eq!(names(&again), None);
    let update = again.records_in_memory().unwrap().next().unwrap();
    assert_eq!(update.kind, record::EVENT_UPDATE);
    assert!(update.bytes.windows(15).any(|bytes| bytes == b"mono/exception/"));

    let one = std::iter::once((&*attr, &[][..], &b"cycles"[..]));
    let content = event_desc::content(ORDER, 64, one);
    recorded.features.push(Feature::new(feature::EVENT_DESC, content));
    let (synthesized, records) = merged(&recorded, &[]);
    assert!(records.is_empty());
    let expected = vec![b"cycles".to_vec(), b"mono/exception/".to_vec()];
    assert_eq!(
        names(&synthesized.profile(ProfileBytes::from(&records[..]))),
        Some(expected)
    );
}

#[test]
fn a_long_synthetic_stream_has_rounds() {
    let mut synthesis = Synthesis::stand_alone(&ORIGIN, &DEFINITIONS, Vec::new());
    for time in 0..40_000 {
        synthesis.sample(&sample(time)).unwrap();
    }
    let other = SyntheticSample {
        event: 1,
        ..sample(0)
    };
    let error = synthesis.sample(&other).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let (synthesized, records) = synthesis.finish().unwrap();
    let again = synthesized.profile(ProfileBytes::from(&records[..]));
    let rounds = again
        .records_in_memory()
        .unwrap()
        .filter(|it| it.kind == record::FINISHED_ROUND);
    assert_eq!(rounds.count() as u64, records.len() as u64 / ROUND_SIZE + 1);
    let ids: Vec<u8> = again.features.iter().map(|feature| feature.id).collect();
    assert_eq!(
        ids,
        [
            feature::VERSION,
            feature::NR_CPUS,
            feature::COMMAND_LINE,
            feature::EVENT_DESC,
            feature::SAMPLE_TIME
        ]
    );
}
