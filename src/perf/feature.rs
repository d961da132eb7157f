//! Feature sections: metadata that `perf record` stores along with the records.
//!
//! They are copied byte for byte, except those affected by a rewrite: the build ID table, which gains entries
//! ([`crate::traces::conversion::synthesis`]), the index of AUX data, which has offsets in the file, and the sections for
//! compressed records and for records in several files.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jitdump::{ByteOrder, Time};
use linux_perf_event_reader::constants::PERF_RECORD_MISC_BUILD_ID_SIZE;

use crate::bytes::{Reader, until_nul};
use crate::perf::record::Records;

/// `HEADER_TRACING_DATA`: formats of tracepoints.
pub const TRACING_DATA: u8 = 1;
/// `HEADER_BUILD_ID`: build IDs of mapped files.
pub const BUILD_ID: u8 = 2;
/// `HEADER_HOSTNAME`: output of `uname -n`.
pub const HOSTNAME: u8 = 3;
/// `HEADER_OSRELEASE`: output of `uname -r`.
pub const OS_RELEASE: u8 = 4;
/// `HEADER_VERSION`: version of the recording program.
pub const VERSION: u8 = 5;
/// `HEADER_ARCH`: output of `uname -m`.
pub const ARCH: u8 = 6;
/// `HEADER_NRCPUS`: number of CPUs available and online.
pub const NR_CPUS: u8 = 7;
/// `HEADER_CMDLINE`: command line of the recording program.
pub const COMMAND_LINE: u8 = 11;
/// `HEADER_EVENT_DESC`: names and IDs of the events.
pub const EVENT_DESC: u8 = 12;
/// `HEADER_BRANCH_STACK`: samples have branch stacks.
pub const BRANCH_STACK: u8 = 15;
/// `HEADER_AUXTRACE`: offsets of AUX data in the file.
pub const AUXTRACE: u8 = 18;
/// `HEADER_STAT`: the profile was written by `perf stat record`.
pub const STAT: u8 = 19;
/// `HEADER_CACHE`: CPU caches.
pub const CACHE: u8 = 20;
/// `HEADER_SAMPLE_TIME`: times of the first and the last sample.
pub const SAMPLE_TIME: u8 = 21;
/// `HEADER_CLOCKID`: resolution of the clock selected with `use_clockid`, in nanoseconds.
pub const CLOCK_ID: u8 = 23;
/// `HEADER_DIR_FORMAT`: the profile is a directory with several files of records.
pub const DIR_FORMAT: u8 = 24;
/// `HEADER_COMPRESSED`: how records are compressed.
pub const COMPRESSED: u8 = 27;
/// `HEADER_CLOCK_DATA`: a time on the profile's clock and on the wall clock.
pub const CLOCK_DATA: u8 = 29;
/// `HEADER_HYBRID_TOPOLOGY`: CPUs of different types.
pub const HYBRID_TOPOLOGY: u8 = 30;

/// A feature section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature<'a> {
    /// Bit number of the feature in the header's bit set.
    pub id: u8,
    /// Content of the section.
    pub content: Cow<'a, [u8]>,
}

impl<'a> Feature<'a> {
    /// Creates a section from its content.
    pub fn new(id: u8, content: impl Into<Cow<'a, [u8]>>) -> Self {
        Self {
            id,
            content: content.into(),
        }
    }
}

/// Reads a feature that is a single string, such as [`ARCH`].
pub fn read_string(content: &[u8], endian: ByteOrder) -> Option<&[u8]> {
    next_string(&mut Reader::new(content, endian))
}

/// Reads a [`COMMAND_LINE`] section: the arguments of the recording program.
pub fn command_line(content: &[u8], endian: ByteOrder) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(content, endian);
    let count = reader.u32().unwrap_or(0);
    (0..count).map_while(move |_| next_string(&mut reader))
}

/// Reads the names in an [`EVENT_DESC`] section, in the order of the attributes.
pub fn event_names(content: &[u8], endian: ByteOrder) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(content, endian);
    let count = reader.u32().unwrap_or(0);
    let attr_size = reader.u32().unwrap_or(0);
    (0..count).map_while(move |_| {
        reader.skip(attr_size.into())?;
        let ids = u64::from(reader.u32()?);
        let name = next_string(&mut reader)?;
        reader.skip(ids.checked_mul(8)?)?;
        Some(name)
    })
}

/// Reads a [`NR_CPUS`] section: the number of CPUs that were online.
pub fn online_cpus(content: &[u8], endian: ByteOrder) -> Option<u32> {
    let mut reader = Reader::new(content, endian);
    let _available = reader.u32()?;
    reader.u32()
}

fn next_string<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let size = reader.u32()?;
    Some(until_nul(reader.bytes(size.into())?))
}

/// Appends a string as feature sections store it: the padded size, the string, NUL padding.
pub fn write_string(out: &mut Vec<u8>, endian: ByteOrder, string: &[u8]) {
    /// `NAME_ALIGN` in perf.
    const ALIGN: usize = 64;
    let size = string.len().saturating_add(1).next_multiple_of(ALIGN);
    endian.write_u32(out, u32::try_from(size).unwrap_or(u32::MAX));
    let end = out.len().saturating_add(size);
    out.extend_from_slice(string);
    out.resize(end, 0);
}

/// An entry of a [`BUILD_ID`] section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuildIdEntry<'a> {
    /// Path of the file.
    pub name: &'a [u8],
    /// Build ID of the file.
    pub build_id: &'a [u8],
}

/// Iterates over a [`BUILD_ID`] section, as written by perf's `write_buildid`.
pub fn build_ids(content: &[u8], endian: ByteOrder) -> impl Iterator<Item = BuildIdEntry<'_>> {
    /// Size of the build ID if perf did not write one: that of SHA-1.
    const SHA1_SIZE: u8 = 20;
    Records::new(content, 0, endian).filter_map(move |record| {
        let mut body = record.body(endian);
        let _pid = body.u32()?;
        let field = body.bytes(24)?;
        let size = match record.misc & PERF_RECORD_MISC_BUILD_ID_SIZE {
            0 => SHA1_SIZE,
            _ => *field.get(usize::from(SHA1_SIZE))?,
        };
        Some(BuildIdEntry {
            name: until_nul(body.rest()),
            build_id: field.get(..size.into())?,
        })
    })
}

/// One point in time on two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockData {
    /// Nanoseconds of CLOCK_REALTIME.
    pub wall_clock: u64,
    /// Nanoseconds of the profile's clock.
    pub profile_clock: u64,
}

impl ClockData {
    /// Reads a [`CLOCK_DATA`] section.
    pub fn parse(content: &[u8], endian: ByteOrder) -> Option<Self> {
        let mut reader = Reader::new(content, endian);
        let _version = reader.u32()?;
        let _clock_id = reader.u32()?;
        Some(Self {
            wall_clock: reader.u64()?,
            profile_clock: reader.u64()?,
        })
    }

    /// Returns the wall clock time at a time of the profile.
    pub fn wall_clock_at(self, time: Time) -> Option<SystemTime> {
        let earlier = self.profile_clock.saturating_sub(time.0);
        let later = time.0.saturating_sub(self.profile_clock);
        let wall_clock = self.wall_clock.checked_add(later)?.checked_sub(earlier)?;
        UNIX_EPOCH.checked_add(Duration::from_nanos(wall_clock))
    }
}

/// Returns the content of an [`AUXTRACE`] section: for each record with AUX data, its offset in the file and
/// its size in bytes without the data. The layout is that of `auxtrace_index__write` in perf.
pub fn auxtrace_index(endian: ByteOrder, entries: &[(u64, u64)]) -> Vec<u8> {
    let mut content = Vec::new();
    endian.write_u64(&mut content, entries.len() as u64);
    for &(offset, size) in entries {
        endian.write_u64(&mut content, offset);
        endian.write_u64(&mut content, size);
    }
    content
}
