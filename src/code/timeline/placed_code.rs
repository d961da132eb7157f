//! Code events for a timeline, and where there was code at all.

use crate::code::mappings::PlacedEvent;
use crate::code::process::SpaceId;
use crate::collections::hash::HashMap;
use crate::collections::range_map::RangeSet;

/// Distance from known code, in bytes, within which unmapped memory is taken for JIT memory: the size of a page of
/// V8's code space (256 KiB).
pub(super) const NEAR: u64 = 256 << 10;

/// Code events on the profile's clock, in any order.
#[derive(Clone, Debug, Default)]
pub struct PlacedCode {
    pub(super) events: Vec<PlacedEvent>,
    /// All addresses that ever held code, with gaps of which all addresses are near code.
    pub(super) code: HashMap<SpaceId, RangeSet>,
}

impl PlacedCode {
    /// Makes room for so many events, and not for more.
    pub fn reserve_exact(&mut self, events: usize) {
        self.events.reserve_exact(events);
    }

    /// Adds an event.
    pub fn add(&mut self, event: PlacedEvent) {
        self.add_addresses(&event);
        self.events.push(event);
    }

    /// Adds an event only as a place where there was code. What is at its addresses must never be looked up.
    pub fn add_addresses(&mut self, event: &PlacedEvent) {
        if let Some(range) = event.range {
            let code = self.code.entry(event.space);
            code.or_insert_with(|| RangeSet::with_gap(2 * NEAR)).insert(range);
        }
    }
}

impl FromIterator<PlacedEvent> for PlacedCode {
    fn from_iter<A: IntoIterator<Item = PlacedEvent>>(events: A) -> Self {
        let mut code = Self::default();
        events.into_iter().for_each(|event| code.add(event));
        code
    }
}
