//! What a profile in a pipe has in place of the header's sections: records that hold attributes and features.
//!
//! `perf record -o -` can't come back to a header, so it writes one record for each attribute
//! ([`record::HEADER_ATTR`]), for each feature section ([`record::HEADER_FEATURE`]) and for each entry of the
//! table of build-ids ([`record::HEADER_BUILD_ID`]), and the formats of tracepoints behind a
//! [`record::HEADER_TRACING_DATA`] record.

use std::borrow::Cow;

use crate::bytes::{ByteOrder, put_padded};
use crate::perf::attr;
use crate::perf::feature::{self, Feature};
use crate::perf::profile::{AttrEntry, Fault};
use crate::perf::record::{self, HEADER_SIZE, Record, Records};
use crate::tally::Tally;

/// The first number that is no feature's in Linux 6.1 (`HEADER_LAST_FEATURE`). perf refuses a pipe that names a
/// higher one than it knows.
const LAST_FEATURE: u8 = 32;

/// What the records of a pipe say in place of a header.
#[derive(Clone, Debug, Default)]
pub struct Head<'a> {
    /// The attributes.
    pub attr_entries: Vec<AttrEntry<'a>>,
    /// The feature sections, in the order of their ids.
    pub features: Vec<Feature<'a>>,
    /// The records that hold all that, as offset and length in bytes.
    pub records: Vec<(u64, u64)>,
}

impl<'a> Head<'a> {
    /// Collects the head from all records of a pipe.
    pub fn read(records: Records<'a>, order: ByteOrder, faults: &mut Tally<Fault>) -> Self {
        let mut head = Self::default();
        let mut build_ids = Vec::new();
        for record in records {
            let is_read = match record.kind {
                record::HEADER_ATTR => head.add_attr(&record, order),
                record::HEADER_FEATURE => head.add_feature(&record, order),
                record::HEADER_TRACING_DATA => head.add(feature::TRACING_DATA, record.payload),
                record::HEADER_BUILD_ID => {
                    put_table_entry(&mut build_ids, &record, order);
                    Some(())
                }
                _ => continue,
            };
            if is_read.is_none() {
                faults.add(Fault::FeatureLost, record.offset);
            }
            head.records.push((record.offset, record.len()));
        }
        if !build_ids.is_empty() {
            head.features.push(Feature {
                id: feature::BUILD_ID,
                content: build_ids.into(),
            });
        }
        head.features.sort_by_key(|feature| feature.id);
        head
    }

    fn add_attr(&mut self, record: &Record<'a>, order: ByteOrder) -> Option<()> {
        self.attr_entries.push(attr_of(record, order)?);
        Some(())
    }

    fn add_feature(&mut self, record: &Record<'a>, order: ByteOrder) -> Option<()> {
        let mut body = record.body(order);
        let id = body.u64()?;
        if body.rest().is_empty() {
            // The mark at the end of the list, whose number is the first that is no feature's.
            return Some(());
        }
        self.add(u8::try_from(id).ok()?, body.rest())
    }

    fn add(&mut self, id: u8, content: &'a [u8]) -> Option<()> {
        if self.features.iter().any(|feature| feature.id == id) {
            return None;
        }
        let content = Cow::Borrowed(content);
        self.features.push(Feature { id, content });
        Some(())
    }
}

/// Appends the entry of the table of build-ids that is in a record. Of an entry, it is the name that has a multiple of 8
/// bytes, not the whole.
fn put_table_entry(out: &mut Vec<u8>, record: &Record<'_>, order: ByteOrder) {
    const PADDING: usize = 4;
    let is_padded = record.bytes.len().is_multiple_of(8) && record.bytes.ends_with(&[0; PADDING + 1]);
    let size = record
        .bytes
        .len()
        .saturating_sub(if is_padded { PADDING } else { 0 });
    record::put_header(
        out,
        order,
        0,
        record.misc,
        u16::try_from(size).unwrap_or(u16::MAX),
    );
    out.extend_from_slice(record.bytes.get(HEADER_SIZE..size).unwrap_or_default());
}

/// Appends a record for each entry of a table of build-ids.
pub fn put_build_ids(out: &mut Vec<u8>, order: ByteOrder, table: &[u8]) {
    for entry in Records::new(table, 0, order) {
        let record = Record {
            kind: record::HEADER_BUILD_ID,
            ..entry
        };
        record.put_aligned(out, order);
    }
}

/// The attribute in a [`record::HEADER_ATTR`] record. It is as long as it says; the rest of the record are ids.
pub fn attr_of<'a>(record: &Record<'a>, order: ByteOrder) -> Option<AttrEntry<'a>> {
    let body = record.bytes.get(HEADER_SIZE..)?;
    let (attr, ids) = body.split_at_checked(attr::size(body, order)?)?;
    Some(AttrEntry { attr, ids })
}

/// Appends a record with an attribute and its ids; `None` if they are too much for one.
///
/// Readers tell the two apart by the size that the attribute says it has; in a file, where the header tells
/// them apart, it may say anything.
pub fn put_attr(out: &mut Vec<u8>, order: ByteOrder, entry: &AttrEntry<'_>) -> Option<()> {
    let attr_size = attr::needed_size(entry.attr, order);
    let body_size = attr_size.checked_add(entry.ids.len())?;
    let size = u16::try_from(body_size.checked_add(HEADER_SIZE)?).ok()?;
    record::put_header(out, order, record::HEADER_ATTR, 0, size);
    attr::put(out, order, entry.attr, attr_size);
    out.extend_from_slice(entry.ids);
    Some(())
}

/// Whether a feature section makes sense in a pipe. The others are about a file, or perf itself keeps them out
/// of pipes (FEAT_OPN in tools/perf/util/header.c).
pub fn is_for_pipes(id: u8) -> bool {
    !matches!(
        id,
        feature::BRANCH_STACK
            | feature::AUXTRACE
            | feature::STAT
            | feature::CACHE
            | feature::DIR_FORMAT
            | feature::HYBRID_TOPOLOGY
    )
}

/// Appends a record with a feature section; `None` if that is too large for one, or came after Linux 6.1.
pub fn put_feature(out: &mut Vec<u8>, order: ByteOrder, id: u8, content: &[u8]) -> Option<()> {
    let size = u16::try_from(content.len().checked_add(HEADER_SIZE + 8)?).ok()?;
    if id >= LAST_FEATURE {
        return None;
    }
    record::put_header(out, order, record::HEADER_FEATURE, 0, size);
    order.put_u64(out, id.into());
    out.extend_from_slice(content);
    Some(())
}

/// Appends the formats of tracepoints; `None` if they are larger than a record can say.
pub fn put_tracing_data(out: &mut Vec<u8>, order: ByteOrder, content: &[u8]) -> Option<()> {
    // What follows is padded to a multiple of 8, as readers expect it.
    let padded = content.len().next_multiple_of(8);
    let size = u32::try_from(padded).ok()?;
    record::put_header(out, order, record::HEADER_TRACING_DATA, 0, 12);
    order.put_u32(out, size);
    put_padded(out, content, padded);
    Some(())
}
