//! The header at the start of a profile.

use crate::bytes::{ByteOrder, Reader};
use crate::perf::Error;

/// The first eight bytes of a little-endian perf.data file.
pub const MAGIC_LITTLE: &[u8; 8] = b"PERFILE2";
/// The first eight bytes of a big-endian one.
pub const MAGIC_BIG: &[u8; 8] = b"2ELIFREP";

/// Whether a file is a profile, by its first bytes.
pub fn is_profile(start: &[u8]) -> bool {
    start.starts_with(MAGIC_LITTLE) || start.starts_with(MAGIC_BIG)
}

/// The size in bytes of the header that perf writes to a regular file.
pub const FILE_HEADER_SIZE: u64 = 104;
/// The size in bytes of the header that perf writes to a pipe: magic number and size.
pub const PIPE_HEADER_SIZE: u64 = 16;

/// Number of 64-bit words in the set of features.
pub const FEATURE_WORDS: usize = 4;

/// A part of the file: `offset` and `size` in bytes, unchecked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Section {
    /// Where it starts, from the start of the file.
    pub offset: u64,
    /// How long it is.
    pub size: u64,
}

impl Section {
    /// Reads a section's place.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            offset: reader.u64()?,
            size: reader.u64()?,
        })
    }

    /// Where it ends, from the start of the file.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(self.size)
    }

    /// The section's bytes, where the file has them all.
    pub fn slice(self, file: &[u8]) -> Option<&[u8]> {
        let start = usize::try_from(self.offset).ok()?;
        let end = usize::try_from(self.offset.checked_add(self.size)?).ok()?;
        file.get(start..end)
    }
}

/// How a profile begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// As a regular file.
    File(Header),
    /// As what was written to a pipe, in this byte order: records from byte [`PIPE_HEADER_SIZE`] on.
    Pipe(ByteOrder),
}

/// The file header (`struct perf_file_header`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The byte order of everything in the file.
    pub order: ByteOrder,
    /// Size in bytes of one entry of `attrs`: an attribute and the place of its ids.
    pub attr_size: u64,
    /// The attributes.
    pub attrs: Section,
    /// The records.
    pub data: Section,
    /// The set of features, lowest bit first.
    pub features: [u64; FEATURE_WORDS],
}

impl Start {
    /// Reads the header.
    pub fn parse(file: &[u8]) -> Result<Self, Error> {
        let magic = file.get(..8).ok_or(Error::TooShort(file.len() as u64))?;
        let order = if magic == MAGIC_LITTLE {
            ByteOrder::Little
        } else if magic == MAGIC_BIG {
            ByteOrder::Big
        } else {
            return Err(Error::NotAProfile);
        };
        let mut reader = Reader::new(file.get(8..).unwrap_or_default(), order);
        let size = reader.u64().ok_or(Error::TooShort(file.len() as u64))?;
        if size == PIPE_HEADER_SIZE {
            return Ok(Self::Pipe(order));
        }
        if size < FILE_HEADER_SIZE {
            return Err(Error::HeaderSize(size));
        }
        let header = Header::parse(&mut reader, order);
        header.map(Self::File).ok_or(Error::TooShort(file.len() as u64))
    }
}

/// Appends what a profile in a pipe starts with.
pub fn put_pipe_header(out: &mut Vec<u8>, order: ByteOrder) {
    out.extend_from_slice(magic(order));
    order.put_u64(out, PIPE_HEADER_SIZE);
}

fn magic(order: ByteOrder) -> &'static [u8; 8] {
    match order {
        ByteOrder::Little => MAGIC_LITTLE,
        ByteOrder::Big => MAGIC_BIG,
    }
}

impl Header {
    fn parse(reader: &mut Reader<'_>, order: ByteOrder) -> Option<Self> {
        let attr_size = reader.u64()?;
        let attrs = Section::read(reader)?;
        let data = Section::read(reader)?;
        let _event_types = Section::read(reader)?;
        let mut features = [0; FEATURE_WORDS];
        for word in &mut features {
            *word = reader.u64()?;
        }
        Some(Self {
            order,
            attr_size,
            attrs,
            data,
            features,
        })
    }

    /// Appends the header as perf writes it.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(magic(self.order));
        let event_types = Section::default();
        for word in [FILE_HEADER_SIZE, self.attr_size] {
            self.order.put_u64(out, word);
        }
        for section in [self.attrs, self.data, event_types] {
            self.order.put_u64(out, section.offset);
            self.order.put_u64(out, section.size);
        }
        for word in self.features {
            self.order.put_u64(out, word);
        }
    }
}
