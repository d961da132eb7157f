//! Aligns a runtime's timestamps to the profile's clock.
//!
//! Runtimes use CLOCK_MONOTONIC. So does `perf record -k mono`, and then no alignment is needed. With any other
//! clock, an offset must be added to a runtime's times, and the profile does not contain it. An offset that is too
//! great is worse than one that is too small. Code runs right after its load, so an offset too great by microseconds
//! attributes samples to the previous function at the address. But code stays for long before it is replaced: in 21
//! recordings of Node.js with `--stress-flush-code`, an offset too small by 1 to 30 ms changes no name, and the first
//! name changes at 45 ms. So the result is the greatest offset that is certainly not too great.
//!
//! Lower bounds: a file's first record is not earlier than its marker, its header, the start of its process, or the
//! first map of the memory for its code. All runtimes use the same clock, so the greatest bound of all files applies
//! to each. Samples in replaced code bound the offset from both sides ([`windows`]). They decide where
//! lower bounds are missing or contradict them. Without either, the offset is a guess, and names that depend on it are
//! uncertain ([`Doubt`]).
//!
//! Each bound has the slack of its source, plus the drift of the clocks. If two bounds exclude each other,
//! as in containers that have their own clock, each file has its own. If neither bounds nor samples decide,
//! the guess is that clocks that start together are still together, less 20 ms: with a warning if names
//! depend on it, otherwise with a note. If the profile or the jitdump has no times at all, all code is
//! assumed to exist from the start.

mod bound;
mod recorded_clocks;
mod shift;
pub mod windows;

use std::fmt;

use crate::code::clock::bound::OffsetBounds;
pub use crate::code::clock::bound::{OffsetEvidence, distance_by_maps};
use crate::code::clock::recorded_clocks::{CLOCK_BOOTTIME, SECOND};
pub use crate::code::clock::recorded_clocks::{CLOCK_MONOTONIC, ProfileClock, RuntimeClock};
pub use crate::code::clock::shift::{Doubt, Shift};
use crate::code::clock::windows::Windows;
use crate::code::profile_index::TimeConversion;
use crate::code::timeline::FileIndex;
use crate::results::diagnostics::{Diagnostic, Issue};
use jitdump::RuntimeTime;
use jitdump::Time;

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
    /// All code is present from one time on, because one side has no times that can be used.
    AllAt(Time, Timeless),
}

/// Why there are no times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timeless {
    /// The profile.
    Profile,
    /// The runtime's file.
    Runtime,
    /// The runtime's file has cycle counts, and nothing converts them.
    Cycles,
}

impl Alignment {
    /// Chooses the conversion of `runtime`'s times to `profile`'s clock. `marker` is the time at which the file was
    /// mapped, if the profile has that map. Cycle counts are converted even if the user supplies an offset.
    pub fn choose(
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
                (None, _) => Ok(Self::AllAt(start, Timeless::Cycles)),
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
            evidence: OffsetEvidence::None,
            bound: OffsetBounds::of(profile, runtime, marker),
            doubt: None,
        }))
    }

    /// Determines the offsets of `files`, each with its index, for which [`Alignment::choose`] found only bounds.
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
        let common = best.map(|bound| OffsetBounds {
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
        matches!(self, Self::Shifted(shift) if shift.evidence == OffsetEvidence::None)
    }

    /// Returns the uncertainty of the offset, where it can change names.
    pub fn doubt(&self) -> Option<Doubt> {
        match self {
            Self::Shifted(shift) => shift.doubt,
            _ => None,
        }
    }

    /// Whether it converts each time.
    pub fn has_times(&self) -> bool {
        match self {
            Self::Same | Self::Cycles(_) | Self::Given(_) | Self::Shifted(_) => true,
            Self::AllAt(..) => false,
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

/// Converts a runtime's time to the profile's clock by adding `offset` nanoseconds.
pub fn apply_offset(time: RuntimeTime, offset: i128) -> Time {
    let moved = i128::from(time.0).saturating_add(offset);
    Time(u64::try_from(moved.max(0)).unwrap_or(Time::LAST.0))
}

impl ProfileClock {
    /// Returns the least offset allowed by a file's bound or, without one, by the profile's clock.
    fn least(&self, bound: Option<OffsetBounds>) -> i64 {
        // CLOCK_BOOTTIME is never earlier than CLOCK_MONOTONIC.
        let least = (self.id == Some(CLOCK_BOOTTIME)).then_some(0);
        let least = bound.map(|bound| bound.at_least).or(least);
        least.map_or(i64::MIN, clamped)
    }
}

fn clamped(distance: i128) -> i64 {
    let limits = (i64::MIN.into(), i64::MAX.into());
    i64::try_from(distance.clamp(limits.0, limits.1)).unwrap_or(i64::MAX)
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
            Self::AllAt(_, Timeless::Cycles) => {
                return f.write_str(
                    "cycle counts without a conversion: code at addresses that only one function had is used",
                );
            }
            // Nobody would see so few in seconds.
            Self::Given(offset @ -999..=999) => return write!(f, "moved by {offset:+} ns (--clock-offset)"),
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
            OffsetEvidence::HeaderAtMarker => "its header was written when the marker was mapped",
            OffsetEvidence::FirstRecordAtMarker => "its first record can't be earlier than the marker",
            OffsetEvidence::MapBeforeLoad => "no function can have been loaded before its memory was mapped",
            OffsetEvidence::FirstRecordAtHeader => "its first record can't be earlier than its header",
            OffsetEvidence::FirstRecordAtStart => "its first record can't be earlier than its process",
            OffsetEvidence::OtherRuntime => "from the file of another runtime with the same clock",
            OffsetEvidence::LiveCode => "with other offsets, samples are in code that was not loaded",
            OffsetEvidence::None => "a guess: nothing in the profile shows the offset",
        })
    }
}

/// Whether a cycle count is within the recording and therefore a time.
///
/// Quirk: some writers set the flag for cycle counts and write nanoseconds (libxsmm before its pull request 1093).
fn is_inside(span: Option<(Time, Time)>, first: RuntimeTime) -> bool {
    span.is_some_and(|(start, end)| (start.0.saturating_sub(SECOND)..=end.0).contains(&first.0))
}

#[cfg(test)]
mod tests;
