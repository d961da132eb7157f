//! The last call chain of each thread, with what was found for it.
//!
//! Most call chains repeat the previous one of their thread except for the innermost entries. The result for the outer
//! entries is kept, and used again while nothing changes at their addresses.

use std::ops::Range;

use jitdump::history::intersection;
use jitdump::{ByteOrder, Time};

use crate::code::process::SpaceId;
use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::perf::sample::{FIRST_CONTEXT_MARKER, USER_DEFERRED};
use crate::units::Tid;

/// Number of threads whose chains are kept.
const THREADS: u32 = 64;

/// Maximum number of entries kept of a chain. Entries further in are looked up for each sample.
const MAX_ENTRIES: usize = 1024;

table_index! {
    /// Index of a kept chain: the remainder of its thread's ID.
    ChainIndex
}

/// The last call chains of a few threads. For each entry, they have a `T`: the result for the entry and all further out.
#[derive(Debug)]
pub struct LastChains<T> {
    chains: IndexedTable<ChainIndex, LastChain<T>>,
}

/// The last call chain of a thread: its entries from the outermost one inwards, without the first address and what precedes
/// it.
#[derive(Clone, Debug)]
pub struct LastChain<T> {
    key: Option<ChainKey>,
    words: Vec<[u8; 8]>,
    /// For each entry, the times at which its result is the same, and the result.
    results: Vec<(Range<Time>, T)>,
}

/// What call chains must have in common: the address space and the thread.
pub type ChainKey = (Option<SpaceId>, Option<Tid>);

impl<T> Default for LastChains<T> {
    /// Creates an empty cache.
    fn default() -> Self {
        let empty = |_| LastChain {
            key: None,
            words: Vec::new(),
            results: Vec::new(),
        };
        Self {
            chains: (0..THREADS).map(empty).collect(),
        }
    }
}

impl<T> LastChains<T> {
    /// Returns the last chain with a key; an empty one if there is none.
    pub fn of(&mut self, key: ChainKey) -> &mut LastChain<T> {
        let (_, thread) = key;
        let index = ChainIndex(thread.map_or(0, |Tid(tid)| tid % THREADS));
        let chain = &mut self.chains[index];
        if chain.key != Some(key) {
            chain.key = Some(key);
            chain.words.clear();
            chain.results.clear();
        }
        chain
    }
}

impl<T: Copy> LastChain<T> {
    /// Returns the number of outermost entries of a chain whose result is known. `first` is the index of its first address,
    /// which is never among them, because it may be that of the sample.
    #[inline]
    pub fn known_count(&self, chain: &[[u8; 8]], first: usize, time: Time) -> usize {
        let callers = chain.len().saturating_sub(first.saturating_add(1));
        let same = self.words.iter().zip(chain.iter().rev());
        let same = same.take_while(|(own, word)| own == word).count().min(callers);
        // Further in, a result holds for less time.
        match self.results.get(..same).unwrap_or_default() {
            [.., (times, _)] if times.contains(&time) => same,
            results => results.partition_point(|(times, _)| times.contains(&time)),
        }
    }

    /// Returns the result for the outermost `count` entries; `None` if `count` is 0.
    pub fn result(&self, count: usize) -> Option<T> {
        Some(self.results.get(count.checked_sub(1)?)?.1)
    }

    /// Removes all but the outermost `count` entries.
    pub fn truncate(&mut self, count: usize) {
        self.words.truncate(count);
        self.results.truncate(count);
    }

    /// Adds the next entry inwards, with the times at which it is the same, and the result for all up to it. A chain with a
    /// cookie must not be added.
    #[inline]
    pub fn push(&mut self, word: [u8; 8], times: Range<Time>, result: T) {
        if self.words.len() < MAX_ENTRIES {
            let times = match self.results.last() {
                Some((outer, _)) => intersection(times, outer.clone()),
                None => times,
            };
            self.words.push(word);
            self.results.push((times, result));
        }
    }
}

/// Returns the index of the first address in a call chain without cookies; the number of entries if there is none.
#[inline]
pub fn first_address(chain: &[[u8; 8]], endian: ByteOrder) -> usize {
    let is_address = |&word: &[u8; 8]| endian.u64_of(word) < FIRST_CONTEXT_MARKER;
    chain.iter().position(is_address).unwrap_or(chain.len())
}

/// Whether a cookie may be in a call chain. The outermost `known` entries are those of a chain without one.
#[inline]
pub fn may_have_cookie(chain: &[[u8; 8]], known: usize, endian: ByteOrder) -> bool {
    let new = chain.get(..chain.len().saturating_sub(known)).unwrap_or_default();
    new.iter().any(|&word| endian.u64_of(word) == USER_DEFERRED)
}

/// Replaces the cookies of a call chain with the marker before them, and writes the chain to `out`.
pub fn replace_cookies(chain: &[[u8; 8]], endian: ByteOrder, out: &mut Vec<[u8; 8]>) {
    out.clear();
    let mut cookie = None;
    out.extend(chain.iter().map(|&word| match cookie.take() {
        Some(marker) => marker,
        None => {
            cookie = (endian.u64_of(word) == USER_DEFERRED).then_some(word);
            word
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_1024_entries_of_a_chain_are_kept() {
        let mut chains = LastChains::default();
        let chain: LastChain<usize> = {
            let chain = chains.of((None, None));
            (1..=1030).for_each(|count| chain.push([1; 8], Time(0)..Time::MAX, count));
            chain.clone()
        };
        let words = [[1; 8]; 1030];
        assert_eq!(chain.known_count(&words, 0, Time(5)), 1024);
        assert_eq!(chain.result(1024), Some(1024));
        assert_eq!(chain.result(1025), None);
    }
}
