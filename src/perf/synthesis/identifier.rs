//! Adds event IDs to recorded records, so that records of other events can be mixed with them.
//!
//! Readers find the event of a record by its ID, and the layout of the record by its event. The ID must
//! therefore have the same offset for all events of a profile (`evlist__valid_sample_type` in perf): with
//! `PERF_SAMPLE_IDENTIFIER`, it is at the start of a sample and at the end of any other record. A recording
//! of one event has no IDs in its records; one of several events with the same fields has them further
//! inside.

use linux_perf_event_reader::SampleFormat;

use crate::bytes::Reader;
use crate::perf::attr::Attr;
use crate::perf::profile::Profile;
use crate::perf::record::{self, HEADER_SIZE, Record};
use crate::perf::sample::Sample;
use crate::perf::synthesis::sample::LARGEST_RECORD;

/// Adds IDs to records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identifiers<'p> {
    profile: &'p Profile<'p>,
    /// ID of the first event. Readers assume that event for records without an ID.
    first_id: u64,
    is_needed: bool,
    /// Whether records may have IDs of no event: readers ignore the IDs in profiles of a single event.
    is_checked: bool,
}

/// Result for a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The record needs no change. Nothing was appended.
    Unchanged,
    /// The record was appended with its ID.
    Put,
    /// The record was appended with its ID, but without the outermost word of its stack copy, to make room.
    StackCut,
    /// The record has no room for an ID. Nothing was appended.
    TooLarge,
}

/// Size of an ID in bytes.
const SIZE: usize = 8;

impl<'p> Identifiers<'p> {
    /// For the records of `profile`. `first_id` is the ID of its first event.
    pub fn new(profile: &'p Profile<'p>, first_id: u64) -> Self {
        Self {
            profile,
            first_id,
            is_checked: profile.attrs.all().len() == 1,
            is_needed: profile.attrs.all().iter().any(lacks_identifier),
        }
    }

    /// Appends a record with its ID if it needs a change.
    pub fn put(&self, out: &mut Vec<u8>, record: &Record<'_>) -> Outcome {
        if record.kind >= record::USER_TYPE_START {
            return Outcome::Unchanged;
        }
        if !self.is_needed {
            return self.correct(out, record);
        }
        let endian = self.profile.endian;
        let is_sample = record.kind == record::SAMPLE;
        let attr = self.profile.attrs.of(record, endian);
        let Some(attr) = attr.filter(|attr| lacks_identifier(attr) && (is_sample || attr.has_trailer)) else {
            return Outcome::Unchanged;
        };
        let known = attr.id_of(record, endian);
        let known = known.filter(|&id| self.profile.attrs.by_id(id).is_some());
        let id = known.unwrap_or(self.first_id);
        let grown = record.bytes.len().saturating_add(SIZE);
        if grown > LARGEST_RECORD {
            let put = is_sample.then(|| self.write_with_less_stack(out, record, attr, id));
            return put.flatten().map_or(Outcome::TooLarge, |()| Outcome::StackCut);
        }
        let body = record.bytes.get(HEADER_SIZE..).unwrap_or_default();
        let size = u16::try_from(grown).unwrap_or(u16::MAX);
        record::write_header(out, endian, record.kind, record.misc, size);
        if is_sample {
            endian.write_u64(out, id);
            out.extend_from_slice(body);
        } else {
            out.extend_from_slice(body);
            endian.write_u64(out, id);
        }
        Outcome::Put
    }

    /// Appends a record with a valid ID if its own is that of no event.
    fn correct(&self, out: &mut Vec<u8>, record: &Record<'_>) -> Outcome {
        let attrs = &self.profile.attrs;
        let endian = self.profile.endian;
        let first = attrs.all().first().filter(|_| self.is_checked);
        let id = first.and_then(|attr| attr.id_of(record, endian));
        // perf's own records have the ID 0, for which readers assume the first event.
        if id.is_none_or(|id| id == 0 || attrs.by_id(id).is_some()) {
            return Outcome::Unchanged;
        }
        let (before, behind) = if record.kind == record::SAMPLE {
            (HEADER_SIZE, HEADER_SIZE.saturating_add(SIZE))
        } else {
            (record.bytes.len().saturating_sub(SIZE), record.bytes.len())
        };
        out.extend_from_slice(record.bytes.get(..before).unwrap_or_default());
        endian.write_u64(out, self.first_id);
        out.extend_from_slice(record.bytes.get(behind..).unwrap_or_default());
        Outcome::Put
    }

    /// Appends a sample of the maximum size with its ID and a smaller stack copy; `None` if it has no stack
    /// copy. All samples of `perf record --call-graph dwarf,65528` have this size.
    fn write_with_less_stack(
        &self,
        out: &mut Vec<u8>,
        record: &Record<'_>,
        attr: &Attr,
        id: u64,
    ) -> Option<()> {
        let endian = self.profile.endian;
        let place = Sample::parse(record, attr, endian).stack_offset?;
        let before = record.bytes.get(HEADER_SIZE..place)?;
        let mut stack = Reader::new(record.bytes.get(place..)?, endian);
        let size = stack.u64()?;
        let less = size.checked_sub(SIZE as u64).filter(|&less| less > 0)?;
        let kept = stack.bytes(less)?;
        stack.skip(SIZE as u64)?;
        let copied = stack.u64()?;
        record::write_header(
            out,
            endian,
            record.kind,
            record.misc,
            u16::try_from(record.bytes.len()).ok()?,
        );
        endian.write_u64(out, id);
        out.extend_from_slice(before);
        endian.write_u64(out, less);
        out.extend_from_slice(kept);
        endian.write_u64(out, copied.min(less));
        out.extend_from_slice(stack.rest());
        Some(())
    }
}

fn lacks_identifier(attr: &Attr) -> bool {
    !attr.sample_format.contains(SampleFormat::IDENTIFIER)
}
