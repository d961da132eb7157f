//! Samples that were taken before their function was loaded, and that an object of several functions names all the same.

use rustc_hash::FxHashMap;

use crate::code::process::SpaceId;
use crate::code::selection::Selection;
use crate::code::timeline::{Residence, Timeline};
use crate::units::Time;

/// A sample where a function came only later.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlySample {
    /// The address space that it was taken in.
    pub space: SpaceId,
    /// When.
    pub time: Time,
    /// The function's stay there.
    pub residence: u32,
    /// Whether there is a known function in its call chain.
    pub has_named_frame: bool,
}

/// How many of them are kept, at most. All others count as not named.
const MAX_EARLY: usize = 1 << 20;

impl Selection {
    /// Keeps a sample, if there is room.
    pub(super) fn add_early(&mut self, sample: EarlySample) {
        if self.early.len() < MAX_EARLY {
            self.early.push(sample);
        }
    }

    /// Counts those samples as named that were taken before their function's load, and for which an object is there
    /// already: that of a group is there from its first function on, and nothing but its functions is ever where it is.
    pub fn name_early<'r>(&mut self, timeline: &Timeline, groups: impl Iterator<Item = &'r [Residence]>) {
        let mut starts: FxHashMap<(SpaceId, u32), Time> = FxHashMap::default();
        if !self.early.is_empty() {
            for group in groups.filter(|group| group.len() > 1) {
                let start = group.iter().map(|residence| residence.since).min();
                let start = start.unwrap_or(Time::MAX);
                starts.extend(group.iter().map(|one| ((one.space, one.sequence), start)));
            }
        }
        for sample in std::mem::take(&mut self.early) {
            let residence = timeline.residences().get(sample.residence as usize);
            let start = residence.and_then(|one| starts.get(&(one.space, one.sequence)));
            if start.is_some_and(|&start| start <= sample.time) {
                self.name(&sample);
            }
        }
    }

    fn name(&mut self, sample: &EarlySample) {
        self.samples.before_load = self.samples.before_load.saturating_sub(1);
        self.samples.named += 1;
        self.samples.with_named_frame += u64::from(!sample.has_named_frame);
        let of_space = self.spaces.get_mut(sample.space.index());
        let of_space = of_space.map(|of_space| &mut of_space.named_early);
        let hits = self.early_hits.entry(sample.residence).or_default();
        for count in of_space.into_iter().chain([hits]) {
            *count = count.saturating_add(1);
        }
    }

    /// How many samples have the name of each of the timeline's residences.
    pub fn named_hits(&self) -> impl Iterator<Item = u32> {
        self.hits.iter().zip(0u32..).map(|(&hits, residence)| {
            let early = self.early_hits.get(&residence).copied().unwrap_or(0);
            hits.saturating_add(early)
        })
    }
}
