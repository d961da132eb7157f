//! The parts of a profile beside its records: attributes, ids and features.

use std::borrow::Cow;

use crate::bytes::ByteOrder;
use crate::perf::attr::{self, Attrs};
use crate::perf::feature::Feature;
use crate::perf::profile::{AttrEntry, Container, Fault, Profile};
use crate::perf::synthesis::loss::Loss;
use crate::tally::Tally;

/// An attribute and its ids.
#[derive(Clone, Debug)]
pub(super) struct OwnedEntry {
    pub attr: Vec<u8>,
    pub ids: Vec<u8>,
}

impl OwnedEntry {
    pub fn borrow(&self) -> AttrEntry<'_> {
        AttrEntry {
            attr: &self.attr,
            ids: &self.ids,
        }
    }
}

/// All of a profile but its records.
#[derive(Clone, Debug)]
pub struct Synthesized<'p> {
    pub(super) order: ByteOrder,
    pub(super) attr_entries: Vec<OwnedEntry>,
    pub(super) features: Vec<Feature<'p>>,
    /// What could not be read of the recording.
    pub(super) faults: Tally<Fault>,
    /// What did not get into it as it was.
    pub losses: Tally<Loss>,
}

impl Synthesized<'_> {
    /// The profile, as if it had been recorded that way. `records` are those that were written.
    pub fn profile<'a>(&'a self, records: &'a [u8]) -> Profile<'a> {
        let attr_entries: Vec<_> = self.attr_entries.iter().map(OwnedEntry::borrow).collect();
        let features = self.features.iter().map(borrow_feature);
        Profile {
            container: Container::File,
            order: self.order,
            attrs: Attrs::read(&attr_entries, self.order),
            attr_entries,
            data: records,
            data_offset: 0,
            features: features.collect(),
            head_records: Vec::new(),
            faults: self.faults.clone(),
        }
    }
}

/// The same feature, without a copy of its content.
pub(super) fn borrow_feature<'a>(feature: &'a Feature<'_>) -> Feature<'a> {
    Feature {
        id: feature.id,
        content: Cow::Borrowed(&*feature.content),
    }
}

/// The attributes of a recording as they are with identifiers in all records, all of one size; and that size.
pub(super) fn with_identifiers(recorded: &Profile<'_>) -> (Vec<OwnedEntry>, usize) {
    /// The kernel takes no larger one than a page, and a single one must not make all others large.
    const LARGEST: usize = 4096;
    let order = recorded.order;
    let said = |entry: &AttrEntry<'_>| {
        let size = attr::size(entry.attr, order).unwrap_or(attr::SIZE_VERSION_0);
        let size = size.min(LARGEST);
        entry.attr.get(..size).unwrap_or(entry.attr).len()
    };
    let size = recorded.attr_entries.iter().map(said).max();
    let size = size.unwrap_or_default().max(attr::SIZE_VERSION_0);
    let entries = recorded.attr_entries.iter().map(|entry| {
        let mut attr = entry.attr.get(..said(entry)).unwrap_or_default().to_vec();
        attr.resize(size, 0);
        attr::set_size(&mut attr, order);
        attr::add_identifier(&mut attr, order);
        OwnedEntry {
            attr,
            ids: entry.ids.to_vec(),
        }
    });
    (entries.collect(), size)
}
