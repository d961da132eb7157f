//! Aligns a runtime's timestamps to the profile's clock.
//!
//! Runtimes use CLOCK_MONOTONIC. `perf record -k mono` does too, and then no alignment is needed. With any other
//! clock there is an offset, to be added to a runtime's times, that the profile does not contain. Errors in the two
//! directions are not equally bad. Code runs right after its load, so an offset too great by microseconds attributes
//! samples to the function that was at the address before. Code is used for much longer than that before it is
//! replaced: in 21 recordings of Node.js with `--stress-flush-code`, an offset too small by 1 to 30 ms changes no
//! name, and the first name changes at 45 ms. So the result is the greatest offset that is certainly not too great.
//!
//! Lower bounds: a file's first record is not earlier than its marker, its header, the start of its process, or the
//! first map of the memory for its code. All runtimes use the same clock, so the greatest bound of all files applies
//! to each. Samples in replaced code bound the offset from both sides ([`crate::code::live_code`]). They decide where
//! lower bounds are missing or contradict them. Without either, the offset is a guess, and names that depend on it are
//! uncertain ([`Doubt`]).

use std::fmt;

use crate::code::live_code::{Plateau, Windows};
use crate::code::process::Map;
use crate::code::profile_index::{IndexedProfile, TimeConversion};
use crate::code::timeline::FileIndex;
use crate::diagnostics::{Diagnostic, Issue};
use crate::perf::event::Backing;
use crate::perf::feature::{self, ClockData};
use crate::range_map::RangeMap;
use crate::runtime::RuntimeTime;
use crate::units::{Address, Time};

const SECOND: u64 = 1_000_000_000;

/// Clock IDs from include/uapi/linux/time.h of Linux.
pub const CLOCK_MONOTONIC: i32 = 1;
const CLOCK_MONOTONIC_RAW: i32 = 4;
const CLOCK_BOOTTIME: i32 = 7;

/// Safety margin of an estimate below the greatest possible offset, in nanoseconds: half the error that changes names
/// in constantly replaced code.
const MARGIN: i128 = 20_000_000;

/// Maximum difference between a header's time and the marker's map, in nanoseconds. Some runtimes write the header
/// first (PHP, Erlang: up to 0.1 ms), others map the marker first (LLVM, perf's Java agent, Wasmtime: 0.05 ms).
const HEADER_SLACK: i128 = 1_000_000;

/// Maximum error of perf's wall-clock reference (CLOCK_DATA), in nanoseconds: perf reads one clock after the other.
const WALL_CLOCK_SLACK: i128 = 1_000_000;

/// Assumed drift between clocks with and without NTP adjustment, as a divisor of the elapsed time: 1/10000. Measured:
/// 59 millionths between CLOCK_MONOTONIC_RAW and CLOCK_MONOTONIC.
const DRIFT: i128 = 10_000;

/// Number of samples that must contradict a bound, or all smaller offsets, to count as evidence. Single samples are
/// also taken in code that no file contains.
const MIN_SAMPLES: u32 = 3;

/// Number of samples that must stop matching within [`MARGIN`] / 4 above a plateau, as samples taken right after a
/// load do, for its upper end to be the true offset. With an offset too great by 1 ms, 2 such samples would be
/// missing; with one too great by the margin, 32.
const MIN_RIGHT_AFTER_LOAD: u32 = 8;

/// Clock of a profile.
#[derive(Clone, Copy, Debug)]
pub struct ProfileClock {
    /// ID of the clock that was requested; `None` for the scheduler's clock.
    pub id: Option<i32>,
    /// A time on that clock and on the wall clock.
    pub data: Option<ClockData>,
    /// Conversion from cycle counts to the scheduler's clock.
    pub conversion: Option<TimeConversion>,
    /// Earliest and latest record time.
    pub span: Option<(Time, Time)>,
    /// Whether records have times.
    pub has_times: bool,
    /// Time of the first sample.
    pub first_sample: Time,
    /// User-supplied offset to add to the times of runtimes, in nanoseconds.
    pub distance: Option<i64>,
}

impl ProfileClock {
    /// Returns what a profile contains about its clock. `distance` is the number of nanoseconds to add to runtime
    /// times, if known.
    pub fn of(recorded: &IndexedProfile<'_>, distance: Option<i64>) -> Self {
        let IndexedProfile { profile, index } = recorded;
        let data = profile.feature(feature::CLOCK_DATA);
        Self {
            id: profile.attrs.clock_id(),
            data: data.and_then(|content| ClockData::parse(content, profile.endian)),
            conversion: index.time_conversion,
            span: index.times,
            has_times: profile.attrs.has_times(),
            first_sample: index.first_sample.unwrap_or_default(),
            distance,
        }
    }
}

/// Clock of a runtime's file.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    /// Whether its header flags its times as cycle counts.
    pub counts_cycles: bool,
    /// Creation time in its header: on the clock of its records, as CLOCK_REALTIME in microseconds, or invalid.
    pub made: u64,
    /// Time of its first record.
    pub first: RuntimeTime,
    /// Time of its last event.
    pub last: RuntimeTime,
    /// Start time of its process, if recorded in the profile.
    pub born: Option<Time>,
    /// Lower bound of the offset from the maps of its process ([`distance_by_maps`]), in nanoseconds.
    pub distance_by_maps: Option<i128>,
}

/// Conversion of a runtime's times to the profile's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alignment {
    /// Both clocks are CLOCK_MONOTONIC.
    Same,
    /// Cycle counts, converted by the profile's TIME_CONV record.
    Cycles(TimeConversion),
    /// Shifted by a user-supplied offset, in nanoseconds.
    Given(i64),
    /// Shifted by an estimated offset.
    Shifted(Shift),
    /// All code is present from one time on, because one side has no times.
    AllAt(Time, Timeless),
}

/// Side that has no times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timeless {
    /// The profile.
    Profile,
    /// The runtime's file.
    Runtime,
}

/// An estimated offset between clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shift {
    /// Nanoseconds to add to a runtime's time.
    offset: i128,
    /// Evidence for the offset.
    evidence: Evidence,
    /// Bound from the file itself.
    bound: Option<Bound>,
    /// Uncertainty of the offset, where it can change names.
    doubt: Option<Doubt>,
}

/// Bounds of an offset, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bound {
    /// Certain lower bound.
    at_least: i128,
    /// Best estimate.
    best: i128,
    /// Certain upper bound, if there is one.
    at_most: Option<i128>,
    /// Evidence for the bound.
    evidence: Evidence,
}

/// Uncertainty of an estimated offset, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doubt {
    /// How much smaller the true offset can be.
    pub less: u64,
    /// How much greater the true offset can be.
    pub more: u64,
}

/// Evidence for an offset between clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
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

impl Alignment {
    /// Chooses the conversion of `runtime`'s times to `profile`'s clock. `marker` is the time at which the file was
    /// mapped, if the profile has that map. Cycle counts are converted even if the user supplies an offset.
    pub fn find(
        profile: &ProfileClock,
        runtime: &RuntimeClock,
        marker: Option<Time>,
    ) -> Result<Self, Diagnostic> {
        let start = marker.unwrap_or(profile.first_sample);
        if !profile.has_times {
            return Ok(Self::AllAt(start, Timeless::Profile));
        }
        // Some writers use zeros or count from zero. No system is up for less than a second when it is profiled.
        if runtime.last.0 < SECOND && start.0 > SECOND {
            return Ok(Self::AllAt(start, Timeless::Runtime));
        }
        if runtime.counts_cycles && !is_inside(profile.span, runtime.first) {
            return match (profile.conversion, profile.id) {
                (Some(conversion), None) => Ok(Self::Cycles(conversion)),
                (Some(_), Some(id)) => Err(Diagnostic::new(Issue::ClockNotPerfs).with("clock", id)),
                (None, _) => Err(Diagnostic::new(Issue::ClockWithoutConversion)),
            };
        }
        if let Some(offset) = profile.distance {
            return Ok(Self::Given(offset));
        }
        if profile.id == Some(CLOCK_MONOTONIC) {
            return Ok(Self::Same);
        }
        Ok(Self::Shifted(Shift {
            offset: 0,
            evidence: Evidence::None,
            bound: Bound::of(profile, runtime, marker),
            doubt: None,
        }))
    }

    /// Determines the offsets of `files`, each with its index, for which [`Alignment::find`] found only bounds.
    /// `windows` must be those of the profile's samples.
    pub fn settle(files: &mut [(FileIndex, &mut Self)], profile: &ProfileClock, windows: &Windows) {
        let mut shifts: Vec<(FileIndex, &mut Shift)> = Vec::new();
        for (file, alignment) in files {
            if let Self::Shifted(shift) = &mut **alignment {
                shifts.push((*file, shift));
            }
        }
        let bounds = || shifts.iter().filter_map(|(_, shift)| shift.bound);
        let at_least = bounds().map(|bound| bound.at_least).max();
        let at_most = bounds().filter_map(|bound| bound.at_most).min();
        let is_one_clock = at_least.zip(at_most).is_none_or(|(least, most)| least <= most);
        let best = bounds().max_by_key(|bound| bound.best);
        let common = best.map(|bound| Bound {
            at_least: at_least.unwrap_or(bound.at_least),
            ..bound
        });
        let plateau = |files: &[FileIndex], bound| windows.plateau(files, profile.least(bound));
        if is_one_clock {
            let all: Vec<FileIndex> = shifts.iter().map(|&(file, _)| file).collect();
            let plateau = plateau(&all, common);
            for (_, shift) in shifts {
                shift.settle(common, profile, plateau.as_ref());
            }
        } else {
            // Containers can have a clock of their own (time namespaces).
            for (file, shift) in shifts {
                shift.settle(shift.bound, profile, plateau(&[file], shift.bound).as_ref());
            }
        }
    }

    /// Whether the offset is estimated, so that [`Alignment::settle`] applies.
    pub fn is_estimate(&self) -> bool {
        matches!(self, Self::Shifted(_))
    }

    /// Whether the offset is a guess without evidence.
    pub fn is_guess(&self) -> bool {
        matches!(self, Self::Shifted(shift) if shift.evidence == Evidence::None)
    }

    /// Returns the uncertainty of the offset, where it can change names.
    pub fn doubt(&self) -> Option<Doubt> {
        match self {
            Self::Shifted(shift) => shift.doubt,
            _ => None,
        }
    }

    /// Converts a runtime's time to the profile's clock.
    #[inline]
    pub fn time(&self, time: RuntimeTime) -> Time {
        match self {
            Self::Same => Time(time.0),
            Self::Cycles(conversion) => conversion.time(time.0),
            Self::AllAt(start, _) => *start,
            Self::Given(offset) => apply_offset(time, (*offset).into()),
            Self::Shifted(shift) => apply_offset(time, shift.offset),
        }
    }
}

impl Bound {
    /// Returns the greatest of the available bounds.
    fn of(profile: &ProfileClock, runtime: &RuntimeClock, marker: Option<Time>) -> Option<Self> {
        let first = runtime.first.0;
        let has_record_clock = first.abs_diff(runtime.made) < 60 * SECOND;
        let from = |time: Time, earliest: u64, evidence| Self::exactly(distance(earliest, time.0), evidence);
        let at_header = marker.filter(|_| has_record_clock).map(|marker| {
            let distance = distance(runtime.made, marker.0);
            Self {
                at_most: Some(distance.saturating_add(HEADER_SLACK)),
                ..Self::exactly(distance.saturating_sub(HEADER_SLACK), Evidence::HeaderAtMarker)
            }
        });
        // Quirk: Bun's first record is 12 ms older than its marker and its header (capture bun), and so is the first
        // record of perf's Java agent (capture multi). If both have a time, the header's is used.
        let at_marker = marker.map(|marker| from(marker, first, Evidence::FirstRecordAtMarker));
        let at_marker = at_marker.filter(|bound| match at_header.and_then(|header| header.at_most) {
            Some(at_most) => bound.best <= at_most,
            None => true,
        });
        let wall_clock = profile.data.filter(|_| marker.is_none());
        let header = wall_clock.and_then(|data| made_on_profile_clock(data, runtime.made));
        let at_wall_clock = header.map(|header| {
            let distance = distance(first, header.0).saturating_sub(WALL_CLOCK_SLACK);
            Self::exactly(distance, Evidence::FirstRecordAtHeader)
        });
        let earliest = if has_record_clock {
            first.min(runtime.made)
        } else {
            first
        };
        let at_start = runtime
            .born
            .map(|born| from(born, earliest, Evidence::FirstRecordAtStart));
        // Quirk: LLVM's MCJIT, and others that never map memory writable and executable at once, make it executable
        // only after they log the load.
        let by_maps = runtime.distance_by_maps.map(|distance| Self {
            at_least: distance.saturating_sub(MARGIN),
            ..Self::exactly(distance, Evidence::MapBeforeLoad)
        });
        let bounds = [at_header, at_marker, at_wall_clock, at_start, by_maps];
        let greatest = bounds.into_iter().flatten().max_by_key(|bound| bound.best)?;
        Some(greatest.after(profile.drift()))
    }

    fn exactly(distance: i128, evidence: Evidence) -> Self {
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

impl ProfileClock {
    /// Returns the possible drift of CLOCK_MONOTONIC from the profile's clock during the recording, in nanoseconds.
    fn drift(&self) -> i128 {
        match (self.id, self.span) {
            (None | Some(CLOCK_MONOTONIC_RAW), Some((start, end))) => distance(start.0, end.0) / DRIFT,
            _ => 0,
        }
    }

    /// Returns the least offset allowed by a file's bound or, without one, by the profile's clock.
    fn least(&self, bound: Option<Bound>) -> i64 {
        // CLOCK_BOOTTIME is never earlier than CLOCK_MONOTONIC.
        let least = (self.id == Some(CLOCK_BOOTTIME)).then_some(0);
        let least = bound.map(|bound| bound.at_least).or(least);
        least.map_or(i64::MIN, clamped)
    }

    /// Returns the offset to assume without evidence: these clocks start together with CLOCK_MONOTONIC.
    fn guess(&self) -> Option<i128> {
        match self.id {
            None | Some(CLOCK_MONOTONIC_RAW) => Some(-MARGIN),
            Some(CLOCK_BOOTTIME) => Some(0),
            Some(_) => None,
        }
    }
}

impl Shift {
    /// Determines the offset from a bound of this or another file. `plateau` has the offsets that match most samples,
    /// from [`ProfileClock::least`] up.
    fn settle(&mut self, bound: Option<Bound>, profile: &ProfileClock, plateau: Option<&Plateau>) {
        let Some(bound) = bound else {
            return self.guess(profile, plateau);
        };
        let evidence = if self.bound.map(|own| own.best) != Some(bound.best) {
            Evidence::OtherRuntime
        } else {
            bound.evidence
        };
        let contradiction = plateau.filter(|plateau| {
            !plateau.holds(bound.best)
                && plateau.score.saturating_sub(plateau.score_of(bound.best)) >= MIN_SAMPLES
        });
        let nearer = plateau.and_then(sharp_end).filter(|&nearer| nearer > bound.best);
        (self.offset, self.evidence) = match (contradiction, nearer) {
            (Some(plateau), _) => {
                let end = sharp_end(plateau).unwrap_or_else(|| within(plateau, Some(bound.best)));
                (end, Evidence::LiveCode)
            }
            (None, Some(nearer)) => (nearer, Evidence::LiveCode),
            (None, None) => (bound.best, evidence),
        };
        self.doubt = None;
    }

    /// Determines an offset for which no file has a bound.
    fn guess(&mut self, profile: &ProfileClock, plateau: Option<&Plateau>) {
        let known =
            plateau.filter(|plateau| plateau.score.saturating_sub(plateau.least_score) >= MIN_SAMPLES);
        let guess = profile.guess();
        self.offset = plateau.map_or(guess.unwrap_or(0), |plateau| within(plateau, guess));
        self.evidence = if known.is_some() {
            Evidence::LiveCode
        } else {
            Evidence::None
        };
        if let Some(end) = known.and_then(sharp_end) {
            (self.offset, self.doubt) = (end, None);
            return;
        }
        self.doubt = Some(known.map_or(Doubt::ANY, |plateau| Doubt {
            less: nanoseconds(self.offset.saturating_sub(plateau.low.into())),
            more: nanoseconds(i128::from(plateau.high).saturating_sub(self.offset)),
        }));
    }
}

impl Doubt {
    /// Unlimited uncertainty.
    const ANY: Self = Self {
        less: u64::MAX,
        more: u64::MAX,
    };
}

fn nanoseconds(distance: i128) -> u64 {
    u64::try_from(distance.max(0)).unwrap_or(u64::MAX)
}

fn clamped(distance: i128) -> i64 {
    let limits = (i64::MIN.into(), i64::MAX.into());
    i64::try_from(distance.clamp(limits.0, limits.1)).unwrap_or(i64::MAX)
}

/// Returns an offset that is certainly not too great, and too small by little more than [`MARGIN`] at most, if many
/// samples were taken right after a load. The greatest offset that matches these is too great only by the age of the
/// code at the first of them.
fn sharp_end(plateau: &Plateau) -> Option<i128> {
    let high = i128::from(plateau.high);
    let behind = plateau.score_of(high.saturating_add(MARGIN / 4));
    let end = high.saturating_sub(MARGIN).max(plateau.low.into());
    (plateau.score.saturating_sub(behind) >= MIN_RIGHT_AFTER_LOAD).then_some(end)
}

/// Returns the offset in a plateau nearest to `wanted`, or the greatest if that is `None`. Keeps a distance of
/// [`MARGIN`] from both ends if there is room for it.
fn within(plateau: &Plateau, wanted: Option<i128>) -> i128 {
    let (low, high) = (i128::from(plateau.low), i128::from(plateau.high));
    let margin = MARGIN.min(high.saturating_sub(low) / 2);
    let (low, high) = (low.saturating_add(margin), high.saturating_sub(margin));
    wanted.unwrap_or(high).min(high).max(low)
}

/// Converts a runtime's time to the profile's clock by adding `offset` nanoseconds.
pub fn apply_offset(time: RuntimeTime, offset: i128) -> Time {
    let moved = i128::from(time.0).saturating_add(offset);
    Time(u64::try_from(moved.max(0)).unwrap_or(Time::LAST.0))
}

/// Returns the least offset, in nanoseconds, with which no function is loaded before its memory is mapped.
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
        known.insert(map.range, (), |_, ()| {});
        if map.time == Time(0) || map.backing == Backing::File {
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

/// Returns the offset that must be added to `from` to get `to`.
fn distance(from: u64, to: u64) -> i128 {
    i128::from(to).saturating_sub(i128::from(from))
}

impl fmt::Display for Alignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shift = match self {
            Self::Same => return f.write_str("CLOCK_MONOTONIC, as the profile's"),
            Self::Cycles(_) => {
                return f.write_str("cycle counts, converted by the profile's TIME_CONV record");
            }
            Self::AllAt(_, Timeless::Profile) => {
                return f.write_str(
                    "not compared: the profile has no times, so the last function at an address is used",
                );
            }
            Self::AllAt(_, Timeless::Runtime) => {
                return f.write_str(
                    "not compared: its records have no times, so the last function at an address is used",
                );
            }
            Self::Given(offset) => {
                return write!(f, "moved by {:+.6} s (--clock-offset)", *offset as f64 / 1e9);
            }
            Self::Shifted(shift) => shift,
        };
        f.write_str("another than the profile's, ")?;
        match shift.offset {
            0 => f.write_str("used as it is: ")?,
            offset => write!(f, "moved by {:+.6} s: ", offset as f64 / 1e9)?,
        }
        f.write_str(match shift.evidence {
            Evidence::HeaderAtMarker => "its header was written when the marker was mapped",
            Evidence::FirstRecordAtMarker => "its first record can't be earlier than the marker",
            Evidence::MapBeforeLoad => "no function can have been loaded before its memory was mapped",
            Evidence::FirstRecordAtHeader => "its first record can't be earlier than its header",
            Evidence::FirstRecordAtStart => "its first record can't be earlier than its process",
            Evidence::OtherRuntime => "from the file of another runtime with the same clock",
            Evidence::LiveCode => "with other offsets, samples are in code that was not loaded",
            Evidence::None => "a guess: nothing in the profile shows the offset",
        })
    }
}

/// Whether a cycle count is within the recording and therefore a time.
///
/// Quirk: some writers set the flag for cycle counts and write nanoseconds (libxsmm before its pull request 1093).
fn is_inside(span: Option<(Time, Time)>, first: RuntimeTime) -> bool {
    span.is_some_and(|(start, end)| (start.0.saturating_sub(SECOND)..=end.0).contains(&first.0))
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn nothing_is_moved_where_both_are_monotonic() {
        let profile = ProfileClock {
            id: Some(1),
            ..PROFILE
        };
        assert_eq!(Alignment::find(&profile, &RUNTIME, MARKER), Ok(Alignment::Same));
    }

    /// Drift of the clocks during the recording, in nanoseconds.
    const DRIFT: u64 = 1_000_000;

    /// Returns the alignments of files without samples.
    fn settled(profile: &ProfileClock, files: &[(RuntimeClock, Option<Time>)]) -> Vec<Alignment> {
        let find = |(runtime, marker): &_| Alignment::find(profile, runtime, *marker).unwrap();
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
        let slack = HEADER_SLACK as u64 + DRIFT;
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
        let slack = WALL_CLOCK_SLACK as u64;
        assert_eq!(time_of_first(&profile, &runtime, None), 997 * SECOND - slack);
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
        let found = Alignment::find(&PROFILE, &runtime, MARKER);
        assert_eq!(found.unwrap_err().issue, Issue::ClockWithoutConversion);
        let runtime = RuntimeClock {
            first: RuntimeTime(1002 * SECOND),
            ..runtime
        };
        assert!(Alignment::find(&PROFILE, &runtime, MARKER).is_ok());
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
        assert_eq!(times, [1002 * SECOND - HEADER_SLACK as u64 - DRIFT; 4]);
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
        for (id, guess) in [(None, -MARGIN), (Some(4), -MARGIN), (Some(7), 0), (Some(11), 0)] {
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
        Plateau {
            low: from,
            high: to,
            score,
            least_score: score / 2,
            scores: vec![
                (i64::MIN, score / 2),
                (from, score),
                (to + 1, score - right_after),
                (to + 1_000_000_000, 0),
            ],
        }
    }

    fn shifted(bound: Option<i128>, plateau: Plateau) -> Shift {
        let bound = bound.map(|bound| Bound::exactly(bound, Evidence::FirstRecordAtMarker));
        let mut shift = Shift {
            offset: 0,
            evidence: Evidence::None,
            bound,
            doubt: None,
        };
        shift.settle(bound, &PROFILE, Some(&plateau));
        shift
    }

    #[test]
    fn samples_right_after_loads_bring_a_distant_bound_nearer() {
        const MS: i64 = 1_000_000;
        let margin = MARGIN as i64;
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
        assert_eq!(beside(40, 1).offset, i128::from(5 * MS + margin));
        assert_eq!(beside(40, 1).doubt, None);
    }

    #[test]
    fn where_samples_alone_bound_the_distance_names_are_in_doubt_as_far_as_they_leave_it_open() {
        const MS: i64 = 1_000_000;
        let wide = shifted(None, plateau(-800 * MS, 600 * MS, 40, 1));
        assert_eq!(wide.offset, -MARGIN, "the guess");
        let doubt = Doubt {
            less: 780 * MS as u64,
            more: 620 * MS as u64,
        };
        assert_eq!((wide.evidence, wide.doubt), (Evidence::LiveCode, Some(doubt)));
        let apart = shifted(None, plateau(-800 * MS, -600 * MS, 40, 1));
        assert_eq!(apart.offset, i128::from(-620 * MS));
        let sharp = shifted(None, plateau(-800 * MS, -600 * MS, 40, 20));
        assert_eq!((sharp.offset, sharp.doubt), (i128::from(-620 * MS), None));
        let weak = shifted(None, plateau(-800 * MS, 600 * MS, 4, 1));
        assert_eq!((weak.evidence, weak.doubt), (Evidence::None, Some(Doubt::ANY)));
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
            let alignment = Alignment::find(&profile, &runtime, MARKER).unwrap();
            assert_eq!(alignment.time(RuntimeTime(5)), MARKER.unwrap());
        }
    }
}
