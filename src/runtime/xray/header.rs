//! The header at the start of a trace.

use crate::bytes::{ByteOrder, Reader};
use crate::runtime::xray::{basic, buffers};

/// The size in bytes of the header, of all versions.
pub const SIZE: usize = 32;

/// How many bytes of a file [`is_trace`] looks at.
pub const LOOKED_AT: usize = SIZE + 48;

/// The newest version of the flight data recorder: that of LLVM 14 and all later ones.
pub const NEWEST_FDR: u16 = 5;

/// The newest version of basic mode.
pub const NEWEST_BASIC: u16 = 3;

/// How a trace was recorded, which decides what follows the header (`type` in the file).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Type 0, `xray-basic`: records of one size, each by itself.
    Basic,
    /// Type 1, `xray-fdr`, the flight data recorder: buffers of threads.
    Fdr,
}

impl Mode {
    /// The newest version that is known.
    fn newest(self) -> u16 {
        match self {
            Self::Basic => NEWEST_BASIC,
            Self::Fdr => NEWEST_FDR,
        }
    }
}

/// Why a file is not a trace, or not one that can be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It has no bytes.
    #[error("is empty")]
    Empty,
    /// It ends inside the header.
    #[error("ends after {0} bytes, inside its header of {SIZE}")]
    TooShort(u64),
    /// It is something else.
    #[error("is not a trace of XRay: it starts with {0:02x?}, not with a version and a type")]
    NotATrace([u8; 4]),
    /// Its records are of a version that is not known.
    #[error("has version {version} of type {kind}; known are 1 to {newest} of that type")]
    Version {
        /// That of the file.
        version: u16,
        /// The type of the file.
        kind: u16,
        /// The newest that is known of that type.
        newest: u16,
    },
    /// It is of another mode, or none.
    #[error("has type {kind} (of version {version}); known are 0 (basic mode) and 1 (flight data recorder)")]
    Type {
        /// The version of the file.
        version: u16,
        /// That of the file.
        kind: u16,
    },
}

/// The header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The byte order of the traced program's machine, and so of the file.
    pub order: ByteOrder,
    /// The version of what follows: 1 to [`NEWEST_FDR`], or to [`NEWEST_BASIC`].
    pub version: u16,
    /// How the trace was recorded.
    pub mode: Mode,
    /// Whether the machine's ticks are of one length, at all speeds of the processor.
    pub constant_tsc: bool,
    /// Whether they go on while the processor sleeps.
    pub nonstop_tsc: bool,
    /// Ticks a second; 0 if not known. It is 1,000,000,000 where the tick is CLOCK_REALTIME, as it is wherever the
    /// kernel does not tell the runtime how fast the processor is.
    ///
    /// Where the ticks are the processor's, this is its highest speed, which need not be the speed of the ticks.
    pub frequency: u64,
    /// How many bytes each buffer of a thread has in the program's memory. In version 1 it has as many in the
    /// file. `None` in basic mode, whose files have anything there.
    pub buffer_size: Option<u64>,
}

impl Header {
    /// Reads a header from the start of a file.
    pub fn parse(file: &[u8]) -> Result<Self, Error> {
        if file.is_empty() {
            return Err(Error::Empty);
        }
        let too_short = Error::TooShort(file.len() as u64);
        let Some((order, version, kind)) = numbers(file)? else {
            return Err(too_short);
        };
        let mode = match kind {
            0 => Mode::Basic,
            1 => Mode::Fdr,
            _ => return Err(Error::Type { version, kind }),
        };
        let newest = mode.newest();
        if !(1..=newest).contains(&version) {
            return Err(Error::Version {
                version,
                kind,
                newest,
            });
        }
        Self::fields(file, order, version, mode).ok_or(too_short)
    }

    /// `None` where the file ends.
    fn fields(file: &[u8], order: ByteOrder, version: u16, mode: Mode) -> Option<Self> {
        let mut reader = Reader::new(file, order);
        reader.skip(4)?;
        // Quirk: basic mode leaves the other 30 bits, and all behind the frequency, as they were in its memory
        // (LLVM 19; the recording `xray-basic19`).
        let bits = reader.u32()?;
        // They are the first ones, which a machine with the other byte order has at the other end.
        let bits = match order {
            ByteOrder::Little => bits,
            ByteOrder::Big => bits.reverse_bits(),
        };
        let frequency = reader.u64()?;
        let buffer_size = reader.u64()?;
        reader.skip(8)?;
        Some(Self {
            order,
            version,
            mode,
            constant_tsc: bits & 1 != 0,
            nonstop_tsc: bits & 2 != 0,
            frequency,
            buffer_size: (mode == Mode::Fdr).then_some(buffer_size),
        })
    }
}

/// Byte order, version and type: the order is that in which both are small. `None` where the file ends before.
fn numbers(file: &[u8]) -> Result<Option<(ByteOrder, u16, u16)>, Error> {
    /// More is neither a version nor a type, and never will be one.
    const SMALL: u16 = 100;
    let Some(&first) = file.first_chunk::<4>() else {
        return Ok(None);
    };
    let [a, b, c, d] = first;
    let little = (
        ByteOrder::Little,
        u16::from_le_bytes([a, b]),
        u16::from_le_bytes([c, d]),
    );
    let big = (
        ByteOrder::Big,
        u16::from_be_bytes([a, b]),
        u16::from_be_bytes([c, d]),
    );
    [little, big]
        .into_iter()
        .find(|&(_, version, kind)| (1..SMALL).contains(&version) && kind < SMALL)
        .map(Some)
        .ok_or(Error::NotATrace(first))
}

/// Whether a file starts with a version and a type, as a trace does; of what else starts like this, much is none.
pub fn has_small_numbers(start: &[u8]) -> bool {
    matches!(numbers(start), Ok(Some(_)))
}

/// Whether a file starts as a trace does: with a header of a known version and type, a frequency that a clock can
/// have, and a record that can be the first one. `start` is the first [`LOOKED_AT`] bytes of it, or all if it has
/// fewer.
pub fn is_trace(start: &[u8]) -> bool {
    /// What clocks of processors tick at, and that of a clock that counts nanoseconds; from 1 MHz to 100 GHz.
    const FREQUENCIES: std::ops::RangeInclusive<u64> = 1_000_000..=100_000_000_000;
    let Ok(header) = Header::parse(start) else {
        return false;
    };
    let records = start.get(SIZE..).unwrap_or_default();
    let is_possible = header.frequency == 0 || FREQUENCIES.contains(&header.frequency);
    is_possible
        && match header.mode {
            Mode::Fdr => records.is_empty() || buffers::starts_like_one(records, &header),
            Mode::Basic => basic::starts_like_one(records, &header),
        }
}
