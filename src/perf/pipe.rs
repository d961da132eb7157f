//! Profiles in pipes: records that hold attributes and features, instead of header sections.
//!
//! `perf record -o -` cannot seek back to a header. It writes one record for each attribute
//! ([`record::HEADER_ATTR`]), for each feature section ([`record::HEADER_FEATURE`]) and for each entry of the
//! build ID table ([`record::HEADER_BUILD_ID`]), and the formats of tracepoints after a
//! [`record::HEADER_TRACING_DATA`] record.
//!
//! These records are removed from the stream when a file is written, and created when a file is converted
//! to a pipe. From pipe to pipe they stay in place, except for the record that describes the compression.

use jitdump::{ByteOrder, Tally};

use crate::bytes::write_padded;
use crate::perf::attr::{self, AttrEntry};
use crate::perf::feature::{self, Feature};
use crate::perf::record::data::ProfileBytes;
use crate::perf::record::pieces::{RecordSlice, visit_pieces};
use crate::perf::record::reader::RecordReader;
use crate::perf::record::{self, HEADER_SIZE, Record, Records};
use crate::results::diagnostics::Issue;

/// One more than the highest feature ID of Linux 7.3 (`HEADER_LAST_FEATURE`). Which newer ones perf itself writes to
/// pipes is unknown, and a perf that does not know one stops there ("wrong feature ID"), while it skips them in files.
const LAST_FEATURE: u8 = 35;

/// The contents of a pipe's header records.
#[derive(Clone, Debug, Default)]
pub struct PipeHeader {
    /// Attributes.
    pub attr_entries: Vec<AttrEntry>,
    /// Feature sections in the order of their IDs.
    pub features: Vec<Feature<'static>>,
    /// Offset and size in bytes of the records that hold them.
    pub records: Vec<(u64, u64)>,
}

impl PipeHeader {
    /// Collects the header records of a pipe.
    pub fn read(data: ProfileBytes<'_>, endian: ByteOrder, faults: &mut Tally<Issue>) -> Self {
        let mut head = Self::default();
        let mut build_ids = Vec::new();
        let mut records = RecordReader::new(data, endian);
        for offset in header_records(data, endian) {
            records.seek(offset);
            let Some(record) = records.next() else {
                break;
            };
            let is_read = match record.kind {
                record::HEADER_ATTR => read_attr(&record, endian).map(|entry| head.attr_entries.push(entry)),
                record::HEADER_FEATURE => head.add_feature(&record, endian),
                record::HEADER_TRACING_DATA => {
                    let mut formats = Vec::new();
                    let copied = data.copy_payload(&record, &mut formats).ok();
                    copied.and_then(|()| head.add_section(feature::TRACING_DATA, formats))
                }
                record::HEADER_BUILD_ID => {
                    write_table_entry(&mut build_ids, &record, endian);
                    Some(())
                }
                _ => continue,
            };
            if is_read.is_none() {
                faults.add(Issue::ProfileFeatureLost, record.offset);
            }
            head.records.push((record.offset, record.size()));
        }
        if !build_ids.is_empty() {
            head.features.push(Feature::new(feature::BUILD_ID, build_ids));
        }
        head.features.sort_by_key(|feature| feature.id);
        head
    }

    /// Adds the feature in a record. Fails if the record is broken, or the feature there already.
    fn add_feature(&mut self, record: &Record<'_>, endian: ByteOrder) -> Option<()> {
        let mut body = record.body(endian);
        let id = body.u64()?;
        if body.rest().is_empty() {
            // The end marker of the list. Its ID is one more than the highest feature ID.
            return Some(());
        }
        self.add_section(u8::try_from(id).ok()?, body.rest().to_vec())
    }

    /// Adds the content of a feature. Fails if it is there already.
    fn add_section(&mut self, id: u8, content: Vec<u8>) -> Option<()> {
        if self.features.iter().any(|feature| feature.id == id) {
            return None;
        }
        self.features.push(Feature::new(id, content));
        Some(())
    }
}

/// Returns the offsets of the header records in a pipe, in bytes from the first record.
fn header_records(data: ProfileBytes<'_>, endian: ByteOrder) -> Vec<u64> {
    let is_header = |record: &Record<'_>| {
        matches!(
            record.kind,
            record::HEADER_ATTR
                | record::HEADER_FEATURE
                | record::HEADER_TRACING_DATA
                | record::HEADER_BUILD_ID
        )
    };
    let offset = |record: Record<'_>| record.offset;
    match data {
        ProfileBytes::Memory(bytes) => Records::new(bytes, 0, endian)
            .filter(is_header)
            .map(offset)
            .collect(),
        ProfileBytes::File(part) => {
            let mut offsets = Vec::new();
            let visit =
                |records: RecordSlice<'_>| Some(records.filter(is_header).map(offset).collect::<Vec<_>>());
            visit_pieces(part, endian, visit, |found| offsets.extend(found));
            offsets
        }
    }
}

/// Appends the build ID table entry of a record, without the padding of the record. In the table, the name is
/// padded to a multiple of 8 bytes, not the entry.
fn write_table_entry(out: &mut Vec<u8>, record: &Record<'_>, endian: ByteOrder) {
    const PADDING: usize = 4;
    let is_padded = record.bytes.len().is_multiple_of(8) && record.bytes.ends_with(&[0; PADDING + 1]);
    let size = record
        .bytes
        .len()
        .saturating_sub(if is_padded { PADDING } else { 0 });
    record::write_header(out, endian, 0, record.misc, size);
    out.extend_from_slice(record.bytes.get(HEADER_SIZE..size).unwrap_or_default());
}

/// Appends a record for each entry of a build ID table.
pub fn write_build_ids(out: &mut Vec<u8>, endian: ByteOrder, table: &[u8]) {
    for entry in Records::new(table, 0, endian) {
        let record = Record {
            kind: record::HEADER_BUILD_ID,
            ..entry
        };
        record.write_aligned(out, endian);
    }
}

/// Reads a [`record::HEADER_ATTR`] record: an attribute of its declared size, then IDs.
pub fn read_attr(record: &Record<'_>, endian: ByteOrder) -> Option<AttrEntry> {
    let body = record.bytes.get(HEADER_SIZE..)?;
    let (attr, ids) = body.split_at_checked(attr::size(body, endian)?)?;
    Some(AttrEntry {
        attr: attr.to_vec(),
        ids: ids.to_vec(),
    })
}

/// Appends a record with an attribute and its IDs; `None` if they exceed the maximum record size.
///
/// Readers separate the two by the declared size of the attribute, which is therefore set. In a file, which
/// has the size in its header, it may have any value.
pub fn write_attr(out: &mut Vec<u8>, endian: ByteOrder, entry: &AttrEntry) -> Option<()> {
    let attr_size = attr::needed_size(&entry.attr, endian);
    let body_size = attr_size.checked_add(entry.ids.len())?;
    let size = u16::try_from(body_size.checked_add(HEADER_SIZE)?).ok()?;
    record::write_header(out, endian, record::HEADER_ATTR, 0, size.into());
    attr::write(out, endian, &entry.attr, attr_size);
    out.extend_from_slice(&entry.ids);
    Some(())
}

/// Whether a feature section is valid in a pipe. The others describe a file, or perf itself omits them in
/// pipes (FEAT_OPN in tools/perf/util/header.c).
pub fn is_valid_in_pipe(id: u8) -> bool {
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

/// Appends a record with a feature section; `None` if it is too large, or newer than Linux 7.3.
pub fn write_feature(out: &mut Vec<u8>, endian: ByteOrder, id: u8, content: &[u8]) -> Option<()> {
    let size = u16::try_from(content.len().checked_add(HEADER_SIZE + 8)?).ok()?;
    if id >= LAST_FEATURE {
        return None;
    }
    record::write_header(out, endian, record::HEADER_FEATURE, 0, size.into());
    endian.write_u64(out, id.into());
    out.extend_from_slice(content);
    Some(())
}

/// Appends the formats of tracepoints; `None` if they are 4 GiB or larger.
pub fn write_tracing_data(out: &mut Vec<u8>, endian: ByteOrder, content: &[u8]) -> Option<()> {
    // Readers expect the formats to be padded to a multiple of 8 bytes.
    let padded = content.len().next_multiple_of(8);
    let size = u32::try_from(padded).ok()?;
    record::write_header(out, endian, record::HEADER_TRACING_DATA, 0, 12);
    endian.write_u32(out, size);
    write_padded(out, content, padded);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::testing::BlocksInMemory;

    #[test]
    fn header_records_anywhere_in_a_file_are_found() {
        const ENDIAN: ByteOrder = ByteOrder::Little;
        let mut bytes = Vec::new();
        let samples = |out: &mut Vec<u8>| {
            for _ in 0..50 {
                record::write_header(out, ENDIAN, record::SAMPLE, 0, 40_000);
                out.resize(out.len() + 40_000 - HEADER_SIZE, 0x55);
            }
        };
        let mut attr = vec![0; 64];
        ENDIAN.set_u32(&mut attr, 4, 64);
        let entry = AttrEntry {
            attr,
            ids: vec![7; 8],
        };
        write_attr(&mut bytes, ENDIAN, &entry).unwrap();
        write_feature(&mut bytes, ENDIAN, feature::ARCH, b"x86_64").unwrap();
        samples(&mut bytes);
        write_feature(&mut bytes, ENDIAN, feature::ARCH, b"again").unwrap();
        let formats = vec![3; 1_000_000];
        write_tracing_data(&mut bytes, ENDIAN, &formats).unwrap();
        samples(&mut bytes);
        let mut table = Vec::new();
        record::write_header(&mut table, ENDIAN, 0, 0, 48);
        table.resize(48, b'a');
        write_build_ids(&mut bytes, ENDIAN, &table);
        let file = BlocksInMemory::new(bytes.clone());
        for data in [ProfileBytes::from(&bytes[..]), ProfileBytes::of_file(&file)] {
            let mut faults = Tally::default();
            let head = PipeHeader::read(data, ENDIAN, &mut faults);
            assert_eq!((head.attr_entries.len(), head.records.len()), (1, 5));
            let found: Vec<(u8, usize)> = head.features.iter().map(|it| (it.id, it.content.len())).collect();
            let expected = [
                (feature::TRACING_DATA, formats.len()),
                (feature::BUILD_ID, table.len()),
                (feature::ARCH, 6),
            ];
            assert_eq!(found, expected);
            assert_eq!(faults.count(Issue::ProfileFeatureLost), 1);
        }
    }

    #[test]
    fn build_ids_of_any_size_become_records_of_their_type() {
        for size in 36 + 4..36 + 12 {
            let mut table = Vec::new();
            record::write_header(&mut table, ByteOrder::Little, 0, 0, size);
            table.resize(size, b'a');
            let mut out = Vec::new();
            write_build_ids(&mut out, ByteOrder::Little, &table);
            let found = Records::new(&out, 0, ByteOrder::Little).next().unwrap();
            assert_eq!(found.kind, record::HEADER_BUILD_ID, "{size}");
            assert_eq!(found.bytes.len(), size.next_multiple_of(8));
        }
    }
}
