//! Converts the ticks of a tracer to nanoseconds, using anchors that have both.
//!
//! A tracer reads its tick counter and then the wall clock. The wall clock is therefore never too early, and late by
//! as much as the thread was interrupted in between: the anchor with the earliest wall-clock time is right.
//!
//! The header's frequency can be the maximum of the processor. If times far apart contradict it, they take
//! precedence. If ticks are CLOCK_REALTIME, as on most virtual machines, and there are no such times (basic
//! mode), the recording's reference time on both clocks is used. Each time is rounded to nanoseconds
//! independently, so that errors of sums do not accumulate.

use jitdump::RuntimeTime;

use crate::traces::xray::format::Anchor;

const SECOND: u64 = 1_000_000_000;

/// Range of ticks that are taken for nanoseconds of CLOCK_REALTIME: the years 2001 to 2096.
const EPOCH: std::ops::Range<u64> = 1_000_000_000 * SECOND..4_000_000_000 * SECOND;

/// Anchors earlier than the median by more than this many nanoseconds are damaged: the wall clock is never read so
/// early.
const FAR: u64 = SECOND;

/// Conversion from ticks to nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TickClock {
    /// A time on both clocks, in ticks and in nanoseconds.
    tick: u64,
    wall: i128,
    /// Number of ticks per number of nanoseconds. Both fit into 64 bits.
    rate: Rate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rate {
    ticks: u64,
    nanoseconds: u64,
}

/// Result of the calibration of a tick clock.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Calibration {
    /// Calibrated clock.
    pub clock: TickClock,
    /// Source of the clock's speed.
    pub speed: Speed,
    /// Number of anchors used.
    pub anchors: usize,
    /// Difference between the earliest and the latest wall-clock time relative to the ticks, in nanoseconds.
    pub spread: u64,
}

/// Source of a clock's speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    /// The file states it, and no anchors contradict it.
    Stated,
    /// Measured from anchors far apart, because the stated speed is missing or wrong.
    Measured,
    /// The values of the ticks show that they are nanoseconds of CLOCK_REALTIME.
    Epoch,
    /// Unknown; the ticks are taken for nanoseconds.
    Unknown,
}

impl TickClock {
    /// Determines the conversion of ticks to nanoseconds. `frequency` is the stated number of ticks per second, or 0 if
    /// unknown; `anchors` can be in any order. Without anchors, tick 0 becomes 0 nanoseconds.
    pub fn calibrate(frequency: u64, mut anchors: Vec<Anchor>, first_tick: u64) -> Calibration {
        anchors.sort_unstable_by_key(|anchor| (anchor.tick, anchor.wall));
        let stated = Rate {
            ticks: frequency,
            nanoseconds: SECOND,
        };
        let nanoseconds = Rate {
            ticks: SECOND,
            nanoseconds: SECOND,
        };
        let (rate, speed) = match (frequency, measured(&anchors)) {
            (0, _) if EPOCH.contains(&first_tick) => (nanoseconds, Speed::Epoch),
            (0, Some(measured)) => (measured, Speed::Measured),
            (0, None) => (nanoseconds, Speed::Unknown),
            // These ticks are CLOCK_REALTIME, which may be set while the program runs but keeps its speed.
            (SECOND, _) => (stated, Speed::Stated),
            (_, Some(measured)) if measured.differs(stated) => (measured, Speed::Measured),
            _ => (stated, Speed::Stated),
        };
        let offset = |anchor: &Anchor| i128::from(anchor.wall.0).saturating_sub(rate.of(anchor.tick.into()));
        let mut offsets: Vec<i128> = anchors.iter().map(offset).collect();
        offsets.sort_unstable();
        let median = offsets.get(offsets.len() / 2).copied().unwrap_or(0);
        let far = median.saturating_sub(FAR.into());
        let earliest = offsets.iter().copied().find(|&offset| offset >= far);
        let spread = offsets.first().copied().zip(offsets.last().copied());
        let spread = spread.map_or(0, |(earliest, latest)| latest.saturating_sub(earliest));
        // Close to the ticks that will be converted, to minimize the effect of an inexact speed.
        let base = anchors.first().map_or(0, |anchor| anchor.tick);
        Calibration {
            clock: Self {
                tick: base,
                wall: rate.of(base.into()).saturating_add(earliest.unwrap_or(0)),
                rate,
            },
            speed,
            anchors: anchors.len(),
            spread: u64::try_from(spread).unwrap_or(u64::MAX),
        }
    }

    /// Returns the same clock with all times later by `distance` nanoseconds.
    pub fn with_offset(self, distance: i128) -> Self {
        let wall = self.wall.saturating_add(distance);
        Self { wall, ..self }
    }

    /// Converts a tick to nanoseconds. Ticks before zero nanoseconds become zero.
    pub fn time(&self, tick: u64) -> RuntimeTime {
        let since = i128::from(tick).saturating_sub(self.tick.into());
        let time = self.wall.saturating_add(self.rate.of(since)).max(0);
        RuntimeTime(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// Returns the number of ticks per second.
    pub fn frequency(&self) -> f64 {
        self.rate.ticks as f64 / self.rate.nanoseconds as f64 * SECOND as f64
    }
}

impl Rate {
    /// Converts a number of ticks to nanoseconds.
    #[inline]
    fn of(self, ticks: i128) -> i128 {
        if self.ticks == self.nanoseconds {
            return ticks;
        }
        let product = ticks.saturating_mul(self.nanoseconds.into());
        // Rounds to nearest, so that errors don't accumulate.
        let half = i128::from(self.ticks / 2);
        product
            .saturating_add(half)
            .checked_div_euclid(self.ticks.into())
            .unwrap_or(0)
    }

    /// Whether two rates certainly differ.
    fn differs(self, other: Self) -> bool {
        /// Relative tolerance, as a divisor: 1/200. An exact counter frequency is right to parts per million; the
        /// maximum frequency of a processor is at least a few percent above that of its counter.
        const TOLERANCE: u64 = 200;
        /// Time that interruptions between the two readings can cost at both ends together, in nanoseconds.
        const LATENESS: u64 = 20_000_000;
        let expected = u64::try_from(other.of(self.ticks.into())).unwrap_or(u64::MAX);
        let difference = self.nanoseconds.abs_diff(expected);
        difference > LATENESS && difference > self.nanoseconds / TOLERANCE
    }
}

/// Measures the speed from the first and the last anchors; `None` if they are too close for possible interruptions.
fn measured(anchors: &[Anchor]) -> Option<Rate> {
    /// Minimum distance of the anchors, in nanoseconds. Interruptions rarely take a hundredth of it.
    const MIN_DISTANCE: u64 = SECOND / 10;
    let rate = |first: &Anchor, last: &Anchor| {
        let ticks = last.tick.checked_sub(first.tick).filter(|&ticks| ticks > 0)?;
        let nanoseconds = last.wall.0.checked_sub(first.wall.0)?;
        (nanoseconds >= MIN_DISTANCE).then_some(Rate { ticks, nanoseconds })
    };
    let rough = rate(anchors.first()?, anchors.last()?)?;
    // From both ends, the anchors with the earliest wall-clock times.
    let quarter = anchors.len().div_ceil(4);
    let soonest = |anchors: &[Anchor]| {
        let lateness =
            |anchor: &Anchor| i128::from(anchor.wall.0).saturating_sub(rough.of(anchor.tick.into()));
        anchors.iter().copied().min_by_key(lateness)
    };
    let first = soonest(anchors.get(..quarter)?)?;
    let last = soonest(anchors.get(anchors.len().saturating_sub(quarter)..)?)?;
    rate(&first, &last).or(Some(rough))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchors(frequency: u64, late: &[u64]) -> Vec<Anchor> {
        (1..)
            .zip(late)
            .map(|(second, late)| Anchor {
                tick: 5_000 + second * frequency,
                wall: RuntimeTime(77 + second * SECOND + late),
            })
            .collect()
    }

    #[test]
    fn the_moment_at_which_the_wall_clock_is_earliest_counts() {
        let anchors = anchors(2_000_000_000, &[900, 0, 52_000, 300]);
        let found = TickClock::calibrate(2_000_000_000, anchors, 5_000);
        assert_eq!(
            (found.speed, found.anchors, found.spread),
            (Speed::Stated, 4, 52_000)
        );
        assert_eq!(found.clock.time(5_000 + 2_000_000_000), RuntimeTime(77 + SECOND));
        assert_eq!(
            found.clock.time(5_001 + 2_000_000_000),
            RuntimeTime(78 + SECOND),
            "half a nanosecond"
        );
        assert_eq!(found.clock.with_offset(10).time(5_000), RuntimeTime(87));
        assert_eq!(found.clock.with_offset(-1000).time(5_000), RuntimeTime(0));
    }

    #[test]
    fn the_highest_speed_of_a_processor_is_not_that_of_its_counter() {
        let anchors = anchors(2_000_000_000, &[0, 700, 30_000, 0]);
        let found = TickClock::calibrate(3_700_000_000, anchors.clone(), 5_000);
        assert_eq!(found.speed, Speed::Measured);
        assert!((found.clock.frequency() / 2e9 - 1.0).abs() < 1e-6, "{found:?}");
        let found = TickClock::calibrate(0, anchors, 5_000);
        assert_eq!(found.speed, Speed::Measured);
    }

    #[test]
    fn a_thread_that_had_to_wait_says_nothing_of_the_speed() {
        let late = [0, 15_000_000];
        let found = TickClock::calibrate(2_000_000_000, anchors(2_000_000_000, &late), 5_000);
        assert_eq!((found.speed, found.spread), (Speed::Stated, 15_000_000));
        let found = TickClock::calibrate(SECOND, anchors(2_000_000_000, &late), 5_000);
        assert_eq!(found.speed, Speed::Stated);
    }

    #[test]
    fn a_moment_that_is_far_from_all_others_moves_nothing() {
        let mut anchors = anchors(2_000_000_000, &[0, 100, 200, 300, 400]);
        anchors[2].wall = RuntimeTime(0);
        let found = TickClock::calibrate(2_000_000_000, anchors, 5_000);
        assert_eq!(found.clock.time(5_000 + 2_000_000_000), RuntimeTime(77 + SECOND));
        assert!(found.spread > SECOND);
    }

    #[test]
    fn an_early_moment_is_damaged_from_a_second_on() {
        for (early, expected) in [(SECOND - 100, 177), (SECOND - 99, 77 + SECOND)] {
            let mut anchors = anchors(2_000_000_000, &[0, 100, 0, 300, 400]);
            anchors[2].wall.0 -= early;
            let found = TickClock::calibrate(2_000_000_000, anchors, 5_000);
            let first = found.clock.time(5_000 + 2_000_000_000);
            assert_eq!(first, RuntimeTime(expected), "{early}");
        }
    }

    #[test]
    fn a_speed_differs_beyond_interruptions_and_a_half_percent() {
        let speed = |frequency, seconds: u64, late| {
            let anchors = [(0, 0), (seconds, late)].map(|(second, late)| Anchor {
                tick: 5_000 + second * 2_000_000_000,
                wall: RuntimeTime(77 + second * SECOND + late),
            });
            TickClock::calibrate(frequency, anchors.to_vec(), 5_000).speed
        };
        for (seconds, late, expected) in [
            (1, 20_000_000, Speed::Stated),
            (1, 20_000_001, Speed::Measured),
            (10, 50_100_000, Speed::Stated),
            (10, 50_400_000, Speed::Measured),
        ] {
            assert_eq!(speed(2_000_000_000, seconds, late), expected, "{seconds} {late}");
        }
        let within = |nanoseconds| {
            let anchors = [0, nanoseconds].map(|time| Anchor {
                tick: 5_000 + 2 * time,
                wall: RuntimeTime(77 + time),
            });
            TickClock::calibrate(0, anchors.to_vec(), 5_000).speed
        };
        assert_eq!(
            [99_999_999, 100_000_000].map(within),
            [Speed::Unknown, Speed::Measured]
        );
    }

    #[test]
    fn ticks_of_unknown_speed_are_nanoseconds() {
        let now = 1_790_000_000 * SECOND;
        let found = TickClock::calibrate(0, Vec::new(), now);
        assert_eq!(
            (found.speed, found.clock.time(now)),
            (Speed::Epoch, RuntimeTime(now))
        );
        let found = TickClock::calibrate(0, Vec::new(), 5);
        assert_eq!(
            (found.speed, found.clock.time(9)),
            (Speed::Unknown, RuntimeTime(9))
        );
    }

    #[test]
    fn nonsense_has_a_time_as_well() {
        for frequency in [0, 1, u64::MAX] {
            let ends = [(0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)];
            let anchors = ends.map(|(tick, wall)| Anchor {
                tick,
                wall: RuntimeTime(wall),
            });
            let found = TickClock::calibrate(frequency, anchors.to_vec(), 0);
            found.clock.time(0);
            found.clock.time(u64::MAX);
        }
    }
}
