//! Where the records of each thread are: what has to be known of a whole trace before it can be replayed.

use crate::runtime::RuntimeTime;
use crate::runtime::xray::header::Mode;
use crate::runtime::xray::trace::{Fault, Trace};
use crate::runtime::xray::{basic, buffers};
use crate::tally::Tally;

/// How many buffers are kept, so that no file makes more than about a gigabyte of memory of them. Of 16 KiB each, as
/// programs have them unless they ask for others, that is a trace of 256 GiB.
pub(super) const MAX_BUFFERS: usize = 1 << 24;

/// A buffer: some records of a thread, one behind the other. In basic mode, a run of records of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// Of which process, by the number that it knows itself under; `None` where the trace does not tell, as before
    /// version 3.
    pub process: Option<i32>,
    /// Of which thread.
    pub thread: i32,
    /// Where it starts in the file, in bytes.
    pub offset: u64,
    /// When it was begun: nanoseconds of CLOCK_MONOTONIC, of which the file has the microseconds. `None` in basic mode.
    pub wall: Option<RuntimeTime>,
    /// The tick that it begins with. In basic mode that of the first function record.
    pub tick: u64,
    /// Where its records start in the file, and where they end.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Whether the file ends before it does.
    pub(super) is_cut: bool,
}

impl Buffer {
    /// The bytes of the file in which its records lie.
    pub fn content(&self) -> std::ops::Range<u64> {
        self.start..self.end
    }

    /// How many bytes of it follow the record of its size, or where there is none, how many it has.
    pub fn records_size(&self) -> u64 {
        let front = buffers::METADATA_SIZE;
        self.end.saturating_sub(self.start).saturating_add(front)
    }

    /// A moment on both clocks, if it has one.
    pub fn anchor(&self) -> Option<Anchor> {
        let wall = self.wall?;
        let tick = self.tick;
        Some(Anchor { wall, tick })
    }
}

/// A moment on the wall clock and in ticks. The runtime reads the tick first; so the wall clock is never too early for it,
/// but for what is less than a microsecond, and may be late if the thread was interrupted in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Anchor {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub wall: RuntimeTime,
    /// Ticks.
    pub tick: u64,
}

/// The buffers of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread<'i> {
    /// Of which process, as in [`Buffer`].
    pub process: Option<i32>,
    /// Which.
    pub thread: i32,
    /// Its buffers, of which there is at least one, in the order in which it filled them: by the wall clock, and those of one
    /// microsecond as in the file. In basic mode as in the file.
    pub buffers: &'i [Buffer],
}

/// What a first walk finds. It grows with buffers, not with records.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// By thread, and of each thread in its order.
    buffers: Vec<Buffer>,
    /// What of the trace could not be used; that of the records is told by the walks over them.
    pub faults: Tally<Fault>,
}

impl Index {
    /// Walks a trace.
    pub fn of(trace: &Trace<'_>) -> Self {
        let mut index = Self::default();
        match trace.header().mode {
            Mode::Fdr => {
                let mut walk = buffers::Buffers::new(trace.file(), *trace.header());
                for buffer in &mut walk {
                    if buffer.wall.is_none() {
                        index.faults.add(Fault::NoWallTime, buffer.offset);
                    }
                    index.add(buffer);
                }
                index.faults.merge(walk.faults());
            }
            Mode::Basic => {
                let mut walk = basic::Runs::new(trace.file(), *trace.header());
                for buffer in &mut walk {
                    index.add(buffer);
                }
                index.faults.merge(walk.faults());
            }
        }
        index
            .buffers
            .sort_unstable_by_key(|it| (it.process, it.thread, it.wall, it.offset));
        index
    }

    fn add(&mut self, buffer: Buffer) {
        match self.buffers.len() < MAX_BUFFERS {
            true => self.buffers.push(buffer),
            false => self.faults.add(Fault::TooManyBuffers, buffer.offset),
        }
    }

    /// All buffers, ordered as those of [`Index::threads`].
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// The threads, by process and number.
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
