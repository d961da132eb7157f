//! Walking the records of a profile in pieces, in all threads.

use std::ops::Range;

use crate::code::profile_index::TimeMarks;
use crate::threads;

/// How many bytes of records a thread walks at a time, at most.
const PIECE: u64 = 16 << 20;

/// How many pieces each thread walks, on average, before what came of them is merged: a few, so that no thread waits long for
/// the others.
const PIECES_OF_THREAD: usize = 4;

/// Walks the first `end` bytes of the records: `walk` a piece of them, in any thread, and `merge` what comes of each, in
/// the order of the pieces. Tells `progress` how many bytes more were walked. `marks` are those of the same profile.
pub fn in_pieces<T: Send>(
    marks: &TimeMarks,
    end: u64,
    walk: impl Fn(&Range<u64>) -> T + Sync,
    mut merge: impl FnMut(T),
    mut progress: impl FnMut(u64),
) {
    for batch in pieces(marks, end).chunks(threads::count().saturating_mul(PIECES_OF_THREAD)) {
        threads::map(batch, &walk).into_iter().for_each(&mut merge);
        let lengths = batch.iter().map(|piece| piece.end.saturating_sub(piece.start));
        progress(lengths.sum());
    }
}

fn pieces(marks: &TimeMarks, end: u64) -> Vec<Range<u64>> {
    let size = (end / threads::count() as u64).clamp(1, PIECE);
    let mut pieces: Vec<Range<u64>> = Vec::new();
    for start in marks.starts() {
        match pieces.last_mut() {
            Some(last) if start.saturating_sub(last.start) < size => continue,
            Some(last) => last.end = start,
            None => {}
        }
        pieces.push(start..end);
    }
    pieces
}
