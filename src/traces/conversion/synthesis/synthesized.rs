//! The parts of a profile other than its records: attributes, IDs and features.

use jitdump::{ByteOrder, Tally};

use crate::perf::attr::AttrEntry;
use crate::perf::attr::{self, Attrs};
use crate::perf::feature::Feature;
use crate::perf::profile::{Container, Profile};
use crate::perf::record::data::ProfileBytes;
use crate::results::diagnostics::Issue;

/// A synthesized profile without its records.
#[derive(Clone, Debug)]
pub struct Synthesized {
    pub(super) endian: ByteOrder,
    pub(super) attr_entries: Vec<AttrEntry>,
    pub(super) features: Vec<Feature<'static>>,
    /// Those found while reading the recording.
    pub(super) recorded_faults: Tally<Issue>,
    /// What was lost or cut while writing the records.
    pub faults: Tally<Issue>,
}

impl Synthesized {
    /// Returns the profile as if it had been recorded. `records` are the records that were written.
    pub fn profile<'a>(&'a self, records: ProfileBytes<'a>) -> Profile<'a> {
        let features = self.features.iter();
        let features = features.map(|feature| Feature::new(feature.id, &*feature.content));
        Profile {
            container: Container::File,
            endian: self.endian,
            attrs: Attrs::read(&self.attr_entries, self.endian),
            attr_entries: self.attr_entries.clone(),
            data: records,
            data_offset: 0,
            features: features.collect(),
            header_records: Vec::new(),
            faults: self.recorded_faults.clone(),
        }
    }
}

/// Copies a feature.
pub(super) fn copy_feature(feature: &Feature<'_>) -> Feature<'static> {
    Feature::new(feature.id, feature.content.to_vec())
}

/// Returns the attributes of a recording with `PERF_SAMPLE_IDENTIFIER`, all of the same size, and that size
/// in bytes.
pub(super) fn attrs_with_identifiers(recorded: &Profile<'_>) -> (Vec<AttrEntry>, usize) {
    /// The kernel accepts attributes of at most a page. One large attribute must not enlarge all others.
    const MAX_SIZE: usize = 4096;
    let endian = recorded.endian;
    let declared_size = |entry: &AttrEntry| {
        let size = attr::size(&entry.attr, endian).unwrap_or(attr::SIZE_VERSION_0);
        let size = size.min(MAX_SIZE);
        entry.attr.get(..size).unwrap_or(&entry.attr).len()
    };
    let size = recorded.attr_entries.iter().map(declared_size).max();
    let size = size.unwrap_or_default().max(attr::SIZE_VERSION_0);
    let entries = recorded.attr_entries.iter().map(|entry| {
        let mut attr = entry
            .attr
            .get(..declared_size(entry))
            .unwrap_or_default()
            .to_vec();
        attr.resize(size, 0);
        attr::set_size(&mut attr, endian);
        attr::add_identifier(&mut attr, endian);
        AttrEntry {
            attr,
            ids: entry.ids.clone(),
        }
    });
    (entries.collect(), size)
}
