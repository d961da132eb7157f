//! Tests of the search for jitdumps.

use super::*;
use std::time::UNIX_EPOCH;

use crate::perf::process_records::FileId;

#[test]
fn given_files_are_compared_1_048_576_times_and_the_rest_is_counted() {
    let index = ProfileIndex::default();
    let access = Access::new(&LoadOptions::default(), 0, None);
    let input = Path::new("/nowhere/perf.data");
    let search = JitdumpSearch::new(&index, None, None, input, UserFiles::default(), &access);
    let mut places = vec![0; 1_048_575];
    assert_eq!(search.within_tries(&places).len(), 1_048_575);
    places.truncate(3);
    assert_eq!(search.within_tries(&places).len(), 1);
    assert_eq!(search.within_tries(&places).len(), 0);
    let diagnostics = search.run().diagnostics;
    let found: Vec<_> = diagnostics
        .iter()
        .map(|found| (found.issue, found.count))
        .collect();
    assert_eq!(found, [(Issue::CandidatesNotCompared, 2 + 3)]);
}

#[test]
fn the_mapped_file_is_known_by_its_last_marker() {
    const SECOND: u64 = 1_000_000_000;
    let file = tempfile::NamedTempFile::new().unwrap();
    let fields: [u32; 10] = [0x4a69_5444, 1, 40, 62, 0, 7, 0, 0, 0, 0];
    let header: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
    fs::write(file.path(), header).unwrap();
    let candidate = CandidateDump::of(OpenFile::open(file.path())).unwrap();
    let created = candidate.created.unwrap().duration_since(UNIX_EPOCH).unwrap();
    // The profile begins a second before.
    let clock = ClockData {
        wall_clock: u64::try_from(created.as_nanos()).unwrap() - SECOND,
        profile_clock: 1,
    };
    let access = Access::new(&LoadOptions::default(), 0, None);
    let (device, inode) = candidate.file.file_id();
    for (times, expected) in [(&[0][..], false), (&[0, 2 * SECOND][..], true)] {
        let marker = |&time: &u64| FileMarker {
            pid: Pid(7),
            time: Time(time),
            path: b"/tmp/jit-7.dump".to_vec(),
            file: Some(FileId {
                major: rustix::fs::major(device),
                minor: rustix::fs::minor(device),
                inode,
            }),
            record: 0,
        };
        let mut index = ProfileIndex::default();
        index.markers = times.iter().map(marker).collect();
        index.times = Some((Time(1), Time(3 * SECOND)));
        let input = Path::new("/nowhere/perf.data");
        let search = JitdumpSearch::new(&index, None, Some(clock), input, UserFiles::default(), &access);
        let groups = search.groups();
        assert_eq!(groups.len(), 1);
        assert_eq!(search.is_mapped(&candidate, &groups[0]), expected, "{times:?}");
    }
}
