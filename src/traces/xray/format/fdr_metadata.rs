//! Decodes metadata records of XRay's flight data recorder (FDR) mode, such as the thread of a buffer or the
//! base of ticks. The readers of events use these records, but do not return them.

use jitdump::ByteOrder;

use crate::bytes::Reader;
use crate::traces::xray::format::fdr;
use crate::traces::xray::format::fdr::{FUNCTION_SIZE, FunctionFields, METADATA_SIZE};

/// A metadata record, or another record that could not be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FdrMetadata {
    /// Start of a buffer.
    NewBuffer {
        /// Thread ID.
        thread: i32,
    },
    /// End of the used bytes of a buffer; version 1 only.
    EndOfBuffer,
    /// The thread continues on another processor.
    NewCpu {
        /// Processor ID.
        cpu: u16,
        /// Base of the ticks that follow.
        tick: u64,
    },
    /// New base of the ticks that follow.
    TickWrap {
        /// Base of the ticks.
        tick: u64,
    },
    /// Start time of the buffer.
    WallTime {
        /// Seconds of CLOCK_MONOTONIC.
        seconds: u64,
        /// Microseconds within the second.
        microseconds: u32,
    },
    /// Size of the buffer that follows.
    BufferExtents {
        /// Size in bytes.
        size: u64,
    },
    /// Process ID.
    Pid(i32),
    /// Event whose payload exceeds the buffer, or has a negative size.
    CutEvent {
        /// Size of the payload in bytes, according to the record.
        size: i32,
        /// Whether it is a typed event.
        is_typed: bool,
    },
    /// Argument of the previous function entry.
    Argument(u64),
    /// Function record whose action is neither an entry nor an exit.
    Function(FunctionFields),
    /// Metadata record of this unknown kind.
    Unknown(u8),
}

impl FdrMetadata {
    /// Decodes the record at the start of `bytes` and returns its size in bytes; `None` if it is incomplete.
    pub fn parse(bytes: &[u8], endian: ByteOrder) -> Option<(Self, usize)> {
        let Some(kind) = fdr::metadata_kind(*bytes.first()?, endian) else {
            let fields = FunctionFields::of(*bytes.first_chunk()?, endian);
            return Some((Self::Function(fields), FUNCTION_SIZE));
        };
        let mut body = Reader::new(bytes.get(1..METADATA_SIZE)?, endian);
        let record = match kind {
            fdr::NEW_BUFFER => Self::NewBuffer {
                thread: body.u32()?.cast_signed(),
            },
            fdr::END_OF_BUFFER => Self::EndOfBuffer,
            fdr::NEW_CPU_ID => Self::NewCpu {
                cpu: body.u16()?,
                tick: body.u64()?,
            },
            fdr::TSC_WRAP => Self::TickWrap { tick: body.u64()? },
            fdr::WALL_TIME => Self::WallTime {
                seconds: body.u64()?,
                microseconds: body.u32()?,
            },
            fdr::CUSTOM_EVENT | fdr::TYPED_EVENT => Self::CutEvent {
                size: body.u32()?.cast_signed(),
                is_typed: kind == fdr::TYPED_EVENT,
            },
            fdr::CALL_ARGUMENT => Self::Argument(body.u64()?),
            fdr::BUFFER_EXTENTS => Self::BufferExtents { size: body.u64()? },
            fdr::PID => Self::Pid(body.u32()?.cast_signed()),
            other => Self::Unknown(other),
        };
        Some((record, METADATA_SIZE))
    }
}
