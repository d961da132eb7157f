//! Counts samples by function and by time: a pass like that of [`crate::code::selection`], which checks only the
//! sampled address itself.

use std::hash::Hash;

use jitdump::{Address, Time};

use crate::code::process::SpaceId;
use crate::code::profile_index::ProfileIndex;
use crate::code::samples::{Located, SampleRecord, SampleVisitor};
use crate::code::selection::{SampledCode, SelectionWalk, Selector, StackCounts};
use crate::code::timeline::{FunctionId, Lookup};
use crate::collections::hash::{HashMap, HashSet};
use crate::load::Progress;
use crate::perf::record::Record;
use crate::tools::timeline::code_box::NamedCode;
use crate::tools::timeline::event::CountedEvent;
use crate::tools::timeline::tiers::CompilerIndex;
use crate::units::Pid;

/// Number of bins that the recording is divided into: more than the chart has columns on a wide screen, so that
/// zooming shows more detail.
pub const BINS: u32 = 4096;

/// Start and end of the recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Time of the first record.
    pub start: Time,
    /// First time after the recording.
    pub end: Time,
}

impl Span {
    /// Returns the span of a profile; a single time if records have no times.
    pub fn of(profile_index: &ProfileIndex) -> Self {
        match profile_index.times {
            Some((start, last)) => Self {
                start,
                end: Time(last.0.saturating_add(1)),
            },
            None => Self {
                start: Time::LAST,
                end: Time::MAX,
            },
        }
    }

    /// Whether records have times. Otherwise, those of code are no times, and all of it is there all the time.
    pub fn has_times(self) -> bool {
        self.start < Time::LAST
    }

    /// Returns the length in nanoseconds, at least 1.
    pub fn length(self) -> u64 {
        self.end.0.saturating_sub(self.start.0).max(1)
    }

    /// Returns the index of the bin, one of [`BINS`] of equal length, that contains a time.
    fn bin(self, time: Time) -> u32 {
        let passed = time.0.saturating_sub(self.start.0);
        let bin = u128::from(passed) * u128::from(BINS) / u128::from(self.length());
        u32::try_from(bin).unwrap_or(u32::MAX).min(BINS - 1)
    }
}

/// Kind of code that a sample was taken in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Series {
    /// Anything; every sample of a known process counts.
    All,
    /// JIT code without a name, or without a certain one.
    Unnamed,
    /// A function, by compiler, if that is known.
    Tier(Option<CompilerIndex>),
}

/// Numbers of samples.
#[derive(Debug, Default)]
pub struct BinnedSamples {
    /// Samples in functions and symbols, by the address space that they were taken in, which may have inherited the
    /// code.
    pub code: HashMap<(NamedCode, SpaceId), u32>,
    /// Samples in functions by the offset in the code, in bytes.
    pub offsets: HashMap<(FunctionId, SpaceId, u32), u32>,
    /// Samples by process, series and bin.
    pub bins: HashMap<(Pid, Series, u32), u32>,
    /// JIT code in whole stacks.
    pub stacks: StackCounts,
    /// Number of samples of other events.
    pub others: u64,
}

impl BinnedSamples {
    /// Returns the processes with samples in JIT code without a name or, if no sample is in JIT code, all with
    /// samples.
    pub fn silent_processes(&self) -> HashSet<Pid> {
        let in_code = self.bins.keys().any(|&(_, series, _)| series != Series::All);
        let asked = if in_code { Series::Unnamed } else { Series::All };
        let bins = self.bins.keys().filter(|&&(_, series, _)| series == asked);
        bins.map(|&(pid, ..)| pid).collect()
    }

    /// Returns the number of samples of an address space in a function or symbol.
    pub fn of(&self, leaf: NamedCode, space: SpaceId) -> u32 {
        self.code.get(&(leaf, space)).copied().unwrap_or(0)
    }

    fn merge(&mut self, other: Self) {
        merge(&mut self.code, other.code);
        merge(&mut self.offsets, other.offsets);
        merge(&mut self.bins, other.bins);
        self.others = self.others.saturating_add(other.others);
    }
}

fn merge<K: Hash + Eq>(own: &mut HashMap<K, u32>, other: HashMap<K, u32>) {
    for (key, count) in other {
        add_count(own, key, count);
    }
}

/// Adds `count` to that of a key.
fn add_count<K: Hash + Eq>(counts: &mut HashMap<K, u32>, key: K, count: u32) {
    let counter = counts.entry(key).or_default();
    *counter = counter.saturating_add(count);
}

/// Counts the samples of an event.
pub struct Counter<'a, T> {
    /// Classifies the sampled addresses.
    pub selector: Selector<'a>,
    /// The event.
    pub event: CountedEvent,
    /// Start and end of the recording.
    pub span: Span,
    /// Returns the compiler of a function or symbol.
    pub tier: T,
}

impl<T: Fn(NamedCode) -> Option<CompilerIndex> + Sync> Counter<'_, T> {
    /// Counts the samples of all records.
    pub fn walk(&self, profile_index: &ProfileIndex, progress: &mut dyn Progress) -> BinnedSamples {
        let walks = self.selector.samples().visit(
            &profile_index.marks,
            || CountingWalk {
                counter: self,
                counts: BinnedSamples::default(),
                selecting: SelectionWalk::new(&self.selector),
            },
            |_| (),
            |bytes| progress.advance(bytes),
        );
        let (counting, selecting): (Vec<_>, Vec<_>) = walks
            .into_iter()
            .map(|walk| (walk.counts, walk.selecting))
            .unzip();
        let mut counts = BinnedSamples::default();
        counting.into_iter().for_each(|counted| counts.merge(counted));
        counts.stacks = self.selector.combine(selecting).samples.stacks;
        counts
    }
}

/// A sample in JIT code.
struct JitSample {
    /// Address space that it was taken in.
    space: SpaceId,
    /// The sampled address.
    ip: Address,
    /// The function or symbol there, if it is certain.
    code: Option<NamedCode>,
}

impl JitSample {
    /// Returns what was sampled; `None` if that is not in JIT code.
    fn of(located: &Located<SampleRecord<'_>>, selector: &Selector<'_>) -> Option<Self> {
        let (space, ip) = (located.space?, located.content.user_ip()?);
        let time = located.lookup_time();
        let lookup = selector.timeline.at(space, ip, time);
        let code = match (selector.classify_ip(space, ip, time, lookup)?, lookup) {
            (SampledCode::Function(at), _) => Some(NamedCode::Function(at)),
            (SampledCode::Symbol(_), Lookup::Symbol(symbol)) => Some(NamedCode::Symbol(symbol)),
            _ => None,
        };
        Some(Self { space, ip, code })
    }
}

/// State while reading some of the records.
struct CountingWalk<'a, T> {
    counter: &'a Counter<'a, T>,
    counts: BinnedSamples,
    selecting: SelectionWalk<'a>,
}

impl<T: Fn(NamedCode) -> Option<CompilerIndex> + Sync> SampleVisitor for CountingWalk<'_, T> {
    fn sample(&mut self, located: &Located<SampleRecord<'_>>) {
        let Self {
            counter,
            counts,
            selecting,
        } = self;
        if !counter
            .event
            .has(&located.content.record, counter.selector.profile)
        {
            counts.others = counts.others.saturating_add(1);
            return;
        }
        selecting.sample(located);
        let Some(pid) = located.pid else {
            return;
        };
        let bin = counter.span.bin(located.lookup_time());
        add_count(&mut counts.bins, (pid, Series::All, bin), 1);
        let Some(sampled) = JitSample::of(located, &counter.selector) else {
            return;
        };
        let series = match sampled.code {
            Some(code) => {
                add_count(&mut counts.code, (code, sampled.space), 1);
                Series::Tier((counter.tier)(code))
            }
            None => Series::Unnamed,
        };
        if let Some(NamedCode::Function(at)) = sampled.code {
            let mapping = &counter.selector.timeline.mappings[at];
            let offset = sampled.ip.0.saturating_sub(mapping.range.start.0);
            if let Ok(offset) = u32::try_from(offset) {
                add_count(&mut counts.offsets, (mapping.function, sampled.space, offset), 1);
            }
        }
        add_count(&mut counts.bins, (pid, series, bin), 1);
    }

    fn deferred_chain(&mut self, chain: &Located<Record<'_>>) {
        if self
            .counter
            .event
            .has(&chain.content, self.counter.selector.profile)
        {
            self.selecting.deferred_chain(chain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_is_in_one_of_so_many_parts() {
        for (start, end) in [(0, 1), (5, 9), (0, u64::MAX), (1_000, 1_000_000_007)] {
            let span = Span {
                start: Time(start),
                end: Time(end),
            };
            assert_eq!(span.bin(Time(start)), 0);
            assert!(
                [end - 1, end, u64::MAX]
                    .iter()
                    .all(|&time| span.bin(Time(time)) < BINS)
            );
            assert_eq!(span.bin(Time(u64::MAX)), BINS - 1);
        }
    }

    #[test]
    fn there_are_4096_parts() {
        let span = Span {
            start: Time(0),
            end: Time(2 * 4096),
        };
        let parts = [0, 1, 2, 8190, 8191].map(|time| span.bin(Time(time)));
        assert_eq!(parts, [0, 0, 1, 4095, 4095]);
    }
}
