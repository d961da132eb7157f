//! What a profile and a runtime's file contain about their clocks.

use jitdump::{RuntimeTime, Time};

use crate::code::profile_index::{IndexedProfile, TimeConversion};
use crate::perf::feature::ClockData;

pub(super) const SECOND: u64 = 1_000_000_000;

/// Clock IDs from include/uapi/linux/time.h of Linux.
pub const CLOCK_MONOTONIC: i32 = 1;
pub(super) const CLOCK_MONOTONIC_RAW: i32 = 4;
pub(super) const CLOCK_BOOTTIME: i32 = 7;

/// Safety margin of an estimate below the greatest possible offset, in nanoseconds: half the error that changes names
/// in constantly replaced code.
pub(super) const MARGIN: i128 = 20_000_000;

/// Assumed drift between clocks with and without NTP adjustment, as a divisor of the elapsed time: 1/10000. Measured:
/// 59 millionths between CLOCK_MONOTONIC_RAW and CLOCK_MONOTONIC.
const DRIFT: i128 = 10_000;

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
        Self {
            id: profile.attrs.clock_id(),
            data: profile.clock_data(),
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
    /// Lower bound of the offset from the maps of its process ([`distance_by_maps`](super::distance_by_maps)), in nanoseconds.
    pub distance_by_maps: Option<i128>,
}

/// Returns the offset that must be added to `from` to get `to`.
pub(super) fn distance(from: u64, to: u64) -> i128 {
    i128::from(to).saturating_sub(i128::from(from))
}

impl ProfileClock {
    /// Returns the possible drift of CLOCK_MONOTONIC from the profile's clock during the recording, in nanoseconds.
    pub(super) fn drift(&self) -> i128 {
        match (self.id, self.span) {
            (None | Some(CLOCK_MONOTONIC_RAW), Some((start, end))) => distance(start.0, end.0) / DRIFT,
            _ => 0,
        }
    }

    /// Returns the offset that is usual for the profile's clock, without evidence: these clocks start together with
    /// CLOCK_MONOTONIC.
    pub(super) fn usual_offset(&self) -> Option<i128> {
        match self.id {
            None | Some(CLOCK_MONOTONIC_RAW) => Some(-MARGIN),
            Some(CLOCK_BOOTTIME) => Some(0),
            Some(_) => None,
        }
    }
}
