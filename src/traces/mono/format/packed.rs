//! Unpacks logs that are one gzip stream, as written with the profiler's option `zip`.
//!
//! Unpacking stops when the data is not a log, and at a size limit, because a few bytes of gzip can expand to
//! a thousand times as many.

use std::io::{self, Read as _, Write};

use flate2::bufread::GzDecoder;
use jitdump::Tally;

use crate::results::diagnostics::Issue;
use crate::traces::mono::format::header::LogHeader;
use crate::traces::mono::format::log::{BUFFER_HEADER_SIZE, BUFFER_ID};

/// Number of bytes to unpack at a time.
const CHUNK_SIZE: usize = 64 << 10;

/// Maximum size of a header in bytes, more than any command line has.
const MAX_HEADER_SIZE: usize = 1 << 20;

/// Maximum size of a buffer in bytes. A single large event can make a buffer larger than 64 KiB, but no
/// object has so many references.
const MAX_BUFFER_SIZE: usize = 1 << 30;

/// Number of bytes outside of buffers after which the data is not a log; more than a few damaged buffers
/// have.
const MAX_JUNK_SIZE: usize = 1 << 20;

/// Maximum ratio of unpacked to packed size. Real logs have 4 to 20. The maximum of deflate is 1,032, for
/// identical bytes.
const MAX_RATIO: u64 = 200;

/// Number of bytes to which any file may expand, however small; too few to be harmful.
const MIN_UNPACKED_LIMIT: u64 = 64 << 20;

/// Returns the maximum unpacked size of a log with `size` packed bytes.
pub fn max_unpacked_size(size: u64) -> u64 {
    size.saturating_mul(MAX_RATIO).max(MIN_UNPACKED_LIMIT)
}

/// Result of unpacking a file.
#[derive(Clone, Debug)]
pub struct Unpacked {
    /// Unpacked size, in bytes.
    pub size: u64,
    /// Faults with their offsets in the unpacked data.
    pub faults: Tally<Issue>,
}

/// Unpacks a file into `out`, up to `limit` bytes; see [`max_unpacked_size`]. A damaged or incomplete file is unpacked
/// as far as possible. Returns only errors of `out`.
pub fn unpack(packed: &[u8], limit: u64, out: &mut impl Write) -> io::Result<Unpacked> {
    let mut decoder = GzDecoder::new(packed);
    let mut chunk = vec![0; CHUNK_SIZE];
    let mut validator = LogValidator::Header(Vec::new());
    let mut unpacked = Unpacked {
        size: 0,
        faults: Tally::default(),
    };
    loop {
        let read = decoder.read(&mut chunk);
        let offset = unpacked.size;
        let fault = match read {
            Ok(0) if decoder.get_ref().is_empty() => return Ok(unpacked),
            Ok(0) => Issue::MonoTrailingGzipBytes,
            Ok(read) => {
                let bytes = chunk.get(..read).unwrap_or_default();
                let room = usize::try_from(limit.saturating_sub(offset)).unwrap_or(usize::MAX);
                let bytes = bytes.get(..room).unwrap_or(bytes);
                out.write_all(bytes)?;
                unpacked.size = offset.saturating_add(bytes.len() as u64);
                if !validator.accepts(bytes) {
                    Issue::MonoInvalidGzipContent
                } else if bytes.len() < read {
                    Issue::MonoGzipTooLarge
                } else {
                    continue;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Issue::MonoCutGzip,
            Err(_) => Issue::MonoBadGzip,
        };
        unpacked.faults.add(fault, unpacked.size);
        return Ok(unpacked);
    }
}

/// Checks whether data that arrives in chunks has the structure of a log. The variants are what comes next.
#[derive(Debug)]
enum LogValidator {
    /// The header, with the bytes read so far.
    Header(Vec<u8>),
    /// A buffer's header, with the bytes read so far and the number of invalid bytes skipped before it.
    Buffer { start: Vec<u8>, junk: usize },
    /// Events, with the number of bytes left.
    Events(usize),
}

impl LogValidator {
    fn next_buffer() -> Self {
        Self::Buffer {
            start: Vec::new(),
            junk: 0,
        }
    }

    /// Returns whether the data so far, including `bytes`, can be the start of a log.
    fn accepts(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let next = match self {
                Self::Header(start) => {
                    let before = start.len();
                    start.extend_from_slice(bytes);
                    match LogHeader::parse(start) {
                        Ok(header) => {
                            bytes = bytes
                                .get(header.size.saturating_sub(before)..)
                                .unwrap_or_default();
                            Self::next_buffer()
                        }
                        Err(error) if error.issue == Issue::MonoTooShort && start.len() < MAX_HEADER_SIZE => {
                            return true;
                        }
                        Err(_) => return false,
                    }
                }
                Self::Buffer { start, junk } => {
                    let missing = BUFFER_HEADER_SIZE.saturating_sub(start.len()).min(bytes.len());
                    let (taken, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, b""));
                    start.extend_from_slice(taken);
                    bytes = rest;
                    if start.len() < BUFFER_HEADER_SIZE {
                        return true;
                    }
                    match events_size(start) {
                        Some(size) => Self::Events(size),
                        None if *junk > MAX_JUNK_SIZE => return false,
                        None => {
                            let skipped = skip_invalid(start);
                            *junk = junk.saturating_add(skipped);
                            continue;
                        }
                    }
                }
                Self::Events(size) => {
                    let skipped = bytes.len().min(*size);
                    *size = size.saturating_sub(skipped);
                    bytes = bytes.get(skipped..).unwrap_or_default();
                    if *size > 0 {
                        return true;
                    }
                    Self::next_buffer()
                }
            };
            *self = next;
        }
        true
    }
}

/// Returns the size of the events after a buffer's header; `None` if the header is invalid.
fn events_size(header: &[u8]) -> Option<usize> {
    let (size, _) = header.strip_prefix(&BUFFER_ID)?.split_first_chunk()?;
    let size = usize::try_from(u32::from_le_bytes(*size)).ok()?;
    (size <= MAX_BUFFER_SIZE).then_some(size)
}

/// Removes bytes up to the next possible start of a buffer's header, and returns their number.
fn skip_invalid(start: &mut Vec<u8>) -> usize {
    let [first, ..] = BUFFER_ID;
    let rest = start.get(1..).unwrap_or_default();
    let found = memchr::memchr(first, rest).unwrap_or(rest.len());
    let skipped = found.saturating_add(1);
    start.drain(..skipped.min(start.len()));
    skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_expand_to_64_mebibytes_and_others_to_200_times_their_size() {
        assert_eq!([0, 335_544].map(max_unpacked_size), [67_108_864; 2]);
        assert_eq!(
            [335_545, 1_000_000].map(max_unpacked_size),
            [67_109_000, 200_000_000]
        );
    }

    #[test]
    fn a_header_that_takes_a_mebibyte_is_none() {
        let mut header = b"\x01ZPM\x03\x00\x11\x08".to_vec();
        header.resize(38, 0);
        // Size of the profiler's options.
        header.extend(u32::MAX.to_le_bytes());
        header.resize((1 << 20) - 1, b' ');
        let mut validator = LogValidator::Header(Vec::new());
        assert!(validator.accepts(&header));
        assert!(!validator.accepts(b" "));
    }

    #[test]
    fn buffers_have_up_to_a_gibibyte_of_events() {
        let size = |size: u32| events_size(&[&BUFFER_ID[..], &size.to_le_bytes(), &[0; 40]].concat());
        assert_eq!(size(1 << 30), Some(1 << 30));
        assert_eq!(size((1 << 30) + 1), None);
    }

    #[test]
    fn bytes_that_are_no_buffers_are_skipped_for_a_mebibyte() {
        let mut validator = LogValidator::next_buffer();
        // 48 zeros at a time are skipped: the size of a buffer's header.
        assert!(validator.accepts(&vec![0; (1 << 20) + 32]));
        assert!(validator.accepts(&[0; 47]));
        assert!(!validator.accepts(&[0]));
    }
}
