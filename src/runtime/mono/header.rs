//! The header at the start of a log.

use crate::bytes::{ByteOrder, Reader};

/// The first four bytes, as a little-endian number (`LOG_HEADER_ID`).
const MAGIC: u32 = 0x4D50_5A01;

/// The newest data version: that of Mono 6.8 and of all later trees.
pub const NEWEST: u8 = 17;

/// From this data version on, two of the header's bytes are known to be a port.
const WITH_PORT: u8 = 8;

/// Why a file is not a log, or not one that can be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It has no bytes.
    #[error("is empty")]
    Empty,
    /// It ends inside the header.
    #[error("ends after {0} bytes, inside its header")]
    TooShort(u64),
    /// It is something else.
    #[error("is not a log of Mono's profiler: it starts with {0:02x?}, not with 01 5a 50 4d")]
    NotALog([u8; 4]),
    /// Its events are of a version that is not known.
    #[error("has data version {0}; known are 1 to {NEWEST}")]
    DataVersion(u8),
    /// Pointers of the program have an impossible size.
    #[error("is of a program with pointers of {0} bytes; known are 4 and 8")]
    PointerSize(u8),
    /// Flags are set, none of which has a meaning so far: what follows can be anything.
    #[error("has unknown flags {0:#x}")]
    Flags(u32),
}

/// The header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    /// The profiler's version, which decides the layout of the header.
    pub major: u8,
    /// The lesser part of it.
    pub minor: u8,
    /// The version of what follows the header, 1 to [`NEWEST`].
    pub data_version: u8,
    /// The size in bytes of the program's pointers, 4 or 8.
    pub pointer_size: u8,
    /// When the program was started, in milliseconds of the Unix epoch; 0 from the profiler of 2010.
    pub startup_ms: u64,
    /// The same on the clock of the events, in nanoseconds; from version 3.0 on.
    pub startup_ns: Option<u64>,
    /// About how many nanoseconds it takes to ask the clock.
    pub timer_overhead: u32,
    /// The process, by the number that it knows itself under; 0 from the profiler of 2010.
    pub pid: u32,
    /// The port that the profiler takes commands at; from data version 8 on.
    pub port: Option<u16>,
    /// What the profiler was started with; empty before version 1.0, like the next two.
    pub arguments: &'a [u8],
    /// The machine, as `x86-64`.
    pub architecture: &'a [u8],
    /// The system, as `linux`.
    pub system: &'a [u8],
    /// The size in bytes of the header.
    pub size: usize,
}

impl<'a> Header<'a> {
    /// Reads a header from the start of a file.
    pub fn parse(file: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(file, ByteOrder::Little);
        if file.is_empty() {
            return Err(Error::Empty);
        }
        if let Some(&first) = file.first_chunk()
            && u32::from_le_bytes(first) != MAGIC
        {
            return Err(Error::NotALog(first));
        }
        let header = Self::fields(&mut reader).ok_or(Error::TooShort(file.len() as u64))??;
        let size = file.len().saturating_sub(reader.rest().len());
        Ok(Self { size, ..header })
    }

    /// `None` where the file ends.
    fn fields(reader: &mut Reader<'a>) -> Option<Result<Self, Error>> {
        reader.skip(4)?;
        let (major, minor) = (reader.u8()?, reader.u8()?);
        let (data_version, pointer_size) = (reader.u8()?, reader.u8()?);
        // The rest could be laid out in another way.
        if !(1..=NEWEST).contains(&data_version) {
            return Some(Err(Error::DataVersion(data_version)));
        }
        if pointer_size != 4 && pointer_size != 8 {
            return Some(Err(Error::PointerSize(pointer_size)));
        }
        let startup_ms = reader.u64()?;
        let startup_ns = match major {
            3.. => Some(reader.u64()?),
            _ => None,
        };
        let timer_overhead = reader.u32()?;
        let flags = reader.u32()?;
        if flags != 0 {
            return Some(Err(Error::Flags(flags)));
        }
        let mut header = Self {
            major,
            minor,
            data_version,
            pointer_size,
            startup_ms,
            startup_ns,
            timer_overhead,
            pid: reader.u32()?,
            port: None,
            arguments: b"",
            architecture: b"",
            system: b"",
            size: 0,
        };
        let port = reader.u16()?;
        header.port = (major >= 1 || data_version >= WITH_PORT).then_some(port);
        if major >= 1 {
            header.arguments = string(reader)?;
            header.architecture = string(reader)?;
            header.system = string(reader)?;
        } else {
            // a number for machine and system; of four bytes where there is no port
            reader.skip(2)?;
        }
        Some(Ok(header))
    }
}

/// A size, and so many bytes, the last of which is a NUL.
fn string<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let size = reader.u32()?;
    let bytes = reader.bytes(size.into())?;
    Some(crate::bytes::until_nul(bytes))
}

/// Whether a file starts as a log does.
pub fn is_log(start: &[u8]) -> bool {
    start
        .first_chunk()
        .is_some_and(|&first| u32::from_le_bytes(first) == MAGIC)
}
