//! Rounds: the promise of FINISHED_ROUND records, and the memory that readers need to sort by them.

use jitdump::Time;

use crate::perf::record::{FINISHED_ROUND, Record};

/// Bytes that linux-perf-data needs for a record, in addition to those in the file.
const OVERHEAD: u64 = 160;

/// The rounds of a profile, while its records are read in file order.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Latest time so far.
    latest: u64,
    /// Latest time at the last FINISHED_ROUND, up to which the next one delivers the records.
    next_limit: u64,
    /// Time up to which the records have been delivered.
    limit: u64,
    /// Bytes of the last round and of this one.
    held: [u64; 2],
    /// Largest number of bytes that linux-perf-data holds to sort the records.
    pub most_held: u64,
}

impl Rounds {
    /// Adds a record. Returns how much it is older than the records that were already delivered, in nanoseconds, if it is.
    pub fn add(&mut self, record: &Record<'_>, time: Option<Time>) -> Option<u64> {
        let [last, this] = &mut self.held;
        *this = this.saturating_add(record.size()).saturating_add(OVERHEAD);
        self.most_held = self.most_held.max(last.saturating_add(*this));
        if record.kind == FINISHED_ROUND {
            self.held = [*this, 0];
            self.limit = self.next_limit;
            self.next_limit = self.latest;
            return None;
        }
        // perf processes records without a time at once.
        let Time(time) = time.filter(|&Time(time)| !matches!(time, 0 | u64::MAX))?;
        self.latest = self.latest.max(time);
        self.limit.checked_sub(time).filter(|&late| late > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::{Records, SAMPLE};
    use crate::perf::testing::{self, ORDER};

    #[test]
    fn only_records_older_than_the_last_but_one_round_are_late() {
        let times = [50, 70, 0, 60, 90, 0, 69, 70, 71, 0, 89, 90];
        let mut rounds = Rounds::default();
        let mut late = Vec::new();
        for time in times {
            let kind = if time == 0 { FINISHED_ROUND } else { SAMPLE };
            let bytes = testing::record(kind, 0, &[time]);
            let record = Records::new(&bytes, 0, ORDER).next().unwrap();
            if let Some(by) = rounds.add(&record, Some(Time(time))) {
                late.push((time, by));
            }
        }
        assert_eq!(late, [(69, 1), (89, 1)]);
        // The third round and the one before it.
        assert_eq!(rounds.most_held, 7 * (16 + 160));
    }
}
