//! An opened profile.

use std::borrow::Cow;

use jitdump::{ByteOrder, Tally};

use crate::bytes::Reader;
use crate::perf::attr::{self, AttrEntry, Attrs};
use crate::perf::feature::{self, BuildIdEntry, ClockData, Feature};
use crate::perf::header::{AnyHeader, FILE_HEADER_SIZE, FileHeader, FileSection, PIPE_HEADER_SIZE};
use crate::perf::pipe::PipeHeader;
use crate::perf::record::Records;
use crate::perf::record::data::ProfileBytes;
use crate::perf::record::reader::RecordReader;
use crate::perf::record::resync::IntactReader;
use crate::results::diagnostics::{Diagnostic, Issue};

/// How a profile is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Container {
    /// In a file, with a header that locates its sections.
    File,
    /// As a stream in which everything is a record.
    Pipe,
}

/// A profile. Its records stay where they are.
#[derive(Clone, Debug)]
pub struct Profile<'a> {
    /// Kind of the file.
    pub container: Container,
    /// Endianness of the profile.
    pub endian: ByteOrder,
    /// Attributes as stored in the file.
    pub attr_entries: Vec<AttrEntry>,
    /// Decoded attributes.
    pub attrs: Attrs,
    /// The records.
    pub data: ProfileBytes<'a>,
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
    /// Opens a profile in memory. Fails only if no record could be read.
    pub fn parse(file: &'a [u8]) -> Result<Self, Diagnostic> {
        Self::of(ProfileBytes::from(file))
    }

    /// Opens a profile. Fails only if no record could be read.
    pub fn of(file: ProfileBytes<'a>) -> Result<Self, Diagnostic> {
        let start = file
            .bytes(0, file.len().min(FILE_HEADER_SIZE))
            .unwrap_or_default();
        match AnyHeader::parse(&start)? {
            AnyHeader::File(header) => Self::parse_file(file, &header),
            AnyHeader::Pipe(endian) => Self::parse_pipe(file.tail(PIPE_HEADER_SIZE), endian),
        }
    }

    /// Reads the header sections of a file.
    fn parse_file(file: ProfileBytes<'a>, header: &FileHeader) -> Result<Self, Diagnostic> {
        let mut faults = Tally::default();
        let attr_entries = attr_entries(file, header, &mut faults)?;
        if header.data.offset > file.len() {
            return Err(
                Diagnostic::new(Issue::ProfileData).with("start", format_args!("{:#x}", header.data.offset))
            );
        }
        let data = file.part(header.data.offset, header.data.end());
        let (data, features) = if header.data.size == 0 && header.data.offset < file.len() {
            faults.add(Issue::ProfileUnfinished, header.data.offset);
            (file.tail(header.data.offset), Vec::new())
        } else if let Some(data) = data {
            (data, features(file, header, &mut faults))
        } else {
            faults.add(Issue::ProfileDataCut, file.len());
            (file.tail(header.data.offset), Vec::new())
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

    /// Reads the records that come before all others in a pipe. Those that are broken are counted.
    fn parse_pipe(data: ProfileBytes<'a>, endian: ByteOrder) -> Result<Self, Diagnostic> {
        let mut faults = Tally::default();
        let head = PipeHeader::read(data, endian, &mut faults);
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
    pub fn with_records(self, data: ProfileBytes<'a>) -> Self {
        let mut profile = Self {
            data,
            data_offset: 0,
            ..self
        };
        if profile.container == Container::Pipe {
            // Faults in front of damage were counted when the profile was parsed; damage is counted where it is
            // skipped.
            let mut counted = Tally::default();
            let head = PipeHeader::read(data, profile.endian, &mut counted);
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

    /// Reads the records in file order and skips damaged ones.
    pub fn intact_records(&self) -> IntactReader<'_> {
        IntactReader::new(self.data, &self.attrs, self.endian)
    }

    /// Reads the records in file order.
    pub fn records(&self) -> RecordReader<'a> {
        RecordReader::new(self.data, self.endian)
    }

    /// Iterates over the records in file order; `None` if they are not in memory.
    pub fn records_in_memory(&self) -> Option<Records<'a>> {
        Some(Records::new(self.data.in_memory()?, 0, self.endian))
    }

    /// Returns a point in time on the profile's clock and the wall clock, if recorded.
    pub fn clock_data(&self) -> Option<ClockData> {
        ClockData::parse(self.feature(feature::CLOCK_DATA)?, self.endian)
    }

    /// Returns the build IDs of files in the header.
    pub fn build_ids(&self) -> impl Iterator<Item = BuildIdEntry<'_>> {
        let table = self.feature(feature::BUILD_ID).unwrap_or_default();
        feature::build_ids(table, self.endian)
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

/// Reads the attributes and IDs in the header of a file.
fn attr_entries(
    file: ProfileBytes<'_>,
    header: &FileHeader,
    faults: &mut Tally<Issue>,
) -> Result<Vec<AttrEntry>, Diagnostic> {
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
    let section = section(file, header.attrs).ok_or_else(error)?;
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
        let ids = FileSection::read(&mut Reader::new(ids_section, header.endian))
            .filter(|section| section.size <= ids_left)
            .and_then(|ids| self::section(file, ids));
        if ids.is_none() {
            faults.add(Issue::ProfileIdsLost, header.attrs.offset);
        }
        let ids = ids.unwrap_or_default().into_owned();
        ids_left = ids_left.saturating_sub(ids.len() as u64);
        entries.push(AttrEntry {
            attr: attr.to_vec(),
            ids,
        });
    }
    Ok(entries)
}

/// Returns the bytes of a section; `None` if the file does not contain all of them.
fn section(file: ProfileBytes<'_>, section: FileSection) -> Option<Cow<'_, [u8]>> {
    file.bytes(section.offset, section.offset.checked_add(section.size)?)
}

/// Reads the sections in the table after the records, which has an entry for each bit of the set.
fn features<'a>(file: ProfileBytes<'a>, header: &FileHeader, faults: &mut Tally<Issue>) -> Vec<Feature<'a>> {
    /// Size in bytes of a table with an entry for each bit.
    const MAX_TABLE: u64 = 256 * 16;
    let table_offset = header.data.end();
    let table_end = table_offset.saturating_add(MAX_TABLE).min(file.len());
    let table = file.bytes(table_offset, table_end).unwrap_or_default();
    let mut table = Reader::new(&table, header.endian);
    // Sections could overlap; copies of them would be many times the size of the file.
    let mut bytes_left = file.len();
    let mut features = Vec::new();
    for id in (0..=u8::MAX).filter(|&id| header.has_feature(id)) {
        let content = FileSection::read(&mut table)
            .filter(|section| section.size <= bytes_left)
            .and_then(|content| section(file, content));
        match content {
            Some(content) => {
                bytes_left = bytes_left.saturating_sub(content.len() as u64);
                features.push(Feature::new(id, content));
            }
            None => faults.add(Issue::ProfileFeatureLost, table_offset),
        }
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::header::FEATURE_WORDS;
    use crate::perf::record;
    use crate::perf::testing::{self, ORDER};

    #[test]
    fn a_profile_may_have_256_feature_sections() {
        let attr = testing::attr(64, 0, 0);
        let round = testing::record(record::FINISHED_ROUND, 0, &[]);
        let attrs = FileSection {
            offset: FILE_HEADER_SIZE,
            size: attr.len() as u64 + 16,
        };
        let data = FileSection {
            offset: attrs.end(),
            size: round.len() as u64,
        };
        let header = FileHeader {
            endian: ORDER,
            attr_size: attrs.size,
            attrs,
            data,
            features: [u64::MAX; FEATURE_WORDS],
        };
        let mut file = Vec::new();
        header.write(&mut file);
        file.extend([&attr[..], &[0; 16], &round].concat());
        // The table of sections, then a byte in each section: its number.
        for id in 0..256 {
            ORDER.write_u64(&mut file, data.end() + 256 * 16 + id);
            ORDER.write_u64(&mut file, 1);
        }
        file.extend(0..=255);
        let profile = Profile::parse(&file).unwrap();
        assert!(profile.faults.is_empty());
        let contents = profile.features.iter().map(|feature| &*feature.content);
        assert_eq!(
            contents.collect::<Vec<_>>().concat(),
            (0..=255).collect::<Vec<u8>>()
        );
    }
}
