//! Loads and moves of a jitdump, in the order of time.

use crate::collections::tally::Tally;
use crate::event::CodeEvent;
use crate::fault::Fault;
use crate::format::dump::function_table::FunctionTable;
use crate::format::moves::{LoadEvent, Move, merge_events};

/// The order of loads and moves. Loads are in the table of functions.
#[derive(Clone, Debug)]
pub enum EventOrder {
    /// The loads of all functions with code, in file order.
    InFileOrder,
    /// The loads of these functions.
    Loads(Vec<u32>),
    /// Loads and moves.
    WithMoves(Vec<CodeEvent>),
}

impl EventOrder {
    /// Sorts the loads of functions by time.
    pub fn of_loads(mut loads: Vec<u32>, functions: &FunctionTable) -> Self {
        sort(&mut loads, functions);
        if loads.iter().copied().eq(functions.with_code()) {
            Self::InFileOrder
        } else {
            Self::Loads(loads)
        }
    }

    /// Sorts the loads of functions by time, and merges them with moves. `code_indices` has the `code_index` of each
    /// function.
    pub fn with_moves(
        mut loads: Vec<u32>,
        moves: Vec<Move>,
        functions: &FunctionTable,
        code_indices: &[u64],
        faults: &mut Tally<Fault>,
    ) -> Self {
        sort(&mut loads, functions);
        let loads = loads.into_iter().filter_map(|function| {
            let load = functions.load_event(function)?;
            let code_index = *code_indices.get(usize::try_from(function).ok()?)?;
            Some(LoadEvent {
                offset: functions.load(function)?.offset,
                event: load,
                code_index,
            })
        });
        let range = |function| functions.range(function);
        Self::WithMoves(merge_events(loads, moves, range, faults))
    }

    /// Whether any code was moved.
    pub fn have_moves(&self) -> bool {
        matches!(self, Self::WithMoves(_))
    }

    /// Iterates over the events.
    pub fn iter<'a>(&'a self, functions: &'a FunctionTable) -> impl DoubleEndedIterator<Item = CodeEvent> {
        let (all, some, events) = match self {
            // Functions have indices of 32 bits.
            Self::InFileOrder => (functions.len() as u32, &[][..], &[][..]),
            Self::Loads(some) => (0, &some[..], &[][..]),
            Self::WithMoves(events) => (0, &[][..], &events[..]),
        };
        let loads = (0..all).chain(some.iter().copied());
        let loads = loads.filter_map(|function| functions.load_event(function));
        loads.chain(events.iter().copied())
    }
}

/// Sorts by time, and by place in the file.
///
/// Quirk: JavaScriptCore's compiler threads write records out of order by a microsecond (capture multi).
fn sort(loads: &mut [u32], functions: &FunctionTable) {
    loads.sort_unstable_by_key(|&function| (functions.time(function), function));
}
