//! Tests of the alignment of clocks.

use super::*;
use crate::code::clock::windows::{OffsetScore, Plateau};
use crate::perf::feature::ClockData;

const PROFILE: ProfileClock = ProfileClock {
    id: None,
    data: None,
    conversion: None,
    span: Some((Time(1000 * SECOND), Time(1010 * SECOND))),
    has_times: true,
    first_sample: Time(1000 * SECOND),
    distance: None,
};
const RUNTIME: RuntimeClock = RuntimeClock {
    counts_cycles: false,
    made: 0,
    first: RuntimeTime(5000 * SECOND),
    last: RuntimeTime(5009 * SECOND),
    born: None,
    distance_by_maps: None,
};
const MARKER: Option<Time> = Some(Time(1001 * SECOND));

#[test]
fn a_given_offset_is_printed_as_it_is() {
    let printed = [-5, 0, 1000, 123_000_457_000].map(|offset| Alignment::Given(offset).to_string());
    let expected = ["-5 ns", "+0 ns", "+0.000001 s", "+123.000457 s"];
    assert_eq!(
        printed,
        expected.map(|moved| format!("moved by {moved} (--clock-offset)"))
    );
}

#[test]
fn nothing_is_moved_where_both_are_monotonic() {
    let profile = ProfileClock {
        id: Some(1),
        ..PROFILE
    };
    assert_eq!(Alignment::choose(&profile, &RUNTIME, MARKER), Ok(Alignment::Same));
}

/// Drift of the clocks during the recording, in nanoseconds.
const DRIFT: u64 = 1_000_000;

/// Returns the alignments of files without samples.
fn settled(profile: &ProfileClock, files: &[(RuntimeClock, Option<Time>)]) -> Vec<Alignment> {
    let find = |(runtime, marker): &_| Alignment::choose(profile, runtime, *marker).unwrap();
    let mut all: Vec<Alignment> = files.iter().map(find).collect();
    let mut numbered: Vec<(FileIndex, &mut Alignment)> = (0..).map(FileIndex).zip(&mut all).collect();
    Alignment::settle(&mut numbered, profile, &Windows::default());
    all
}

fn time_of_first(profile: &ProfileClock, runtime: &RuntimeClock, marker: Option<Time>) -> u64 {
    settled(profile, &[(*runtime, marker)])[0].time(runtime.first).0
}

#[test]
fn the_header_is_believed_where_it_uses_the_clock_of_the_records() {
    let runtime = RuntimeClock {
        made: 4999 * SECOND,
        ..RUNTIME
    };
    let slack = 1_000_000 + DRIFT;
    assert_eq!(time_of_first(&PROFILE, &runtime, MARKER), 1002 * SECOND - slack);
    // Bun's first record is older than its header.
    let first = RuntimeTime(4998 * SECOND);
    let runtime = RuntimeClock { first, ..runtime };
    assert_eq!(time_of_first(&PROFILE, &runtime, MARKER), 1000 * SECOND - slack);
}

/// Capture node20-raw: its clocks are a quarter of a second apart, which must not be ignored.
#[test]
fn a_first_record_shortly_before_the_marker_does_not_make_the_clocks_the_same() {
    for apart in [0, 14_000_000, 246_643_282, SECOND] {
        let first = RuntimeTime(1001 * SECOND + apart);
        let runtime = RuntimeClock { first, ..RUNTIME };
        assert_eq!(time_of_first(&PROFILE, &runtime, MARKER), 1001 * SECOND - DRIFT);
    }
}

#[test]
fn clock_data_stand_in_for_a_marker_from_before_the_profile() {
    let wall_clock = 1_795_247_199 * SECOND;
    let data = ClockData {
        wall_clock,
        profile_clock: 1000 * SECOND,
    };
    let profile = ProfileClock {
        id: Some(7),
        data: Some(data),
        ..PROFILE
    };
    let made = (wall_clock - 3 * SECOND) / 1000;
    let runtime = RuntimeClock { made, ..RUNTIME };
    let slack = 1_000_000;
    assert_eq!(time_of_first(&profile, &runtime, None), 997 * SECOND - slack);
}

#[test]
fn a_header_is_on_the_wall_clock_if_that_is_within_30_days_of_the_profile_s() {
    let days_30 = 2_592_000 * SECOND;
    let data = ClockData {
        wall_clock: 1_795_247_199 * SECOND,
        profile_clock: 2 * days_30,
    };
    let profile = ProfileClock {
        id: Some(7),
        data: Some(data),
        ..PROFILE
    };
    let time_if_made_at = |wall_clock: u64| {
        let made = wall_clock / 1000;
        time_of_first(&profile, &RuntimeClock { made, ..RUNTIME }, None)
    };
    let [earliest, latest] = [data.wall_clock - days_30, data.wall_clock + days_30];
    let slack = 1_000_000;
    assert_eq!(time_if_made_at(earliest), days_30 - slack);
    assert_eq!(time_if_made_at(latest), 3 * days_30 - slack);
    for no_time in [earliest - 1000, latest + 1000] {
        assert_eq!(time_if_made_at(no_time), RUNTIME.first.0, "a guess");
    }
}

#[test]
fn no_record_is_older_than_its_process() {
    let runtime = RuntimeClock {
        born: Some(Time(1000 * SECOND + 5)),
        ..RUNTIME
    };
    assert_eq!(time_of_first(&PROFILE, &runtime, None), 1000 * SECOND + 5 - DRIFT);
}

#[test]
fn cycle_counts_need_a_conversion_unless_they_are_times() {
    let runtime = RuntimeClock {
        counts_cycles: true,
        ..RUNTIME
    };
    let found = Alignment::choose(&PROFILE, &runtime, MARKER);
    assert!(matches!(found, Ok(Alignment::AllAt(_, Timeless::Cycles))));
    let runtime = RuntimeClock {
        first: RuntimeTime(1002 * SECOND),
        ..runtime
    };
    assert!(Alignment::choose(&PROFILE, &runtime, MARKER).is_ok());
}

#[test]
fn the_greatest_bound_of_all_files_holds_for_each() {
    let marked = RuntimeClock {
        made: 4999 * SECOND,
        ..RUNTIME
    };
    let mapped = RuntimeClock {
        distance_by_maps: Some(-4002 * i128::from(SECOND)),
        ..RUNTIME
    };
    let files = [
        (RUNTIME, None),
        (mapped, None),
        (marked, MARKER),
        (RUNTIME, MARKER),
    ];
    let times: Vec<u64> = settled(&PROFILE, &files)
        .iter()
        .map(|alignment| alignment.time(RUNTIME.first).0)
        .collect();
    assert_eq!(times, [1002 * SECOND - 1_000_000 - DRIFT; 4]);
}

#[test]
fn files_whose_bounds_exclude_each_other_have_clocks_of_their_own() {
    let own = |made| RuntimeClock { made, ..RUNTIME };
    let files = [(own(4999 * SECOND), MARKER), (own(4990 * SECOND), MARKER)];
    let all = settled(&PROFILE, &files);
    let apart = all[1].time(RUNTIME.first).0 - all[0].time(RUNTIME.first).0;
    assert_eq!(apart, 9 * SECOND);
}

#[test]
fn without_any_evidence_clocks_that_start_together_are_taken_for_almost_the_same() {
    for (id, guess) in [
        (None, -20_000_000),
        (Some(4), -20_000_000),
        (Some(7), 0),
        (Some(11), 0),
    ] {
        let profile = ProfileClock { id, ..PROFILE };
        let all = settled(&profile, &[(RUNTIME, None)]);
        let time = i128::from(all[0].time(RUNTIME.first).0);
        assert_eq!(time - i128::from(RUNTIME.first.0), guess);
        assert!(all[0].is_guess());
        assert_eq!(all[0].doubt(), Some(Doubt::ANY));
    }
}

/// Creates a plateau of `from..=to` that matches `score` samples, `right_after` of which stop matching just above
/// it.
fn plateau(from: i64, to: i64, score: u32, right_after: u32) -> Plateau {
    let of = |from, score| OffsetScore { from, score };
    Plateau {
        low: from,
        high: to,
        score,
        least_score: score / 2,
        scores: vec![
            of(i64::MIN, score / 2),
            of(from, score),
            of(to + 1, score - right_after),
            of(to + 1_000_000_000, 0),
        ],
    }
}

fn shifted(bound: Option<i128>, plateau: Plateau) -> Shift {
    let bound = bound.map(|bound| OffsetBounds::exactly(bound, OffsetEvidence::FirstRecordAtMarker));
    let mut shift = Shift {
        offset: 0,
        evidence: OffsetEvidence::None,
        bound,
        doubt: None,
    };
    shift.settle(bound, &PROFILE, Some(&plateau));
    shift
}

#[test]
fn samples_right_after_loads_bring_a_distant_bound_nearer() {
    const MS: i64 = 1_000_000;
    let margin = 20 * MS;
    let nearer = |bound: i64, right_after| {
        let plateau = plateau(bound, 300 * MS, 100, right_after);
        shifted(Some(bound.into()), plateau).offset
    };
    assert_eq!(nearer(-500 * MS, 8), i128::from(300 * MS - margin));
    assert_eq!(nearer(-500 * MS, 7), i128::from(-500 * MS), "chance");
    assert_eq!(nearer(299 * MS, 8), i128::from(299 * MS));
    // Single samples in code that no file contains are no evidence.
    let beside = |score, right_after| shifted(Some(0), plateau(5 * MS, 300 * MS, score, right_after));
    assert_eq!(beside(4, 1).offset, 0);
    assert_eq!(beside(6, 1).offset, i128::from(5 * MS + margin));
    assert_eq!(beside(40, 1).offset, i128::from(5 * MS + margin));
    assert_eq!(beside(40, 1).doubt, None);
}

#[test]
fn where_samples_alone_bound_the_distance_names_are_in_doubt_as_far_as_they_leave_it_open() {
    const MS: i64 = 1_000_000;
    let wide = shifted(None, plateau(-800 * MS, 600 * MS, 40, 1));
    assert_eq!(wide.offset, -20_000_000, "the guess");
    let doubt = Doubt {
        less: 780 * MS as u64,
        more: 620 * MS as u64,
    };
    assert_eq!(
        (wide.evidence, wide.doubt),
        (OffsetEvidence::LiveCode, Some(doubt))
    );
    let apart = shifted(None, plateau(-800 * MS, -600 * MS, 40, 1));
    assert_eq!(apart.offset, i128::from(-620 * MS));
    let sharp = shifted(None, plateau(-800 * MS, -600 * MS, 40, 20));
    assert_eq!((sharp.offset, sharp.doubt), (i128::from(-620 * MS), None));
    let weak = shifted(None, plateau(-800 * MS, 600 * MS, 4, 1));
    assert_eq!(
        (weak.evidence, weak.doubt),
        (OffsetEvidence::None, Some(Doubt::ANY))
    );
    let enough = shifted(None, plateau(-800 * MS, 600 * MS, 6, 1));
    assert_eq!(enough.evidence, OffsetEvidence::LiveCode);
}

#[test]
fn where_one_side_has_no_times_everything_is_there_at_once() {
    let runtime = RuntimeClock {
        first: RuntimeTime(0),
        last: RuntimeTime(17),
        ..RUNTIME
    };
    for (profile, runtime) in [
        (PROFILE, runtime),
        (
            ProfileClock {
                has_times: false,
                ..PROFILE
            },
            RUNTIME,
        ),
    ] {
        let alignment = Alignment::choose(&profile, &runtime, MARKER).unwrap();
        assert_eq!(alignment.time(RuntimeTime(5)), MARKER.unwrap());
    }
}
