//! The file header of a profile.

use jitdump::ByteOrder;

use crate::bytes::Reader;
use crate::perf::feature::HOSTNAME;
use crate::results::diagnostics::{Diagnostic, Issue};

/// First eight bytes of a little-endian perf.data file.
pub const MAGIC_LITTLE: &[u8; 8] = b"PERFILE2";
/// First eight bytes of a big-endian perf.data file.
pub const MAGIC_BIG: &[u8; 8] = b"2ELIFREP";

/// Whether a file is a profile, judged by its first bytes.
pub fn is_profile(start: &[u8]) -> bool {
    start.starts_with(MAGIC_LITTLE) || start.starts_with(MAGIC_BIG)
}

/// Size in bytes of the header that perf writes to a regular file.
pub const FILE_HEADER_SIZE: u64 = 104;
/// Size in bytes of the header that perf writes to a pipe: magic number and size.
pub const PIPE_HEADER_SIZE: u64 = 16;

/// Number of 64-bit words in the feature bit set.
pub const FEATURE_WORDS: usize = 4;

/// A section of the file. Not checked against the size of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileSection {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

impl FileSection {
    /// Reads the offset and size of a section.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            offset: reader.u64()?,
            size: reader.u64()?,
        })
    }

    /// Returns the offset of the section's end in the file, in bytes.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(self.size)
    }
}

/// The header of either kind of profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnyHeader {
    /// The header of a regular file.
    File(FileHeader),
    /// The header of a pipe with its endianness. Records start at byte [`PIPE_HEADER_SIZE`].
    Pipe(ByteOrder),
}

/// The file header (`struct perf_file_header`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileHeader {
    /// Endianness of the file.
    pub endian: ByteOrder,
    /// Size in bytes of an entry of `attrs`: an attribute and the section of its IDs.
    pub attr_size: u64,
    /// The section of attributes.
    pub attrs: FileSection,
    /// The section of records.
    pub data: FileSection,
    /// Bit set of the features, lowest bit first.
    pub features: [u64; FEATURE_WORDS],
}

impl AnyHeader {
    /// Reads the header.
    pub fn parse(file: &[u8]) -> Result<Self, Diagnostic> {
        let too_short = || Diagnostic::new(Issue::ProfileTooShort).with("size", file.len());
        let magic = file.get(..8).ok_or_else(too_short)?;
        let endian = if magic == MAGIC_LITTLE {
            ByteOrder::Little
        } else if magic == MAGIC_BIG {
            ByteOrder::Big
        } else {
            return Err(Diagnostic::new(Issue::NotAProfile));
        };
        let mut reader = Reader::new(file.get(8..).unwrap_or_default(), endian);
        let size = reader.u64().ok_or_else(too_short)?;
        if size == PIPE_HEADER_SIZE {
            return Ok(Self::Pipe(endian));
        }
        if size < FILE_HEADER_SIZE {
            return Err(Diagnostic::new(Issue::ProfileHeaderSize).with("size", size));
        }
        let header = FileHeader::parse(&mut reader, endian);
        header.map(Self::File).ok_or_else(too_short)
    }
}

/// Appends the header of a profile in a pipe.
pub fn write_pipe_header(out: &mut Vec<u8>, endian: ByteOrder) {
    out.extend_from_slice(magic(endian));
    endian.write_u64(out, PIPE_HEADER_SIZE);
}

fn magic(endian: ByteOrder) -> &'static [u8; 8] {
    match endian {
        ByteOrder::Little => MAGIC_LITTLE,
        ByteOrder::Big => MAGIC_BIG,
    }
}

impl FileHeader {
    /// Parses the header of a file; `None` if the file ends in it.
    fn parse(reader: &mut Reader<'_>, endian: ByteOrder) -> Option<Self> {
        let attr_size = reader.u64()?;
        let attrs = FileSection::read(reader)?;
        let data = FileSection::read(reader)?;
        let _event_types = FileSection::read(reader)?;
        let mut features = [0; FEATURE_WORDS];
        for word in &mut features {
            *word = reader.u64()?;
        }
        let header = Self {
            endian,
            attr_size,
            attrs,
            data,
            features,
        };
        // Quirk: the bits are in words of the recording machine. A 32-bit big-endian one is recognised as in perf, by the feature
        // that perf record always writes (`perf_file_header__read` in tools/perf/util/header.c). No capture shows it.
        if endian == ByteOrder::Big && !header.has_feature(HOSTNAME) {
            let of_32_bits = Self {
                features: features.map(|word| word.rotate_left(32)),
                ..header
            };
            if of_32_bits.has_feature(HOSTNAME) {
                return Some(of_32_bits);
            }
        }
        Some(header)
    }

    /// Whether the file has a feature section.
    pub fn has_feature(&self, id: u8) -> bool {
        let word = self.features.get(usize::from(id / 64)).copied().unwrap_or(0);
        word >> (id % 64) & 1 != 0
    }

    /// Appends the header in the layout that perf writes.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(magic(self.endian));
        let event_types = FileSection::default();
        for word in [FILE_HEADER_SIZE, self.attr_size] {
            self.endian.write_u64(out, word);
        }
        for section in [self.attrs, self.data, event_types] {
            self.endian.write_u64(out, section.offset);
            self.endian.write_u64(out, section.size);
        }
        for word in self.features {
            self.endian.write_u64(out, word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_bits_are_words_of_the_recording_machine() {
        let set = 1_u64 << HOSTNAME | 1 << 24;
        let header = |endian: ByteOrder, set: u64| {
            let mut bytes = Vec::new();
            bytes.extend_from_slice(match endian {
                ByteOrder::Little => b"PERFILE2",
                ByteOrder::Big => b"2ELIFREP",
            });
            for word in [104, 80, 0, 0, 104, 0, 0, 0, set, 0, 0, 0] {
                endian.write_u64(&mut bytes, word);
            }
            FileHeader::parse(&mut Reader::new(&bytes[16..], endian), endian).unwrap()
        };
        for (endian, set) in [
            (ByteOrder::Little, set),
            (ByteOrder::Big, set),
            (ByteOrder::Big, set.rotate_left(32)),
        ] {
            let header = header(endian, set);
            let found: Vec<u8> = (0..64).filter(|&id| header.has_feature(id)).collect();
            assert_eq!(found, [HOSTNAME, 24], "{set:#x}");
        }
        assert_eq!(header(ByteOrder::Big, 1 << 40).features[0], 1 << 40);
    }
}
