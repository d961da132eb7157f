//! Records of a recording, with the id of their event where records of all events have it.
//!
//! Readers learn from the id which event a record is of, and only then what it holds. So it lies at one place for
//! all events of a profile (`evlist__valid_sample_type` in perf): with `PERF_SAMPLE_IDENTIFIER`, at the front of a
//! sample and at the end of another record. A recording of one event has no ids in its records, and one of several
//! events with the same fields has them further inside.

use linux_perf_event_reader::SampleFormat;

use crate::bytes::Reader;
use crate::perf::attr::Attr;
use crate::perf::profile::Profile;
use crate::perf::record::{self, HEADER_SIZE, Record};
use crate::perf::sample::Sample;
use crate::perf::synthesis::sample::LARGEST_RECORD;

/// Gives records their identifiers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identifiers<'p> {
    profile: &'p Profile<'p>,
    /// The id of the first event, which readers take a record for that names none.
    first_id: u64,
    is_needed: bool,
    /// Whether records can name an event that there is not: readers don't look at the ids of a single event's.
    is_checked: bool,
}

/// What becomes of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// It stays as it is.
    Unchanged,
    /// It was appended with its identifier.
    Put,
    /// As before, and the outermost word of its copy of the stack made place for the identifier.
    StackCut,
    /// It has no place for an identifier.
    TooLarge,
}

/// The size of an identifier in bytes.
const SIZE: usize = 8;

impl<'p> Identifiers<'p> {
    /// For the records of `profile`, whose first event has this id.
    pub fn new(profile: &'p Profile<'p>, first_id: u64) -> Self {
        Self {
            profile,
            first_id,
            is_checked: profile.attrs.all().len() == 1,
            is_needed: profile.attrs.all().iter().any(lacks_identifier),
        }
    }

    /// Appends a record with its identifier, if it needs one.
    pub fn put(&self, out: &mut Vec<u8>, record: &Record<'_>) -> Outcome {
        if record.kind >= record::USER_TYPE_START {
            return Outcome::Unchanged;
        }
        if !self.is_needed {
            return self.correct(out, record);
        }
        let order = self.profile.order;
        let is_sample = record.kind == record::SAMPLE;
        let attr = self.profile.attrs.of(record, order);
        let Some(attr) = attr.filter(|attr| lacks_identifier(attr) && (is_sample || attr.has_trailer)) else {
            return Outcome::Unchanged;
        };
        let known = attr.id_of(record, order);
        let known = known.filter(|&id| self.profile.attrs.by_id(id).is_some());
        let id = known.unwrap_or(self.first_id);
        let grown = record.bytes.len().saturating_add(SIZE);
        if grown > LARGEST_RECORD {
            let put = is_sample.then(|| self.put_with_less_stack(out, record, attr, id));
            return put.flatten().map_or(Outcome::TooLarge, |()| Outcome::StackCut);
        }
        let body = record.bytes.get(HEADER_SIZE..).unwrap_or_default();
        let size = u16::try_from(grown).unwrap_or(u16::MAX);
        record::put_header(out, order, record.kind, record.misc, size);
        if is_sample {
            order.put_u64(out, id);
            out.extend_from_slice(body);
        } else {
            out.extend_from_slice(body);
            order.put_u64(out, id);
        }
        Outcome::Put
    }

    /// Appends a record that has an identifier, with the right one, if its own is that of no event.
    fn correct(&self, out: &mut Vec<u8>, record: &Record<'_>) -> Outcome {
        let attrs = &self.profile.attrs;
        let order = self.profile.order;
        let first = attrs.all().first().filter(|_| self.is_checked);
        let id = first.and_then(|attr| attr.id_of(record, order));
        // An id of 0 is that of perf's own records, which readers take for the first event's.
        if id.is_none_or(|id| id == 0 || attrs.by_id(id).is_some()) {
            return Outcome::Unchanged;
        }
        let (before, behind) = if record.kind == record::SAMPLE {
            (HEADER_SIZE, HEADER_SIZE.saturating_add(SIZE))
        } else {
            (record.bytes.len().saturating_sub(SIZE), record.bytes.len())
        };
        out.extend_from_slice(record.bytes.get(..before).unwrap_or_default());
        order.put_u64(out, self.first_id);
        out.extend_from_slice(record.bytes.get(behind..).unwrap_or_default());
        Outcome::Put
    }

    /// A sample as large as can be, as `perf record --call-graph dwarf,65528` makes nothing else, is so by its copy
    /// of the stack.
    fn put_with_less_stack(
        &self,
        out: &mut Vec<u8>,
        record: &Record<'_>,
        attr: &Attr,
        id: u64,
    ) -> Option<()> {
        let order = self.profile.order;
        let place = Sample::parse(record, attr, order).stack_offset?;
        let before = record.bytes.get(HEADER_SIZE..place)?;
        let mut stack = Reader::new(record.bytes.get(place..)?, order);
        let size = stack.u64()?;
        let less = size.checked_sub(SIZE as u64).filter(|&less| less > 0)?;
        let kept = stack.bytes(less)?;
        stack.skip(SIZE as u64)?;
        let copied = stack.u64()?;
        record::put_header(
            out,
            order,
            record.kind,
            record.misc,
            u16::try_from(record.bytes.len()).ok()?,
        );
        order.put_u64(out, id);
        out.extend_from_slice(before);
        order.put_u64(out, less);
        out.extend_from_slice(kept);
        order.put_u64(out, copied.min(less));
        out.extend_from_slice(stack.rest());
        Some(())
    }
}

fn lacks_identifier(attr: &Attr) -> bool {
    !attr.sample_format.contains(SampleFormat::IDENTIFIER)
}
