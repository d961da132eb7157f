//! Records that are in a file more than once, of which the first one counts.
//!
//! Quirk: when CPython 3.13 forks, parent and children each write out what the parent's buffer held, so the parent's dump
//! has the same records up to three times (capture cpython313-fork).

use crate::runtime::jitdump::dump::{Fault, Function};
use crate::runtime::jitdump::moves::{Loaded, Moved};
use crate::runtime::jitdump::record::Records;
use crate::tally::Tally;

/// Drops all loads and moves of `file` that are there already, bit for bit. It has to be done before moves get their
/// functions: a move is that of the load that stays.
pub(super) fn drop_repeated(
    file: &[u8],
    functions: &[Function],
    loads: &mut Vec<Loaded>,
    moves: &mut Vec<Moved>,
    faults: &mut Tally<Fault>,
) {
    let content = |load: &Loaded| {
        let function = functions.get(load.event.function as usize)?;
        let content = Records::content(file, function.load);
        Some((function.start, function.size, content))
    };
    let dropped = keep_first(loads, |load| (load.event.time, content(load)), |load| load.offset);
    let moved = keep_first(moves, |moved| (moved.time, moved.content()), |moved| moved.offset);
    for offset in dropped.into_iter().chain(moved) {
        faults.add(Fault::Duplicate, offset);
    }
}

/// Keeps the first of those that have a key in common, by their offsets, and returns the offsets of the others.
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
