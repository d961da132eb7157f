//! Ticks as nanoseconds, where there are moments of which both are known.
//!
//! A tracer reads its ticks, and just after that the wall clock. So the wall clock is never too early, and late by as much
//! as the thread was interrupted in between: of all moments, the one at which it is earliest is right.

use crate::runtime::RuntimeTime;
use crate::runtime::xray::Anchor;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Ticks that are CLOCK_REALTIME in nanoseconds lie in these years: 2001 to 2096.
const EPOCH: std::ops::Range<u64> = 1_000_000_000 * SECOND..4_000_000_000 * SECOND;

/// Moments that are earlier than most by so many nanoseconds are damaged: no wall clock is read so early.
const FAR: u64 = SECOND;

/// How ticks become nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TickClock {
    /// A moment on both clocks.
    tick: u64,
    wall: i128,
    /// How many ticks there are in so many nanoseconds. Both are at most 64 bits.
    rate: Rate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rate {
    ticks: u64,
    nanoseconds: u64,
}

/// What is known of a clock of ticks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Calibration {
    /// The clock.
    pub clock: TickClock,
    /// Where its speed comes from.
    pub speed: Speed,
    /// How many moments there are.
    pub anchors: usize,
    /// How much later than at the earliest of them the wall clock is at the latest of all, in nanoseconds.
    pub spread: u64,
}

/// Where the speed of a clock comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    /// Somebody has told it, and nothing speaks against it.
    Told,
    /// From moments that are far apart, since what was told is something else.
    Measured,
    /// The ticks are nanoseconds of CLOCK_REALTIME, by how many they are.
    Epoch,
    /// Nothing is known: taken to be nanoseconds.
    Unknown,
}

impl TickClock {
    /// Finds out how ticks of a clock become nanoseconds. `frequency` is how many a second has, if it is not 0; `anchors`
    /// in any order. Without any, the ticks' zero is that of the nanoseconds.
    pub fn calibrate(frequency: u64, mut anchors: Vec<Anchor>, first_tick: u64) -> Calibration {
        anchors.sort_unstable_by_key(|anchor| (anchor.tick, anchor.wall));
        let told = Rate {
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
            // Those are CLOCK_REALTIME, which may be set while the program runs, but not go at another speed.
            (SECOND, _) => (told, Speed::Told),
            (_, Some(measured)) if measured.differs(told) => (measured, Speed::Measured),
            _ => (told, Speed::Told),
        };
        let offset = |anchor: &Anchor| i128::from(anchor.wall.0).saturating_sub(rate.of(anchor.tick.into()));
        let mut offsets: Vec<i128> = anchors.iter().map(offset).collect();
        offsets.sort_unstable();
        let median = offsets.get(offsets.len() / 2).copied().unwrap_or(0);
        let far = median.saturating_sub(FAR.into());
        let earliest = offsets.iter().copied().find(|&offset| offset >= far);
        let spread = offsets.first().copied().zip(offsets.last().copied());
        let spread = spread.map_or(0, |(earliest, latest)| latest.saturating_sub(earliest));
        // Close to the ticks that are asked for, so that a speed that is not exact does as little as can be.
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

    /// The same clock, whose nanoseconds are counted from `distance` earlier on.
    pub fn moved(self, distance: i128) -> Self {
        let wall = self.wall.saturating_add(distance);
        Self { wall, ..self }
    }

    /// The nanoseconds of a tick. What is before their zero is taken for it.
    pub fn time(&self, tick: u64) -> RuntimeTime {
        let since = i128::from(tick).saturating_sub(self.tick.into());
        let time = self.wall.saturating_add(self.rate.of(since)).max(0);
        RuntimeTime(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// How many ticks a second has.
    pub fn frequency(&self) -> f64 {
        self.rate.ticks as f64 / self.rate.nanoseconds as f64 * SECOND as f64
    }
}

impl Rate {
    /// So many ticks in nanoseconds.
    #[inline]
    fn of(self, ticks: i128) -> i128 {
        if self.ticks == self.nanoseconds {
            return ticks;
        }
        let product = ticks.saturating_mul(self.nanoseconds.into());
        // As near as can be, so that what is added up is not off by more and more.
        let half = i128::from(self.ticks / 2);
        product
            .saturating_add(half)
            .checked_div_euclid(self.ticks.into())
            .unwrap_or(0)
    }

    /// Whether it is beyond doubt another one.
    fn differs(self, other: Self) -> bool {
        /// Counters that are told exactly are so to parts in a million; the highest speed of a processor is at least some
        /// percents above that of its counter.
        const TOLERANCE: u64 = 200;
        /// What a thread that is interrupted between the two may lose, in nanoseconds, at both ends.
        const LATENESS: u64 = 20_000_000;
        let expected = u64::try_from(other.of(self.ticks.into())).unwrap_or(u64::MAX);
        let difference = self.nanoseconds.abs_diff(expected);
        difference > LATENESS && difference > self.nanoseconds / TOLERANCE
    }
}

/// The speed by the first moments and the last ones, which must be far enough apart for what a thread may be interrupted.
fn measured(anchors: &[Anchor]) -> Option<Rate> {
    /// Less than a hundredth of this is what an interrupted thread loses, but for few.
    const LEAST: u64 = SECOND / 10;
    let rate = |first: &Anchor, last: &Anchor| {
        let ticks = last.tick.checked_sub(first.tick).filter(|&ticks| ticks > 0)?;
        let nanoseconds = last.wall.0.checked_sub(first.wall.0)?;
        (nanoseconds >= LEAST).then_some(Rate { ticks, nanoseconds })
    };
    let rough = rate(anchors.first()?, anchors.last()?)?;
    // Of those at both ends, the ones at which the wall clock was read soonest.
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
            (Speed::Told, 4, 52_000)
        );
        assert_eq!(found.clock.time(5_000 + 2_000_000_000), RuntimeTime(77 + SECOND));
        assert_eq!(
            found.clock.time(5_001 + 2_000_000_000),
            RuntimeTime(78 + SECOND),
            "half a nanosecond"
        );
        assert_eq!(found.clock.moved(10).time(5_000), RuntimeTime(87));
        assert_eq!(found.clock.moved(-1000).time(5_000), RuntimeTime(0));
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
        assert_eq!((found.speed, found.spread), (Speed::Told, 15_000_000));
        let found = TickClock::calibrate(SECOND, anchors(2_000_000_000, &late), 5_000);
        assert_eq!(found.speed, Speed::Told);
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
