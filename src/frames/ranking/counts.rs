//! Samples by stack and thread.

use crate::collections::hash::HashMap;
use crate::frames::stream::Sample;
use crate::frames::stream::call_tree::Weight;
use crate::frames::stream::tables::{StackIndex, ThreadIndex};

/// What samples are counted by: event, stack and thread.
type Key = (u32, Option<StackIndex>, ThreadIndex);

/// Samples by event, stack and thread.
#[derive(Clone, Debug, Default)]
pub struct SamplesByStack(HashMap<Key, Weight>);

/// Samples of one event, stack and thread.
#[derive(Clone, Copy, Debug)]
pub struct StackSamples {
    /// The event.
    pub event: u32,
    /// The stack; `None` if nothing of it was recorded.
    pub stack: Option<StackIndex>,
    /// The thread.
    pub thread: ThreadIndex,
    /// The samples.
    pub weight: Weight,
}

impl SamplesByStack {
    /// Adds a sample.
    pub fn add(&mut self, sample: &Sample) {
        self.0
            .entry((sample.event, sample.stack, sample.thread))
            .or_default()
            .add(sample.weight());
    }

    /// Exchanges an event and the first one.
    pub fn put_first(&mut self, first: u32) {
        let all = std::mem::take(&mut self.0).into_iter();
        let swapped = all.map(|((event, stack, thread), weight)| {
            let event = match event {
                0 => first,
                event if event == first => 0,
                event => event,
            };
            ((event, stack, thread), weight)
        });
        self.0 = swapped.collect();
    }

    /// Iterates over all samples, in no order.
    pub fn iter(&self) -> impl Iterator<Item = StackSamples> {
        let all = self.0.iter();
        all.map(|(&(event, stack, thread), &weight)| StackSamples {
            event,
            stack,
            thread,
            weight,
        })
    }

    /// Returns the samples of an event, in the order of stacks.
    pub fn of_event(&self, event: u32) -> Vec<StackSamples> {
        let of_event = self.iter().filter(|samples| samples.event == event);
        let mut all: Vec<StackSamples> = of_event.collect();
        all.sort_unstable_by_key(|samples| (samples.stack, samples.thread));
        all
    }
}
