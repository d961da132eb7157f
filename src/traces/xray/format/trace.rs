//! Detects and reads XRay traces: their buffers, their records, and the faults of a damaged file.

use jitdump::Tally;

use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::xray::format::buffer::Buffer;
use crate::traces::xray::format::header::{self, Header, Mode};
use crate::traces::xray::format::index::Index;
use crate::traces::xray::format::record::Record;
use crate::traces::xray::format::{Segment, basic, buffers, fdr};

/// An XRay trace.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    file: &'a [u8],
    header: Header,
}

impl<'a> Trace<'a> {
    /// Parses the header. Returns an error only if the file is not a trace or has an unknown format. The
    /// intact parts of a damaged trace remain readable.
    pub fn parse(file: &'a [u8]) -> Result<Self, Diagnostic> {
        let header = Header::parse(file)?;
        Ok(Self { file, header })
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Finds the buffers. In flight data recorder mode, this reads only the first records of each buffer.
    pub fn index(&self) -> Index {
        Index::of(self)
    }

    /// Iterates over the buffers and the bytes between them, in file order. In basic mode, bytes between runs
    /// are left out.
    pub fn segments(&self) -> Segments<'a> {
        Segments(match self.header.mode {
            Mode::Fdr => SegmentReader::Fdr(buffers::Buffers::new(self.file, self.header)),
            Mode::Basic => SegmentReader::Basic(basic::Runs::new(self.file, self.header)),
        })
    }

    /// Iterates over the records of a buffer in the order in which they were written.
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

/// Iterator over the buffers of a trace and the bytes between them.
#[derive(Clone, Debug)]
pub struct Segments<'a>(SegmentReader<'a>);

#[derive(Clone, Debug)]
enum SegmentReader<'a> {
    Fdr(buffers::Buffers<'a>),
    Basic(basic::Runs<'a>),
}

impl Segments<'_> {
    /// Returns the faults found so far, except those of records.
    pub fn faults(&self) -> &Tally<Issue> {
        match &self.0 {
            SegmentReader::Fdr(buffers) => buffers.faults(),
            SegmentReader::Basic(runs) => runs.faults(),
        }
    }
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        match &mut self.0 {
            SegmentReader::Fdr(buffers) => buffers.next_segment(),
            SegmentReader::Basic(runs) => runs.next().map(Segment::Buffer),
        }
    }
}

/// Iterator over the records of a buffer. Ends with the buffer, or where the rest cannot be decoded.
#[derive(Clone, Debug)]
pub struct Records<'a>(Decoder<'a>);

#[derive(Clone, Debug)]
enum Decoder<'a> {
    Fdr(fdr::Decoder<'a>),
    Basic(basic::Decoder<'a>),
}

impl Records<'_> {
    /// Returns the faults found so far.
    pub fn faults(&self) -> &Tally<Issue> {
        match &self.0 {
            Decoder::Fdr(decoder) => decoder.faults(),
            Decoder::Basic(decoder) => decoder.faults(),
        }
    }

    /// Returns the offset in the file at which the iterator continues, in bytes.
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

/// Returns whether a file is a trace: a header of known version and type with a possible frequency, and a
/// plausible first record. `start` is the whole file or at least its first 80 bytes.
pub fn is_trace(start: &[u8]) -> bool {
    /// Possible frequencies: 1 MHz to 100 GHz, which includes processor clocks and clocks in nanoseconds.
    const FREQUENCIES: std::ops::RangeInclusive<u64> = 1_000_000..=100_000_000_000;
    let Ok(header) = Header::parse(start) else {
        return false;
    };
    let records = start.get(header::SIZE..).unwrap_or_default();
    let is_possible = header.frequency == 0 || FREQUENCIES.contains(&header.frequency);
    is_possible
        && match header.mode {
            Mode::Fdr => records.is_empty() || buffers::starts_with_buffer(records, &header),
            Mode::Basic => basic::starts_with_record(records, &header),
        }
}
