//! An opened profile.

use crate::bytes::{ByteOrder, Reader};
use crate::collections::tally::Tally;
use crate::diagnostics::{Diagnostic, Issue};
use crate::perf::attr::{self, Attrs};
use crate::perf::feature::{self, Feature};
use crate::perf::header::{AnyHeader, FEATURE_WORDS, FileHeader, PIPE_HEADER_SIZE, Section};
use crate::perf::pipe::PipeHeader;
use crate::perf::record::Records;
use crate::perf::record::resync::IntactRecords;

/// How a profile is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Container {
    /// In a file, with a header that locates its sections.
    File,
    /// As a stream in which everything is a record.
    Pipe,
}

/// An attribute as stored in the file.
#[derive(Clone, Copy, Debug)]
pub struct AttrEntry<'a> {
    /// Bytes of the attribute.
    pub attr: &'a [u8],
    /// IDs of its counters, eight bytes each.
    pub ids: &'a [u8],
}

/// A profile. Its parts are slices of the file.
#[derive(Clone, Debug)]
pub struct Profile<'a> {
    /// Kind of the file.
    pub container: Container,
    /// Endianness of the profile.
    pub endian: ByteOrder,
    /// Attributes as stored in the file.
    pub attr_entries: Vec<AttrEntry<'a>>,
    /// Decoded attributes.
    pub attrs: Attrs,
    /// Bytes of the records.
    pub data: &'a [u8],
    /// Offset of the first record in the file, in bytes.
    pub data_offset: u64,
    /// Feature sections in the order of their IDs.
    pub features: Vec<Feature<'a>>,
    /// Offset from the first record and size, in bytes, of the records that hold attributes and features in a
    /// pipe.
    pub header_records: Vec<(u64, u64)>,
    /// Problems found while reading.
    pub faults: Tally<Issue>,
}

impl<'a> Profile<'a> {
    /// Opens a profile. Fails only if no record could be read.
    pub fn parse(file: &'a [u8]) -> Result<Self, Diagnostic> {
        match AnyHeader::parse(file)? {
            AnyHeader::File(header) => Self::parse_file(file, &header),
            AnyHeader::Pipe(endian) => Self::parse_pipe(tail(file, PIPE_HEADER_SIZE), endian),
        }
    }

    fn parse_file(file: &'a [u8], header: &FileHeader) -> Result<Self, Diagnostic> {
        let mut faults = Tally::default();
        let attr_entries = attr_entries(file, header, &mut faults)?;
        if header.data.offset > file.len() as u64 {
            return Err(
                Diagnostic::new(Issue::ProfileData).with("start", format_args!("{:#x}", header.data.offset))
            );
        }
        let (data, features) = if header.data.size == 0 && header.data.offset < file.len() as u64 {
            faults.add(Issue::ProfileUnfinished, header.data.offset);
            (tail(file, header.data.offset), Vec::new())
        } else if let Some(data) = header.data.slice(file) {
            (data, features(file, header, &mut faults))
        } else {
            faults.add(Issue::ProfileDataCut, file.len() as u64);
            (tail(file, header.data.offset), Vec::new())
        };
        Ok(Self {
            container: Container::File,
            endian: header.endian,
            attrs: Attrs::read(&attr_entries, header.endian),
            attr_entries,
            data,
            data_offset: header.data.offset,
            features,
            header_records: Vec::new(),
            faults,
        })
    }

    fn parse_pipe(data: &'a [u8], endian: ByteOrder) -> Result<Self, Diagnostic> {
        let mut faults = Tally::default();
        let head = PipeHeader::read(Records::new(data, 0, endian), endian, &mut faults);
        faults = faults.offset_by(PIPE_HEADER_SIZE);
        if head.attr_entries.is_empty() {
            return Err(Diagnostic::new(Issue::ProfileNoAttrs));
        }
        Ok(Self {
            container: Container::Pipe,
            endian,
            attrs: Attrs::read(&head.attr_entries, endian),
            attr_entries: head.attr_entries,
            data,
            data_offset: PIPE_HEADER_SIZE,
            features: head.features,
            header_records: head.records,
            faults,
        })
    }

    /// Replaces the records, with decompressed ones or with those of several files merged.
    pub fn with_records(self, data: &'a [u8]) -> Self {
        let mut profile = Self {
            data,
            data_offset: 0,
            ..self
        };
        if profile.container == Container::Pipe {
            let mut unused = Tally::default();
            let head = PipeHeader::read(profile.records(), profile.endian, &mut unused);
            profile.header_records = head.records;
            // There may be more attributes and features after damage.
            profile.features = head.features;
            if head.attr_entries.len() > profile.attr_entries.len() {
                profile.attrs = Attrs::read(&head.attr_entries, profile.endian);
                profile.attr_entries = head.attr_entries;
            }
        }
        profile
    }

    /// Iterates over the records in file order and skips damaged ones.
    pub fn intact_records(&self) -> IntactRecords<'_> {
        IntactRecords::new(self.data, &self.attrs, self.endian)
    }

    /// Iterates over the records in file order.
    pub fn records(&self) -> Records<'a> {
        Records::new(self.data, 0, self.endian)
    }

    /// Iterates over the records from `offset` on, the offset of a record in bytes from the first one.
    pub fn records_from(&self, offset: u64) -> Records<'a> {
        Records::new(tail(self.data, offset), offset, self.endian)
    }

    /// Iterates over the records from `start` to `end`, offsets of records in bytes from the first one.
    pub fn records_between(&self, start: u64, end: u64) -> Records<'a> {
        let bytes = tail(self.data, start);
        let size = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        Records::new(bytes.get(..size).unwrap_or(bytes), start, self.endian)
    }

    /// Returns the content of a feature section; `None` if the profile does not have it.
    pub fn feature(&self, id: u8) -> Option<&[u8]> {
        let mut features = self.features.iter();
        features
            .find(|feature| feature.id == id)
            .map(|feature| &*feature.content)
    }

    /// Returns the recorded architecture, as named by `uname -m`.
    pub fn architecture(&self) -> Option<&[u8]> {
        feature::read_string(self.feature(feature::ARCH)?, self.endian)
    }
}

fn tail(bytes: &[u8], offset: u64) -> &[u8] {
    usize::try_from(offset)
        .ok()
        .and_then(|offset| bytes.get(offset..))
        .unwrap_or_default()
}

fn attr_entries<'a>(
    file: &'a [u8],
    header: &FileHeader,
    faults: &mut Tally<Issue>,
) -> Result<Vec<AttrEntry<'a>>, Diagnostic> {
    /// Size in bytes of the section that locates the IDs, after each attribute.
    const IDS: usize = 16;
    let error = || {
        let error = Diagnostic::new(Issue::ProfileAttrs).with("size", header.attrs.size);
        let error = error.with("offset", format_args!("{:#x}", header.attrs.offset));
        error.with("entry", header.attr_size)
    };
    // perf writes such a file where it could not open any event, as without sysfs.
    if header.attrs.size == 0 {
        return Err(Diagnostic::new(Issue::ProfileNoAttrs));
    }
    let section = header.attrs.slice(file).ok_or_else(error)?;
    let entry_size = usize::try_from(header.attr_size).map_err(|_| error())?;
    if entry_size < attr::SIZE_VERSION_0 + IDS || section.len() < entry_size {
        return Err(error());
    }
    // Many attributes could share the same IDs, many times the size of the file.
    let mut ids_left = file.len();
    let mut entries = Vec::new();
    for entry in section.chunks_exact(entry_size) {
        let (attr, ids_section) = entry
            .split_at_checked(entry_size.saturating_sub(IDS))
            .unwrap_or_default();
        let ids = Section::read(&mut Reader::new(ids_section, header.endian))
            .and_then(|section| section.slice(file))
            .filter(|ids| ids.len() <= ids_left);
        if ids.is_none() {
            faults.add(Issue::ProfileIdsLost, header.attrs.offset);
        }
        let ids = ids.unwrap_or_default();
        ids_left = ids_left.saturating_sub(ids.len());
        entries.push(AttrEntry { attr, ids });
    }
    Ok(entries)
}

/// Reads the sections in the table after the records, which has an entry for each bit of the set.
fn features<'a>(file: &'a [u8], header: &FileHeader, faults: &mut Tally<Issue>) -> Vec<Feature<'a>> {
    let table_offset = header.data.end();
    let mut table = Reader::new(tail(file, table_offset), header.endian);
    // Sections could overlap; copies of them would be many times the size of the file.
    let mut bytes_left = file.len();
    let mut features = Vec::new();
    for id in (0..=u8::MAX).filter(|&id| has_feature(&header.features, id)) {
        let content = Section::read(&mut table)
            .and_then(|section| section.slice(file))
            .filter(|content| content.len() <= bytes_left);
        match content {
            Some(content) => {
                bytes_left = bytes_left.saturating_sub(content.len());
                features.push(Feature::new(id, content));
            }
            None => faults.add(Issue::ProfileFeatureLost, table_offset),
        }
    }
    features
}

fn has_feature(set: &[u64; FEATURE_WORDS], id: u8) -> bool {
    let word = set.get(usize::from(id / 64)).copied().unwrap_or(0);
    word >> (id % 64) & 1 != 0
}
