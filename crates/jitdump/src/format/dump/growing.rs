//! The index of a jitdump that is still written.

use crate::bytes::RandomAccess;
use crate::event::CodeEvent;
use crate::fault::Fault;
use crate::format::dump::builder::IndexBuilder;
use crate::format::dump::header_faults;
use crate::format::dump::index::{EXAMINED_FUNCTIONS, Index};
use crate::format::header::Header;
use crate::format::moves::Move;
use crate::format::record::{Contents, Growth};
use crate::machine::Machine;

/// The index of the records that a jitdump has so far.
///
/// Of an undamaged file, it has the same functions as [`Dump::index`](super::Dump::index). Repeated records are kept.
#[derive(Clone, Debug)]
pub struct GrowingIndex {
    builder: IndexBuilder,
    growth: Growth,
    recorded: Machine,
    /// Highest end address of any code.
    code_end: u64,
    /// Number of functions with lines when quirks were last detected.
    examined: usize,
}

/// New loads and moves, in file order.
#[derive(Clone, Debug, Default)]
pub struct NewEvents {
    /// Loads, each after the offset of its record, in bytes.
    pub loads: Vec<(u64, CodeEvent)>,
    /// Moves, whose functions the caller finds by their addresses.
    pub moves: Vec<Move>,
    /// Whether the file has more records already.
    pub has_more: bool,
}

impl GrowingIndex {
    /// Creates an index without functions. `recorded` is used as in [`Dump::parse`](super::Dump::parse); `file_size` is
    /// the current size.
    pub fn new(header: Header, file_size: u64, recorded: Machine) -> Self {
        let (faults, start) = header_faults(&header, file_size);
        Self {
            builder: IndexBuilder::new(header, faults),
            growth: Growth::new(start),
            recorded,
            code_end: 0,
            examined: 0,
        }
    }

    /// Returns the index.
    pub fn index(&self) -> &Index {
        &self.builder.index
    }

    /// Returns the offset up to which the file was read.
    pub fn position(&self) -> u64 {
        self.growth.position()
    }

    /// Counts a move whose function is unknown.
    pub fn skip_move(&mut self, moved: &Move) {
        self.builder.index.faults.add(Fault::BadMove, moved.offset);
    }

    /// Reads what the file has since the last call, at most some megabytes of it. If the file `is_complete`, what is left at its end
    /// is damage.
    pub fn read(&mut self, file: &dyn RandomAccess, is_complete: bool) -> NewEvents {
        let endian = self.index().header.endian;
        let builder = &mut self.builder;
        let mut loads = Vec::new();
        let has_more = self.growth.advance(file, endian, is_complete, &mut |step| {
            loads.extend(builder.add_step(step));
        });
        if is_complete && !has_more {
            // Nothing follows that they could belong to.
            builder.pending.drop_all(&mut builder.index.faults);
        }
        let reassigned = builder.pending.take_reassigned();
        builder.index.functions.add_debug_info(reassigned);
        let events = NewEvents {
            loads,
            moves: std::mem::take(&mut builder.moves),
            has_more,
        };
        let index = &mut builder.index;
        let ranges = events
            .loads
            .iter()
            .filter_map(|(_, load)| index.range(load.function));
        self.code_end = ranges.map(|range| range.end.0).fold(self.code_end, u64::max);
        let header = &index.header;
        index.machine = Machine::of_file(header.elf_machine, header.endian, self.recorded, self.code_end);
        let with_lines = index.functions.debug_info_count();
        // Often enough that the first functions count, and seldom enough to take linear time.
        let is_due = with_lines >= self.examined.saturating_mul(2) || with_lines >= EXAMINED_FUNCTIONS;
        if self.examined < EXAMINED_FUNCTIONS && with_lines > self.examined && is_due {
            index.detect_quirks(Contents::OnDemand(file));
            self.examined = with_lines;
        }
        events
    }
}
