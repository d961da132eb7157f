//! Parses the header of a log.

use jitdump::ByteOrder;

use crate::bytes::{Reader, hex};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::detect::MONO_MAGIC;

/// Newest data version, used by Mono 6.8 and all later trees.
pub const NEWEST: u8 = 17;

/// Data version from which two bytes of the header are known to be a port.
const WITH_PORT: u8 = 8;

/// The header of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogHeader<'a> {
    /// Major version of the profiler, which determines the layout of the header.
    pub major: u8,
    /// Minor version of the profiler.
    pub minor: u8,
    /// Version of the data after the header, 1 to [`NEWEST`].
    pub data_version: u8,
    /// Size of a pointer of the program in bytes, 4 or 8.
    pub pointer_size: u8,
    /// Start time of the program in milliseconds since the Unix epoch; 0 in logs of the profiler of 2010.
    pub startup_ms: u64,
    /// Start time on the clock of the events, in nanoseconds; from profiler version 3.0 on.
    pub startup_ns: Option<u64>,
    /// Approximate time to read the clock, in nanoseconds.
    pub timer_overhead: u32,
    /// Process ID in the PID namespace of the process; 0 in logs of the profiler of 2010.
    pub pid: u32,
    /// Port on which the profiler accepts commands; from profiler version 1.0 or data version 8 on.
    pub port: Option<u16>,
    /// Options of the profiler; empty before profiler version 1.0, like the next two fields.
    pub arguments: &'a [u8],
    /// Machine architecture, such as `x86-64`.
    pub architecture: &'a [u8],
    /// Operating system, such as `linux`.
    pub system: &'a [u8],
    /// Size of the header, in bytes.
    pub size: usize,
}

impl<'a> LogHeader<'a> {
    /// Parses the header at the start of a file.
    pub fn parse(file: &'a [u8]) -> Result<Self, Diagnostic> {
        let mut reader = Reader::new(file, ByteOrder::Little);
        if file.is_empty() {
            return Err(Diagnostic::new(Issue::MonoEmpty));
        }
        if let Some(first) = file.first_chunk()
            && *first != MONO_MAGIC
        {
            return Err(Diagnostic::new(Issue::NotAMonoLog).with("magic", hex(first)));
        }
        let too_short = || Diagnostic::new(Issue::MonoTooShort).with("size", file.len());
        let header = Self::fields(&mut reader).ok_or_else(too_short)??;
        let size = file.len().saturating_sub(reader.rest().len());
        Ok(Self { size, ..header })
    }

    /// Returns `None` if the file ends inside the header.
    fn fields(reader: &mut Reader<'a>) -> Option<Result<Self, Diagnostic>> {
        reader.skip(4)?;
        let (major, minor) = (reader.u8()?, reader.u8()?);
        let (data_version, pointer_size) = (reader.u8()?, reader.u8()?);
        // The rest may have another layout.
        if !(1..=NEWEST).contains(&data_version) {
            let unknown = Diagnostic::new(Issue::MonoDataVersion).with("version", data_version);
            return Some(Err(unknown.with("newest", NEWEST)));
        }
        if pointer_size != 4 && pointer_size != 8 {
            return Some(Err(
                Diagnostic::new(Issue::MonoPointerSize).with("size", pointer_size)
            ));
        }
        let startup_ms = reader.u64()?;
        let startup_ns = match major {
            3.. => Some(reader.u64()?),
            _ => None,
        };
        let timer_overhead = reader.u32()?;
        let flags = reader.u32()?;
        if flags != 0 {
            return Some(Err(
                Diagnostic::new(Issue::MonoFlags).with("flags", format_args!("{flags:#x}"))
            ));
        }
        let mut header = Self {
            major,
            minor,
            data_version,
            pointer_size,
            startup_ms,
            startup_ns,
            timer_overhead,
            pid: reader.u32()?,
            port: None,
            arguments: b"",
            architecture: b"",
            system: b"",
            size: 0,
        };
        let port = reader.u16()?;
        header.port = (major >= 1 || data_version >= WITH_PORT).then_some(port);
        if major >= 1 {
            header.arguments = string(reader)?;
            header.architecture = string(reader)?;
            header.system = string(reader)?;
        } else {
            // An ID of machine and system; without a port, it has four bytes.
            reader.skip(2)?;
        }
        Some(Ok(header))
    }
}

/// Reads a size and a string of so many bytes, including the NUL.
fn string<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let size = reader.u32()?;
    let bytes = reader.bytes(size.into())?;
    Some(crate::bytes::until_nul(bytes))
}
