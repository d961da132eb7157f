//! Selection of events to synthesize.

use crate::perf::synthesis::Definition;

/// Selected events, each of a kind `K`.
#[derive(Clone, Debug)]
pub struct EventSet<K> {
    /// Number of synthesized events before them.
    first: usize,
    kinds: Vec<K>,
    definitions: Vec<Definition<'static>>,
}

impl<K: Copy + Eq> EventSet<K> {
    /// Creates a set of events that come after `first` other synthesized events.
    pub fn new(first: usize, events: impl Iterator<Item = (K, Definition<'static>)>) -> Self {
        let (kinds, definitions) = events.unzip();
        Self {
            first,
            kinds,
            definitions,
        }
    }

    /// Returns the definitions of the events, in order.
    pub fn definitions(&self) -> &[Definition<'static>] {
        &self.definitions
    }

    /// Returns the index of an event among all synthesized events, or `None` if it is not selected.
    pub fn index_of(&self, kind: K) -> Option<usize> {
        let index = self.kinds.iter().position(|&other| other == kind)?;
        self.first.checked_add(index)
    }
}
