//! Conversion of a trace's ticks to the profile's clock.

use jitdump::Time;

use crate::code::clock::{CLOCK_MONOTONIC, ProfileClock};
use crate::code::profile_index::TimeConversion;
use crate::results::diagnostics::Issue;
use crate::traces::xray::format::{Trace, TraceBuffer, TraceIndex};
use crate::traces::xray::tick_clock::{Calibration, Speed, TickClock};

/// `CLOCK_REALTIME` of Linux' include/uapi/linux/time.h.
const CLOCK_REALTIME: i32 = 0;

/// Ticks per second if they are CLOCK_REALTIME: XRay's runtime uses it where the kernel does not report the frequency
/// of the processor's counter.
const NANOSECONDS: u64 = 1_000_000_000;

/// Largest plausible deviation of the buffers' CLOCK_MONOTONIC times, in nanoseconds: a thread may have to wait for a
/// processor.
const MAX_SPREAD: u64 = 1_000_000_000;

/// Conversion of a trace's ticks to times of the profile.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TraceClock {
    /// By the trace's own frequency and anchors.
    Ticks(TickClock),
    /// By the profile's TIME_CONV record: ticks are cycle counts.
    Cycles(TimeConversion),
}

impl TraceClock {
    /// Returns the time of a tick.
    #[inline]
    pub fn time(&self, tick: u64) -> Time {
        match self {
            Self::Ticks(clock) => Time(clock.time(tick).0),
            Self::Cycles(conversion) => conversion.time(tick),
        }
    }
}

/// Clock of a trace, and how it was determined.
#[derive(Clone, PartialEq, Debug)]
pub struct FoundClock {
    /// The conversion.
    pub clock: TraceClock,
    /// ID of the clock that the converted times are on; `None` if it has no ID or is unknown.
    pub id: Option<i32>,
    /// Description for the user.
    pub note: String,
    /// Reason why the times may be wrong.
    pub warning: Option<Issue>,
}

/// Determines how the ticks of a trace become times of `profile`. Without a profile, they stay on the trace's clock.
/// `distance` is the offset given by the user, in nanoseconds.
pub fn determine(
    trace: &Trace<'_>,
    index: &TraceIndex,
    profile: Option<&ProfileClock>,
    distance: Option<i64>,
) -> FoundClock {
    let anchors = index.buffers().iter().filter_map(TraceBuffer::anchor);
    let first_tick = index.buffers().iter().map(|buffer| buffer.tick).min();
    let frequency = trace.header().frequency;
    let found = TickClock::calibrate(frequency, anchors.collect(), first_tick.unwrap_or_default());
    let is_wall_clock = found.speed == Speed::Epoch || frequency == NANOSECONDS;
    let own_id = match found.anchors {
        0 if is_wall_clock => Some(CLOCK_REALTIME),
        0 => None,
        _ => Some(CLOCK_MONOTONIC),
    };
    let own = UsedClock {
        clock: TraceClock::Ticks(found.clock),
        way: match found.anchors {
            0 => "as they are",
            _ => "related to CLOCK_MONOTONIC by each buffer",
        },
    };
    let mut warning = (found.spread > MAX_SPREAD).then_some(Issue::XrayClockSpread);
    let (used, id) = match (distance, profile) {
        (Some(distance), _) => {
            let moved = UsedClock {
                clock: TraceClock::Ticks(found.clock.with_offset(distance.into())),
                way: "moved by --clock-offset",
            };
            (moved, own_id)
        }
        // The times are on the profile's clock already.
        (None, Some(profile)) if profile.id.is_some() && profile.id == own_id => (own, own_id),
        (None, Some(profile)) => {
            let related = related_by_profile(profile, is_wall_clock);
            if related.is_none() {
                warning = Some(match found.anchors {
                    0 => Issue::XrayClockUnrelated,
                    _ => Issue::XrayClockMonotonic,
                });
            }
            (related.unwrap_or(own), profile.id)
        }
        (None, None) => (own, own_id),
    };
    FoundClock {
        clock: used.clock,
        id,
        note: in_words(&found, is_wall_clock, used.way),
        warning,
    }
}

/// The clock that is chosen.
struct UsedClock {
    clock: TraceClock,
    /// How its ticks become times, for the note about the clock.
    way: &'static str,
}

/// Returns the conversion by what the profile knows of its own clock; `None` if that does not relate it to the trace's.
fn related_by_profile(profile: &ProfileClock, is_wall_clock: bool) -> Option<UsedClock> {
    // Ticks that are CLOCK_REALTIME are nanoseconds already.
    let wall = TickClock::calibrate(NANOSECONDS, Vec::new(), 0).clock;
    if is_wall_clock && profile.id == Some(CLOCK_REALTIME) {
        return Some(UsedClock {
            clock: TraceClock::Ticks(wall),
            way: "as they are",
        });
    }
    if is_wall_clock {
        let data = profile.data?;
        let distance = i128::from(data.profile_clock).saturating_sub(data.wall_clock.into());
        return Some(UsedClock {
            clock: TraceClock::Ticks(wall.with_offset(distance)),
            way: "related to the wall clock by the profile (CLOCK_DATA)",
        });
    }
    // A profile whose clock has an ID has no cycle counts.
    let conversion = profile.conversion.filter(|_| profile.id.is_none())?;
    Some(UsedClock {
        clock: TraceClock::Cycles(conversion),
        way: "converted by the profile (TIME_CONV)",
    })
}

/// Describes what was found out about the clock of a trace; `way` is how it is used.
fn in_words(found: &Calibration, is_wall_clock: bool, way: &str) -> String {
    let speed = match found.speed {
        _ if is_wall_clock => "its ticks are CLOCK_REALTIME".into(),
        Speed::Unknown => "the speed of its ticks is unknown and assumed to be 1 GHz".into(),
        Speed::Measured => format!(
            "its ticks are {:.6} GHz by the times of its buffers, unlike in its header",
            found.clock.frequency() / 1e9
        ),
        Speed::Stated | Speed::Epoch => format!("its ticks are {:.6} GHz", found.clock.frequency() / 1e9),
    };
    let spread = match found.anchors {
        0 | 1 => String::new(),
        anchors => format!("; {anchors} buffers agree to {:.1} us", found.spread as f64 / 1e3),
    };
    format!("{speed}, used {way}{spread}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitdump::ByteOrder;

    /// Returns a metadata record with a number at an offset.
    fn metadata(kind: u8, at: usize, number: u64) -> Vec<u8> {
        let mut record = vec![0; 16];
        record[0] = kind << 1 | 1;
        ByteOrder::Little.set_u64(&mut record, at, number);
        record
    }

    /// Returns a trace whose ticks are nanoseconds, with a buffer for each tick and its second of the wall clock.
    fn trace(buffers: &[(u64, u64)]) -> Vec<u8> {
        let mut file = vec![5, 0, 1, 0, 3, 0, 0, 0];
        for field in [1_000_000_000_u64, 1 << 16, 0] {
            file.extend(field.to_le_bytes());
        }
        for &(tick, second) in buffers {
            // The size of the buffer, and its thread, wall time and tick.
            for (kind, at, number) in [(7, 1, 48), (0, 1, 1), (4, 1, second), (2, 3, tick)] {
                file.extend(metadata(kind, at, number));
            }
        }
        file
    }

    #[test]
    fn wall_times_may_be_a_second_apart_from_the_ticks_and_no_more() {
        for (tick, expected) in [
            (2_000_000_000, None),
            (1_999_999_999, Some(Issue::XrayClockSpread)),
        ] {
            let file = trace(&[(1_000_000_000, 1), (tick, 3)]);
            let trace = Trace::parse(&file).unwrap();
            let index = trace.index();
            assert_eq!(index.buffers().len(), 2);
            assert_eq!(determine(&trace, &index, None, None).warning, expected, "{tick}");
        }
    }
}
