//! Reads the records of a profile in chunks, in several threads.

use std::ops::Range;

use crate::code::profile_index::TimeMarks;
use crate::threads;

/// Maximum size of a chunk, in bytes.
const PIECE: u64 = 16 << 20;

/// Average number of chunks per thread before the results are merged, so that no thread waits long for the others.
const PIECES_OF_THREAD: usize = 4;

/// Reads the first `end` bytes of the records. Calls `walk` for each chunk, in any thread, and `merge` for the
/// results, in the order of the chunks. Calls `progress` with the number of bytes just read. `marks` must be those of
/// the same profile.
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
