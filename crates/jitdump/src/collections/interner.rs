//! Distinct values, each with an index.

use std::hash::Hash;

use crate::collections::hash::HashMap;
use crate::collections::indexed_table::{IndexedTable, TableIndex};

/// Distinct values, in the order in which they were first asked for.
#[derive(Clone, Debug)]
pub struct Interner<T, I = u32> {
    /// The values by index.
    pub all: IndexedTable<I, T>,
    known: HashMap<T, I>,
}

impl<T, I> Default for Interner<T, I> {
    fn default() -> Self {
        Self {
            all: IndexedTable::default(),
            known: HashMap::default(),
        }
    }
}

impl<T: Clone + Eq + Hash, I: TableIndex> Interner<T, I> {
    /// Returns the index of a value.
    pub fn of(&mut self, value: T) -> I {
        let all = &mut self.all;
        let known = self.known.entry(value);
        *known.or_insert_with_key(|new| all.push(new.clone()))
    }

    /// Whether a value has an index already.
    pub fn has(&self, value: &T) -> bool {
        self.known.contains_key(value)
    }
}
