//! Removal of duplicate records.
//!
//! Quirk: when a process with CPython 3.13 forks, the parent and the children each write out the parent's
//! buffer, so the parent's jitdump has the same records up to three times (capture cpython313-fork).

use crate::diagnostics::Issue;
use crate::runtime::jitdump::dump::FunctionTable;
use crate::runtime::jitdump::moves::{LoadEvent, Move};
use crate::runtime::jitdump::record::Records;
use crate::tally::Tally;

/// Drops all loads and moves in `file` that are exact copies of earlier ones.
///
/// This must happen before moves are matched with functions, because a move belongs to the load that is kept.
pub(super) fn drop_duplicates(
    file: &[u8],
    functions: &FunctionTable,
    loads: &mut Vec<LoadEvent>,
    moves: &mut Vec<Move>,
    faults: &mut Tally<Issue>,
) {
    let content = |load: &LoadEvent| {
        let number = load.event.function;
        let content = Records::content(file, functions.load(number)?);
        Some((functions.range(number), content))
    };
    let dropped = keep_first(loads, |load| (load.event.time, content(load)), |load| load.offset);
    let moved = keep_first(moves, |moved| (moved.time, moved.content()), |moved| moved.offset);
    for offset in dropped.into_iter().chain(moved) {
        faults.add(Issue::JitdumpDuplicate, offset);
    }
}

/// Keeps the entry with the lowest offset for each key, and returns the offsets of the others.
fn keep_first<T, K: Ord>(all: &mut Vec<T>, key: impl Fn(&T) -> K, offset: impl Fn(&T) -> u64) -> Vec<u64> {
    let mut dropped = Vec::new();
    all.sort_by_key(|one| (key(one), offset(one)));
    all.dedup_by(|later, first| {
        let is_repeated = key(first) == key(later);
        if is_repeated {
            dropped.push(offset(later));
        }
        is_repeated
    });
    dropped
}
