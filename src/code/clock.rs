//! Bringing a runtime's times onto the profile's clock.
//!
//! Runtimes stamp their records with CLOCK_MONOTONIC. `perf record -k mono` does too, and then nothing is to be done.
//! Other clocks run at a distance that the profile does not contain: what must be added to a runtime's time to get the
//! profile's. The two ways to get it wrong are not equally bad. Code runs right after its load, so a distance that is
//! too great by microseconds gives samples to the function that was at their address before. It is used for much
//! longer than that until it is replaced: in 21 recordings of Node.js with `--stress-flush-code`, a distance that is
//! too small by 1 to 30 ms changes no name, and the first one changes at 45 ms. So the result is the greatest
//! distance that is surely not too great.
//!
//! Lower bounds: a file's first record is not earlier than its marker, its header, the start of its
//! process, or the first map of the memory for its code. All runtimes use the same clock, so the greatest bound of all
//! files counts for each. Where samples were taken in code that was replaced, they bound the distance from both sides
//! ([`crate::code::live_code`]); they decide where there is no lower bound, and where they contradict it. Without either, the
//! distance is a guess, and names that depend on it are not certain ([`Doubt`]).

use std::fmt;

use crate::code::live_code::{Plateau, Windows};
use crate::code::process::Map;
use crate::code::profile_index::TimeConversion;
use crate::perf::event::Backing;
use crate::perf::feature::ClockData;
use crate::range_map::RangeMap;
use crate::runtime::RuntimeTime;
use crate::units::{Address, Time};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW and CLOCK_BOOTTIME of Linux' include/uapi/linux/time.h.
pub const CLOCK_MONOTONIC: i32 = 1;
const CLOCK_MONOTONIC_RAW: i32 = 4;
const CLOCK_BOOTTIME: i32 = 7;

/// How much less than the greatest possible distance an estimate is, in nanoseconds: half of what changes names in code
/// that is replaced all the time.
const MARGIN: i128 = 20_000_000;

/// How far apart a header's time and the map of the marker can be, in nanoseconds. Some runtimes write the header first
/// (PHP, Erlang: up to 0.1 ms), others map the marker first (LLVM, perf's Java agent, Wasmtime: 0.05 ms).
const HEADER_SLACK: i128 = 1_000_000;

/// How much perf's note of the wall clock (CLOCK_DATA) can be off, in nanoseconds: it reads one clock after the other.
const WALL_CLOCK_SLACK: i128 = 1_000_000;

/// By which part of the time passed clocks drift apart that NTP adjusts and that it does not adjust: 1/10000. Measured:
/// 59 millionths between CLOCK_MONOTONIC_RAW and CLOCK_MONOTONIC.
const DRIFT: i128 = 10_000;

/// How many samples must contradict a bound, or all smaller distances, to be believed: single ones are also taken in code that
/// no file contains.
const MIN_SAMPLES: u32 = 3;

/// How many samples must have been taken in the [`MARGIN`]'s first quarter after a load, as far as can be, for the greatest
/// distance that suits all of them to be the true one. If it were greater by 1 ms, 2 such samples would be missing, and
/// if it were greater by the margin, 32.
const MIN_RIGHT_AFTER_LOAD: u32 = 8;

/// What the profile says about its clock.
#[derive(Clone, Copy, Debug)]
pub struct ProfileClock {
    /// The clock that was asked for; `None` is the scheduler's.
    pub id: Option<i32>,
    /// A moment on that clock and on the wall clock.
    pub data: Option<ClockData>,
    /// How cycle counts become times of the scheduler's clock.
    pub conversion: Option<TimeConversion>,
    /// The times of the first and the last record.
    pub span: Option<(Time, Time)>,
    /// Whether records carry times at all.
    pub has_times: bool,
    /// When the first sample was taken.
    pub first_sample: Time,
    /// Nanoseconds to add to the times of runtimes, if somebody knows how many.
    pub distance: Option<i64>,
}

/// What a runtime's file says about its own.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    /// Whether its header says that its times are cycle counts.
    pub counts_cycles: bool,
    /// When it was made, according to its header: on the clock of its records, or as CLOCK_REALTIME in
    /// microseconds, or nonsense.
    pub made: u64,
    /// The time of its first record.
    pub first: RuntimeTime,
    /// The time of its last event.
    pub last: RuntimeTime,
    /// When its process was started, if the profile has that.
    pub born: Option<Time>,
    /// What must be added to its times, as the maps of its process have it ([`distance_by_maps`]).
    pub distance_by_maps: Option<i128>,
}

/// How a runtime's times become the profile's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alignment {
    /// Both clocks are CLOCK_MONOTONIC.
    Same,
    /// Cycle counts, converted as the profile says.
    Cycles(TimeConversion),
    /// Moved by so many nanoseconds, since somebody said so.
    Given(i64),
    /// Moved by a distance that there is some evidence for.
    Shifted(Shift),
    /// Taken to be there from one moment on, all of it, since one side has no times.
    AllAt(Time, Timeless),
}

/// Which side has no times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timeless {
    /// The profile.
    Profile,
    /// The runtime's file.
    Runtime,
}

/// A distance between clocks, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shift {
    /// What is added to a runtime's time.
    offset: i128,
    /// What it rests on.
    evidence: Evidence,
    /// What the file itself says about it.
    bound: Option<Bound>,
    /// How far from it the true distance can be, where that can change names.
    doubt: Option<Doubt>,
}

/// What a distance can't be less than, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bound {
    /// It is surely not less.
    at_least: i128,
    /// The best estimate.
    best: i128,
    /// It is surely not more, where something shows that.
    at_most: Option<i128>,
    /// What it rests on.
    evidence: Evidence,
}

/// How much less and how much more than its estimate a distance can be, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doubt {
    /// So much less.
    pub less: u64,
    /// So much more.
    pub more: u64,
}

/// What a distance between clocks rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// The header's time and the marker's are the same moment.
    HeaderAtMarker,
    /// The first record can't be earlier than the marker.
    FirstRecordAtMarker,
    /// The first record can't be earlier than the header, whose time is on the wall clock.
    FirstRecordAtHeader,
    /// The first record can't be earlier than the process.
    FirstRecordAtStart,
    /// No function can have been loaded before its memory was mapped.
    MapBeforeLoad,
    /// The bound of another runtime's file, whose clock is the same.
    OtherRuntime,
    /// At other distances, samples were taken in code that was not loaded yet or was replaced already.
    LiveCode,
    /// There is none.
    None,
}

/// Why times can't be brought together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unalignable {
    /// Cycle counts, and the profile does not tell how to convert them.
    NoConversion,
    /// Cycle counts, and a profile on another clock than the one that they convert to.
    OtherClock(i32),
}

impl fmt::Display for Unalignable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConversion => f.write_str(
                "its times are counts of the processor's cycle counter, and the profile has no TIME_CONV record to convert them with \
                 (perf record writes one only where the kernel says how that counter relates to perf's clock, for which it needs a \
                 hardware event such as -e cycles); record with -k mono and let the runtime use CLOCK_MONOTONIC \
                 (for perf's Java agent: without JITDUMP_USE_ARCH_TIMESTAMP)",
            ),
            Self::OtherClock(id) => write!(
                f,
                "its times are counts of the processor's cycle counter, which convert to perf's own clock, and the profile was \
                 recorded on clock {id} instead; record without -k, or let the runtime use CLOCK_MONOTONIC and record with -k mono"
            ),
        }
    }
}

impl Alignment {
    /// Finds out how `runtime`'s times become `profile`'s; `marker` is when the file was mapped, if the
    /// profile saw that. Cycle counts are converted even where the distance is known.
    pub fn find(
        profile: &ProfileClock,
        runtime: &RuntimeClock,
        marker: Option<Time>,
    ) -> Result<Self, Unalignable> {
        let start = marker.unwrap_or(profile.first_sample);
        if !profile.has_times {
            return Ok(Self::AllAt(start, Timeless::Profile));
        }
        // Some writers put zeros, or count from zero: no machine is up for so short a time.
        if runtime.last.0 < SECOND && start.0 > SECOND {
            return Ok(Self::AllAt(start, Timeless::Runtime));
        }
        if runtime.counts_cycles && !is_inside(profile.span, runtime.first) {
            return match (profile.conversion, profile.id) {
                (Some(conversion), None) => Ok(Self::Cycles(conversion)),
                (Some(_), Some(id)) => Err(Unalignable::OtherClock(id)),
                (None, _) => Err(Unalignable::NoConversion),
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

    /// Settles the distances of `files`, each with its number, for which there are only bounds. `windows` are those of the
    /// profile's samples.
    pub fn settle(files: &mut [(u32, &mut Self)], profile: &ProfileClock, windows: &Windows) {
        let mut shifts: Vec<(u32, &mut Shift)> = Vec::new();
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
        let plateau = |files: &[u32], bound| windows.plateau(files, profile.least(bound));
        if is_one_clock {
            let all: Vec<u32> = shifts.iter().map(|&(file, _)| file).collect();
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

    /// Whether [`Alignment::settle`] has something to do.
    pub fn is_estimate(&self) -> bool {
        matches!(self, Self::Shifted(_))
    }

    /// Whether nothing but a guess connects the clocks.
    pub fn is_guess(&self) -> bool {
        matches!(self, Self::Shifted(shift) if shift.evidence == Evidence::None)
    }

    /// How far from the estimate the true distance can be, where that can change names.
    pub fn doubt(&self) -> Option<Doubt> {
        match self {
            Self::Shifted(shift) => shift.doubt,
            _ => None,
        }
    }

    /// A runtime's time on the profile's clock.
    pub fn time(&self, time: RuntimeTime) -> Time {
        match self {
            Self::Same => Time(time.0),
            Self::Cycles(conversion) => conversion.time(time.0),
            Self::AllAt(start, _) => *start,
            Self::Given(offset) => moved(time, (*offset).into()),
            Self::Shifted(shift) => moved(time, shift.offset),
        }
    }
}

impl Bound {
    /// The greatest of all bounds that there are.
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
        // Quirk: Bun's first record is 12 ms older than its marker and its header (capture bun), and so is the first one of
        // perf's Java agent (capture multi): where both have a time, the header decides.
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
        // Quirk: LLVM's MCJIT and others that never have memory writable and executable at once map it as executable only
        // after they log the load.
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

    /// The same for clocks that drift so far apart while the profile is recorded.
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
    /// How far CLOCK_MONOTONIC can drift away from the profile's clock while the profile is recorded, in nanoseconds.
    fn drift(&self) -> i128 {
        match (self.id, self.span) {
            (None | Some(CLOCK_MONOTONIC_RAW), Some((start, end))) => distance(start.0, end.0) / DRIFT,
            _ => 0,
        }
    }

    /// The least distance that a bound of a file allows, or the clocks themselves if there is none.
    fn least(&self, bound: Option<Bound>) -> i64 {
        // CLOCK_BOOTTIME is never behind CLOCK_MONOTONIC.
        let least = (self.id == Some(CLOCK_BOOTTIME)).then_some(0);
        let least = bound.map(|bound| bound.at_least).or(least);
        least.map_or(i64::MIN, clamped)
    }

    /// What is a good guess where nothing shows the distance: these clocks start with CLOCK_MONOTONIC.
    fn guess(&self) -> Option<i128> {
        match self.id {
            None | Some(CLOCK_MONOTONIC_RAW) => Some(-MARGIN),
            Some(CLOCK_BOOTTIME) => Some(0),
            Some(_) => None,
        }
    }
}

impl Shift {
    /// Settles the distance by a bound, its own or that of another file. `plateau` are the distances that suit most samples,
    /// from [`ProfileClock::least`] on.
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

    /// Settles a distance that no file bounds.
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
    /// Nothing is known.
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

/// A distance that is surely not too great, and less than [`MARGIN`] and a bit too small: where many samples were taken right
/// after a load, the greatest distance that suits them is the true one but for the time that the first of them took.
fn sharp_end(plateau: &Plateau) -> Option<i128> {
    let high = i128::from(plateau.high);
    let behind = plateau.score_of(high.saturating_add(MARGIN / 4));
    let end = high.saturating_sub(MARGIN).max(plateau.low.into());
    (plateau.score.saturating_sub(behind) >= MIN_RIGHT_AFTER_LOAD).then_some(end)
}

/// The distance in a plateau that is nearest to `wanted`; without that, the greatest. Not nearer than [`MARGIN`] to either
/// end, unless there is no room for that.
fn within(plateau: &Plateau, wanted: Option<i128>) -> i128 {
    let (low, high) = (i128::from(plateau.low), i128::from(plateau.high));
    let margin = MARGIN.min(high.saturating_sub(low) / 2);
    let (low, high) = (low.saturating_add(margin), high.saturating_sub(margin));
    wanted.unwrap_or(high).min(high).max(low)
}

/// A runtime's time, `offset` nanoseconds later.
pub fn moved(time: RuntimeTime, offset: i128) -> Time {
    let moved = i128::from(time.0).saturating_add(offset);
    Time(u64::try_from(moved.max(0)).unwrap_or(Time::LAST.0))
}

/// What must at least be added to a runtime's times so that no function is loaded before its memory is mapped.
///
/// `maps` are those of its process, in the order of time; `loads` where functions were loaded, and when. Only
/// memory counts that became mapped while the profile was recorded, where nothing was before.
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

/// What must be added to `from` to get `to`.
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
                return f.write_str("not compared: the profile has no times, so that of code at one address the last one counts");
            }
            Self::AllAt(_, Timeless::Runtime) => {
                return f.write_str("not compared: its records have no times, so that of code at one address the last one counts");
            }
            Self::Given(offset) => {
                return write!(f, "moved by {:+.6} s, as was asked for", *offset as f64 / 1e9);
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
            Evidence::OtherRuntime => "by the file of another runtime, whose clock is the same",
            Evidence::LiveCode => "at other distances, samples were taken in code that was not there",
            Evidence::None => "a guess, for nothing in the profile shows how far apart they are",
        })
    }
}

/// Quirk: some writers set the flag for cycle counts and write nanoseconds (libxsmm before its pull request
/// 1093). Counts that fall into the recording are times.
fn is_inside(span: Option<(Time, Time)>, first: RuntimeTime) -> bool {
    span.is_some_and(|(start, end)| (start.0.saturating_sub(SECOND)..=end.0).contains(&first.0))
}

/// When the file was made, for headers with CLOCK_REALTIME in microseconds (V8, CPython) in profiles that
/// tell what the wall clock said.
fn made_on_profile_clock(data: ClockData, made: u64) -> Option<Time> {
    /// Recordings are not believed to last longer.
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

    /// How far clocks can drift apart while the profile is recorded.
    const DRIFT: u64 = 1_000_000;

    /// The alignments of files, of which no sample says anything.
    fn settled(profile: &ProfileClock, files: &[(RuntimeClock, Option<Time>)]) -> Vec<Alignment> {
        let find = |(runtime, marker): &_| Alignment::find(profile, runtime, *marker).unwrap();
        let mut all: Vec<Alignment> = files.iter().map(find).collect();
        let mut numbered: Vec<(u32, &mut Alignment)> = (0..).zip(&mut all).collect();
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
        // Bun's first record is older.
        let first = RuntimeTime(4998 * SECOND);
        let runtime = RuntimeClock { first, ..runtime };
        assert_eq!(time_of_first(&PROFILE, &runtime, MARKER), 1000 * SECOND - slack);
    }

    /// Capture node20-raw: its clocks are a quarter of a second apart, and were taken for the same.
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
        assert_eq!(found, Err(Unalignable::NoConversion));
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

    /// A plateau of `from..=to` that `score` samples suit, `right_after` of which stop to do so right behind it.
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
        // Single samples in code that no file contains contradict nothing.
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
