//! Which events are made.

use crate::perf::synthesis::Definition;

/// Those events of the profile, each a kind `K`, that were asked for.
#[derive(Clone, Debug)]
pub struct EventSet<K> {
    /// How many events of the profile's own stand before them.
    first: usize,
    kinds: Vec<K>,
    definitions: Vec<Definition<'static>>,
}

impl<K: Copy + Eq> EventSet<K> {
    /// These, behind `first` others that are made.
    pub fn new(first: usize, events: impl Iterator<Item = (K, Definition<'static>)>) -> Self {
        let (kinds, definitions) = events.unzip();
        Self {
            first,
            kinds,
            definitions,
        }
    }

    /// What they are called, in their order.
    pub fn definitions(&self) -> &[Definition<'static>] {
        &self.definitions
    }

    /// The number that an event of this kind has among all that are made, if it was asked for.
    pub fn number(&self, kind: K) -> Option<usize> {
        let place = self.kinds.iter().position(|&other| other == kind)?;
        self.first.checked_add(place)
    }
}
