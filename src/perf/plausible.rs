//! What is known of every record, by which records are told from other bytes.
//!
//! Two questions are asked. Of what is met where a record must be: can it be one ([`Plausible::is_possible`])?
//! No record of a sound profile may fail that. And of a place behind damage: do records start here
//! ([`Plausible::starts_at`])? That may be strict, since nothing is lost by passing over a record too many but
//! that record.
//!
//! The facts are those of Linux' `kernel/events/core.c` and `tools/perf/util/`:
//!
//! - The kernel's types count up from 1, perf's from 64; a reader stops at a type that it does not know.
//! - The kernel's records are multiples of 8 bytes long. perf's mostly are, but for compressed ones and some of
//!   those in pipes, so that nothing need be aligned behind them.
//! - No record of a type is shorter than its fixed fields, no sample than its fields, and nothing stands behind
//!   the fields of a sample or the name of a map.
//! - A record that has an id has that of a counter, unless perf made it up; one that has a time was written
//!   close to those beside it.

use crate::bytes::ByteOrder;
use crate::perf::attr::{Attrs, IdMatch};
use crate::perf::record::{self, HEADER_SIZE, Record, Records};
use crate::perf::sample::{self, End};
use crate::units::Time;

/// The kernel's last type in Linux 6.17, and the last one that is taken for a type to come.
const KERNEL_TYPES: (u32, u32) = (record::CALLCHAIN_DEFERRED, 31);
/// The same of perf's own.
const USER_TYPES: (u32, u32) = (84, 95);

/// How many nanoseconds or cycles may lie between two records that follow each other: an hour and less. Buffers
/// of several processors are written in turns, so times go back as well.
const NEAR: u64 = 3_600_000_000_000;

/// How much must speak for a start: records with the right id, or the right time where there are no ids, count
/// twice.
const ENOUGH: u32 = 4;

/// What records of a profile must be like.
#[derive(Clone, Copy, Debug)]
pub struct Plausible<'a> {
    /// Its events.
    pub attrs: &'a Attrs,
    /// Its byte order.
    pub order: ByteOrder,
}

impl Plausible<'_> {
    /// Whether a record of a sound profile could be like that.
    pub fn is_possible(&self, record: &Record<'_>) -> bool {
        let size = record.bytes.len();
        if record.kind >= record::USER_TYPE_START {
            let is_exact = matches!(record.kind, record::FINISHED_ROUND | record::FINISHED_INIT);
            return record.kind <= USER_TYPES.1
                && size >= least_size(record.kind)
                && (size == HEADER_SIZE || !is_exact);
        }
        let is_known = (1..=KERNEL_TYPES.0).contains(&record.kind);
        let may_come = || record.kind <= KERNEL_TYPES.1 && self.is_marked(record, None);
        size % 8 == 0
            && size >= least_size(record.kind)
            && (is_known || record.kind != 0 && may_come())
            && self.end_of_fields(record) != End::Outside
    }

    /// Whether a record holds the id of a counter, or has a time near to another one where there are no ids.
    fn is_marked(&self, record: &Record<'_>, near: Option<Time>) -> bool {
        match self.attrs.knows_id_of(record, self.order) {
            Some(id) => id == IdMatch::Known,
            None => self.is_near(record, near) == Some(true),
        }
    }

    /// Whether a record's time is near to another; `None` where either has none.
    fn is_near(&self, record: &Record<'_>, near: Option<Time>) -> Option<bool> {
        let time = self.time_of(record)?;
        Some(time.0.abs_diff(near?.0) <= NEAR)
    }

    /// The time in a record, if it has one.
    pub fn time_of(&self, record: &Record<'_>) -> Option<Time> {
        if !self.attrs.has_times() {
            return None;
        }
        let time = self.attrs.time_of(record, self.order);
        time.filter(|&time| time != Time(0))
    }

    /// Where in a record its fields end, as far as that can be told at little cost.
    fn end_of_fields(&self, record: &Record<'_>) -> End {
        if record.kind != record::SAMPLE {
            return End::Unknown;
        }
        let has_id = self.attrs.knows_id_of(record, self.order) != Some(IdMatch::Unknown);
        match self.attrs.of(record, self.order) {
            Some(attr) if has_id || self.attrs.all().len() == 1 => sample::end(record, attr, self.order),
            _ => End::Unknown,
        }
    }

    /// Where in a record others start, if its size or type is wrong: behind its fields, where mostly nothing
    /// is.
    fn rest(&self, record: &Record<'_>) -> Option<usize> {
        let size = record.bytes.len();
        let fixed = least_size(record.kind);
        let end = match record.kind {
            record::SAMPLE => match self.end_of_fields(record) {
                End::At(end) => end,
                End::Outside | End::Unknown => return None,
            },
            record::MMAP | record::MMAP2 | record::COMM => {
                let name = record.bytes.get(fixed..)?;
                let length = name.iter().position(|&byte| byte == 0)?;
                let named = fixed.checked_add(length)?.checked_add(1)?.next_multiple_of(8);
                named.checked_add(self.attrs.of(record, self.order)?.trailer_size())?
            }
            record::EXIT | record::FORK => fixed.checked_add(self.attrs.all().first()?.trailer_size())?,
            _ if record.payload.is_empty() => return None,
            _ => return Some(size),
        };
        (end < size).then_some(end)
    }

    /// Whether what is met where a record must be is one. `data` are the bytes from its start on, `last` is the
    /// time of one before it.
    pub fn is_record(&self, record: &Record<'_>, data: &[u8], last: Option<Time>) -> bool {
        if !self.is_possible(record) {
            return false;
        }
        let from = |at: usize| data.get(at..).unwrap_or_default();
        if let Some(rest) = self.rest(record)
            && self.starts_at(from(rest), last)
        {
            return false;
        }
        let is_strange = self.attrs.knows_id_of(record, self.order) == Some(IdMatch::Unknown);
        let end = usize::try_from(record.len()).unwrap_or(usize::MAX);
        !is_strange || self.is_followed(from(end))
    }

    /// Whether a few possible records, or nothing, stand at the start of `data`.
    fn is_followed(&self, data: &[u8]) -> bool {
        let mut records = Records::new(data, 0, self.order);
        let are_possible = records
            .by_ref()
            .take(ENOUGH as usize)
            .all(|record| self.is_possible(&record));
        // What comes then may be cut off, but starts as a record.
        are_possible && records.undecoded().is_none_or(|(_, rest)| self.can_start(rest))
    }

    /// Whether records start at the start of `data`: enough of them follow each other, or reach its end.
    /// `last` is the time of one before.
    pub fn starts_at(&self, data: &[u8], last: Option<Time>) -> bool {
        if !self.can_start(data) {
            return false;
        }
        let mut records = Records::new(data, 0, self.order);
        let mut found = 0;
        let mut near = last;
        while let Some(record) = records.next() {
            let Some(weight) = self.weight(&record, near) else {
                return false;
            };
            found += weight;
            if found >= ENOUGH {
                return true;
            }
            near = self.time_of(&record).or(near);
        }
        found > 0 && records.undecoded().is_none()
    }

    /// What can be seen of a start at once.
    fn can_start(&self, data: &[u8]) -> bool {
        let known = |kind| (1..=KERNEL_TYPES.0).contains(&kind) || (record::USER_TYPE_START..=USER_TYPES.0).contains(&kind);
        self.order.u32_at(data, 0).is_some_and(known)
    }

    /// How much a record speaks for the start of a chain that it is part of; `None` if there is something
    /// against it.
    fn weight(&self, record: &Record<'_>, near: Option<Time>) -> Option<u32> {
        let is_known = self.can_start(record.bytes) && self.is_possible(record);
        let has_rest = matches!(self.end_of_fields(record), End::At(end) if end < record.bytes.len());
        if !is_known || has_rest || self.attrs.knows_id_of(record, self.order) == Some(IdMatch::Unknown) {
            return None;
        }
        let is_marked = self.is_marked(record, near);
        Some(if is_marked { 2 } else { 1 })
    }
}

/// The size in bytes of a record's fixed fields, with its header.
fn least_size(kind: u32) -> usize {
    match kind {
        record::MMAP => 40,
        record::MMAP2 => 72,
        record::COMM => 16,
        record::EXIT | record::FORK => 32,
        record::HEADER_ATTR => 72,
        record::HEADER_TRACING_DATA => 12,
        record::HEADER_BUILD_ID => 36,
        record::AUXTRACE | record::HEADER_FEATURE | record::COMPRESSED2 => 16,
        _ => HEADER_SIZE,
    }
}
