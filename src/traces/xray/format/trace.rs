//! Detects and reads XRay traces: their buffers, their records, and the faults of a damaged file.

use jitdump::Tally;

use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::xray::format::buffer::TraceBuffer;
use crate::traces::xray::format::header::{self, TraceHeader, TraceMode};
use crate::traces::xray::format::index::TraceIndex;
use crate::traces::xray::format::record::TraceRecord;
use crate::traces::xray::format::{TraceSegment, basic, buffers, fdr};

/// An XRay trace.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    file: &'a [u8],
    header: TraceHeader,
}

impl<'a> Trace<'a> {
    /// Parses the header. Returns an error only if the file is not a trace or has an unknown format. The
    /// intact parts of a damaged trace remain readable.
    pub fn parse(file: &'a [u8]) -> Result<Self, Diagnostic> {
        let header = TraceHeader::parse(file)?;
        Ok(Self { file, header })
    }

    /// Returns the header.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Finds the buffers. In flight data recorder mode, this reads only the first records of each buffer.
    pub fn index(&self) -> TraceIndex {
        TraceIndex::of(self)
    }

    /// Iterates over the buffers and the bytes between them, in file order. In basic mode, bytes between runs
    /// are left out.
    pub fn segments(&self) -> Segments<'a> {
        Segments(match self.header.mode {
            TraceMode::Fdr => SegmentReader::Fdr(buffers::BufferFinder::new(self.file, self.header)),
            TraceMode::Basic => SegmentReader::Basic(basic::Runs::new(self.file, self.header)),
        })
    }

    /// Iterates over the records of a buffer in the order in which they were written.
    pub fn records(&self, buffer: &TraceBuffer) -> TraceRecords<'a> {
        let start = usize::try_from(buffer.start).unwrap_or(usize::MAX);
        let end = usize::try_from(buffer.end).unwrap_or(usize::MAX);
        let content = self.file.get(start..end).unwrap_or_default();
        TraceRecords(match self.header.mode {
            TraceMode::Fdr => FormatDecoder::Fdr(fdr::FdrDecoder::new(content, &self.header, buffer)),
            TraceMode::Basic => FormatDecoder::Basic(basic::BasicDecoder::new(content, &self.header, buffer)),
        })
    }
}

/// Iterator over the buffers of a trace and the bytes between them.
#[derive(Clone, Debug)]
pub struct Segments<'a>(SegmentReader<'a>);

#[derive(Clone, Debug)]
enum SegmentReader<'a> {
    Fdr(buffers::BufferFinder<'a>),
    Basic(basic::Runs<'a>),
}

impl Segments<'_> {
    /// Returns the faults found so far, except those of records.
    pub fn faults(&self) -> &Tally<Issue> {
        match &self.0 {
            SegmentReader::Fdr(buffers) => &buffers.faults,
            SegmentReader::Basic(runs) => &runs.faults,
        }
    }
}

impl Iterator for Segments<'_> {
    type Item = TraceSegment;

    fn next(&mut self) -> Option<TraceSegment> {
        match &mut self.0 {
            SegmentReader::Fdr(buffers) => buffers.next_segment(),
            SegmentReader::Basic(runs) => runs.next().map(TraceSegment::Buffer),
        }
    }
}

/// Iterator over the records of a buffer. Ends with the buffer, or where the rest cannot be decoded.
#[derive(Clone, Debug)]
pub struct TraceRecords<'a>(FormatDecoder<'a>);

#[derive(Clone, Debug)]
enum FormatDecoder<'a> {
    Fdr(fdr::FdrDecoder<'a>),
    Basic(basic::BasicDecoder<'a>),
}

impl TraceRecords<'_> {
    /// Returns the faults found so far.
    pub fn faults(&self) -> &Tally<Issue> {
        match &self.0 {
            FormatDecoder::Fdr(decoder) => &decoder.faults,
            FormatDecoder::Basic(decoder) => &decoder.faults,
        }
    }

    /// Returns the offset in the file at which the iterator continues, in bytes.
    pub fn next_offset(&self) -> u64 {
        match &self.0 {
            FormatDecoder::Fdr(decoder) => decoder.next_offset(),
            FormatDecoder::Basic(decoder) => decoder.next_offset(),
        }
    }
}

impl<'a> Iterator for TraceRecords<'a> {
    type Item = TraceRecord<'a>;

    #[inline]
    fn next(&mut self) -> Option<TraceRecord<'a>> {
        match &mut self.0 {
            FormatDecoder::Fdr(decoder) => decoder.record(),
            FormatDecoder::Basic(decoder) => decoder.record(),
        }
    }
}

/// Returns whether a file is a trace: a header of known version and type with a possible frequency, and a
/// plausible first record. `start` is the whole file or at least its first 80 bytes.
pub fn is_trace(start: &[u8]) -> bool {
    /// Possible frequencies: 1 MHz to 100 GHz, which includes processor clocks and clocks in nanoseconds.
    const FREQUENCIES: std::ops::RangeInclusive<u64> = 1_000_000..=100_000_000_000;
    let Ok(header) = TraceHeader::parse(start) else {
        return false;
    };
    let records = start.get(header::SIZE..).unwrap_or_default();
    let is_possible = header.frequency == 0 || FREQUENCIES.contains(&header.frequency);
    is_possible
        && match header.mode {
            TraceMode::Fdr => records.is_empty() || buffers::starts_with_buffer(records, &header),
            TraceMode::Basic => basic::starts_with_record(records, &header),
        }
}
