//! A buffer of an XRay trace: where it is, whose it is, and when it starts.

use jitdump::RuntimeTime;

use crate::traces::xray::format::fdr;

/// A buffer: consecutive records of one thread. In basic mode, a run of records of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceBuffer {
    /// Process ID in the PID namespace of the process; `None` if the trace does not have it, as before
    /// version 3.
    pub process: Option<i32>,
    /// Thread ID.
    pub thread: i32,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Start time in nanoseconds of CLOCK_MONOTONIC, with microsecond resolution in the file. `None` in basic
    /// mode and if the file has no valid time.
    pub wall: Option<RuntimeTime>,
    /// First tick. In basic mode, the tick of the first function record.
    pub tick: u64,
    /// Start and end of its records in the file, in bytes. The record that starts a buffer is not among them.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Whether the file ends inside the buffer.
    pub(super) is_cut: bool,
}

impl TraceBuffer {
    /// Returns the range of the file that holds the records, in bytes.
    pub fn content(&self) -> std::ops::Range<u64> {
        self.start..self.end
    }

    /// Returns the size of the buffer without its extents record, in bytes. Only for flight data recorder
    /// mode.
    pub fn records_size(&self) -> u64 {
        let new_buffer_record = fdr::METADATA_SIZE as u64;
        self.end
            .saturating_sub(self.start)
            .saturating_add(new_buffer_record)
    }

    /// Returns the start of the buffer on both clocks; `None` if the buffer has no wall time.
    pub fn anchor(&self) -> Option<Anchor> {
        let wall = self.wall?;
        let tick = self.tick;
        Some(Anchor { wall, tick })
    }
}

/// A point in time on the wall clock and in ticks. The runtime reads the tick first. So the wall time is
/// early by less than a microsecond at most, but may be late if the thread was interrupted between the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Anchor {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub wall: RuntimeTime,
    /// Time in ticks.
    pub tick: u64,
}
