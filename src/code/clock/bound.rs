//! Bounds of an offset between clocks, from a file and the maps of its process.

use jitdump::{Address, RuntimeTime, Time};

use crate::code::clock::recorded_clocks::{MARGIN, ProfileClock, RuntimeClock, SECOND, distance};
use crate::code::process::Map;
use crate::collections::range_map::RangeMap;
use crate::perf::feature::ClockData;

/// Maximum difference between a header's time and the marker's map, in nanoseconds. Some runtimes write the header
/// first (PHP, Erlang: up to 0.1 ms), others map the marker first (LLVM, perf's Java agent, Wasmtime: 0.05 ms).
pub(super) const HEADER_SLACK: i128 = 1_000_000;

/// Maximum error of perf's wall-clock reference (CLOCK_DATA), in nanoseconds: perf reads one clock after the other.
pub(super) const WALL_CLOCK_SLACK: i128 = 1_000_000;

/// Bounds of an offset, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetBounds {
    /// Certain lower bound.
    pub(super) at_least: i128,
    /// Best estimate.
    pub(super) best: i128,
    /// Certain upper bound, if there is one.
    pub(super) at_most: Option<i128>,
    /// Evidence for the bound.
    pub(super) evidence: OffsetEvidence,
}

/// Evidence for an offset between clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetEvidence {
    /// The header was written when the marker was mapped.
    HeaderAtMarker,
    /// The first record can't be earlier than the marker.
    FirstRecordAtMarker,
    /// The first record can't be earlier than the header, which has a wall-clock time.
    FirstRecordAtHeader,
    /// The first record can't be earlier than the process.
    FirstRecordAtStart,
    /// No function can have been loaded before its memory was mapped.
    MapBeforeLoad,
    /// Bound of another runtime's file, which uses the same clock.
    OtherRuntime,
    /// With other offsets, samples are in code that was not loaded yet or already replaced.
    LiveCode,
    /// No evidence.
    None,
}

impl OffsetBounds {
    /// Returns the greatest of the available bounds; `None` without any.
    pub(super) fn of(profile: &ProfileClock, runtime: &RuntimeClock, marker: Option<Time>) -> Option<Self> {
        let at_header = marker.and_then(|marker| Self::by_header(runtime, marker));
        let at_marker = marker.map(|marker| Self::by_first_record(runtime, marker));
        // Quirk: Bun's first record is 12 ms older than its marker and its header (capture bun), and so is the first
        // record of perf's Java agent (capture multi). If both have a time, the header's is used.
        let at_marker = at_marker.filter(|bound| match at_header.and_then(|header| header.at_most) {
            Some(at_most) => bound.best <= at_most,
            None => true,
        });
        let at_wall_clock = match marker {
            Some(_) => None,
            None => Self::by_wall_clock(profile, runtime),
        };
        let bounds = [
            at_header,
            at_marker,
            at_wall_clock,
            Self::by_start(runtime),
            Self::by_maps(runtime),
        ];
        let greatest = bounds.into_iter().flatten().max_by_key(|bound| bound.best)?;
        Some(greatest.after(profile.drift()))
    }

    /// The header is as old as the marker, if it is on the clock of the records.
    fn by_header(runtime: &RuntimeClock, marker: Time) -> Option<Self> {
        let distance = distance(runtime.made, marker.0);
        has_record_clock(runtime).then(|| Self {
            at_most: Some(distance.saturating_add(HEADER_SLACK)),
            ..Self::exactly(
                distance.saturating_sub(HEADER_SLACK),
                OffsetEvidence::HeaderAtMarker,
            )
        })
    }

    /// The first record is not older than the marker.
    fn by_first_record(runtime: &RuntimeClock, marker: Time) -> Self {
        let distance = distance(runtime.first.0, marker.0);
        Self::exactly(distance, OffsetEvidence::FirstRecordAtMarker)
    }

    /// The first record is not older than the header, whose time is that of the wall clock.
    fn by_wall_clock(profile: &ProfileClock, runtime: &RuntimeClock) -> Option<Self> {
        let header = made_on_profile_clock(profile.data?, runtime.made)?;
        let distance = distance(runtime.first.0, header.0).saturating_sub(WALL_CLOCK_SLACK);
        Some(Self::exactly(distance, OffsetEvidence::FirstRecordAtHeader))
    }

    /// Nothing in the file is older than the process.
    fn by_start(runtime: &RuntimeClock) -> Option<Self> {
        let first = runtime.first.0;
        let earliest = if has_record_clock(runtime) {
            first.min(runtime.made)
        } else {
            first
        };
        let distance = distance(earliest, runtime.born?.0);
        Some(Self::exactly(distance, OffsetEvidence::FirstRecordAtStart))
    }

    /// No function is older than the map of its memory, or hardly.
    ///
    /// Quirk: LLVM's MCJIT, and others that never map memory writable and executable at once, make it executable
    /// only after they log the load.
    fn by_maps(runtime: &RuntimeClock) -> Option<Self> {
        let distance = runtime.distance_by_maps?;
        Some(Self {
            at_least: distance.saturating_sub(MARGIN),
            ..Self::exactly(distance, OffsetEvidence::MapBeforeLoad)
        })
    }

    pub(super) fn exactly(distance: i128, evidence: OffsetEvidence) -> Self {
        Self {
            at_least: distance,
            best: distance,
            at_most: None,
            evidence,
        }
    }

    /// Widens the bounds by the drift of the clocks during the recording.
    fn after(self, drift: i128) -> Self {
        Self {
            at_least: self.at_least.saturating_sub(drift),
            best: self.best.saturating_sub(drift),
            at_most: self.at_most.map(|most| most.saturating_add(drift)),
            evidence: self.evidence,
        }
    }
}

/// Whether the header of a file has a time on the clock of its records: close to that of the first one.
fn has_record_clock(runtime: &RuntimeClock) -> bool {
    runtime.first.0.abs_diff(runtime.made) < 60 * SECOND
}

/// Returns the least offset, in nanoseconds, with which no function is loaded before its memory is mapped; `None` without such
/// memory.
///
/// `maps` are those of its process, in the order of time; `loads` are the addresses and times of function loads. Only
/// memory that was mapped during the recording, at addresses not mapped before, is used.
pub fn distance_by_maps(maps: &[Map], loads: impl Iterator<Item = (Address, RuntimeTime)>) -> Option<i128> {
    let mut loads: Vec<(Address, RuntimeTime)> = loads.collect();
    loads.sort_unstable();
    let mut known = RangeMap::default();
    let mut greatest: Option<i128> = None;
    for map in maps {
        let new = known.gaps(map.range, |()| true);
        known.insert(map.range, ());
        if map.time == Time(0) || !map.backing.is_jit_memory() {
            continue;
        }
        for gap in new {
            let start = loads.partition_point(|&(address, _)| address < gap.start);
            let inside = loads.get(start..).unwrap_or_default().iter();
            let inside = inside.take_while(|&&(address, _)| address < gap.end);
            if let Some(first) = inside.map(|&(_, time)| time).min() {
                let least = distance(first.0, map.time.0);
                greatest = Some(greatest.map_or(least, |greatest| greatest.max(least)));
            }
        }
    }
    greatest
}

/// Returns the file's creation time from a header with CLOCK_REALTIME in microseconds (V8, CPython), if the profile
/// has a wall-clock reference.
fn made_on_profile_clock(data: ClockData, made: u64) -> Option<Time> {
    /// Nanoseconds in a day. Recordings are assumed to last at most 30 days.
    const DAY: u64 = 86_400 * SECOND;
    let wall_clock = made.checked_mul(1000)?;
    if wall_clock.abs_diff(data.wall_clock) > 30 * DAY {
        return None;
    }
    let time = i128::from(data.profile_clock) + i128::from(wall_clock) - i128::from(data.wall_clock);
    u64::try_from(time).ok().map(Time)
}
