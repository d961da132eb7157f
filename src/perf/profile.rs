//! A whole profile, opened.

use std::borrow::Cow;
use std::fmt;

use crate::bytes::{ByteOrder, Reader};
use crate::perf::attr::{self, Attrs};
use crate::perf::feature::{self, Feature};
use crate::perf::header::{FEATURE_WORDS, Header, PIPE_HEADER_SIZE, Section, Start};
use crate::perf::pipe::Head;
use crate::perf::record::Records;
use crate::perf::resync::WholeRecords;
use crate::tally::Tally;

/// Why a file can't be read as a profile at all.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No magic number.
    #[error("not a perf.data file: it does not start with PERFILE2")]
    NotAProfile,
    /// It ends inside the header.
    #[error("the file ends after {0} bytes, inside its header")]
    TooShort(u64),
    /// A header of a size that perf never wrote.
    #[error("the header says that it is {0} bytes long, less than perf writes")]
    HeaderSize(u64),
    /// The attributes, without which no record can be understood, are not in the file.
    #[error("the attributes, {size} bytes at {offset:#x} in entries of {entry}, can't be in this file")]
    Attrs {
        /// Where they should be.
        offset: u64,
        /// How long they should be.
        size: u64,
        /// The size of one entry.
        entry: u64,
    },
    /// The records are not in the file.
    #[error("the records start at {0:#x}, behind the end of the file")]
    Data(u64),
    /// No record of a pipe is an attribute.
    #[error("no record in it says what was recorded; perf record may have failed before it started")]
    NoAttrs,
}

/// What of a profile had to be left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The header's size of the records is 0: `perf record` did not finish.
    Unfinished,
    /// The file ends before its records do.
    DataCut,
    /// A feature section, or the table of them, is not in the file.
    FeatureLost,
    /// The ids of an event are not in the file.
    IdsLost,
    /// Records end before they should, or can't be records.
    RecordsCut,
    /// Compressed records can't be decompressed.
    Undecodable,
    /// Compressed records belong to a stream that began in another file.
    StreamContinues,
    /// Compressed records are absurdly large.
    TooLarge,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unfinished => {
                "the recording was not finished, so its header does not say where the records end, and feature sections are missing"
            }
            Self::DataCut => "the file ends before its records do",
            Self::FeatureLost => "feature sections that are damaged, repeated or outside the file, left out",
            Self::IdsLost => "ids of events outside the file, left out",
            Self::RecordsCut => "records that are cut off or damaged, left out with what can't be read behind them",
            Self::Undecodable => "compressed records that can't be decompressed, left out",
            Self::StreamContinues => {
                "compressed records whose stream began in another file, as perf record --switch-output -z writes them; nobody can \
                 read them without it: left out"
            }
            Self::TooLarge => "compressed records that grow to 5,000 times their size, left out",
        })
    }
}

/// What the parts of a profile lie in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Container {
    /// A file with a header that says where they are.
    File,
    /// A stream in which all of them are records.
    Pipe,
}

/// One attribute, as it stands in the file.
#[derive(Clone, Copy, Debug)]
pub struct AttrEntry<'a> {
    /// The attribute.
    pub attr: &'a [u8],
    /// The ids of its counters, eight bytes each.
    pub ids: &'a [u8],
}

/// A profile: its parts are slices of the file.
#[derive(Clone, Debug)]
pub struct Profile<'a> {
    /// What it lies in.
    pub container: Container,
    /// The byte order of all of it.
    pub order: ByteOrder,
    /// The attributes as they stand in the file.
    pub attr_entries: Vec<AttrEntry<'a>>,
    /// The attributes, understood.
    pub attrs: Attrs,
    /// The records.
    pub data: &'a [u8],
    /// Where the records start, in bytes from the start of the file.
    pub data_offset: u64,
    /// The feature sections, in the order of their ids.
    pub features: Vec<Feature<'a>>,
    /// Of a pipe: the records that hold attributes and features, as offset from the first record and length.
    pub head_records: Vec<(u64, u64)>,
    /// What could not be read.
    pub faults: Tally<Fault>,
}

impl<'a> Profile<'a> {
    /// Opens a profile. Only what makes every record unreadable is an error.
    pub fn parse(file: &'a [u8]) -> Result<Self, Error> {
        match Start::parse(file)? {
            Start::File(header) => Self::parse_file(file, &header),
            Start::Pipe(order) => Self::parse_pipe(tail(file, PIPE_HEADER_SIZE), order),
        }
    }

    fn parse_file(file: &'a [u8], header: &Header) -> Result<Self, Error> {
        let mut faults = Tally::default();
        let attr_entries = attr_entries(file, header, &mut faults)?;
        if header.data.offset > file.len() as u64 {
            return Err(Error::Data(header.data.offset));
        }
        let (data, features) = if header.data.size == 0 && header.data.offset < file.len() as u64 {
            faults.add(Fault::Unfinished, header.data.offset);
            (tail(file, header.data.offset), Vec::new())
        } else if let Some(data) = header.data.slice(file) {
            (data, features(file, header, &mut faults))
        } else {
            faults.add(Fault::DataCut, file.len() as u64);
            (tail(file, header.data.offset), Vec::new())
        };
        Ok(Self {
            container: Container::File,
            order: header.order,
            attrs: Attrs::read(&attr_entries, header.order),
            attr_entries,
            data,
            data_offset: header.data.offset,
            features,
            head_records: Vec::new(),
            faults,
        })
    }

    fn parse_pipe(data: &'a [u8], order: ByteOrder) -> Result<Self, Error> {
        let mut faults = Tally::default();
        let head = Head::read(Records::new(data, 0, order), order, &mut faults);
        if head.attr_entries.is_empty() {
            return Err(Error::NoAttrs);
        }
        Ok(Self {
            container: Container::Pipe,
            order,
            attrs: Attrs::read(&head.attr_entries, order),
            attr_entries: head.attr_entries,
            data,
            data_offset: PIPE_HEADER_SIZE,
            features: head.features,
            head_records: head.records,
            faults,
        })
    }

    /// The same profile with other records in the place of its own: those that were compressed as they were
    /// before, or those of several files as one.
    pub fn with_records(self, data: &'a [u8]) -> Self {
        let mut profile = Self {
            data,
            data_offset: 0,
            ..self
        };
        if profile.container == Container::Pipe {
            let mut unused = Tally::default();
            let head = Head::read(profile.records(), profile.order, &mut unused);
            profile.head_records = head.records;
            // Behind damage, there may be more of both.
            profile.features = head.features;
            if head.attr_entries.len() > profile.attr_entries.len() {
                profile.attrs = Attrs::read(&head.attr_entries, profile.order);
                profile.attr_entries = head.attr_entries;
            }
        }
        profile
    }

    /// The records that are whole, in file order.
    pub fn whole_records(&self) -> WholeRecords<'_> {
        WholeRecords::new(self.data, &self.attrs, self.order)
    }

    /// The records, in file order.
    pub fn records(&self) -> Records<'a> {
        Records::new(self.data, 0, self.order)
    }

    /// The records from byte `offset` of the first one on, which must be where one starts.
    pub fn records_from(&self, offset: u64) -> Records<'a> {
        Records::new(tail(self.data, offset), offset, self.order)
    }

    /// The records from byte `start` to byte `end` of them, both where records start.
    pub fn records_between(&self, start: u64, end: u64) -> Records<'a> {
        let bytes = tail(self.data, start);
        let size = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        Records::new(bytes.get(..size).unwrap_or(bytes), start, self.order)
    }

    /// The content of a feature section, if the profile has it.
    pub fn feature(&self, id: u8) -> Option<&[u8]> {
        let mut features = self.features.iter();
        features
            .find(|feature| feature.id == id)
            .map(|feature| &*feature.content)
    }

    /// The architecture that was recorded, in the words of `uname -m`.
    pub fn architecture(&self) -> Option<&[u8]> {
        feature::string(self.feature(feature::ARCH)?, self.order)
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
    header: &Header,
    faults: &mut Tally<Fault>,
) -> Result<Vec<AttrEntry<'a>>, Error> {
    /// The place of the ids, behind each attribute.
    const IDS: usize = 16;
    let error = Error::Attrs {
        offset: header.attrs.offset,
        size: header.attrs.size,
        entry: header.attr_size,
    };
    let section = header.attrs.slice(file).ok_or_else(|| error.clone())?;
    let entry_size = usize::try_from(header.attr_size).map_err(|_| error.clone())?;
    if entry_size < attr::SIZE_VERSION_0 + IDS || section.len() < entry_size {
        return Err(error);
    }
    // Many attributes could name the same ids, many times the size of the file.
    let mut ids_left = file.len();
    let mut entries = Vec::new();
    for entry in section.chunks_exact(entry_size) {
        let (attr, place) = entry
            .split_at_checked(entry_size.saturating_sub(IDS))
            .unwrap_or_default();
        let ids = Section::read(&mut Reader::new(place, header.order))
            .and_then(|section| section.slice(file))
            .filter(|ids| ids.len() <= ids_left);
        if ids.is_none() {
            faults.add(Fault::IdsLost, header.attrs.offset);
        }
        let ids = ids.unwrap_or_default();
        ids_left = ids_left.saturating_sub(ids.len());
        entries.push(AttrEntry { attr, ids });
    }
    Ok(entries)
}

/// The sections that the table behind the records lists, one entry for each bit of the set.
fn features<'a>(file: &'a [u8], header: &Header, faults: &mut Tally<Fault>) -> Vec<Feature<'a>> {
    let table_offset = header.data.end();
    let mut table = Reader::new(tail(file, table_offset), header.order);
    // Sections could overlap, so that copies of them are many times the size of the file.
    let mut bytes_left = file.len();
    let mut features = Vec::new();
    for id in (0..=u8::MAX).filter(|&id| has_feature(&header.features, id)) {
        let content = Section::read(&mut table)
            .and_then(|section| section.slice(file))
            .filter(|content| content.len() <= bytes_left);
        match content {
            Some(content) => {
                bytes_left = bytes_left.saturating_sub(content.len());
                features.push(Feature {
                    id,
                    content: Cow::Borrowed(content),
                });
            }
            None => faults.add(Fault::FeatureLost, table_offset),
        }
    }
    features
}

fn has_feature(set: &[u64; FEATURE_WORDS], id: u8) -> bool {
    let word = set.get(usize::from(id / 64)).copied().unwrap_or(0);
    word >> (id % 64) & 1 != 0
}
