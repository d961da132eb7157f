//! Rewrites a profile: the same parts in perf's order, with some records added, replaced or removed.
//!
//! Two changes for readers apply to every output. Trailing zeros are removed from attributes, because perf
//! rejects files with attributes longer than its own. perf's own records are padded to multiples of 8
//! bytes, because perf 7.3 stops at others. perf itself writes both, into pipes.

use std::borrow::Cow;
use std::io::{self, Seek, SeekFrom, Write};

use jitdump::ByteOrder;

use crate::collections::hash::HashSet;
use crate::perf::attr;
use crate::perf::attr::AttrEntry;
use crate::perf::compression::{self, Compressor};
use crate::perf::feature::{self, Feature};
use crate::perf::header::{FEATURE_WORDS, FILE_HEADER_SIZE, FileHeader, FileSection, write_pipe_header};
use crate::perf::pipe;
use crate::perf::profile::{Container, Profile};
use crate::perf::record::data::{Copier, Output};
use crate::perf::record::reader::RecordReader;
use crate::perf::record::{self, HEADER_SIZE, Record};

/// Changes to the records of a profile.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    edits: Vec<Edit>,
    /// The bytes that the edits add, in the order in which the edits were made.
    bytes: Vec<u8>,
}

/// Replaces `skip` bytes at offset `at` of the records with a part of [`Edits::bytes`].
#[derive(Clone, Copy, Debug)]
struct Edit {
    at: u64,
    skip: u64,
    start: usize,
    end: usize,
}

impl Edits {
    /// Inserts what `write` appends before the record at offset `at`, after earlier insertions there.
    pub fn insert(&mut self, at: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.push(at, 0, write);
    }

    /// Replaces a record with what `write` appends. If that is nothing, the record is removed.
    pub fn replace(&mut self, record: &Record<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        self.push(record.offset, record.size(), write);
    }

    fn push(&mut self, at: u64, skip: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let end = self.bytes.len();
        self.edits.push(Edit { at, skip, start, end });
    }

    /// Sorts the edits by offset. Insertions before a record precede its replacement.
    fn sort(&mut self) {
        self.edits.sort_by_key(|edit| (edit.at, edit.skip > 0));
    }
}

/// A profile to write with changes.
#[derive(Debug)]
pub struct Rewrite<'a> {
    /// The profile.
    pub profile: &'a Profile<'a>,
    /// Size of the intact records in bytes.
    pub data_end: u64,
    /// Records with AUX data: offset from the first record and size without the data, in bytes.
    pub auxtrace: &'a [(u64, u64)],
    /// Changes to the records.
    pub edits: Edits,
    /// Entries to add to the build ID table, if there is one.
    pub build_ids: Vec<u8>,
    /// Zstandard level (1 to 22) for the records; `None` for no compression.
    pub compression: Option<i32>,
}

/// IDs of the feature sections that were left out because a pipe cannot hold them.
pub type OmittedFeatures = Vec<u8>;

impl<'a> Rewrite<'a> {
    /// Writes the profile as a file, in the layout of perf: header, IDs, attributes, records, feature table,
    /// features.
    pub fn write_file(mut self, out: &mut (impl Output + Seek)) -> io::Result<()> {
        let endian = self.profile.endian;
        for (at, skip) in self.header_records() {
            self.edits.push(at, skip, |_| {});
        }
        let mut header = FileHeader {
            endian,
            attr_size: 0,
            attrs: FileSection::default(),
            data: FileSection::default(),
            features: [0; FEATURE_WORDS],
        };
        // The header is written last, when all sizes are known.
        let mut head = vec![0; FILE_HEADER_SIZE as usize];
        write_attrs(self.profile, &mut header, &mut head);
        out.write_all(&head)?;
        header.data.offset = head.len() as u64;
        let mut stream = Stream::new(self.profile, out, header.data.offset, self.compression)?;
        let auxtrace = self.write_records(&mut stream)?;
        header.data.size = stream.written.saturating_sub(header.data.offset);
        let ratio = stream.size.checked_div(header.data.size).unwrap_or(1);
        let mut features = self.features(u32::try_from(ratio).unwrap_or(u32::MAX));
        if !auxtrace.is_empty() {
            let index = feature::auxtrace_index(endian, &auxtrace);
            features.push(Feature::new(feature::AUXTRACE, index));
        }
        // Quirk: perf on a little-endian machine finds out by the bit of HOSTNAME, which perf record always sets, how a
        // big-endian profile stores its feature bits. Without it, perf looks for build IDs that are not there, and since
        // 7.3 rejects the file (header.c, `perf_file_header__read`). A killed perf record leaves no features, and
        // `external::machines` has profiles without them.
        let has_host = features.iter().any(|feature| feature.id == feature::HOSTNAME);
        if endian == ByteOrder::Big && !has_host {
            let mut content = Vec::new();
            feature::write_string(&mut content, endian, b"");
            features.push(Feature::new(feature::HOSTNAME, content));
        }
        features.sort_by_key(|feature| feature.id);
        write_features(&mut header, &features, out)?;
        let mut start = Vec::new();
        header.write(&mut start);
        out.seek(SeekFrom::Start(0))?;
        out.write_all(&start)
    }

    /// Writes the profile for a pipe, in which everything is a record. Fails with
    /// [`io::ErrorKind::InvalidData`] if an attribute has more IDs than fit into a record.
    pub fn write_pipe(mut self, out: &mut dyn Output) -> io::Result<OmittedFeatures> {
        let endian = self.profile.endian;
        let mut head = Vec::new();
        let mut omitted = OmittedFeatures::new();
        write_pipe_header(&mut head, endian);
        match self.profile.container {
            Container::File => self.write_header_records(&mut head, &mut omitted)?,
            Container::Pipe => {
                self.write_missing_attrs(&mut head)?;
                self.edit_header_records();
            }
        }
        out.write_all(&head)?;
        let mut stream = Stream::new(self.profile, out, head.len() as u64, self.compression)?;
        self.write_records(&mut stream)?;
        if self.profile.container == Container::Pipe && self.profile.feature(feature::BUILD_ID).is_some() {
            let mut records = Vec::new();
            pipe::write_build_ids(&mut records, endian, &self.build_ids);
            out.write_all(&records)?;
        }
        Ok(omitted)
    }

    /// Appends the records for the sections of a file, in the order of perf record.
    fn write_header_records(&mut self, head: &mut Vec<u8>, omitted: &mut OmittedFeatures) -> io::Result<()> {
        let endian = self.profile.endian;
        for entry in &self.profile.attr_entries {
            write_attr_record(head, endian, entry)?;
        }
        for Feature { id, content } in self
            .features(1)
            .into_iter()
            .filter(|it| pipe::is_valid_in_pipe(it.id))
        {
            let written = match id {
                feature::TRACING_DATA => pipe::write_tracing_data(head, endian, &content),
                feature::BUILD_ID => {
                    pipe::write_build_ids(head, endian, &content);
                    Some(())
                }
                _ => pipe::write_feature(head, endian, id, &content),
            };
            if written.is_none() {
                omitted.push(id);
            }
        }
        Ok(())
    }

    /// Returns offset and size of a pipe's header records within the intact records.
    fn header_records(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let end = self.data_end;
        let records = self.profile.header_records.iter().copied();
        records.take_while(move |&(at, _)| at < end)
    }

    /// Appends the attributes whose records in the pipe are damaged. Readers need them before all other
    /// records.
    fn write_missing_attrs(&self, head: &mut Vec<u8>) -> io::Result<()> {
        let mut records = self.profile.records();
        let attrs = self.header_records().filter_map(|(at, _)| {
            records.seek(at);
            let record = records
                .next()
                .filter(|record| record.kind == record::HEADER_ATTR)?;
            record.bytes.get(HEADER_SIZE..).map(<[u8]>::to_vec)
        });
        let intact: HashSet<Vec<u8>> = attrs.collect();
        for entry in &self.profile.attr_entries {
            if !intact.contains(&[&entry.attr[..], &entry.ids].concat()) {
                write_attr_record(head, self.profile.endian, entry)?;
            }
        }
        Ok(())
    }

    /// Replaces the COMPRESSED feature in a pipe and shortens its attributes to their needed size.
    fn edit_header_records(&mut self) {
        let endian = self.profile.endian;
        let mut end = 0;
        let mut records = self.profile.records();
        for (at, size) in self.header_records() {
            let is_contiguous = at == end;
            if is_contiguous {
                end = at.saturating_add(size);
            }
            records.seek(at);
            let Some(record) = records.next() else {
                continue;
            };
            match record.kind {
                record::HEADER_FEATURE if record.body(endian).u64() == Some(feature::COMPRESSED.into()) => {
                    self.edits.replace(&record, |_| {});
                }
                record::HEADER_ATTR => {
                    let mut shorter = Vec::new();
                    let entry = pipe::read_attr(&record, endian);
                    if entry
                        .and_then(|entry| pipe::write_attr(&mut shorter, endian, &entry))
                        .is_some()
                    {
                        self.edits.replace(&record, |out| out.extend_from_slice(&shorter));
                    }
                }
                _ => {}
            }
        }
        if let Some(level) = self.compression {
            let content = compression::feature(endian, level, 1);
            self.edits.insert(end, |out| {
                pipe::write_feature(out, endian, feature::COMPRESSED, &content);
            });
        }
    }

    /// Returns the feature sections to write, except the index of AUX data, in any order. `ratio` is the
    /// compression ratio of the records.
    ///
    /// Those of a later perf are copied, too: of the 35 known ones, only that index has offsets in the file, and perf
    /// skips those that it does not know.
    fn features(&mut self, ratio: u32) -> Vec<Feature<'a>> {
        let mut features = Vec::new();
        for Feature { id, content } in &self.profile.features {
            let content = match *id {
                feature::AUXTRACE | feature::DIR_FORMAT | feature::COMPRESSED => continue,
                feature::BUILD_ID => {
                    let mut entries = std::mem::take(&mut self.build_ids);
                    entries.splice(..0, content.iter().copied());
                    Cow::Owned(entries)
                }
                _ => Cow::Borrowed(&**content),
            };
            features.push(Feature { id: *id, content });
        }
        if let Some(level) = self.compression {
            let content = compression::feature(self.profile.endian, level, ratio);
            features.push(Feature::new(feature::COMPRESSED, content));
        }
        features
    }

    /// Writes the records with their changes. Returns the offset in the output of each record with AUX data
    /// and its size without the data, in bytes.
    fn write_records<W: Output + ?Sized>(
        &mut self,
        stream: &mut Stream<'_, '_, W>,
    ) -> io::Result<Vec<(u64, u64)>> {
        self.edits.sort();
        let mut offsets = Vec::new();
        let mut auxtrace = self.auxtrace.iter().peekable();
        let mut copied = 0;
        let mut copy = |stream: &mut Stream<'_, '_, W>, from: u64, until: u64| -> io::Result<()> {
            let mut from = from;
            while let Some(&(at, size)) = auxtrace.next_if(|&&(at, _)| at < until) {
                stream.copy_records(from, at)?;
                offsets.push((stream.offset()?, size));
                from = at;
            }
            stream.copy_records(from, until)
        };
        for edit in &self.edits.edits {
            copy(stream, copied, edit.at)?;
            stream.write(self.edits.bytes.get(edit.start..edit.end).unwrap_or_default())?;
            copied = copied.max(edit.at.saturating_add(edit.skip));
        }
        copy(stream, copied, self.data_end)?;
        stream.offset()?;
        Ok(offsets)
    }
}

/// The output of the records.
struct Stream<'p, 'o, W: ?Sized> {
    /// Records of the profile, to copy.
    copier: Copier<'p>,
    /// Records of the profile, to compress.
    records: RecordReader<'p>,
    out: &'o mut W,
    compressor: Option<Compressor>,
    /// Bytes written, including those before the records.
    written: u64,
    /// Bytes of the records before compression.
    size: u64,
}

impl<'p, 'o, W: Output + ?Sized> Stream<'p, 'o, W> {
    /// Prepares a stream that continues after `written` bytes, with a level of compression or uncompressed.
    fn new(
        profile: &Profile<'p>,
        out: &'o mut W,
        written: u64,
        compression: Option<i32>,
    ) -> io::Result<Self> {
        Ok(Self {
            copier: Copier::new(profile.data),
            records: profile.records(),
            out,
            compressor: compression
                .map(|level| Compressor::new(level, profile.endian))
                .transpose()?,
            written,
            size: 0,
        })
    }

    /// Writes whole records of the profile: those from offset `from` to offset `until`.
    fn copy_records(&mut self, from: u64, until: u64) -> io::Result<()> {
        let Self {
            copier,
            records,
            out,
            compressor,
            ..
        } = self;
        let data = copier.data();
        if from >= until || until > data.len() {
            return Ok(());
        }
        let size = until.saturating_sub(from);
        let mut written = 0u64;
        match compressor {
            Some(compressor) => {
                records.seek(from);
                while records.offset() < until
                    && let Some(record) = records.next()
                {
                    written = written.saturating_add(compressor.write_record(&record, data, out)?);
                }
            }
            None => {
                copier.copy(from, until, &mut **out)?;
                written = size;
            }
        }
        self.count(size, written);
        Ok(())
    }

    /// Writes whole records.
    fn write(&mut self, records: &[u8]) -> io::Result<()> {
        let size = records.len() as u64;
        let written = match &mut self.compressor {
            Some(compressor) => compressor.write(records, &mut self.out)?,
            None => {
                self.out.write_all(records)?;
                size
            }
        };
        self.count(size, written);
        Ok(())
    }

    fn count(&mut self, size: u64, written: u64) {
        self.size = self.size.saturating_add(size);
        self.written = self.written.saturating_add(written);
    }

    /// Returns the offset in the output of the next record, if that is one of perf's own.
    fn offset(&mut self) -> io::Result<u64> {
        if let Some(compressor) = &mut self.compressor {
            let written = compressor.flush(&mut self.out)?;
            self.written = self.written.saturating_add(written);
        }
        Ok(self.written)
    }
}

/// Appends the record of an attribute for a pipe.
fn write_attr_record(out: &mut Vec<u8>, endian: ByteOrder, entry: &AttrEntry) -> io::Result<()> {
    let too_many = "an event has more counters than fit into a pipe; write to a file";
    pipe::write_attr(out, endian, entry).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, too_many))
}

/// Appends the IDs and then the attributes, and sets their offsets in the header. All attributes get the same
/// size, since perf locates the next one by the declared size of an attribute.
fn write_attrs(profile: &Profile<'_>, header: &mut FileHeader, out: &mut Vec<u8>) {
    let mut offsets = Vec::new();
    for entry in &profile.attr_entries {
        offsets.push(FileSection {
            offset: out.len() as u64,
            size: entry.ids.len() as u64,
        });
        out.extend_from_slice(&entry.ids);
    }
    let entries = profile.attr_entries.iter();
    let sizes = entries.map(|entry| attr::needed_size(&entry.attr, profile.endian));
    let size = sizes.max().unwrap_or(0);
    header.attrs.offset = out.len() as u64;
    for (entry, ids) in profile.attr_entries.iter().zip(offsets) {
        attr::write(out, profile.endian, &entry.attr, size);
        profile.endian.write_u64(out, ids.offset);
        profile.endian.write_u64(out, ids.size);
    }
    header.attrs.size = (out.len() as u64).saturating_sub(header.attrs.offset);
    header.attr_size = (size as u64).saturating_add(16);
}

/// Writes the feature table and the features in the order of their IDs, and sets their bits in the header.
fn write_features(header: &mut FileHeader, features: &[Feature<'_>], out: &mut dyn Write) -> io::Result<()> {
    /// Size of a table entry in bytes: offset and size.
    const ENTRY: u64 = 16;
    let table_size = ENTRY.saturating_mul(features.len() as u64);
    let mut offset = header.data.end().saturating_add(table_size);
    let mut table = Vec::new();
    for Feature { id, content } in features {
        if let Some(word) = header.features.get_mut(usize::from(id / 64)) {
            *word |= 1 << (id % 64);
        }
        header.endian.write_u64(&mut table, offset);
        header.endian.write_u64(&mut table, content.len() as u64);
        offset = offset.saturating_add(content.len() as u64);
    }
    out.write_all(&table)?;
    for Feature { content, .. } in features {
        out.write_all(content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::Records;
    use crate::perf::record::data::ProfileBytes;
    use crate::perf::record::resync;

    const ORDER: ByteOrder = ByteOrder::Little;

    #[test]
    fn a_pipe_whose_attribute_is_damaged_is_written_with_it() {
        let mut attr = vec![0; 64];
        ORDER.set_u32(&mut attr, 4, 64);
        let ids = 70_u64.to_le_bytes().repeat(4);
        let entry = AttrEntry { attr, ids };
        let mut bytes = Vec::new();
        write_pipe_header(&mut bytes, ORDER);
        pipe::write_attr(&mut bytes, ORDER, &entry).unwrap();
        // The attribute's record lost a byte and extends into the next record.
        bytes.pop();
        for _ in 0..10 {
            pipe::write_feature(&mut bytes, ORDER, feature::ARCH, &[0; 8]).unwrap();
        }
        let profile = Profile::parse(&bytes).unwrap();
        let mut repaired = Vec::new();
        let damage = resync::repair(profile.data, &profile.attrs, ORDER, &mut repaired).unwrap();
        assert_eq!(damage.areas, 1);
        let profile = profile.with_records(ProfileBytes::from(&repaired[..]));
        let rewrite = Rewrite {
            profile: &profile,
            data_end: repaired.len() as u64,
            auxtrace: &[],
            edits: Edits::default(),
            build_ids: Vec::new(),
            compression: None,
        };
        let mut written = Vec::new();
        rewrite.write_pipe(&mut written).unwrap();
        let again = Profile::parse(&written).unwrap();
        assert_eq!(again.attr_entries.len(), 1);
        let records = Records::new(again.data.in_memory().unwrap(), 0, ORDER);
        assert_eq!(records.count(), 11);
    }
}
