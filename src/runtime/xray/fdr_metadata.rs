//! Records of the flight data recorder that tell nothing by themselves: of which thread a buffer is, from where on ticks
//! are counted. What reads records for what happened takes them into account, and passes over them.

use crate::bytes::{ByteOrder, Reader};
use crate::runtime::xray::fdr::{self, FUNCTION, METADATA};

/// One of these records, or what is there of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FdrMetadata {
    /// A buffer starts.
    NewBuffer {
        /// Of which thread.
        thread: i32,
    },
    /// What follows in the buffer means nothing; in version 1.
    EndOfBuffer,
    /// From here on, the thread runs on another processor.
    NewCpu {
        /// On which.
        cpu: u16,
        /// What ticks are counted from.
        tick: u64,
    },
    /// Ticks are counted from here on.
    TickWrap {
        /// From this one.
        tick: u64,
    },
    /// When the buffer was begun.
    WallTime {
        /// CLOCK_MONOTONIC.
        seconds: u64,
        /// And so many more.
        microseconds: u32,
    },
    /// How many bytes follow that are a buffer.
    BufferExtents {
        /// So many.
        size: u64,
    },
    /// The process.
    Pid(i32),
    /// An event with more bytes behind it than there are, or less than none.
    CutEvent {
        /// How many bytes it should have.
        size: i32,
        /// Whether it has a type.
        is_typed: bool,
    },
    /// An argument of the entry before.
    Argument(u64),
    /// A record of a function that was neither entered nor left.
    Function {
        /// What may have happened to it.
        action: u32,
        /// Which function.
        function: u32,
        /// How many ticks after the record before.
        delta: u32,
    },
    /// Another number.
    Unknown(u8),
}

impl FdrMetadata {
    /// Reads the record that starts here, and tells how many bytes it has; `None` where there are fewer.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Option<(Self, usize)> {
        let Some(kind) = fdr::metadata_kind(*bytes.first()?, order) else {
            let (action, function, delta) = fdr::function_fields(*bytes.first_chunk()?, order);
            let record = Self::Function {
                action,
                function,
                delta,
            };
            return Some((record, FUNCTION));
        };
        let mut body = Reader::new(bytes.get(1..METADATA)?, order);
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
        Some((record, METADATA))
    }
}
