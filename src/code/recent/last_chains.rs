//! The last call chain of each thread, with what was found for it.
//!
//! Most call chains repeat the previous one of their thread except for the innermost entries. The result for the outer
//! entries is kept, and used again while nothing changes at their addresses.

use std::ops::Range;

use jitdump::Time;
use jitdump::history::intersection;

use crate::code::process::SpaceId;
use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::perf::sample::{Addresses, ChainEntry, Sample};
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

/// The last call chain of a thread.
#[derive(Clone, Debug)]
pub struct LastChain<T> {
    key: Option<ChainKey>,
    /// Entries from the outermost one inwards, without the first address and what precedes it.
    entries: Vec<Entry<T>>,
}

/// What call chains must have in common: the address space, the thread and, if results depend on it, the event.
pub type ChainKey = (Option<SpaceId>, Option<Tid>, u32);

#[derive(Clone, Debug)]
struct Entry<T> {
    word: [u8; 8],
    /// Times at which the result is the same.
    times: Range<Time>,
    result: T,
}

impl<T> Default for LastChains<T> {
    /// Creates an empty cache.
    fn default() -> Self {
        let empty = |_| LastChain {
            key: None,
            entries: Vec::new(),
        };
        Self {
            chains: (0..THREADS).map(empty).collect(),
        }
    }
}

impl<T> LastChains<T> {
    /// Returns the last chain with a key; an empty one if there is none.
    pub fn of(&mut self, key: ChainKey) -> &mut LastChain<T> {
        let (_, thread, _) = key;
        let index = ChainIndex(thread.map_or(0, |Tid(tid)| tid % THREADS));
        let chain = &mut self.chains[index];
        if chain.key != Some(key) {
            chain.key = Some(key);
            chain.entries.clear();
        }
        chain
    }
}

impl<T: Copy> LastChain<T> {
    /// Returns the number of outermost entries of a sample's chain whose result is known. The first address is never
    /// among them, because it may be that of the sample.
    pub fn known(&self, sample: &Sample<'_>, time: Time) -> usize {
        let count = sample.callchain.count();
        let is_address = |entry| matches!(entry, ChainEntry::Address(_));
        let first = sample.chain_entries().position(is_address);
        let callers = first.map_or(0, |first| count.saturating_sub(first + 1));
        let known = self.in_common(sample.callchain, time).min(callers);
        // The last chain has no cookies, so an entry that is one here was something else there.
        match sample.chain_entries().nth(count - known) {
            Some(ChainEntry::Cookie) => 0,
            _ => known,
        }
    }

    fn in_common(&self, chain: Addresses<'_>, time: Time) -> usize {
        let words = chain.bytes().rchunks_exact(8);
        let same = self.entries.iter().zip(words);
        let same = same.take_while(|(entry, word)| entry.word == **word).count();
        // Further in, a result holds for less time.
        let same = self.entries.get(..same).unwrap_or_default();
        same.partition_point(|entry| entry.times.contains(&time))
    }

    /// Returns the result for the outermost `count` entries; `None` if `count` is 0.
    pub fn result(&self, count: usize) -> Option<T> {
        Some(self.entries.get(count.checked_sub(1)?)?.result)
    }

    /// Removes all but the outermost `count` entries. A chain with a cookie must be removed as a whole.
    pub fn truncate(&mut self, count: usize) {
        self.entries.truncate(count);
    }

    /// Adds the next entry inwards, with the times at which it is the same, and the result for all up to it.
    pub fn push(&mut self, word: [u8; 8], times: Range<Time>, result: T) {
        if self.entries.len() < MAX_ENTRIES {
            let times = match self.entries.last() {
                Some(outer) => intersection(times, outer.times.clone()),
                None => times,
            };
            self.entries.push(Entry { word, times, result });
        }
    }
}
