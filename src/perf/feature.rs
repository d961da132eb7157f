//! Feature sections: what `perf record` noted beside the records.
//!
//! They are carried over byte for byte, but for the two that speak of what a rewrite changes: the table of
//! build-ids, which gains entries ([`super::synthesis`]), and the index of AUX data, which holds offsets in
//! the file.

use crate::bytes::{ByteOrder, Reader, until_nul};

/// `HEADER_BUILD_ID`: the build-ids of mapped files.
pub const BUILD_ID: u8 = 2;
/// `HEADER_ARCH`: what `uname -m` says.
pub const ARCH: u8 = 6;
/// `HEADER_AUXTRACE`: where AUX data lie in the file.
pub const AUXTRACE: u8 = 18;
/// `HEADER_DIR_FORMAT`: the profile is a folder.
pub const DIR_FORMAT: u8 = 24;
/// `HEADER_CLOCK_DATA`: a moment on the profile's clock and on the wall clock.
pub const CLOCK_DATA: u8 = 29;

/// One feature section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feature<'a> {
    /// Which one: its bit in the header's set.
    pub id: u8,
    /// Its bytes.
    pub content: &'a [u8],
}

/// The string of a feature that is one string, such as [`ARCH`].
pub fn string(content: &[u8], order: ByteOrder) -> Option<&[u8]> {
    let mut reader = Reader::new(content, order);
    let size = reader.u32()?;
    Some(until_nul(reader.bytes(size.into())?))
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

/// An [`AUXTRACE`] section in which each offset in the file is replaced by `moved(offset)`. The layout is
/// that of `auxtrace_index__write` in perf: a count, then pairs of offset and size.
pub fn move_auxtrace_index(content: &[u8], order: ByteOrder, moved: impl Fn(u64) -> u64) -> Option<Vec<u8>> {
    let mut reader = Reader::new(content, order);
    let count = reader.u64()?;
    let mut out = Vec::with_capacity(content.len());
    order.put_u64(&mut out, count);
    while let Some(offset) = reader.u64() {
        order.put_u64(&mut out, moved(offset));
        order.put_u64(&mut out, reader.u64()?);
    }
    out.extend_from_slice(reader.rest());
    Some(out)
}
