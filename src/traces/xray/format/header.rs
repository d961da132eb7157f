//! Parses the header of an XRay trace.

use jitdump::ByteOrder;

use crate::bytes::{Reader, hex};
use crate::results::diagnostics::{Diagnostic, Issue};

/// Size of the header in bytes, the same in all versions.
pub const SIZE: usize = 32;

/// Newest version of flight data recorder mode, from LLVM 14 and all later releases.
pub const NEWEST_FDR: u16 = 5;

/// Newest version of basic mode.
pub const NEWEST_BASIC: u16 = 3;

/// Recording mode of a trace, which selects the format after the header (`type` in the file).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceMode {
    /// Type 0, `xray-basic`: independent records of a fixed size.
    Basic,
    /// Type 1, `xray-fdr`, the flight data recorder: buffers of threads.
    Fdr,
}

impl TraceMode {
    /// Returns the newest known version of the mode.
    fn newest(self) -> u16 {
        match self {
            Self::Basic => NEWEST_BASIC,
            Self::Fdr => NEWEST_FDR,
        }
    }
}

/// The header of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceHeader {
    /// Endianness of the traced program's machine and of the file.
    pub endian: ByteOrder,
    /// Version of the format, from 1 to [`NEWEST_FDR`] or [`NEWEST_BASIC`].
    pub version: u16,
    /// Recording mode.
    pub mode: TraceMode,
    /// Whether ticks have a constant length at all processor frequencies.
    pub constant_tsc: bool,
    /// Whether ticks continue while the processor sleeps.
    pub nonstop_tsc: bool,
    /// Ticks per second; 0 if unknown. If ticks are times of CLOCK_REALTIME, this is 1,000,000,000; the
    /// runtime uses that clock if the kernel does not report the processor's frequency.
    ///
    /// If ticks are processor ticks, this is the maximum processor frequency, which need not be the frequency
    /// of the ticks.
    pub frequency: u64,
    /// Size of a thread's buffer in the program's memory, in bytes; in version 1 also its size in the file.
    /// `None` in basic mode, whose files have arbitrary bytes here.
    pub buffer_size: Option<u64>,
}

impl TraceHeader {
    /// Parses the header at the start of a file.
    pub fn parse(file: &[u8]) -> Result<Self, Diagnostic> {
        if file.is_empty() {
            return Err(Diagnostic::new(Issue::XrayEmpty));
        }
        let too_short = || Diagnostic::new(Issue::XrayTooShort).with("size", file.len());
        let first: [u8; 4] = *file.first_chunk().ok_or_else(too_short)?;
        let Some(VersionAndType {
            endian,
            version,
            kind,
        }) = version_and_type(first)
        else {
            return Err(Diagnostic::new(Issue::NotAnXrayTrace).with("magic", hex(&first)));
        };
        let unknown = |issue| Diagnostic::new(issue).with("version", version).with("kind", kind);
        let mode = match kind {
            0 => TraceMode::Basic,
            1 => TraceMode::Fdr,
            _ => return Err(unknown(Issue::XrayType)),
        };
        let newest = mode.newest();
        if !(1..=newest).contains(&version) {
            return Err(unknown(Issue::XrayVersion).with("newest", newest));
        }
        Self::fields(file, endian, version, mode).ok_or_else(too_short)
    }

    /// Returns `None` if the file ends inside the header.
    fn fields(file: &[u8], endian: ByteOrder, version: u16, mode: TraceMode) -> Option<Self> {
        let mut reader = Reader::new(file, endian);
        reader.skip(4)?;
        // Quirk: basic mode initializes neither the other 30 bits nor anything after the frequency (LLVM 19;
        // the recording `xray-basic19`).
        let bits = reader.u32()?;
        // They are the first bits, which are at the other end on big-endian machines.
        let bits = match endian {
            ByteOrder::Little => bits,
            ByteOrder::Big => bits.reverse_bits(),
        };
        let frequency = reader.u64()?;
        let buffer_size = reader.u64()?;
        reader.skip(8)?;
        Some(Self {
            endian,
            version,
            mode,
            constant_tsc: bits & 1 != 0,
            nonstop_tsc: bits & 2 != 0,
            frequency,
            buffer_size: (mode == TraceMode::Fdr).then_some(buffer_size),
        })
    }
}

/// The first bytes of a file.
struct VersionAndType {
    endian: ByteOrder,
    version: u16,
    kind: u16,
}

/// Reads the first bytes of a file. The endianness is the one in which both numbers are small; `None` if there is none.
fn version_and_type(first: [u8; 4]) -> Option<VersionAndType> {
    /// Upper bound for versions and types, now and in the future.
    const SMALL: u16 = 100;
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find_map(|endian| {
            let mut reader = Reader::new(&first, endian);
            let (version, kind) = (reader.u16()?, reader.u16()?);
            let is_small = (1..SMALL).contains(&version) && kind < SMALL;
            is_small.then_some(VersionAndType {
                endian,
                version,
                kind,
            })
        })
}

/// Returns whether a file starts with a small version and type, as a trace does. Many other files do so as
/// well.
pub fn has_plausible_version(start: &[u8]) -> bool {
    start.first_chunk().copied().and_then(version_and_type).is_some()
}
