//! The ticks of a trace on the profile's clock.

use crate::code::clock::{CLOCK_MONOTONIC, ProfileClock};
use crate::code::profile_index::TimeConversion;
use crate::code::tick_clock::{Calibration, Speed, TickClock};
use crate::runtime::xray::{Buffer, Index, Trace};
use crate::units::Time;

/// `CLOCK_REALTIME` of Linux' include/uapi/linux/time.h.
const CLOCK_REALTIME: i32 = 0;

/// How many ticks a second has where they are CLOCK_REALTIME: wherever the kernel does not tell XRay's runtime how fast
/// the processor counts.
const NANOSECONDS: u64 = 1_000_000_000;

/// How many nanoseconds buffers may be apart in what they tell: a thread may have to wait for a processor.
const FAR_APART: u64 = 1_000_000_000;

/// How the ticks of a trace become times of the profile.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TraceClock {
    /// By themselves.
    Ticks(TickClock),
    /// As the profile says.
    Cycles(TimeConversion),
}

impl TraceClock {
    /// The time of a tick.
    #[inline]
    pub fn time(&self, tick: u64) -> Time {
        match self {
            Self::Ticks(clock) => Time(clock.time(tick).0),
            Self::Cycles(conversion) => conversion.time(tick),
        }
    }
}

/// What was found of a trace's clock.
#[derive(Clone, PartialEq, Debug)]
pub struct FoundClock {
    /// It.
    pub clock: TraceClock,
    /// Which clock its times are on, where there is no profile; `None` if that is none that has a number.
    pub id: Option<i32>,
    /// In words.
    pub note: String,
    /// Why its times may be wrong.
    pub warning: Option<&'static str>,
}

/// Finds out how the ticks of a trace become times of `profile`, or of a clock of their own.
pub fn find(
    trace: &Trace<'_>,
    index: &Index,
    profile: Option<&ProfileClock>,
    distance: Option<i64>,
) -> FoundClock {
    let anchors = index.buffers().iter().filter_map(Buffer::anchor);
    let first_tick = index.buffers().iter().map(|buffer| buffer.tick).min();
    let frequency = trace.header().frequency;
    let found = TickClock::calibrate(frequency, anchors.collect(), first_tick.unwrap_or_default());
    let is_wall_clock = found.speed == Speed::Epoch || frequency == NANOSECONDS;
    let mut clock = TraceClock::Ticks(found.clock);
    let mut id = match found.anchors {
        0 if is_wall_clock => Some(CLOCK_REALTIME),
        0 => None,
        _ => Some(CLOCK_MONOTONIC),
    };
    let mut warning = None;
    let mut way = match found.anchors {
        0 => "as they are",
        _ => "by what each buffer tells of CLOCK_MONOTONIC",
    };
    let moved = |by: i128| TraceClock::Ticks(found.clock.moved(by));
    if found.spread > FAR_APART {
        warning = Some(
            "what its buffers tell of CLOCK_MONOTONIC does not go together: some are damaged, or a clock stood still or was set meanwhile, \
             so its times may be wrong",
        );
    }
    // As they are, where they are CLOCK_REALTIME.
    let wall = TickClock::calibrate(NANOSECONDS, Vec::new(), 0).clock;
    if let Some(distance) = distance {
        clock = moved(distance.into());
        way = "moved as was asked for";
    } else if let Some(profile) = profile {
        let wall_clock = profile.data.filter(|_| is_wall_clock);
        if profile.id.is_some() && profile.id == id {
            // They are on the profile's clock already.
        } else if is_wall_clock && profile.id == Some(CLOCK_REALTIME) {
            clock = TraceClock::Ticks(wall);
            way = "as they are";
        } else if let Some(data) = wall_clock {
            let distance = i128::from(data.profile_clock).saturating_sub(data.wall_clock.into());
            clock = TraceClock::Ticks(wall.moved(distance));
            way = "by what the profile tells of the wall clock (CLOCK_DATA)";
        } else if let (Some(conversion), None, false) = (profile.conversion, profile.id, is_wall_clock) {
            clock = TraceClock::Cycles(conversion);
            way = "as the profile converts cycle counts (TIME_CONV)";
        } else {
            warning = Some(match found.anchors {
                0 => {
                    "its times are on a clock that nothing relates to the profile's, so its events are somewhere else; trace with the \
                     flight data recorder (xray_mode=xray-fdr) and record with perf record -k mono, or give the distance with --clock-offset"
                }
                _ => {
                    "its times are CLOCK_MONOTONIC, and the profile was recorded on another clock, which may be milliseconds away, so its \
                     events may be in other places than the profile's samples; record with perf record -k mono, or give the distance with \
                     --clock-offset"
                }
            });
        }
        id = profile.id;
    }
    FoundClock {
        clock,
        id,
        note: in_words(&found, is_wall_clock, way),
        warning,
    }
}

fn in_words(found: &Calibration, is_wall_clock: bool, way: &str) -> String {
    let speed = match found.speed {
        _ if is_wall_clock => "its ticks are CLOCK_REALTIME".into(),
        Speed::Unknown => "nothing tells the speed of its ticks, which are taken for nanoseconds".into(),
        Speed::Measured => format!(
            "its ticks are {:.6} GHz by the times of its buffers, and not what its header says",
            found.clock.frequency() / 1e9
        ),
        Speed::Told | Speed::Epoch => format!("its ticks are {:.6} GHz", found.clock.frequency() / 1e9),
    };
    let spread = match found.anchors {
        0 | 1 => String::new(),
        anchors => format!("; {anchors} buffers agree to {:.1} us", found.spread as f64 / 1e3),
    };
    format!("{speed}, used {way}{spread}")
}
