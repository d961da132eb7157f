//! Adds event IDs to recorded records, so that records of other events can be mixed with them.
//!
//! Readers find the event of a record by its ID, and the layout of the record by its event. The ID must
//! therefore have the same offset for all events of a profile (`evlist__valid_sample_type` in perf): with
//! `PERF_SAMPLE_IDENTIFIER`, it is at the start of a sample and at the end of any other record. A recording
//! of one event has no IDs in its records; one of several events with the same fields has them further
//! inside.
//!
//! All other bytes stay. A sample of maximum size gives up the outermost word of its stack for the ID.

use linux_perf_event_reader::SampleFormat;

use crate::bytes::Reader;
use crate::perf::attr::Attr;
use crate::perf::profile::Profile;
use crate::perf::record::{self, HEADER_SIZE, Record};
use crate::perf::sample::Sample;
use crate::traces::conversion::synthesis::sample::MAX_RECORD_SIZE;

/// Adds IDs to records.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdInserter<'p> {
    profile: &'p Profile<'p>,
    /// ID of the first event. Readers assume that event for records without an ID.
    first_id: u64,
    inserts_ids: bool,
    /// Whether records may have IDs of no event: readers ignore the IDs in profiles of a single event.
    corrects_ids: bool,
}

/// Result for a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The record needs no change. Nothing was appended.
    Unchanged,
    /// The record was appended with its ID.
    Rewritten,
    /// The record was appended with its ID, but without the outermost word of its stack copy, to make room.
    StackCut,
    /// The record has no room for an ID. Nothing was appended.
    TooLarge,
}

/// Size of an ID in bytes.
const SIZE: usize = 8;

impl<'p> IdInserter<'p> {
    /// For the records of `profile`. `first_id` is the ID of its first event.
    pub fn new(profile: &'p Profile<'p>, first_id: u64) -> Self {
        Self {
            profile,
            first_id,
            corrects_ids: profile.attrs.all().len() == 1,
            inserts_ids: profile.attrs.all().iter().any(lacks_id),
        }
    }

    /// Appends a record with its ID if it needs a change.
    pub fn write_with_id(&self, out: &mut Vec<u8>, record: &Record<'_>) -> Outcome {
        if record.kind >= record::USER_TYPE_START {
            return Outcome::Unchanged;
        }
        if !self.inserts_ids {
            return self.write_corrected(out, record);
        }
        let endian = self.profile.endian;
        let is_sample = record.kind == record::SAMPLE;
        let attr = self.profile.attrs.event_of(record, endian);
        let Some(attr) = attr.filter(|attr| lacks_id(attr) && (is_sample || attr.has_trailer)) else {
            return Outcome::Unchanged;
        };
        let recorded_id = attr.id_of(record, endian);
        let known_id = recorded_id.filter(|&id| self.profile.attrs.by_id(id).is_some());
        let id = known_id.unwrap_or(self.first_id);
        let grown = record.bytes.len().saturating_add(SIZE);
        if grown > MAX_RECORD_SIZE {
            let written = is_sample.then(|| self.write_with_smaller_stack(out, record, attr, id));
            return written
                .flatten()
                .map_or(Outcome::TooLarge, |()| Outcome::StackCut);
        }
        let body = record.bytes.get(HEADER_SIZE..).unwrap_or_default();
        record::write_header(out, endian, record.kind, record.misc, grown);
        if is_sample {
            endian.write_u64(out, id);
            out.extend_from_slice(body);
        } else {
            out.extend_from_slice(body);
            endian.write_u64(out, id);
        }
        Outcome::Rewritten
    }

    /// Appends a record with a valid ID if its own is that of no event.
    fn write_corrected(&self, out: &mut Vec<u8>, record: &Record<'_>) -> Outcome {
        let attrs = &self.profile.attrs;
        let endian = self.profile.endian;
        let first = attrs.all().first().filter(|_| self.corrects_ids);
        let id = first.and_then(|attr| attr.id_of(record, endian));
        // perf's own records have the ID 0, for which readers assume the first event.
        if id.is_none_or(|id| id == 0 || attrs.by_id(id).is_some()) {
            return Outcome::Unchanged;
        }
        let id_offset = match record.kind {
            record::SAMPLE => HEADER_SIZE,
            _ => record.bytes.len().saturating_sub(SIZE),
        };
        let at = out.len().saturating_add(id_offset);
        out.extend_from_slice(record.bytes);
        endian.set_u64(out, at, self.first_id);
        Outcome::Rewritten
    }

    /// Appends a sample of the maximum size with its ID and a smaller stack copy; `None` if it has no stack
    /// copy. All samples of `perf record --call-graph dwarf,65528` have this size.
    fn write_with_smaller_stack(
        &self,
        out: &mut Vec<u8>,
        record: &Record<'_>,
        attr: &Attr,
        id: u64,
    ) -> Option<()> {
        let endian = self.profile.endian;
        let stack_offset = Sample::parse(record, attr, endian).stack_offset?;
        let before = record.bytes.get(HEADER_SIZE..stack_offset)?;
        let mut stack = Reader::new(record.bytes.get(stack_offset..)?, endian);
        let size = stack.u64()?;
        let less = size.checked_sub(SIZE as u64).filter(|&less| less > 0)?;
        let kept = stack.bytes(less)?;
        stack.skip(SIZE as u64)?;
        let copied = stack.u64()?;
        record::write_header(out, endian, record.kind, record.misc, record.bytes.len());
        endian.write_u64(out, id);
        out.extend_from_slice(before);
        endian.write_u64(out, less);
        out.extend_from_slice(kept);
        endian.write_u64(out, copied.min(less));
        out.extend_from_slice(stack.rest());
        Some(())
    }
}

fn lacks_id(attr: &Attr) -> bool {
    !attr.sample_format.contains(SampleFormat::IDENTIFIER)
}
