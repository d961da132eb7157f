//! Writing a profile anew: the same parts in perf's order, with some records added, replaced or left out.

use std::borrow::Cow;
use std::io::{self, Seek, SeekFrom, Write};

use crate::bytes::ByteOrder;
use crate::hash::HashSet;
use crate::perf::attr;
use crate::perf::compression::{self, Compressor};
use crate::perf::feature::{self, Feature};
use crate::perf::header::{FEATURE_WORDS, FILE_HEADER_SIZE, Header, Section, put_pipe_header};
use crate::perf::pipe;
use crate::perf::profile::{AttrEntry, Container, Profile};
use crate::perf::record::{self, HEADER_SIZE, Record};

/// What to change in the stream of records.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    edits: Vec<Edit>,
    /// The bytes that all edits add, each edit's behind the one's before.
    bytes: Vec<u8>,
}

/// At byte `at` of the records: `skip` bytes are left out and some put in their place.
#[derive(Clone, Copy, Debug)]
struct Edit {
    at: u64,
    skip: u64,
    start: usize,
    end: usize,
}

impl Edits {
    /// Adds what `put` appends before the record that starts at byte `at`, behind what was added there
    /// before.
    pub fn insert(&mut self, at: u64, put: impl FnOnce(&mut Vec<u8>)) {
        self.push(at, 0, put);
    }

    /// Puts what `put` appends in the place of a record; nothing drops it.
    pub fn replace(&mut self, record: &Record<'_>, put: impl FnOnce(&mut Vec<u8>)) {
        self.push(record.offset, record.len(), put);
    }

    fn push(&mut self, at: u64, skip: u64, put: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        put(&mut self.bytes);
        let end = self.bytes.len();
        self.edits.push(Edit { at, skip, start, end });
    }

    /// Puts them into the order of the file; what is inserted before a record comes before what replaces it.
    fn sort(&mut self) {
        self.edits.sort_by_key(|edit| (edit.at, edit.skip > 0));
    }
}

/// A profile to be written with changes.
#[derive(Debug)]
pub struct Rewrite<'a> {
    /// The profile.
    pub profile: &'a Profile<'a>,
    /// Bytes of its records that are whole.
    pub data_end: u64,
    /// The records with AUX data, as offset from the first record and length without the data.
    pub auxtrace: &'a [(u64, u64)],
    /// The changes to its records.
    pub edits: Edits,
    /// Entries to add to its table of build-ids, if it has one.
    pub build_ids: Vec<u8>,
    /// How hard to compress the records (1 to 22), if at all.
    pub compression: Option<i32>,
}

/// Feature sections that were left out, since a pipe can't have them.
pub type LeftOut = Vec<u8>;

impl<'a> Rewrite<'a> {
    /// Writes the profile as a file, in the layout of perf's own: header, ids, attributes, records, feature
    /// table, features.
    pub fn write_file(mut self, out: &mut (impl Write + Seek)) -> io::Result<()> {
        let order = self.profile.order;
        for (at, skip) in self.head_records() {
            self.edits.push(at, skip, |_| {});
        }
        let mut header = Header {
            order,
            attr_size: 0,
            attrs: Section::default(),
            data: Section::default(),
            features: [0; FEATURE_WORDS],
        };
        // The header is written last, when all sizes are known.
        let mut head = vec![0; FILE_HEADER_SIZE as usize];
        put_attrs(self.profile, &mut header, &mut head);
        out.write_all(&head)?;
        header.data.offset = head.len() as u64;
        let mut stream = Stream::new(out, header.data.offset, self.compression, order)?;
        let auxtrace = self.write_records(&mut stream)?;
        header.data.size = stream.written.saturating_sub(header.data.offset);
        let ratio = stream.records.checked_div(header.data.size).unwrap_or(1);
        let mut features = self.features(u32::try_from(ratio).unwrap_or(u32::MAX));
        if !auxtrace.is_empty() {
            features.push(Feature {
                id: feature::AUXTRACE,
                content: feature::auxtrace_index(order, &auxtrace).into(),
            });
        }
        features.sort_by_key(|feature| feature.id);
        write_features(&mut header, &features, out)?;
        let mut start = Vec::new();
        header.put(&mut start);
        out.seek(SeekFrom::Start(0))?;
        out.write_all(&start)
    }

    /// Writes the profile for a pipe, in which everything is a record. Fails with
    /// [`io::ErrorKind::InvalidData`] if an attribute has more ids than a record has room for.
    pub fn write_pipe(mut self, out: &mut dyn Write) -> io::Result<LeftOut> {
        let order = self.profile.order;
        let mut head = Vec::new();
        let mut left_out = LeftOut::new();
        put_pipe_header(&mut head, order);
        match self.profile.container {
            Container::File => self.put_head(&mut head, &mut left_out)?,
            Container::Pipe => {
                self.put_lost_attrs(&mut head)?;
                self.edit_head();
            }
        }
        out.write_all(&head)?;
        let mut stream = Stream::new(out, head.len() as u64, self.compression, order)?;
        self.write_records(&mut stream)?;
        if self.profile.container == Container::Pipe && self.profile.feature(feature::BUILD_ID).is_some() {
            let mut records = Vec::new();
            pipe::put_build_ids(&mut records, order, &self.build_ids);
            out.write_all(&records)?;
        }
        Ok(left_out)
    }

    /// Appends the records that stand for the sections of a file, in the order of perf record.
    fn put_head(&mut self, head: &mut Vec<u8>, left_out: &mut LeftOut) -> io::Result<()> {
        let order = self.profile.order;
        for entry in &self.profile.attr_entries {
            put_attr_record(head, order, entry)?;
        }
        for Feature { id, content } in self
            .features(1)
            .into_iter()
            .filter(|it| pipe::is_for_pipes(it.id))
        {
            let put = match id {
                feature::TRACING_DATA => pipe::put_tracing_data(head, order, &content),
                feature::BUILD_ID => {
                    pipe::put_build_ids(head, order, &content);
                    Some(())
                }
                _ => pipe::put_feature(head, order, id, &content),
            };
            if put.is_none() {
                left_out.push(id);
            }
        }
        Ok(())
    }

    /// The records of a pipe's head, as offset and length, as far as records are whole.
    fn head_records(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let end = self.data_end;
        let records = self.profile.head_records.iter().copied();
        records.take_while(move |&(at, _)| at < end)
    }

    /// Appends the attributes that are in none of a pipe's records, those being damaged: readers need them for all
    /// others.
    fn put_lost_attrs(&self, head: &mut Vec<u8>) -> io::Result<()> {
        let records = self.head_records();
        let records = records.filter_map(|(at, _)| self.profile.records_from(at).next());
        let attrs = records.filter(|record| record.kind == record::HEADER_ATTR);
        let left: HashSet<&[u8]> = attrs
            .filter_map(|record| record.bytes.get(HEADER_SIZE..))
            .collect();
        for entry in &self.profile.attr_entries {
            if !left.contains(&*[entry.attr, entry.ids].concat()) {
                put_attr_record(head, self.profile.order, entry)?;
            }
        }
        Ok(())
    }

    /// Makes the head of a pipe say how records are compressed from now on, and its attributes as short as they can be.
    fn edit_head(&mut self) {
        let order = self.profile.order;
        let mut end = 0;
        for (at, size) in self.head_records() {
            let is_leading = at == end;
            if is_leading {
                end = at.saturating_add(size);
            }
            let Some(record) = self.profile.records_from(at).next() else {
                continue;
            };
            match record.kind {
                record::HEADER_FEATURE if record.body(order).u64() == Some(feature::COMPRESSED.into()) => {
                    self.edits.replace(&record, |_| {});
                }
                record::HEADER_ATTR => {
                    let mut shorter = Vec::new();
                    let entry = pipe::attr_of(&record, order);
                    if entry
                        .and_then(|entry| pipe::put_attr(&mut shorter, order, &entry))
                        .is_some()
                    {
                        self.edits.replace(&record, |out| out.extend_from_slice(&shorter));
                    }
                }
                _ => {}
            }
        }
        if let Some(level) = self.compression {
            let content = compression::feature(order, level, 1);
            self.edits.insert(end, |out| {
                pipe::put_feature(out, order, feature::COMPRESSED, &content);
            });
        }
    }

    /// The feature sections to write, but for the index of AUX data, in any order. `ratio` is how many times
    /// larger the records are than what they are compressed to.
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
            features.push(Feature {
                id: feature::COMPRESSED,
                content: compression::feature(self.profile.order, level, ratio).into(),
            });
        }
        features
    }

    /// Writes the records with their changes. Returns where those with AUX data are in what is written, and
    /// how long each is without them.
    fn write_records<W: Write + ?Sized>(
        &mut self,
        stream: &mut Stream<'_, W>,
    ) -> io::Result<Vec<(u64, u64)>> {
        self.edits.sort();
        let data = self.profile.data;
        let mut places = Vec::new();
        let mut auxtrace = self.auxtrace.iter().peekable();
        let mut copied = 0;
        let mut copy = |stream: &mut Stream<'_, W>, from: u64, until: u64| -> io::Result<()> {
            let mut from = from;
            while let Some(&(at, size)) = auxtrace.next_if(|&&(at, _)| at < until) {
                stream.write(span(data, from, at))?;
                places.push((stream.place()?, size));
                from = at;
            }
            stream.write(span(data, from, until))
        };
        for edit in &self.edits.edits {
            copy(stream, copied, edit.at)?;
            stream.write(self.edits.bytes.get(edit.start..edit.end).unwrap_or_default())?;
            copied = copied.max(edit.at.saturating_add(edit.skip));
        }
        copy(stream, copied, self.data_end)?;
        stream.place()?;
        Ok(places)
    }
}

/// How many bytes are written at a time: hundreds of megabytes at once take ext4 twice to ten times as long
/// as the same in pieces.
const PIECE: usize = 1 << 20;

/// Where records are written to.
struct Stream<'o, W: ?Sized> {
    out: &'o mut W,
    compressor: Option<Compressor>,
    /// How many bytes were written, with those before the records.
    written: u64,
    /// How many bytes of records that were.
    records: u64,
}

impl<'o, W: Write + ?Sized> Stream<'o, W> {
    fn new(out: &'o mut W, written: u64, compression: Option<i32>, order: ByteOrder) -> io::Result<Self> {
        Ok(Self {
            out,
            compressor: compression
                .map(|level| Compressor::new(level, order))
                .transpose()?,
            written,
            records: 0,
        })
    }

    /// Writes whole records.
    fn write(&mut self, records: &[u8]) -> io::Result<()> {
        let size = records.len() as u64;
        let written = match &mut self.compressor {
            Some(compressor) => compressor.write(records, &mut self.out)?,
            None => {
                for piece in records.chunks(PIECE) {
                    self.out.write_all(piece)?;
                }
                size
            }
        };
        self.records = self.records.saturating_add(size);
        self.written = self.written.saturating_add(written);
        Ok(())
    }

    /// Where the next record will be, if it is one of perf's own.
    fn place(&mut self) -> io::Result<u64> {
        if let Some(compressor) = &mut self.compressor {
            let written = compressor.flush(&mut self.out)?;
            self.written = self.written.saturating_add(written);
        }
        Ok(self.written)
    }
}

/// Appends the record of an attribute for a pipe.
fn put_attr_record(out: &mut Vec<u8>, order: ByteOrder, entry: &AttrEntry<'_>) -> io::Result<()> {
    let too_many = "an event has more counters than fit into a pipe; write to a file";
    pipe::put_attr(out, order, entry).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, too_many))
}

/// Appends the ids and then the attributes, and notes in the header where they are. All attributes get one size, since
/// perf looks for the next one behind as many bytes as an attribute says it has.
fn put_attrs(profile: &Profile<'_>, header: &mut Header, out: &mut Vec<u8>) {
    let mut places = Vec::new();
    for entry in &profile.attr_entries {
        places.push(Section {
            offset: out.len() as u64,
            size: entry.ids.len() as u64,
        });
        out.extend_from_slice(entry.ids);
    }
    let entries = profile.attr_entries.iter();
    let sizes = entries.map(|entry| attr::needed_size(entry.attr, profile.order));
    let size = sizes.max().unwrap_or(0);
    header.attrs.offset = out.len() as u64;
    for (entry, ids) in profile.attr_entries.iter().zip(places) {
        attr::put(out, profile.order, entry.attr, size);
        profile.order.put_u64(out, ids.offset);
        profile.order.put_u64(out, ids.size);
    }
    header.attrs.size = (out.len() as u64).saturating_sub(header.attrs.offset);
    header.attr_size = (size as u64).saturating_add(16);
}

fn span(data: &[u8], start: u64, end: u64) -> &[u8] {
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) => data.get(start..end).unwrap_or_default(),
        _ => &[],
    }
}

/// Writes the table of features and the features, in the order of their ids, and notes them in the header.
fn write_features(header: &mut Header, features: &[Feature<'_>], out: &mut dyn Write) -> io::Result<()> {
    /// Bytes of one entry of the table: offset and size.
    const ENTRY: u64 = 16;
    let table_size = ENTRY.saturating_mul(features.len() as u64);
    let mut offset = header.data.end().saturating_add(table_size);
    let mut table = Vec::new();
    for Feature { id, content } in features {
        if let Some(word) = header.features.get_mut(usize::from(id / 64)) {
            *word |= 1 << (id % 64);
        }
        header.order.put_u64(&mut table, offset);
        header.order.put_u64(&mut table, content.len() as u64);
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
    use crate::perf::resync;

    const ORDER: ByteOrder = ByteOrder::Little;

    #[test]
    fn a_pipe_whose_attribute_is_damaged_is_written_with_it() {
        let mut attr = vec![0; 64];
        ORDER.set_u32(&mut attr, 4, 64);
        let ids = 70_u64.to_le_bytes().repeat(4);
        let entry = AttrEntry {
            attr: &attr,
            ids: &ids,
        };
        let mut bytes = Vec::new();
        put_pipe_header(&mut bytes, ORDER);
        pipe::put_attr(&mut bytes, ORDER, &entry).unwrap();
        // It lost a byte, and takes one of the next.
        bytes.pop();
        for _ in 0..10 {
            pipe::put_feature(&mut bytes, ORDER, feature::ARCH, &[0; 8]).unwrap();
        }
        let profile = Profile::parse(&bytes).unwrap();
        let mut mended = Vec::new();
        let damage = resync::mend(profile.whole_records(), &mut mended).unwrap();
        assert_eq!(damage.places, 1);
        let profile = profile.with_records(&mended);
        let rewrite = Rewrite {
            profile: &profile,
            data_end: mended.len() as u64,
            auxtrace: &[],
            edits: Edits::default(),
            build_ids: Vec::new(),
            compression: None,
        };
        let mut written = Vec::new();
        rewrite.write_pipe(&mut written).unwrap();
        let again = Profile::parse(&written).unwrap();
        assert_eq!(again.attr_entries.len(), 1);
        assert_eq!(again.records().count(), 11);
    }
}
