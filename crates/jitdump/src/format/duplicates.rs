//! Removal of duplicate records.
//!
//! Quirk: when a process with CPython 3.13 forks, the parent and the children each write out the parent's
//! buffer, so the parent's jitdump has the same records up to three times (capture cpython313-fork).

use std::cmp::Ordering;

use crate::collections::tally::Tally;
use crate::fault::Fault;
use crate::format::dump::FunctionTable;
use crate::format::moves::Move;
use crate::format::record::Contents;

/// Drops all loads and moves that are exact copies of earlier ones. `loads` are the functions with code.
///
/// This must happen before moves are matched with functions, because a move belongs to the load that is kept.
pub(super) fn drop_duplicates(
    contents: Contents<'_>,
    functions: &FunctionTable,
    loads: &mut Vec<u32>,
    moves: &mut Vec<Move>,
    faults: &mut Tally<Fault>,
) {
    let content = |load: u32| contents.of(functions.load(load)?);
    // Contents are read only where all else is equal.
    let compare_loads = |&one: &u32, &other: &u32| {
        let times = functions.time(one).cmp(&functions.time(other));
        let ranges = times.then_with(|| functions.range(one).cmp(&functions.range(other)));
        ranges.then_with(|| content(one).cmp(&content(other)))
    };
    let compare_moves = |one: &Move, other: &Move| {
        let times = one.time.cmp(&other.time);
        times.then_with(|| one.content().cmp(&other.content()))
    };
    let dropped = keep_first(loads, compare_loads, |&load| {
        functions.load(load).map_or(0, |load| load.offset)
    });
    let moved = keep_first(moves, compare_moves, |moved| moved.offset);
    for offset in dropped.into_iter().chain(moved) {
        faults.add(Fault::Duplicate, offset);
    }
}

/// Keeps the entry with the lowest offset of those that are equal, and returns the offsets of the others.
fn keep_first<T>(
    all: &mut Vec<T>,
    compare: impl Fn(&T, &T) -> Ordering,
    offset: impl Fn(&T) -> u64,
) -> Vec<u64> {
    let mut dropped = Vec::new();
    all.sort_unstable_by(|one, other| compare(one, other).then_with(|| offset(one).cmp(&offset(other))));
    all.dedup_by(|later, first| {
        let is_repeated = compare(first, later).is_eq();
        if is_repeated {
            dropped.push(offset(later));
        }
        is_repeated
    });
    dropped
}
