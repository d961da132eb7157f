//! Feature sections: what `perf record` noted beside the records.
//!
//! They are carried over byte for byte, but for those that speak of what a rewrite changes: the table of
//! build-ids, which gains entries ([`super::synthesis`]), the index of AUX data, which holds offsets in the
//! file, and the two that say that records are compressed or lie in several files.

use std::borrow::Cow;

use linux_perf_event_reader::constants::PERF_RECORD_MISC_BUILD_ID_SIZE;

use crate::bytes::{ByteOrder, Reader, until_nul};
use crate::perf::record::Records;

/// `HEADER_TRACING_DATA`: the formats of tracepoints.
pub const TRACING_DATA: u8 = 1;
/// `HEADER_BUILD_ID`: the build-ids of mapped files.
pub const BUILD_ID: u8 = 2;
/// `HEADER_HOSTNAME`: what `uname -n` says.
pub const HOSTNAME: u8 = 3;
/// `HEADER_OSRELEASE`: what `uname -r` says.
pub const OS_RELEASE: u8 = 4;
/// `HEADER_VERSION`: of the program that recorded.
pub const VERSION: u8 = 5;
/// `HEADER_ARCH`: what `uname -m` says.
pub const ARCH: u8 = 6;
/// `HEADER_CMDLINE`: of the program that recorded.
pub const COMMAND_LINE: u8 = 11;
/// `HEADER_EVENT_DESC`: names and ids of the events.
pub const EVENT_DESC: u8 = 12;
/// `HEADER_BRANCH_STACK`: samples have their last branches.
pub const BRANCH_STACK: u8 = 15;
/// `HEADER_AUXTRACE`: where AUX data lie in the file.
pub const AUXTRACE: u8 = 18;
/// `HEADER_STAT`: the profile is one of `perf stat record`.
pub const STAT: u8 = 19;
/// `HEADER_CACHE`: the processor's caches.
pub const CACHE: u8 = 20;
/// `HEADER_SAMPLE_TIME`: when the first and the last sample were taken.
pub const SAMPLE_TIME: u8 = 21;
/// `HEADER_CLOCKID`: how fine the clock is that `use_clockid` chose, in nanoseconds.
pub const CLOCK_ID: u8 = 23;
/// `HEADER_DIR_FORMAT`: the profile is a folder with several files of records.
pub const DIR_FORMAT: u8 = 24;
/// `HEADER_COMPRESSED`: how records are compressed.
pub const COMPRESSED: u8 = 27;
/// `HEADER_CLOCK_DATA`: a moment on the profile's clock and on the wall clock.
pub const CLOCK_DATA: u8 = 29;
/// `HEADER_HYBRID_TOPOLOGY`: processors of different kinds.
pub const HYBRID_TOPOLOGY: u8 = 30;

/// One feature section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature<'a> {
    /// Which one: its bit in the header's set.
    pub id: u8,
    /// Its bytes.
    pub content: Cow<'a, [u8]>,
}

/// The string of a feature that is one string, such as [`ARCH`].
pub fn string(content: &[u8], order: ByteOrder) -> Option<&[u8]> {
    let mut reader = Reader::new(content, order);
    let size = reader.u32()?;
    Some(until_nul(reader.bytes(size.into())?))
}

/// Appends a string as features have them: its size with the NULs that fill it up, and itself.
pub fn put_string(out: &mut Vec<u8>, order: ByteOrder, string: &[u8]) {
    /// `NAME_ALIGN` in perf.
    const ALIGN: usize = 64;
    let size = string.len().saturating_add(1).next_multiple_of(ALIGN);
    order.put_u32(out, u32::try_from(size).unwrap_or(u32::MAX));
    let end = out.len().saturating_add(size);
    out.extend_from_slice(string);
    out.resize(end, 0);
}

/// What a [`BUILD_ID`] section says of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileBuildId<'a> {
    /// The file's path.
    pub name: &'a [u8],
    /// Its build-id.
    pub build_id: &'a [u8],
}

/// Walks a [`BUILD_ID`] section, as perf's `write_buildid` writes it.
pub fn build_ids(content: &[u8], order: ByteOrder) -> impl Iterator<Item = FileBuildId<'_>> {
    /// What perf writes if it does not write the size: that of SHA-1.
    const USUAL: u8 = 20;
    Records::new(content, 0, order).filter_map(move |record| {
        let mut body = record.body(order);
        let _pid = body.u32()?;
        let field = body.bytes(24)?;
        let size = match record.misc & PERF_RECORD_MISC_BUILD_ID_SIZE {
            0 => USUAL,
            _ => *field.get(usize::from(USUAL))?,
        };
        Some(FileBuildId {
            name: until_nul(body.rest()),
            build_id: field.get(..size.into())?,
        })
    })
}

/// One moment on two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockData {
    /// Nanoseconds of CLOCK_REALTIME.
    pub wall_clock: u64,
    /// Nanoseconds of the profile's clock.
    pub profile_clock: u64,
}

impl ClockData {
    /// Reads a [`CLOCK_DATA`] section.
    pub fn parse(content: &[u8], order: ByteOrder) -> Option<Self> {
        let mut reader = Reader::new(content, order);
        let _version = reader.u32()?;
        let _clock_id = reader.u32()?;
        Some(Self {
            wall_clock: reader.u64()?,
            profile_clock: reader.u64()?,
        })
    }
}

/// The content of an [`AUXTRACE`] section: where each record with AUX data starts in the file, and how long it
/// is without the data. The layout is that of `auxtrace_index__write` in perf.
pub fn auxtrace_index(order: ByteOrder, places: &[(u64, u64)]) -> Vec<u8> {
    let mut content = Vec::new();
    order.put_u64(&mut content, places.len() as u64);
    for &(offset, size) in places {
        order.put_u64(&mut content, offset);
        order.put_u64(&mut content, size);
    }
    content
}
