//! Bringing a runtime's times onto the profile's clock.
//!
//! Runtimes stamp their records with CLOCK_MONOTONIC. `perf record -k mono` does too, and then nothing is to
//! be done; without `-k`, perf uses the scheduler's clock, which runs beside CLOCK_MONOTONIC at a distance
//! that the profile does not tell. Four things bound it: the first record can't be earlier than the marker,
//! some headers tell when the marker was mapped, no function can be loaded before its memory is mapped, and no
//! sample can be earlier than the load of the function that it was taken in.

use std::fmt;

use crate::code::process::Map;
use crate::code::survey::TimeConversion;
use crate::perf::event::Backing;
use crate::perf::feature::ClockData;
use crate::range_map::RangeMap;
use crate::runtime::RuntimeTime;
use crate::units::{Address, Time};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC` of Linux' include/uapi/linux/time.h.
pub const CLOCK_MONOTONIC: i32 = 1;

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
    /// What is added to a runtime's time. Until samples are looked at: as little as it can be.
    offset: i128,
    /// Whether it really can't be less.
    is_bounded: bool,
    /// The best guess, before samples are looked at.
    guess: i128,
    /// What it rests on.
    evidence: Evidence,
}

/// What a distance between clocks rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// The header's time and the marker's are the same moment.
    HeaderAtMarker,
    /// The first record follows the marker closely as it is, so the clocks can't be far apart.
    ClocksAgree,
    /// The first record can't be earlier than the marker.
    FirstRecordAtMarker,
    /// No function can have been loaded before its memory was mapped.
    MapBeforeLoad,
    /// It is that of another runtime's clock, which is the same.
    OtherRuntime,
    /// The function that a sample was taken in can't have been loaded later.
    LoadAtSample,
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
        let made = marker.or_else(|| made_on_profile_clock(profile.data?, runtime.made));
        Ok(Self::Shifted(match made {
            Some(made) => Shift::from_marker(made, runtime),
            None => Shift {
                // so that all code is there before the first sample
                offset: distance(runtime.last.0, profile.first_sample.0).min(0),
                is_bounded: false,
                guess: runtime.distance_by_maps.unwrap_or(0),
                evidence: match runtime.distance_by_maps {
                    Some(_) => Evidence::MapBeforeLoad,
                    None => Evidence::None,
                },
            },
        }))
    }

    /// Whether [`Alignment::refine`] has something to do.
    pub fn is_estimate(&self) -> bool {
        matches!(self, Self::Shifted(_))
    }

    /// A guess of the distance that there is evidence for, and how good it is.
    fn well_founded(&self) -> Option<(u8, i128)> {
        let Self::Shifted(shift) = self else { return None };
        match shift.evidence {
            Evidence::HeaderAtMarker => Some((2, shift.guess)),
            Evidence::ClocksAgree => Some((1, shift.guess)),
            // Distances that it can't be less than: of several, the greatest is nearest.
            Evidence::FirstRecordAtMarker | Evidence::MapBeforeLoad => Some((0, shift.guess)),
            Evidence::OtherRuntime | Evidence::LoadAtSample | Evidence::None => None,
        }
    }

    /// Gives estimates that rest on nothing the distance of one that rests on something: all runtimes use the
    /// same clock.
    pub fn share<'a>(all: impl Iterator<Item = &'a mut Self>) {
        let mut all: Vec<&mut Self> = all.collect();
        let best = all.iter().filter_map(|alignment| alignment.well_founded()).max();
        let Some((_, distance)) = best else { return };
        for alignment in &mut all {
            if let Self::Shifted(shift) = alignment
                && shift.evidence == Evidence::None
            {
                shift.guess = distance;
                shift.evidence = Evidence::OtherRuntime;
            }
        }
    }

    /// Settles an estimate, which until then puts everything as early as can be. `slack` is how much later
    /// the loads could be, in nanoseconds, before a sample came too early for the function that it was taken
    /// in; `None` if any later time will do.
    pub fn refine(&mut self, slack: Option<u64>) {
        let Self::Shifted(shift) = self else { return };
        let earliest = shift.offset;
        let latest = slack.map(|slack| earliest.saturating_add(slack.into()));
        if shift.is_bounded && shift.guess <= earliest {
            shift.evidence = Evidence::FirstRecordAtMarker;
        } else if let Some(latest) = latest
            && shift.guess > latest
        {
            shift.offset = latest;
            shift.evidence = Evidence::LoadAtSample;
        } else {
            shift.offset = shift.guess;
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

impl Shift {
    /// The distance that follows from when a file was mapped, which is just after it was made.
    fn from_marker(marker: Time, runtime: &RuntimeClock) -> Self {
        let earliest = distance(runtime.first.0, marker.0);
        let is_near = -i128::from(SECOND)..=0;
        let (guess, evidence) = if runtime.first.0.abs_diff(runtime.made) < 60 * SECOND {
            (distance(runtime.made, marker.0), Evidence::HeaderAtMarker)
        } else if is_near.contains(&earliest) {
            (0, Evidence::ClocksAgree)
        } else {
            (earliest, Evidence::FirstRecordAtMarker)
        };
        Self {
            offset: earliest,
            is_bounded: true,
            guess,
            evidence,
        }
    }
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
            Evidence::ClocksAgree => "its first record follows the marker by less than a second",
            Evidence::FirstRecordAtMarker => "its first record can't be earlier than the marker",
            Evidence::MapBeforeLoad => "no function can have been loaded before its memory was mapped",
            Evidence::OtherRuntime => "as far as another dump's",
            Evidence::LoadAtSample => "the function that a sample was taken in can't have been loaded later",
            Evidence::None => "the profile has no marker and no clock data to compare them by",
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

    #[test]
    fn the_header_is_believed_where_it_uses_the_clock_of_the_records() {
        let runtime = RuntimeClock {
            made: 4999 * SECOND,
            ..RUNTIME
        };
        let mut alignment = Alignment::find(&PROFILE, &runtime, MARKER).unwrap();
        assert_eq!(
            alignment.time(RUNTIME.first),
            MARKER.unwrap(),
            "as early as can be"
        );
        alignment.refine(None);
        assert_eq!(alignment.time(RuntimeTime(4999 * SECOND)), MARKER.unwrap());
    }

    #[test]
    fn without_a_usable_header_the_first_record_is_put_at_the_marker_or_left() {
        let mut alignment = Alignment::find(&PROFILE, &RUNTIME, MARKER).unwrap();
        alignment.refine(Some(SECOND));
        assert_eq!(alignment.time(RUNTIME.first), MARKER.unwrap());
        let first = RuntimeTime(1001 * SECOND + 14_000_000);
        let runtime = RuntimeClock { first, ..RUNTIME };
        let mut alignment = Alignment::find(&PROFILE, &runtime, MARKER).unwrap();
        alignment.refine(Some(SECOND));
        assert_eq!(alignment.time(first), Time(first.0));
    }

    #[test]
    fn a_load_is_not_put_behind_a_sample_of_its_function() {
        let first = RuntimeTime(1001 * SECOND + 14_000_000);
        let runtime = RuntimeClock { first, ..RUNTIME };
        let mut alignment = Alignment::find(&PROFILE, &runtime, MARKER).unwrap();
        alignment.refine(Some(13_000_000));
        assert_eq!(alignment.time(first), Time(first.0 - 1_000_000));
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
        let alignment = Alignment::find(&profile, &runtime, None).unwrap();
        assert_eq!(alignment.time(RUNTIME.first), Time(997 * SECOND));
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
    fn without_a_marker_the_samples_alone_bound_the_distance() {
        let runtime = RuntimeClock {
            first: RuntimeTime(1099 * SECOND),
            last: RuntimeTime(1100 * SECOND),
            ..RUNTIME
        };
        let mut alignment = Alignment::find(&PROFILE, &runtime, None).unwrap();
        assert_eq!(alignment.time(runtime.last), Time(1000 * SECOND));
        let mut free = alignment;
        free.refine(None);
        assert_eq!(
            free.time(runtime.last),
            Time(1100 * SECOND),
            "nothing speaks against it"
        );
        alignment.refine(Some(3 * SECOND));
        assert_eq!(alignment.time(runtime.last), Time(1003 * SECOND));
    }

    #[test]
    fn what_one_runtime_shows_of_its_clock_holds_for_all() {
        let marked = RuntimeClock {
            made: 4999 * SECOND,
            ..RUNTIME
        };
        let mut all = [
            Alignment::find(&PROFILE, &RUNTIME, None).unwrap(),
            Alignment::find(&PROFILE, &marked, MARKER).unwrap(),
            Alignment::find(&PROFILE, &RUNTIME, MARKER).unwrap(),
        ];
        Alignment::share(all.iter_mut());
        for alignment in &mut all {
            alignment.refine(None);
        }
        let times = all.map(|alignment| alignment.time(RUNTIME.first));
        let marker = MARKER.unwrap();
        assert_eq!(times, [Time(marker.0 + SECOND), Time(marker.0 + SECOND), marker]);
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
