//! A whole trace, what is damaged of it, and the records of its buffers.

use std::fmt;

use crate::runtime::xray::header::{Error, Header, Mode};
use crate::runtime::xray::index::{Buffer, Index};
use crate::runtime::xray::record::Record;
use crate::runtime::xray::{Piece, basic, buffers, fdr};
use crate::tally::Tally;

/// What in a trace could not be used, or only in part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// A metadata record of a kind that is not known, or that can't be inside a buffer.
    UnknownKind,
    /// A record of a function that was neither entered nor left, or one of basic mode that is of no known type.
    UnknownRecord,
    /// A record that leaves its buffer.
    CutRecord,
    /// An event with less than no bytes.
    BadEventSize,
    /// A tick before that of the record before.
    TickBack,
    /// A tick of more than 64 bits.
    TickOverflow,
    /// A byte that the runtime itself has left out of the file.
    LostByWriter,
    /// Bytes that are in no buffer.
    SkippedBytes,
    /// A buffer whose size can't be.
    BadSize,
    /// A buffer that does not begin with a tick.
    NoTick,
    /// A buffer without a time on the wall clock.
    NoWallTime,
    /// A buffer beyond what is kept.
    TooManyBuffers,
    /// The file ends inside its last buffer or record.
    CutTail,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownKind => "records of unknown kinds, dropped with the rest of their buffers",
            Self::UnknownRecord => "records of unknown types, passed over",
            Self::CutRecord => "records that leave their buffers, dropped",
            Self::BadEventSize => "events with impossible sizes, dropped with the rest of their buffers",
            Self::TickBack => "records whose time is before that of the record before, kept",
            Self::TickOverflow => {
                "records with times of more than 64 bits, kept with the latest possible one"
            }
            Self::LostByWriter => {
                "bytes that XRay's runtime does not write of buffers with typed events, lost at their ends"
            }
            Self::SkippedBytes => "bytes that are in no buffer, passed over",
            Self::BadSize => "buffers whose sizes can't be, read up to the next ones",
            Self::NoTick => "buffers that don't begin with a time, dropped",
            Self::NoWallTime => "buffers without a time on the wall clock, taken to be the first ones",
            Self::TooManyBuffers => "buffers beyond the first 16,777,216, dropped",
            Self::CutTail => "last buffer cut off by the end of the file",
        })
    }
}

/// A trace.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    file: &'a [u8],
    header: Header,
}

impl<'a> Trace<'a> {
    /// Reads the header. Only what is no trace, or one of unknown form, is an error; of a damaged one, all that is
    /// whole is kept.
    pub fn parse(file: &'a [u8]) -> Result<Self, Error> {
        let header = Header::parse(file)?;
        Ok(Self { file, header })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// All of the file.
    pub(super) fn file(&self) -> &'a [u8] {
        self.file
    }

    /// Finds the buffers. Of the flight data recorder's, only the first records are looked at.
    pub fn index(&self) -> Index {
        Index::of(self)
    }

    /// Walks the buffers in the order of the file, with what lies between them. In basic mode, what lies between runs is
    /// left out.
    pub fn pieces(&self) -> Pieces<'a> {
        Pieces(match self.header.mode {
            Mode::Fdr => Walk::Fdr(buffers::Buffers::new(self.file, self.header)),
            Mode::Basic => Walk::Basic(basic::Runs::new(self.file, self.header)),
        })
    }

    /// Walks the records of a buffer, which in one buffer are in the order in which they were written.
    pub fn records(&self, buffer: &Buffer) -> Records<'a> {
        let start = usize::try_from(buffer.start).unwrap_or(usize::MAX);
        let end = usize::try_from(buffer.end).unwrap_or(usize::MAX);
        let content = self.file.get(start..end).unwrap_or_default();
        Records(match self.header.mode {
            Mode::Fdr => Decoder::Fdr(fdr::Decoder::new(content, &self.header, buffer)),
            Mode::Basic => Decoder::Basic(basic::Decoder::new(content, &self.header, buffer)),
        })
    }
}

/// A walk over the buffers of a trace.
#[derive(Clone, Debug)]
pub struct Pieces<'a>(Walk<'a>);

#[derive(Clone, Debug)]
enum Walk<'a> {
    Fdr(buffers::Buffers<'a>),
    Basic(basic::Runs<'a>),
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        match &mut self.0 {
            Walk::Fdr(buffers) => buffers.next_piece(),
            Walk::Basic(runs) => runs.next().map(Piece::Buffer),
        }
    }
}

/// A walk over the records of a buffer. It ends with the buffer, or where nothing more can be understood.
#[derive(Clone, Debug)]
pub struct Records<'a>(Decoder<'a>);

#[derive(Clone, Debug)]
enum Decoder<'a> {
    Fdr(fdr::Decoder<'a>),
    Basic(basic::Decoder<'a>),
}

impl Records<'_> {
    /// What could not be used of what was walked so far.
    pub fn faults(&self) -> &Tally<Fault> {
        match &self.0 {
            Decoder::Fdr(decoder) => decoder.faults(),
            Decoder::Basic(decoder) => decoder.faults(),
        }
    }

    /// Where the walk goes on in the file.
    pub fn next_offset(&self) -> u64 {
        match &self.0 {
            Decoder::Fdr(decoder) => decoder.next_offset(),
            Decoder::Basic(decoder) => decoder.next_offset(),
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        match &mut self.0 {
            Decoder::Fdr(decoder) => decoder.record(),
            Decoder::Basic(decoder) => decoder.record(),
        }
    }
}
