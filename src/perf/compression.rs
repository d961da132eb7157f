//! Compressed records, as `perf record -z` writes them.
//!
//! The kernel's records are one Zstandard stream. Its parts, cut wherever a part was full, are the contents of
//! [`record::COMPRESSED`] and [`record::COMPRESSED2`] records. Between those stand perf's own records as they
//! are. A record may begin in one part and end in the next.

use std::io::{self, Write};

use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective, get_error_name};

use crate::bytes::{ByteOrder, Reader};
use crate::perf::profile::Fault;
use crate::perf::record::{self, HEADER_SIZE, Record, Records, USER_TYPE_START};
use crate::tally::Tally;

/// How many bytes of records are compressed together.
const CHUNK: usize = 512 << 10;

/// How many bytes of records may come out of one compressed record: what perf's readers make room for
/// (`comp_mmap_len` of the COMPRESSED feature). perf itself mostly writes this, the size of a buffer of 128
/// pages with its header page.
const MAX_EXPANDED: u32 = 528_384;
const _: () = assert!(CHUNK < MAX_EXPANDED as usize);

/// How many times larger records may be than their compressed form, and how much more than that they may
/// always be. Real ones compress by 3 to 20, and by up to 2,000 where each holds 64 kB of an idle stack: what
/// differs from one to the next takes some 20 bytes. Made ones could fill any disk.
const MAX_RATIO: u64 = 5000;
const ALWAYS: u64 = 64 << 20;

/// What a Zstandard frame starts with.
const MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// What a record's size field can't exceed.
const MAX_RECORD: usize = u16::MAX as usize;

/// Writes records as they were before some of them were compressed. Returns what had to be left out, at
/// offsets from the first of `records`.
pub fn expand(mut records: Records<'_>, order: ByteOrder, out: &mut dyn Write) -> io::Result<Tally<Fault>> {
    let size = records.undecoded().map_or(0, |(_, rest)| rest.len() as u64);
    let mut expander = Expander {
        context: DCtx::create(),
        order,
        pending: Vec::new(),
        budget: size.saturating_mul(MAX_RATIO).saturating_add(ALWAYS),
        hint: 0,
        has_begun: false,
        out,
        faults: Tally::default(),
    };
    for record in records.by_ref() {
        if record.is_compressed() {
            expander.expand(&record)?;
        } else {
            expander.out.write_all(record.bytes)?;
            expander.out.write_all(record.payload)?;
        }
    }
    if !expander.pending.is_empty() || !matches!(expander.hint, 0 | BLOCK_HEADER) {
        expander.faults.add(Fault::RecordsCut, size);
    }
    if let Some((offset, _)) = records.undecoded() {
        expander.faults.add(Fault::RecordsCut, offset);
    }
    Ok(expander.faults)
}

/// The size of a block's header in a Zstandard frame. A decoder that waits for one is between two blocks.
const BLOCK_HEADER: usize = 3;

struct Expander<'o> {
    context: DCtx<'static>,
    order: ByteOrder,
    /// How many more bytes the decoder waits for, as far as it knows.
    hint: usize,
    /// Whether a frame has begun.
    has_begun: bool,
    /// The beginning of a record whose end is yet to come.
    pending: Vec<u8>,
    /// How many more bytes may come.
    budget: u64,
    out: &'o mut dyn Write,
    faults: Tally<Fault>,
}

impl Expander<'_> {
    fn expand(&mut self, record: &Record<'_>) -> io::Result<()> {
        let packed = packed(record, self.order);
        let is_start = is_start(packed);
        if !is_start && !self.has_begun {
            self.faults.add(Fault::StreamContinues, record.offset);
            return Ok(());
        }
        self.has_begun = true;
        if self.budget == 0 {
            self.faults.add(Fault::TooLarge, record.offset);
            return Ok(());
        }
        let mut decoded = self.decode(packed)?;
        if is_start && decoded == Decoded::Nothing {
            // The stream before it was cut, and another one begins here.
            self.faults.add(Fault::RecordsCut, record.offset);
            self.reset()?;
            decoded = self.decode(packed)?;
        }
        if decoded != Decoded::All {
            let fault = if self.budget == 0 {
                Fault::TooLarge
            } else {
                Fault::Undecodable
            };
            self.faults.add(fault, record.offset);
            self.reset()?;
        }
        Ok(())
    }

    /// Decodes the next part of the stream.
    fn decode(&mut self, packed: &[u8]) -> io::Result<Decoded> {
        let mut input = InBuffer::around(packed);
        let mut decoded = Decoded::Nothing;
        loop {
            let before = self.pending.len();
            self.pending.reserve(CHUNK);
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
            if self.budget == 0 || !self.write_whole()? {
                return Ok(decoded);
            }
            // A full buffer may not have been enough.
            if input.pos() == packed.len() && after < room {
                return Ok(Decoded::All);
            }
        }
    }

    /// Forgets what has come of a stream that can't be understood.
    fn reset(&mut self) -> io::Result<()> {
        self.pending.clear();
        self.hint = 0;
        let reset = self.context.reset(ResetDirective::SessionOnly);
        reset.map(drop).map_err(error)
    }

    /// Writes the records that have come as a whole; says whether what is left can be the start of one.
    fn write_whole(&mut self) -> io::Result<bool> {
        let mut records = Records::new(&self.pending, 0, self.order);
        while records.next().is_some() {}
        let Some((end, rest)) = records.undecoded() else {
            self.out.write_all(&self.pending)?;
            self.pending.clear();
            return Ok(true);
        };
        let size = Reader::new(rest.get(6..).unwrap_or_default(), self.order).u16();
        let can_be = size.is_none_or(|size| usize::from(size) >= HEADER_SIZE) && rest.len() <= MAX_RECORD;
        let end = usize::try_from(end).unwrap_or(0).min(self.pending.len());
        self.out.write_all(self.pending.get(..end).unwrap_or_default())?;
        self.pending.drain(..end);
        Ok(can_be)
    }
}

/// How much of a part of a stream could be decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decoded {
    All,
    Some,
    Nothing,
}

/// Whether a part of a stream begins it: with a frame, or with one that only is to be skipped.
fn is_start(packed: &[u8]) -> bool {
    matches!(packed, [first, 0x2a, 0x4d, 0x18, ..] if first & 0xf0 == 0x50) || packed.starts_with(MAGIC)
}

/// The compressed bytes in a record: all of it, where its size can't be right.
fn packed<'a>(record: &Record<'a>, order: ByteOrder) -> &'a [u8] {
    let mut body = record.body(order);
    let sized = |body: &mut Reader<'a>| {
        let size = body.u64()?;
        body.bytes(size)
    };
    if record.kind == record::COMPRESSED2 {
        let mut whole = body;
        return sized(&mut body).unwrap_or_else(|| {
            let _ = whole.u64();
            whole.rest()
        });
    }
    body.rest()
}

fn error(code: usize) -> io::Error {
    io::Error::other(get_error_name(code))
}

/// Compresses the kernel's records on their way into a profile.
pub struct Compressor {
    context: CCtx<'static>,
    order: ByteOrder,
    /// Records that are yet to be compressed.
    pending: Vec<u8>,
    packed: Vec<u8>,
}

impl Compressor {
    /// Starts a stream. `level` is one of Zstandard's, 1 to 22.
    pub fn new(level: i32, order: ByteOrder) -> io::Result<Self> {
        let mut context = CCtx::create();
        let set = context.set_parameter(CParameter::CompressionLevel(level));
        set.map_err(error)?;
        Ok(Self {
            context,
            order,
            pending: Vec::new(),
            packed: Vec::new(),
        })
    }

    /// Writes whole records, those that perf wrote as they are; returns how many bytes were written. The last
    /// ones may stay until [`Compressor::flush`].
    pub fn write(&mut self, records: &[u8], out: &mut dyn Write) -> io::Result<u64> {
        let mut written = 0u64;
        let mut walk = Records::new(records, 0, self.order);
        for record in walk.by_ref() {
            if record.kind < USER_TYPE_START {
                if self.pending.len().saturating_add(record.bytes.len()) > CHUNK {
                    written = written.saturating_add(self.flush(out)?);
                }
                self.pending.extend_from_slice(record.bytes);
                continue;
            }
            written = written.saturating_add(self.flush(out)?);
            out.write_all(record.bytes)?;
            out.write_all(record.payload)?;
            written = written.saturating_add(record.len());
        }
        Ok(written)
    }

    /// Writes what has come so far; returns how many bytes that were.
    pub fn flush(&mut self, out: &mut dyn Write) -> io::Result<u64> {
        if self.pending.is_empty() {
            return Ok(0);
        }
        let mut input = InBuffer::around(&self.pending);
        let mut written = 0u64;
        loop {
            self.packed.clear();
            self.packed.reserve(MAX_RECORD);
            let mut output = OutBuffer::around(&mut self.packed);
            let flush = ZSTD_EndDirective::ZSTD_e_flush;
            let left = self.context.compress_stream2(&mut output, &mut input, flush);
            let left = left.map_err(error)?;
            for part in self.packed.chunks(MAX_RECORD - HEADER_SIZE) {
                let mut header = Vec::with_capacity(HEADER_SIZE);
                let size = u16::try_from(part.len().saturating_add(HEADER_SIZE)).unwrap_or(u16::MAX);
                record::put_header(&mut header, self.order, record::COMPRESSED, 0, size);
                out.write_all(&header)?;
                out.write_all(part)?;
                written = written.saturating_add(size.into());
            }
            if left == 0 {
                self.pending.clear();
                return Ok(written);
            }
        }
    }
}

/// The content of the COMPRESSED feature section for what [`Compressor`] writes. `ratio` is how many times
/// larger the records were.
pub fn feature(order: ByteOrder, level: i32, ratio: u32) -> Vec<u8> {
    /// `PERF_COMP_ZSTD`.
    const ZSTD: u32 = 1;
    const VERSION: u32 = 0;
    let mut content = Vec::new();
    for number in [VERSION, ZSTD, level.unsigned_abs(), ratio, MAX_EXPANDED] {
        order.put_u32(&mut content, number);
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, size: usize, fill: u8) -> Vec<u8> {
        let mut out = Vec::new();
        let total = (HEADER_SIZE + size) as u16;
        record::put_header(&mut out, ByteOrder::Little, kind, 0, total);
        // Not too easy to compress.
        out.extend((0..size).map(|at| (at * at) as u8 ^ fill));
        out
    }

    fn expanded(records: &[u8]) -> (Vec<u8>, Tally<Fault>) {
        let mut out = Vec::new();
        let records = Records::new(records, 0, ByteOrder::Little);
        let faults = expand(records, ByteOrder::Little, &mut out).unwrap();
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

    /// Many records of the kernel, with some of perf's between them.
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
    fn what_was_compressed_comes_back() {
        let records = stream();
        let packed = compressed(&records);
        assert!(packed.len() < records.len() / 2);
        let (back, faults) = expanded(&packed);
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
        let packed = compressed(&plain);
        // The same stream in smaller parts, with size and padding.
        let mut parts = Vec::new();
        for whole in Records::new(&packed, 0, ByteOrder::Little) {
            for part in whole.bytes[HEADER_SIZE..].chunks(1001) {
                let mut body = (part.len() as u64).to_le_bytes().to_vec();
                body.extend_from_slice(part);
                body.resize(body.len().next_multiple_of(8), 0);
                let size = (HEADER_SIZE + body.len()) as u16;
                record::put_header(&mut parts, ByteOrder::Little, record::COMPRESSED2, 0, size);
                parts.extend(body);
            }
        }
        let (back, faults) = expanded(&parts);
        assert!(back == plain && faults.is_empty());
    }

    #[test]
    fn damage_is_told_and_the_rest_comes_out() {
        let records = stream();
        let mut packed = compressed(&records);
        let walk = Records::new(&packed, 0, ByteOrder::Little);
        let third = walk.filter(Record::is_compressed).nth(2).unwrap().offset as usize;
        packed[third + HEADER_SIZE..][..8].fill(0xff);
        packed.extend(record(record::FINISHED_ROUND, 0, 0));
        let (back, faults) = expanded(&packed);
        assert!(faults.count(Fault::Undecodable) > 0);
        let common = back.iter().zip(&records).take_while(|(one, other)| one == other);
        assert!(common.count() > 600_000, "what stands before it");
        let mut walk = Records::new(&back, 0, ByteOrder::Little);
        assert!(walk.by_ref().last().unwrap().kind == record::FINISHED_ROUND);
        assert!(walk.undecoded().is_none());
    }

    #[test]
    fn what_is_missing_of_a_stream_is_told() {
        let records = stream();
        let packed = compressed(&records);
        let walk = Records::new(&packed, 0, ByteOrder::Little);
        let parts: Vec<&[u8]> = walk
            .filter(Record::is_compressed)
            .map(|part| part.bytes)
            .collect();
        // The end of the last part, with a header that does not know.
        let (last, first) = (parts.last().unwrap(), parts.first().unwrap());
        let cut = &last[..last.len() - 100];
        let mut short = parts[..parts.len() - 1].concat();
        record::put_header(
            &mut short,
            ByteOrder::Little,
            record::COMPRESSED,
            0,
            cut.len() as u16,
        );
        short.extend_from_slice(&cut[HEADER_SIZE..]);
        let (back, faults) = expanded(&short);
        assert_eq!(faults.count(Fault::RecordsCut), 1);
        assert!(back.len() > records.len() / 2);
        // A stream that is cut and another one behind it.
        let (back, faults) = expanded(&[&short[..], &packed].concat());
        assert_eq!(faults.count(Fault::Undecodable), 0);
        assert!(back.ends_with(&records));
        // All but the first part.
        let (back, faults) = expanded(&packed[first.len()..]);
        assert!(faults.count(Fault::StreamContinues) > 0);
        assert!(
            Records::new(&back, 0, ByteOrder::Little).all(|record| record.kind == record::FINISHED_ROUND)
        );
        // A size that is too large.
        let mut part = Vec::new();
        let body = &parts[0][HEADER_SIZE..];
        let size = (HEADER_SIZE + 8 + body.len()) as u16;
        record::put_header(&mut part, ByteOrder::Little, record::COMPRESSED2, 0, size);
        part.extend_from_slice(&u64::MAX.to_le_bytes());
        part.extend_from_slice(body);
        // Padding that is taken for data does not make what stands before it come twice.
        part.extend_from_slice(&[0; 16]);
        let size = part.len() as u16;
        part[6..8].copy_from_slice(&size.to_le_bytes());
        let (back, _) = expanded(&part);
        assert!(!back.is_empty() && records.starts_with(&back));
    }

    #[test]
    fn nothing_expands_without_end() {
        let mut compressor = Compressor::new(1, ByteOrder::Little).unwrap();
        let mut packed = Vec::new();
        let mut zeros = Vec::new();
        record::put_header(&mut zeros, ByteOrder::Little, record::SAMPLE, 0, u16::MAX);
        zeros.resize(MAX_RECORD, 0);
        for _ in 0..4000 {
            compressor.write(&zeros, &mut packed).unwrap();
        }
        compressor.flush(&mut packed).unwrap();
        let (back, faults) = expanded(&packed);
        assert!(faults.count(Fault::TooLarge) > 0);
        assert!((back.len() as u64) < ALWAYS + MAX_RATIO * packed.len() as u64 + CHUNK as u64);
    }
}
