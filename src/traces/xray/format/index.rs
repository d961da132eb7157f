//! Index of an XRay trace: the buffers of each thread, which are needed before the trace can be replayed.

use jitdump::Tally;

use crate::results::diagnostics::Issue;
use crate::traces::xray::format::TraceSegment;
use crate::traces::xray::format::buffer::TraceBuffer;
use crate::traces::xray::format::header::TraceMode;
use crate::traces::xray::format::trace::Trace;

/// Maximum number of buffers in the index, which limits its memory to about a gigabyte. With the default
/// buffer size of 16 KiB, that is a trace of 256 GiB.
pub(super) const MAX_BUFFERS: usize = 1 << 24;

/// The buffers of a thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadBuffers<'i> {
    /// Process ID, as in [`TraceBuffer`].
    pub process: Option<i32>,
    /// Thread ID.
    pub thread: i32,
    /// Its buffers, at least one, in the order in which the thread filled them: by wall time, and in file
    /// order within a microsecond. In basic mode, in file order.
    pub buffers: &'i [TraceBuffer],
}

/// Result of a first pass over a trace. Its size depends on the number of buffers, not of records.
#[derive(Clone, Debug, Default)]
pub struct TraceIndex {
    /// Sorted by process, thread, wall time and offset.
    buffers: Vec<TraceBuffer>,
    /// Faults outside of records. The iterators over records have those inside.
    pub faults: Tally<Issue>,
}

impl TraceIndex {
    /// Creates the index of a trace.
    pub fn of(trace: &Trace<'_>) -> Self {
        let mut index = Self::default();
        let mut segments = trace.segments();
        for segment in &mut segments {
            let TraceSegment::Buffer(buffer) = segment else {
                continue;
            };
            if buffer.wall.is_none() && trace.header().mode == TraceMode::Fdr {
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

    fn add(&mut self, buffer: TraceBuffer) {
        if has_room(self.buffers.len()) {
            self.buffers.push(buffer)
        } else {
            self.faults.add(Issue::XrayTooManyBuffers, buffer.offset)
        }
    }

    /// Returns all buffers, in the order of [`TraceIndex::threads`].
    pub fn buffers(&self) -> &[TraceBuffer] {
        &self.buffers
    }

    /// Iterates over the threads, ordered by process and thread ID.
    pub fn threads(&self) -> impl Iterator<Item = ThreadBuffers<'_>> {
        let of_one_thread =
            |one: &TraceBuffer, next: &TraceBuffer| (one.process, one.thread) == (next.process, next.thread);
        self.buffers.chunk_by(of_one_thread).filter_map(|buffers| {
            let first = buffers.first()?;
            Some(ThreadBuffers {
                process: first.process,
                thread: first.thread,
                buffers,
            })
        })
    }
}

/// Returns whether an index of so many buffers takes another one.
fn has_room(buffers: usize) -> bool {
    buffers < MAX_BUFFERS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many buffers take more than a gigabyte.
    #[test]
    fn an_index_has_room_for_16_777_216_buffers() {
        assert!(has_room(16_777_215));
        assert!(!has_room(16_777_216));
    }
}
