//! Index of an XRay trace: the buffers of each thread, which are needed before the trace can be replayed.

use jitdump::{RuntimeTime, Tally};

use crate::results::diagnostics::Issue;
use crate::traces::xray::format::header::Mode;
use crate::traces::xray::format::trace::Trace;
use crate::traces::xray::format::{Segment, fdr};

/// Maximum number of buffers in the index, which limits its memory to about a gigabyte. With the default
/// buffer size of 16 KiB, that is a trace of 256 GiB.
pub(super) const MAX_BUFFERS: usize = 1 << 24;

/// A buffer: consecutive records of one thread. In basic mode, a run of records of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
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
    /// Start and end of its records in the file, in bytes.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Whether the file ends inside the buffer.
    pub(super) is_cut: bool,
}

impl Buffer {
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

/// The buffers of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread<'i> {
    /// Process ID, as in [`Buffer`].
    pub process: Option<i32>,
    /// Thread ID.
    pub thread: i32,
    /// Its buffers, at least one, in the order in which the thread filled them: by wall time, and in file
    /// order within a microsecond. In basic mode, in file order.
    pub buffers: &'i [Buffer],
}

/// Result of a first pass over a trace. Its size depends on the number of buffers, not of records.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Sorted by process, thread, wall time and offset.
    buffers: Vec<Buffer>,
    /// Faults outside of records. The iterators over records have those inside.
    pub faults: Tally<Issue>,
}

impl Index {
    /// Creates the index of a trace.
    pub fn of(trace: &Trace<'_>) -> Self {
        let mut index = Self::default();
        let mut segments = trace.segments();
        for segment in &mut segments {
            let Segment::Buffer(buffer) = segment else {
                continue;
            };
            if buffer.wall.is_none() && trace.header().mode == Mode::Fdr {
                index.faults.add(Issue::XrayNoWallTime, buffer.offset);
            }
            index.add(buffer);
        }
        index.faults.merge(segments.faults());
        index
            .buffers
            .sort_unstable_by_key(|it| (it.process, it.thread, it.wall, it.offset));
        index
    }

    fn add(&mut self, buffer: Buffer) {
        match self.buffers.len() < MAX_BUFFERS {
            true => self.buffers.push(buffer),
            false => self.faults.add(Issue::XrayTooManyBuffers, buffer.offset),
        }
    }

    /// Returns all buffers, in the order of [`Index::threads`].
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Iterates over the threads, ordered by process and thread ID.
    pub fn threads(&self) -> impl Iterator<Item = Thread<'_>> {
        let of_one_thread =
            |one: &Buffer, next: &Buffer| (one.process, one.thread) == (next.process, next.thread);
        self.buffers.chunk_by(of_one_thread).filter_map(|buffers| {
            let first = buffers.first()?;
            Some(Thread {
                process: first.process,
                thread: first.thread,
                buffers,
            })
        })
    }
}
