//! Compresses and decompresses records, as `perf record -z` does.
//!
//! The kernel's records form one Zstandard stream. [`record::COMPRESSED`] and [`record::COMPRESSED2`] records
//! hold its parts, which are split wherever a part was full: a record may begin in one part and end in the
//! next. Between them are perf's own records, uncompressed.

use std::io::{self, Write};

use jitdump::{ByteOrder, Tally};
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective, get_error_name};

use crate::bytes::Reader;
use crate::perf::record::data::ProfileBytes;
use crate::perf::record::reader::RecordReader;
use crate::perf::record::{self, HEADER_SIZE, Record, Records, USER_TYPE_START};
use crate::results::diagnostics::Issue;

/// Bytes of records that are compressed together.
const CHUNK_SIZE: usize = 512 << 10;

/// Maximum size in bytes of what one compressed record expands to: the size of the buffer that perf's readers
/// allocate (`comp_mmap_len` of the COMPRESSED feature). perf itself mostly writes this value, the size of a
/// ring buffer of 128 pages with its header page.
const MAX_EXPANDED: u32 = 528_384;
const _: () = assert!(CHUNK_SIZE < MAX_EXPANDED as usize);

/// Limit for the decompressed size: this multiple of the compressed size plus [`MIN_BUDGET`] bytes. Real records
/// compress 3 to 20 times, and up to 2,000 times if each has 64 kB of an idle stack: the difference from one
/// to the next takes about 20 bytes. Crafted ones could fill any disk.
const MAX_RATIO: u64 = 5000;
const MIN_BUDGET: u64 = 64 << 20;

/// Magic number of a Zstandard frame.
const MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Maximum of a record's size field.
const MAX_RECORD_SIZE: usize = u16::MAX as usize;

/// Writes records; decompresses compressed ones. Returns the damage that was skipped, with offsets in bytes
/// from the first of the records in `data`.
pub fn expand(data: ProfileBytes<'_>, endian: ByteOrder, out: &mut dyn Write) -> io::Result<Tally<Issue>> {
    let size = data.len();
    let mut records = RecordReader::new(data, endian);
    let mut expander = Expander {
        context: DCtx::create(),
        endian,
        pending: Vec::new(),
        budget: size.saturating_mul(MAX_RATIO).saturating_add(MIN_BUDGET),
        hint: 0,
        has_begun: false,
        out,
        faults: Tally::default(),
    };
    while let Some(record) = records.next() {
        if record.is_compressed() {
            expander.expand(&record)?;
        } else {
            data.copy_record(&record, expander.out)?;
        }
    }
    if !expander.pending.is_empty() || !matches!(expander.hint, 0 | BLOCK_HEADER) {
        expander.faults.add(Issue::ProfileRecordsCut, size);
    }
    if let Some(offset) = records.undecoded() {
        expander.faults.add(Issue::ProfileRecordsCut, offset);
    }
    Ok(expander.faults)
}

/// Size in bytes of a block header in a Zstandard frame. A decoder that expects this many bytes is between
/// two blocks.
const BLOCK_HEADER: usize = 3;

struct Expander<'o> {
    context: DCtx<'static>,
    endian: ByteOrder,
    /// Bytes that the decoder expects next, as far as it can determine.
    hint: usize,
    /// Whether a frame has started.
    has_begun: bool,
    /// The start of a record whose end has not been decoded yet.
    pending: Vec<u8>,
    /// Bytes that may still be decompressed.
    budget: u64,
    out: &'o mut dyn Write,
    faults: Tally<Issue>,
}

impl Expander<'_> {
    /// Writes the records in a compressed one.
    fn expand(&mut self, record: &Record<'_>) -> io::Result<()> {
        let compressed = compressed_bytes(record, self.endian);
        let starts_stream = starts_stream(compressed);
        if !starts_stream && !self.has_begun {
            self.faults.add(Issue::ProfileStreamContinues, record.offset);
            return Ok(());
        }
        self.has_begun = true;
        if self.budget == 0 {
            self.faults.add(Issue::ProfileTooLarge, record.offset);
            return Ok(());
        }
        let mut decoded = self.decode(compressed)?;
        if starts_stream && decoded == Decoded::Nothing {
            // The previous stream was truncated, and another one starts here.
            self.faults.add(Issue::ProfileRecordsCut, record.offset);
            self.reset()?;
            decoded = self.decode(compressed)?;
        }
        if decoded != Decoded::All {
            let fault = if self.budget == 0 {
                Issue::ProfileTooLarge
            } else {
                Issue::ProfileUndecodable
            };
            self.faults.add(fault, record.offset);
            self.reset()?;
        }
        Ok(())
    }

    /// Decodes the next part of the stream.
    fn decode(&mut self, compressed: &[u8]) -> io::Result<Decoded> {
        let mut input = InBuffer::around(compressed);
        let mut decoded = Decoded::Nothing;
        loop {
            let before = self.pending.len();
            self.pending.reserve(CHUNK_SIZE);
            let room = self.pending.capacity();
            let mut output = OutBuffer::around_pos(&mut self.pending, before);
            let result = self.context.decompress_stream(&mut output, &mut input);
            let after = output.pos();
            self.budget = self.budget.saturating_sub(after.saturating_sub(before) as u64);
            if after > before {
                decoded = Decoded::Some;
            }
            let Ok(hint) = result else {
                return Ok(decoded);
            };
            self.hint = hint;
            if self.budget == 0 || !self.write_complete()? {
                return Ok(decoded);
            }
            // A full buffer may have been too small.
            if input.pos() == compressed.len() && after < room {
                return Ok(Decoded::All);
            }
        }
    }

    /// Discards the state of a damaged stream.
    fn reset(&mut self) -> io::Result<()> {
        self.pending.clear();
        self.hint = 0;
        let reset = self.context.reset(ResetDirective::SessionOnly);
        reset.map(drop).map_err(error)
    }

    /// Writes the complete records. Returns whether the rest can be the start of a record.
    fn write_complete(&mut self) -> io::Result<bool> {
        let mut records = Records::new(&self.pending, 0, self.endian);
        while records.next().is_some() {}
        let Some((end, rest)) = records.undecoded() else {
            self.out.write_all(&self.pending)?;
            self.pending.clear();
            return Ok(true);
        };
        let size = Reader::new(rest.get(record::SIZE_OFFSET..).unwrap_or_default(), self.endian).u16();
        let may_be_record =
            size.is_none_or(|size| usize::from(size) >= HEADER_SIZE) && rest.len() <= MAX_RECORD_SIZE;
        let end = usize::try_from(end).unwrap_or(0).min(self.pending.len());
        self.out.write_all(self.pending.get(..end).unwrap_or_default())?;
        self.pending.drain(..end);
        Ok(may_be_record)
    }
}

/// How much of a part of the stream was decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decoded {
    All,
    Some,
    Nothing,
}

/// Whether a part is the start of a stream, which is a frame or a skippable frame.
fn starts_stream(compressed: &[u8]) -> bool {
    matches!(compressed, [first, 0x2a, 0x4d, 0x18, ..] if first & 0xf0 == 0x50)
        || compressed.starts_with(MAGIC)
}

/// The compressed bytes of a record; all bytes if their size is invalid.
fn compressed_bytes<'a>(record: &Record<'a>, endian: ByteOrder) -> &'a [u8] {
    let mut body = record.body(endian);
    if record.kind == record::COMPRESSED2
        && let Some(size) = body.u64()
        && let Some(bytes) = body.bytes(size)
    {
        return bytes;
    }
    body.rest()
}

fn error(code: usize) -> io::Error {
    io::Error::other(get_error_name(code))
}

/// Compresses the kernel's records of a profile.
pub struct Compressor {
    context: CCtx<'static>,
    endian: ByteOrder,
    /// Records that are not compressed yet.
    pending: Vec<u8>,
    compressed: Vec<u8>,
}

impl Compressor {
    /// Starts a stream. `level` is the Zstandard level, 1 to 22.
    pub fn new(level: i32, endian: ByteOrder) -> io::Result<Self> {
        let mut context = CCtx::create();
        let set = context.set_parameter(CParameter::CompressionLevel(level));
        set.map_err(error)?;
        Ok(Self {
            context,
            endian,
            pending: Vec::new(),
            compressed: Vec::new(),
        })
    }

    /// Writes whole records; perf's own stay uncompressed. Returns the number of bytes written. The last
    /// records may be buffered until [`Compressor::flush`].
    pub fn write(&mut self, records: &[u8], out: &mut dyn Write) -> io::Result<u64> {
        let mut written = 0u64;
        for record in Records::new(records, 0, self.endian) {
            written = written.saturating_add(self.write_record(&record, ProfileBytes::from(records), out)?);
        }
        Ok(written)
    }

    /// Writes a record of `data`, as [`Compressor::write`] does.
    pub fn write_record(
        &mut self,
        record: &Record<'_>,
        data: ProfileBytes<'_>,
        out: &mut dyn Write,
    ) -> io::Result<u64> {
        let mut written = 0u64;
        if record.kind < USER_TYPE_START {
            if self.pending.len().saturating_add(record.bytes.len()) > CHUNK_SIZE {
                written = self.flush(out)?;
            }
            self.pending.extend_from_slice(record.bytes);
            return Ok(written);
        }
        written = self.flush(out)?;
        data.copy_record(record, out)?;
        Ok(written.saturating_add(record.size()))
    }

    /// Writes the buffered records. Returns the number of bytes written.
    pub fn flush(&mut self, out: &mut dyn Write) -> io::Result<u64> {
        if self.pending.is_empty() {
            return Ok(0);
        }
        let mut input = InBuffer::around(&self.pending);
        let mut written = 0u64;
        loop {
            self.compressed.clear();
            self.compressed.reserve(MAX_RECORD_SIZE - HEADER_SIZE);
            let mut output = OutBuffer::around(&mut self.compressed);
            let flush = ZSTD_EndDirective::ZSTD_e_flush;
            let left = self.context.compress_stream2(&mut output, &mut input, flush);
            let left = left.map_err(error)?;
            for part in self.compressed.chunks(MAX_RECORD_SIZE - HEADER_SIZE) {
                let mut header = Vec::with_capacity(HEADER_SIZE);
                let size = part.len().saturating_add(HEADER_SIZE);
                record::write_header(&mut header, self.endian, record::COMPRESSED, 0, size);
                out.write_all(&header)?;
                out.write_all(part)?;
                written = written.saturating_add(size as u64);
            }
            if left == 0 {
                self.pending.clear();
                return Ok(written);
            }
        }
    }
}

/// Returns the content of the COMPRESSED feature section for the output of [`Compressor`]. `ratio` is the
/// compression ratio.
pub fn feature(endian: ByteOrder, level: i32, ratio: u32) -> Vec<u8> {
    /// `PERF_COMP_ZSTD`.
    const ZSTD: u32 = 1;
    const VERSION: u32 = 0;
    let mut content = Vec::new();
    for field in [VERSION, ZSTD, level.unsigned_abs(), ratio, MAX_EXPANDED] {
        endian.write_u32(&mut content, field);
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, size: usize, fill: u8) -> Vec<u8> {
        let mut out = Vec::new();
        record::write_header(&mut out, ByteOrder::Little, kind, 0, HEADER_SIZE + size);
        // Not too easy to compress.
        out.extend((0..size).map(|at| (at * at) as u8 ^ fill));
        out
    }

    fn expanded(records: &[u8]) -> (Vec<u8>, Tally<Issue>) {
        let mut out = Vec::new();
        let faults = expand(ProfileBytes::from(records), ByteOrder::Little, &mut out).unwrap();
        (out, faults)
    }

    fn compressed(records: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut compressor = Compressor::new(1, ByteOrder::Little).unwrap();
        let mut written = compressor.write(records, &mut out).unwrap();
        written += compressor.flush(&mut out).unwrap();
        assert_eq!(written, out.len() as u64);
        out
    }

    /// Many records of the kernel with some of perf's own among them.
    fn stream() -> Vec<u8> {
        let mut records = Vec::new();
        for number in 0..2000usize {
            let size = number * 37 % 3000;
            records.extend(record(record::SAMPLE, size, number as u8));
            if number % 300 == 299 {
                records.extend(record(record::FINISHED_ROUND, 0, 0));
            }
        }
        records
    }

    #[test]
    fn compressed_records_decompress_to_the_same_bytes() {
        let records = stream();
        let compressed = compressed(&records);
        assert!(compressed.len() < records.len() / 2);
        let (back, faults) = expanded(&compressed);
        assert!(back == records && faults.is_empty());
    }

    #[test]
    fn records_may_span_parts_of_the_stream() {
        let records = stream();
        let mut plain = Vec::new();
        let mut raw = Records::new(&records, 0, ByteOrder::Little);
        for record in raw.by_ref().filter(|record| record.kind == record::SAMPLE) {
            plain.extend_from_slice(record.bytes);
        }
        let compressed = compressed(&plain);
        // The same stream in smaller parts, with size and padding.
        let mut parts = Vec::new();
        for whole in Records::new(&compressed, 0, ByteOrder::Little) {
            for part in whole.bytes[HEADER_SIZE..].chunks(1001) {
                let mut body = (part.len() as u64).to_le_bytes().to_vec();
                body.extend_from_slice(part);
                body.resize(body.len().next_multiple_of(8), 0);
                let size = HEADER_SIZE + body.len();
                record::write_header(&mut parts, ByteOrder::Little, record::COMPRESSED2, 0, size);
                parts.extend(body);
            }
        }
        let (back, faults) = expanded(&parts);
        assert!(back == plain && faults.is_empty());
    }

    #[test]
    fn damage_is_counted_and_the_rest_is_decompressed() {
        let records = stream();
        let mut compressed = compressed(&records);
        let walk = Records::new(&compressed, 0, ByteOrder::Little);
        let third = walk.filter(Record::is_compressed).nth(2).unwrap().offset as usize;
        compressed[third + HEADER_SIZE..][..8].fill(0xff);
        compressed.extend(record(record::FINISHED_ROUND, 0, 0));
        let (back, faults) = expanded(&compressed);
        assert!(faults.count(Issue::ProfileUndecodable) > 0);
        let common = back.iter().zip(&records).take_while(|(one, other)| one == other);
        assert!(common.count() > 600_000, "the allocations of the records before");
        let mut walk = Records::new(&back, 0, ByteOrder::Little);
        assert!(walk.by_ref().last().unwrap().kind == record::FINISHED_ROUND);
        assert!(walk.undecoded().is_none());
    }

    #[test]
    fn missing_parts_of_a_stream_are_counted() {
        let records = stream();
        let compressed = compressed(&records);
        let walk = Records::new(&compressed, 0, ByteOrder::Little);
        let parts: Vec<&[u8]> = walk
            .filter(Record::is_compressed)
            .map(|part| part.bytes)
            .collect();
        // The last part is truncated and has a header with the smaller size.
        let (last, first) = (parts.last().unwrap(), parts.first().unwrap());
        let cut = &last[..last.len() - 100];
        let mut short = parts[..parts.len() - 1].concat();
        record::write_header(&mut short, ByteOrder::Little, record::COMPRESSED, 0, cut.len());
        short.extend_from_slice(&cut[HEADER_SIZE..]);
        let (back, faults) = expanded(&short);
        assert_eq!(faults.count(Issue::ProfileRecordsCut), 1);
        assert!(back.len() > records.len() / 2);
        // A truncated stream followed by another one.
        let (back, faults) = expanded(&[&short[..], &compressed].concat());
        assert_eq!(faults.count(Issue::ProfileUndecodable), 0);
        assert!(back.ends_with(&records));
        // All parts except the first.
        let (back, faults) = expanded(&compressed[first.len()..]);
        assert!(faults.count(Issue::ProfileStreamContinues) > 0);
        assert!(
            Records::new(&back, 0, ByteOrder::Little).all(|record| record.kind == record::FINISHED_ROUND)
        );
        // A size that is too large.
        let mut part = Vec::new();
        let body = &parts[0][HEADER_SIZE..];
        let size = HEADER_SIZE + 8 + body.len();
        record::write_header(&mut part, ByteOrder::Little, record::COMPRESSED2, 0, size);
        part.extend_from_slice(&u64::MAX.to_le_bytes());
        part.extend_from_slice(body);
        // Padding that is decoded as data must not repeat earlier records.
        part.extend_from_slice(&[0; 16]);
        let size = part.len() as u16;
        part[6..8].copy_from_slice(&size.to_le_bytes());
        let (back, _) = expanded(&part);
        assert!(!back.is_empty() && records.starts_with(&back));
    }

    #[test]
    fn the_section_of_a_compressed_profile_has_the_size_of_perf_s_buffer() {
        let content = feature(ByteOrder::Little, 1, 4);
        let fields = content
            .chunks_exact(4)
            .map(|field| ByteOrder::Little.u32_at(field, 0));
        assert_eq!(
            fields.collect::<Option<Vec<u32>>>().unwrap(),
            [0, 1, 1, 4, 129 * 4096]
        );
    }

    #[test]
    fn decompressed_size_is_limited() {
        let mut compressor = Compressor::new(1, ByteOrder::Little).unwrap();
        let mut compressed = Vec::new();
        let mut zeros = Vec::new();
        record::write_header(&mut zeros, ByteOrder::Little, record::SAMPLE, 0, MAX_RECORD_SIZE);
        zeros.resize(MAX_RECORD_SIZE, 0);
        for _ in 0..4000 {
            compressor.write(&zeros, &mut compressed).unwrap();
        }
        compressor.flush(&mut compressed).unwrap();
        let (back, faults) = expanded(&compressed);
        assert!(faults.count(Issue::ProfileTooLarge) > 0);
        let limit = (64 << 20) + 5000 * compressed.len();
        assert!(back.len().abs_diff(limit) <= CHUNK_SIZE, "{} {limit}", back.len());
    }

    #[test]
    fn compressed_records_have_up_to_65535_bytes() {
        let mut records = Vec::new();
        let mut state = 1u64;
        for _ in 0..8 {
            record::write_header(&mut records, ByteOrder::Little, record::SAMPLE, 0, 65_528);
            // Not compressible.
            records.extend((HEADER_SIZE..65_528).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            }));
        }
        let compressed = compressed(&records);
        let sizes = Records::new(&compressed, 0, ByteOrder::Little).map(|record| record.bytes.len());
        assert_eq!(sizes.max(), Some(65_535));
        let (back, faults) = expanded(&compressed);
        assert!(back == records && faults.is_empty());
    }

    #[test]
    fn the_start_of_a_record_has_up_to_65535_bytes() {
        let issues = |size: usize| {
            // The data after the record, a mebibyte, are not in the stream.
            let mut start = Vec::new();
            record::write_header(&mut start, ByteOrder::Little, record::AUXTRACE, 0, 16);
            start.extend_from_slice(&(1u64 << 20).to_le_bytes());
            start.resize(size, 0);
            let mut compressor = Compressor::new(1, ByteOrder::Little).unwrap();
            compressor.pending = start;
            let mut compressed = Vec::new();
            compressor.flush(&mut compressed).unwrap();
            let (back, faults) = expanded(&compressed);
            assert!(back.is_empty());
            [Issue::ProfileRecordsCut, Issue::ProfileUndecodable].map(|issue| faults.count(issue))
        };
        assert_eq!(issues(65_535), [1, 0]);
        assert_eq!(issues(65_536), [0, 1]);
    }
}
