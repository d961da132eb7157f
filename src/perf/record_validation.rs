//! What is known of every record, by which records are told from other bytes.
//!
//! Two questions are asked. Of what is met where a record must be: is it one ([`RecordValidator::is_record`])?
//! No record of a sound profile may fail that. And of a place behind damage: do records start here
//! ([`RecordValidator::starts_at`])? That may be strict, since nothing is lost by passing over a record too many but
//! that record.
//!
//! The facts are those of Linux' `kernel/events/core.c` and `tools/perf/util/`:
//!
//! - The kernel's types count up from 1, perf's from 64; a reader stops at a type that it does not know.
//! - The kernel's records are multiples of 8 bytes long. perf's are, but for compressed ones and some of those in
//!   pipes, so that nothing need be aligned behind them.
//! - No record of a type is shorter than its fixed fields, no sample than its fields, and nothing stands behind
//!   the fields of a sample or the name of a map.
//! - A record that has an id has that of a counter, unless perf made it up; one that has a time was written
//!   close to those beside it.

use crate::bytes::ByteOrder;
use crate::perf::attr::{Attrs, IdMatch};
use crate::perf::record::{self, HEADER_SIZE, Record, Records};
use crate::perf::sample::{self, End};
use crate::units::Time;

/// The kernel's last type, in Linux 7.3.
const LAST_KERNEL_TYPE: u32 = record::CALLCHAIN_DEFERRED;
/// perf's own last one there (`PERF_RECORD_SCHEDSTAT_DOMAIN`).
const LAST_USER_TYPE: u32 = 86;
/// The last ones that are taken for types to come; there was about one a year.
const LAST_KERNEL_TYPE_TO_COME: u32 = 31;
const LAST_USER_TYPE_TO_COME: u32 = 95;

/// perf's own types whose records need not be multiples of 8 bytes long.
const UNEVEN: [u32; 6] = [
    record::HEADER_TRACING_DATA,
    record::HEADER_BUILD_ID,
    record::CPU_MAP,
    record::EVENT_UPDATE,
    record::HEADER_FEATURE,
    record::COMPRESSED,
];

/// How many nanoseconds or cycles may lie between two records that follow each other: an hour and less. Buffers
/// of several processors are written in turns, so times go back as well.
const NEAR: u64 = 3_600_000_000_000;

/// How much must speak for a start: records with the right id, or the right time where there are no ids, count
/// twice.
const ENOUGH: u32 = 4;

/// What records of a profile must be like.
#[derive(Clone, Copy, Debug)]
pub struct RecordValidator<'a> {
    /// Its events.
    pub attrs: &'a Attrs,
    /// Its byte order.
    pub order: ByteOrder,
}

/// What is asked of a record more than once.
struct Look {
    /// What is known of its id.
    id: Option<IdMatch>,
    /// Where its fields end, if it is a sample.
    end: End,
}

impl RecordValidator<'_> {
    fn look(&self, record: &Record<'_>) -> Look {
        let id = self.attrs.knows_id_of(record, self.order);
        let is_sample = record.kind == record::SAMPLE;
        // Of an event that is not known, nothing is.
        let is_clear = id != Some(IdMatch::Unknown) || self.attrs.all().len() == 1;
        let end = match self.attrs.of(record, self.order) {
            Some(attr) if is_sample && is_clear => sample::end(record, attr, self.order),
            _ => End::Unknown,
        };
        Look { id, end }
    }

    /// The time in a record, if it has one.
    pub fn time_of(&self, record: &Record<'_>) -> Option<Time> {
        if !self.attrs.has_times() {
            return None;
        }
        let time = self.attrs.time_of(record, self.order);
        time.filter(|&time| time != Time(0))
    }

    /// Whether a record of a sound profile could be like that. `near` is the time of one before it.
    fn is_possible(&self, record: &Record<'_>, look: &Look, near: Option<Time>) -> bool {
        let size = record.bytes.len();
        if size < record::fixed_size(record.kind) {
            return false;
        }
        match record.kind {
            record::FINISHED_ROUND | record::FINISHED_INIT => size == HEADER_SIZE,
            record::USER_TYPE_START.. => {
                record.kind <= LAST_USER_TYPE_TO_COME
                    && (size.is_multiple_of(8) || UNEVEN.contains(&record.kind))
            }
            0 => false,
            kind => {
                let is_known = kind <= LAST_KERNEL_TYPE;
                let may_come = || kind <= LAST_KERNEL_TYPE_TO_COME && self.is_marked(record, look, near);
                size.is_multiple_of(8) && look.end != End::Outside && (is_known || may_come())
            }
        }
    }

    /// Whether a record holds the id of a counter, or has a time near to another one where there are no ids.
    fn is_marked(&self, record: &Record<'_>, look: &Look, near: Option<Time>) -> bool {
        let is_near = || {
            let distance = self.time_of(record)?.0.abs_diff(near?.0);
            Some(distance <= NEAR)
        };
        match look.id {
            Some(id) => id == IdMatch::Known,
            None => is_near() == Some(true),
        }
    }

    /// Where in a record others may start, if its size or type is wrong: behind its fields, where mostly
    /// nothing is.
    fn rest(&self, record: &Record<'_>, look: &Look) -> Option<usize> {
        let end = match record.kind {
            record::SAMPLE => match look.end {
                End::At(end) => end,
                End::Outside | End::Unknown => return None,
            },
            record::MMAP | record::MMAP2 | record::COMM | record::EXIT | record::FORK => {
                let trailer = self.attrs.of(record, self.order)?.trailer_size();
                record.fields_end().checked_add(trailer)?
            }
            record::ID_INDEX => self.end_of_entries(record, ID_INDEX_ENTRY)?,
            record::THREAD_MAP => self.end_of_entries(record, THREAD_MAP_ENTRY)?,
            _ => record.bytes.len(),
        };
        let end_of_all = usize::try_from(record.len()).unwrap_or(usize::MAX);
        (end < end_of_all).then_some(end)
    }

    /// Where the entries of a record end that starts with their number.
    fn end_of_entries(&self, record: &Record<'_>, size: usize) -> Option<usize> {
        const COUNT: usize = HEADER_SIZE;
        let count = usize::try_from(self.order.u64_at(record.bytes, COUNT)?).ok()?;
        count.checked_mul(size)?.checked_add(COUNT + 8)
    }

    /// Whether what is met where a record must be is one. `data` are the bytes from its start on, `last` is the
    /// time of one before it.
    pub fn is_record(&self, record: &Record<'_>, data: &[u8], last: Option<Time>) -> bool {
        let look = self.look(record);
        if !self.is_possible(record, &look, last) {
            return false;
        }
        let from = |at: usize| data.get(at..).unwrap_or_default();
        if let Some(rest) = self.rest(record, &look)
            && self.starts_at(from(rest), last)
        {
            return false;
        }
        let end = usize::try_from(record.len()).unwrap_or(usize::MAX);
        let is_strange = look.id == Some(IdMatch::Unknown) || record.kind > LAST_USER_TYPE;
        !is_strange || self.is_followed(from(end), last)
    }

    /// Whether a few possible records, or nothing, stand at the start of `data`.
    fn is_followed(&self, data: &[u8], last: Option<Time>) -> bool {
        let mut records = Records::new(data, 0, self.order);
        let mut next = records.by_ref().take(ENOUGH as usize);
        let are_possible = next.all(|record| self.is_possible(&record, &self.look(&record), last));
        // What comes then may be cut off, but starts as a record.
        are_possible
            && records
                .undecoded()
                .is_none_or(|(_, rest)| self.has_known_type(rest))
    }

    /// Whether records start at the start of `data`: enough of them follow each other, or reach its end.
    /// `last` is the time of one before.
    pub fn starts_at(&self, data: &[u8], last: Option<Time>) -> bool {
        if !self.has_known_type(data) {
            return false;
        }
        let mut records = Records::new(data, 0, self.order);
        let mut found = 0_u32;
        let mut near = last;
        for record in records.by_ref() {
            let Some(weight) = self.weight(&record, near) else {
                return false;
            };
            found = found.saturating_add(weight);
            if found >= ENOUGH {
                return true;
            }
            near = self.time_of(&record).or(near);
        }
        found > 0 && records.undecoded().is_none()
    }

    /// What can be seen of a start at once.
    fn has_known_type(&self, data: &[u8]) -> bool {
        matches!(
            self.order.u32_at(data, 0),
            Some(1..=LAST_KERNEL_TYPE | record::USER_TYPE_START..=LAST_USER_TYPE)
        )
    }

    /// How much a record speaks for the start of a chain that it is part of; `None` if there is something
    /// against it.
    fn weight(&self, record: &Record<'_>, near: Option<Time>) -> Option<u32> {
        if !self.has_known_type(record.bytes) {
            return None;
        }
        let look = self.look(record);
        let has_rest = matches!(look.end, End::At(end) if end < record.bytes.len());
        let is_strange = look.id == Some(IdMatch::Unknown);
        if has_rest || is_strange || !self.is_possible(record, &look, near) {
            return None;
        }
        Some(if self.is_marked(record, &look, near) { 2 } else { 1 })
    }
}

/// The bytes of an entry of [`record::ID_INDEX`] (id, index, processor, thread) and of [`record::THREAD_MAP`]
/// (thread, name).
const ID_INDEX_ENTRY: usize = 32;
const THREAD_MAP_ENTRY: usize = 24;
