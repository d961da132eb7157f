//! Logs that are packed as a whole, as the profiler's option `zip` writes them: one gzip stream.
//!
//! Unpacking stops where what comes out is no log any more, and at a limit: a few bytes of gzip can stand for a
//! thousand times as many.

use std::io::{self, Read as _, Write};

use flate2::bufread::GzDecoder;

use crate::runtime::mono::header::{self, Error, Header};
use crate::runtime::mono::log::{BUFFER_HEADER, BUFFER_ID, Fault};
use crate::tally::Tally;

/// The first two bytes of gzip, and the third, which says that deflate follows.
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];

/// How many bytes are unpacked at a time.
const PIECE: usize = 64 << 10;

/// How many bytes a header has at most: what is longer than any command line is none.
const MAX_HEADER: usize = 1 << 20;

/// How many bytes a buffer has at most: one large event makes one larger than 64 KiB, and no object has so many
/// references.
const MAX_BUFFER: usize = 1 << 30;

/// How many bytes that are no buffer are taken before it is no log: more than a few damaged buffers have.
const MAX_JUNK: usize = 1 << 20;

/// How many times the size of their file logs have at most. Real ones have 4 to 20 times; deflate can't do more than
/// 1,032 times, which is for bytes that are all the same.
const MAX_RATIO: u64 = 200;

/// What may come out of any file, however small: little enough to be nobody's harm.
const HARMLESS: u64 = 64 << 20;

/// Whether a file is a log, by its first bytes; of a packed one, some hundred are needed.
pub fn is_log(start: &[u8]) -> bool {
    let mut first = [0; 4];
    header::is_log(start)
        || is_packed(start) && GzDecoder::new(start).read_exact(&mut first).is_ok() && header::is_log(&first)
}

/// Whether a file is packed, by its first bytes.
pub fn is_packed(start: &[u8]) -> bool {
    start.starts_with(&GZIP)
}

/// How much may come out of a packed file of `size` bytes, if it is a log.
pub fn largest(size: u64) -> u64 {
    size.saturating_mul(MAX_RATIO).max(HARMLESS)
}

/// What came out of a packed file.
#[derive(Clone, Debug)]
pub struct Unpacked {
    /// How many bytes.
    pub size: u64,
    /// What was wrong, with the offset in what came out.
    pub faults: Tally<Fault>,
}

/// Unpacks a file into `out`, `limit` bytes at most; see [`largest`]. Of a damaged or cut one, all that can be
/// unpacked comes out. Errors are those of `out`.
pub fn unpack(packed: &[u8], limit: u64, out: &mut impl Write) -> io::Result<Unpacked> {
    let mut decoder = GzDecoder::new(packed);
    let mut piece = vec![0; PIECE];
    let mut shape = Shape::default();
    let mut unpacked = Unpacked {
        size: 0,
        faults: Tally::default(),
    };
    loop {
        let read = decoder.read(&mut piece);
        let offset = unpacked.size;
        let fault = match read {
            Ok(0) if decoder.get_ref().is_empty() => return Ok(unpacked),
            Ok(0) => Fault::BehindPacking,
            Ok(read) => {
                let bytes = piece.get(..read).unwrap_or_default();
                let room = usize::try_from(limit.saturating_sub(offset)).unwrap_or(usize::MAX);
                let bytes = bytes.get(..room).unwrap_or(bytes);
                out.write_all(bytes)?;
                unpacked.size = offset.saturating_add(bytes.len() as u64);
                if !shape.goes_on(bytes) {
                    Fault::UnpackedJunk
                } else if bytes.len() < read {
                    Fault::TooMuch
                } else {
                    continue;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Fault::CutPacking,
            Err(_) => Fault::BadPacking,
        };
        unpacked.faults.add(fault, unpacked.size);
        return Ok(unpacked);
    }
}

/// What should come next in a log.
#[derive(Debug)]
enum Expected {
    /// The header, of which this is there already.
    Header(Vec<u8>),
    /// A buffer's header, of which this is there already; before it there were so many bytes that were none.
    Buffer { start: Vec<u8>, junk: usize },
    /// So many bytes of events.
    Events(usize),
}

/// Sees whether bytes that come in pieces have the shape of a log.
#[derive(Debug)]
struct Shape {
    expected: Expected,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            expected: Expected::Header(Vec::new()),
        }
    }
}

impl Shape {
    /// Whether what was given so far may be a log's beginning.
    fn goes_on(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let next = match &mut self.expected {
                Expected::Header(start) => {
                    let before = start.len();
                    start.extend_from_slice(bytes);
                    match Header::parse(start) {
                        Ok(header) => {
                            bytes = bytes
                                .get(header.size.saturating_sub(before)..)
                                .unwrap_or_default();
                            buffer_after(0)
                        }
                        Err(Error::TooShort(_)) if start.len() < MAX_HEADER => return true,
                        Err(_) => return false,
                    }
                }
                Expected::Buffer { start, junk } => {
                    let missing = BUFFER_HEADER.saturating_sub(start.len()).min(bytes.len());
                    let (taken, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, b""));
                    start.extend_from_slice(taken);
                    bytes = rest;
                    if start.len() < BUFFER_HEADER {
                        return true;
                    }
                    match events_of(start) {
                        Some(size) => Expected::Events(size),
                        None if *junk > MAX_JUNK => return false,
                        None => {
                            let passed = pass_junk(start);
                            *junk = junk.saturating_add(passed);
                            continue;
                        }
                    }
                }
                Expected::Events(size) => {
                    let passed = bytes.len().min(*size);
                    *size = size.saturating_sub(passed);
                    bytes = bytes.get(passed..).unwrap_or_default();
                    if *size > 0 {
                        return true;
                    }
                    buffer_after(0)
                }
            };
            self.expected = next;
        }
        true
    }
}

fn buffer_after(junk: usize) -> Expected {
    let start = Vec::new();
    Expected::Buffer { start, junk }
}

/// How many bytes of events follow a buffer's header; `None` if it is none.
fn events_of(header: &[u8]) -> Option<usize> {
    let (size, _) = header.strip_prefix(&BUFFER_ID)?.split_first_chunk()?;
    let size = usize::try_from(u32::from_le_bytes(*size)).ok()?;
    (size <= MAX_BUFFER).then_some(size)
}

/// Takes away bytes up to where a buffer's header may start, and tells how many.
fn pass_junk(start: &mut Vec<u8>) -> usize {
    let [first, ..] = BUFFER_ID;
    let behind = start.get(1..).unwrap_or_default();
    let found = memchr::memchr(first, behind).unwrap_or(behind.len());
    let passed = found.saturating_add(1);
    start.drain(..passed.min(start.len()));
    passed
}
