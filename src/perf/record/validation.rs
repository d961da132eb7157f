//! Distinguishes records from other bytes by properties that all records have.
//!
//! There are two checks. [`RecordValidator::is_record`] checks the next record, and must accept every record
//! of an intact profile. [`RecordValidator::starts_at`] checks whether records start at an offset after
//! damage. It may be strict, since an intact record that it rejects is the only loss.
//!
//! Sources are Linux' `kernel/events/core.c` and `tools/perf/util/`:
//!
//! - The kernel's types count up from 1, perf's from 64. Readers stop at an unknown type.
//! - The kernel's records have sizes that are multiples of 8 bytes. So have perf's, except compressed ones
//!   and some of those in pipes; records after these need not be aligned.
//! - No record is shorter than the fixed fields of its type, and no sample shorter than its fields. Nothing
//!   follows the fields of a sample or the name of a mapping.
//! - An ID in a record is that of a counter, unless perf made the record. Neighboring records have similar
//!   times.

use jitdump::{ByteOrder, Time};

use crate::perf::attr::{Attrs, IdMatch};
use crate::perf::record::{self, HEADER_SIZE, LAST_KERNEL_TYPE, Record, Records, Role};
use crate::perf::sample::{self, FieldsEnd};

/// perf's last type in Linux 7.3 (`PERF_RECORD_SCHEDSTAT_DOMAIN`).
const LAST_USER_TYPE: u32 = 86;
/// Types up to these may be added by later versions; there has been about one a year.
const MAX_FUTURE_KERNEL_TYPE: u32 = 31;
const MAX_FUTURE_USER_TYPE: u32 = 95;

/// perf's types whose sizes need not be multiples of 8 bytes.
const UNALIGNED_TYPES: [u32; 6] = [
    record::HEADER_TRACING_DATA,
    record::HEADER_BUILD_ID,
    record::CPU_MAP,
    record::EVENT_UPDATE,
    record::HEADER_FEATURE,
    record::COMPRESSED,
];

/// Maximum distance between the times of neighboring records, in nanoseconds or cycles: an hour or less. Ring
/// buffers of several CPUs are written in turn, so times also go back.
const MAX_TIME_DISTANCE: u64 = 3_600_000_000_000;

/// Total weight of records that makes a start credible. A record with a known ID has weight 2, as has one
/// with a nearby time if there are no IDs; all others have weight 1.
const MIN_START_WEIGHT: u32 = 4;

/// Checks the records of a profile.
#[derive(Clone, Copy, Debug)]
pub struct RecordValidator<'a> {
    /// Events of the profile.
    pub attrs: &'a Attrs,
    /// Endianness of the profile.
    pub endian: ByteOrder,
}

/// Bytes from the start of a record that a check of it may need: the record, and as many as make a start credible.
pub(super) const LOOKAHEAD: usize = (MIN_START_WEIGHT as usize + 2) * (u16::MAX as usize + 1);

/// What a record alone shows.
pub(super) enum Verdict {
    /// It is valid.
    Record,
    /// It is not.
    Invalid,
    /// What follows shows whether it is valid.
    Depends(RecordFacts),
}

/// Whether a record is valid only if others follow.
fn is_doubtful(record: &Record<'_>, facts: &RecordFacts) -> bool {
    facts.id == Some(IdMatch::Unknown) || record.kind > LAST_USER_TYPE
}

/// Properties of a record that several checks use.
pub(super) struct RecordFacts {
    /// Result of looking up its event ID.
    id: Option<IdMatch>,
    /// End of its fields, if it is a sample.
    end: FieldsEnd,
}

impl RecordValidator<'_> {
    /// Finds out what decides whether a record is valid.
    fn facts(&self, record: &Record<'_>) -> RecordFacts {
        let (event, id) = self.attrs.identify(record, self.endian);
        let is_sample = record.kind == record::SAMPLE;
        // The layout of an unknown event is unknown.
        let is_clear = id != Some(IdMatch::Unknown) || self.attrs.all().len() == 1;
        let end = match event {
            Some(attr) if is_sample && is_clear => sample::fields_end(record, attr, self.endian),
            _ => FieldsEnd::Unknown,
        };
        RecordFacts { id, end }
    }

    /// Returns the time of a record; `None` if it has none.
    pub fn time_of(&self, record: &Record<'_>) -> Option<Time> {
        if !self.attrs.has_times() {
            return None;
        }
        let time = self.attrs.time_of(record, self.endian);
        time.filter(|&time| time != Time(0))
    }

    /// Whether an intact profile can have such a record. `near` is the time of an earlier record.
    fn is_possible(&self, record: &Record<'_>, facts: &RecordFacts, near: Option<Time>) -> bool {
        let size = record.bytes.len();
        if size < record::fixed_size(record.kind) {
            return false;
        }
        match record.kind {
            record::FINISHED_ROUND | record::FINISHED_INIT => size == HEADER_SIZE,
            record::USER_TYPE_START.. => {
                record.kind <= MAX_FUTURE_USER_TYPE
                    && (size.is_multiple_of(8) || UNALIGNED_TYPES.contains(&record.kind))
            }
            0 => false,
            kind => {
                let is_known = kind <= LAST_KERNEL_TYPE;
                let is_future = || kind <= MAX_FUTURE_KERNEL_TYPE && self.has_evidence(record, facts, near);
                size.is_multiple_of(8) && facts.end != FieldsEnd::Outside && (is_known || is_future())
            }
        }
    }

    /// Whether a record has a known event ID or, without IDs, a time close to `near`.
    fn has_evidence(&self, record: &Record<'_>, facts: &RecordFacts, near: Option<Time>) -> bool {
        let is_near = || {
            let distance = self.time_of(record)?.0.abs_diff(near?.0);
            Some(distance <= MAX_TIME_DISTANCE)
        };
        match facts.id {
            Some(id) => id == IdMatch::Known,
            None => is_near() == Some(true),
        }
    }

    /// Returns the offset in a record after its fields, where other records may start if its size or type is
    /// wrong. `None` if nothing follows the fields, which is the usual case.
    fn trailing_offset(&self, record: &Record<'_>, facts: &RecordFacts) -> Option<usize> {
        let end = match Role::of(record.kind) {
            Role::Sample => match facts.end {
                FieldsEnd::At(end) => end,
                FieldsEnd::Outside | FieldsEnd::Unknown => return None,
            },
            Role::Mapping | Role::Thread => {
                let trailer = self.attrs.event_of(record, self.endian)?.trailer_size();
                record.fields_end().checked_add(trailer)?
            }
            Role::Other => match record.kind {
                record::ID_INDEX => self.end_of_entries(record, ID_INDEX_ENTRY)?,
                record::THREAD_MAP => self.end_of_entries(record, THREAD_MAP_ENTRY)?,
                _ => record.bytes.len(),
            },
        };
        let end_of_all = usize::try_from(record.size()).unwrap_or(usize::MAX);
        (end < end_of_all).then_some(end)
    }

    /// Returns the offset of the end of entries of `size` bytes, in a record that starts with their count.
    fn end_of_entries(&self, record: &Record<'_>, size: usize) -> Option<usize> {
        const COUNT_OFFSET: usize = HEADER_SIZE;
        let count = usize::try_from(self.endian.u64_at(record.bytes, COUNT_OFFSET)?).ok()?;
        count.checked_mul(size)?.checked_add(COUNT_OFFSET + 8)
    }

    /// Whether the next record is valid. `data` are the bytes from its start on, `last` is the time of an
    /// earlier record.
    pub fn is_record(&self, record: &Record<'_>, data: &[u8], last: Option<Time>) -> bool {
        match self.judge(record, last) {
            Verdict::Record => true,
            Verdict::Invalid => false,
            Verdict::Depends(facts) => self.is_record_before(record, &facts, data, last),
        }
    }

    /// Whether a record is valid, whatever is around it.
    #[inline]
    pub fn is_certain(&self, record: &Record<'_>) -> bool {
        self.is_certain_sample(record) || matches!(self.judge(record, None), Verdict::Record)
    }

    /// Whether a record is a sample of a known event that ends with its fields.
    #[inline]
    fn is_certain_sample(&self, record: &Record<'_>) -> bool {
        let size = record.bytes.len();
        if record.kind != record::SAMPLE || !size.is_multiple_of(8) {
            return false;
        }
        let (event, id) = self.attrs.identify(record, self.endian);
        let end = event.map(|attr| sample::fields_end(record, attr, self.endian));
        id != Some(IdMatch::Unknown) && end == Some(FieldsEnd::At(size))
    }

    /// Judges the next record alone. `last` is the time of an earlier record.
    #[inline]
    pub(super) fn judge(&self, record: &Record<'_>, last: Option<Time>) -> Verdict {
        let facts = self.facts(record);
        if !self.is_possible(record, &facts, last) {
            return Verdict::Invalid;
        }
        if is_doubtful(record, &facts) || self.trailing_offset(record, &facts).is_some() {
            Verdict::Depends(facts)
        } else {
            Verdict::Record
        }
    }

    /// Whether a record whose validity depends on what follows is valid.
    pub(super) fn is_record_before(
        &self,
        record: &Record<'_>,
        facts: &RecordFacts,
        data: &[u8],
        last: Option<Time>,
    ) -> bool {
        let from = |at: usize| data.get(at..).unwrap_or_default();
        if let Some(rest) = self.trailing_offset(record, facts)
            && self.starts_at(from(rest), last)
        {
            return false;
        }
        let end = usize::try_from(record.size()).unwrap_or(usize::MAX);
        !is_doubtful(record, facts) || self.is_followed(from(end), last)
    }

    /// Whether `data` starts with a few possible records, or is empty.
    fn is_followed(&self, data: &[u8], last: Option<Time>) -> bool {
        let mut records = Records::new(data, 0, self.endian);
        let mut next = records.by_ref().take(MIN_START_WEIGHT as usize);
        let are_possible = next.all(|record| self.is_possible(&record, &self.facts(&record), last));
        // The record after them may be truncated, but must start like a record.
        are_possible
            && records
                .undecoded()
                .is_none_or(|(_, rest)| self.has_known_type(rest))
    }

    /// Whether records start at the start of `data`: there are enough of them, or they reach the end. `last`
    /// is the time of an earlier record.
    pub fn starts_at(&self, data: &[u8], last: Option<Time>) -> bool {
        if !self.has_known_type(data) {
            return false;
        }
        let mut records = Records::new(data, 0, self.endian);
        let mut found = 0_u32;
        let mut near = last;
        for record in records.by_ref() {
            let Some(weight) = self.weight(&record, near) else {
                return false;
            };
            found = found.saturating_add(weight);
            if found >= MIN_START_WEIGHT {
                return true;
            }
            near = self.time_of(&record).or(near);
        }
        found > 0 && records.undecoded().is_none()
    }

    /// Quick check of the first bytes.
    fn has_known_type(&self, data: &[u8]) -> bool {
        matches!(
            self.endian.u32_at(data, 0),
            Some(1..=LAST_KERNEL_TYPE | record::USER_TYPE_START..=LAST_USER_TYPE)
        )
    }

    /// Returns the weight of a record as evidence for a start ([`MIN_START_WEIGHT`]); `None` if it is invalid.
    fn weight(&self, record: &Record<'_>, near: Option<Time>) -> Option<u32> {
        if !self.has_known_type(record.bytes) {
            return None;
        }
        let facts = self.facts(record);
        let has_rest = matches!(facts.end, FieldsEnd::At(end) if end < record.bytes.len());
        let is_doubtful = facts.id == Some(IdMatch::Unknown);
        if has_rest || is_doubtful || !self.is_possible(record, &facts, near) {
            return None;
        }
        Some(if self.has_evidence(record, &facts, near) {
            2
        } else {
            1
        })
    }
}

/// Size in bytes of an entry of [`record::ID_INDEX`] (ID, index, CPU, thread) and of [`record::THREAD_MAP`]
/// (thread, name).
const ID_INDEX_ENTRY: usize = 32;
const THREAD_MAP_ENTRY: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attr::Attr;
    use crate::perf::testing::{self, ORDER, SAMPLE_ID_ALL};

    /// An event with ID 70 and records that have an ID, an address, a PID, a TID and a time.
    fn attrs() -> Attrs {
        let bytes = testing::attr(64, 1 << 16 | 0b111, SAMPLE_ID_ALL);
        let mut attrs = Attrs::default();
        attrs.push(Attr::parse(&bytes, ORDER), std::iter::once(70));
        attrs
    }

    /// Returns samples with a known ID, then records without one, then `end`.
    fn records(samples: usize, rounds: usize, end: &[u8]) -> Vec<u8> {
        let sample = testing::record(record::SAMPLE, record::MISC_USER, &[70, 0x1000, 5 | 5 << 32, 9]);
        let round = testing::record(record::FINISHED_ROUND, 0, &[]);
        [&sample.repeat(samples)[..], &round.repeat(rounds), end].concat()
    }

    #[test]
    fn records_start_before_four_of_them_or_two_with_known_ids() {
        let attrs = attrs();
        let starts_at = |samples, rounds| {
            let validator = RecordValidator {
                attrs: &attrs,
                endian: ORDER,
            };
            validator.starts_at(&records(samples, rounds, &[0xff; 16]), None)
        };
        for (samples, rounds) in [(0, 4), (1, 2), (2, 0)] {
            assert!(starts_at(samples, rounds), "{samples} {rounds}");
        }
        for (samples, rounds) in [(0, 3), (1, 1)] {
            assert!(!starts_at(samples, rounds), "{samples} {rounds}");
        }
    }

    /// Whether a record of perf's type `kind` is valid before other records.
    fn is_record(kind: u32, others: &[u8]) -> bool {
        let validator = RecordValidator {
            attrs: &attrs(),
            endian: ORDER,
        };
        let data = [&testing::record(kind, 0, &[1, 2])[..], others].concat();
        let record = Records::new(&data, 0, ORDER).next().unwrap();
        validator.is_record(&record, &data, None)
    }

    #[test]
    fn types_of_perf_up_to_95_are_records() {
        let others = records(0, 10, &[]);
        assert!((83..=95).all(|kind| is_record(kind, &others)));
        assert!(!is_record(96, &others));
    }

    #[test]
    fn types_of_the_kernel_up_to_31_are_records_if_they_have_a_known_id() {
        let is_record = |kind: u32, id: u64| {
            let validator = RecordValidator {
                attrs: &attrs(),
                endian: ORDER,
            };
            // The process and thread, the time and the ID follow the fields.
            let data = testing::record(kind, 0, &[1, 5 | 5 << 32, 9, id]);
            let record = Records::new(&data, 0, ORDER).next().unwrap();
            validator.is_record(&record, &data, None)
        };
        assert!((LAST_KERNEL_TYPE + 1..=31).all(|kind| is_record(kind, 70)));
        assert!(!is_record(31, 71));
        assert!(!is_record(32, 70));
    }

    #[test]
    fn times_of_records_without_ids_are_up_to_an_hour_apart() {
        let bytes = testing::attr(64, 0b111, SAMPLE_ID_ALL);
        let mut attrs = Attrs::default();
        attrs.push(Attr::parse(&bytes, ORDER), std::iter::empty());
        let is_record = |time: u64| {
            let validator = RecordValidator {
                attrs: &attrs,
                endian: ORDER,
            };
            let data = testing::record(31, 0, &[1, 5 | 5 << 32, time]);
            let record = Records::new(&data, 0, ORDER).next().unwrap();
            validator.is_record(&record, &data, Some(Time(1000)))
        };
        assert!(is_record(3_600_000_001_000));
        assert!(!is_record(3_600_000_001_001));
    }

    #[test]
    fn a_record_of_a_future_type_is_followed_by_four_records() {
        // Such a record has no content.
        let invalid = testing::record(record::FINISHED_ROUND, 0, &[1]);
        assert!(is_record(90, &records(0, 4, &invalid)));
        assert!(!is_record(90, &records(0, 3, &invalid)));
    }
}
