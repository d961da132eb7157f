//! What is missing in the samples of a profile.

use std::cmp::Ordering;

use serde::Serialize;

use crate::frames::unwind::Unwound;
use crate::results::summary::count;

/// Losses of a part of the samples. `Losses::of` adds what is only known of the whole profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossCounts {
    /// What is counted so far. Of the stacks that are cut, those as long as their event allows (`max-stack`).
    pub losses: Losses,
    /// Call chains as long as the kernel records them.
    pub full_chains: FullChains,
}

impl LossCounts {
    /// Adds the counts of another part.
    pub(super) fn merge(&mut self, other: &Self) {
        // All fields, so that none is forgotten. Those without a name are only known of the whole profile.
        let Losses {
            samples,
            lost: _,
            jit,
            unnamed,
            without_symbol,
            unknown,
            unknown_callers,
            without_kernel: _,
            unwound: _,
            cut,
            not_unwound: _,
            deferred,
            truncated,
            without_callers,
        } = other.losses;
        let own = &mut self.losses;
        for (own, other) in [
            (&mut own.samples, samples),
            (&mut own.jit, jit),
            (&mut own.unnamed, unnamed),
            (&mut own.without_symbol, without_symbol),
            (&mut own.unknown, unknown),
            (&mut own.unknown_callers, unknown_callers),
            (&mut own.cut, cut),
            (&mut own.deferred, deferred),
            (&mut own.truncated, truncated),
            (&mut own.without_callers, without_callers),
        ] {
            *own = own.saturating_add(other);
        }
        self.full_chains.merge(&other.full_chains);
    }
}

/// Call chains that may lack their outermost callers.
///
/// A profile does not have the limit (`kernel.perf_event_max_stack`): it is the length of the longest chains, unless they
/// are below the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FullChains {
    /// Addresses in each of them.
    length: usize,
    /// Number of chains of this length.
    count: u64,
}

impl FullChains {
    /// Addresses in the longest chain that the kernel records by default.
    pub const DEFAULT_LENGTH: usize = 127;

    /// Adds a chain of so many addresses.
    pub fn add(&mut self, length: usize) {
        self.merge(&Self { length, count: 1 });
    }

    fn merge(&mut self, other: &Self) {
        match self.length.cmp(&other.length) {
            Ordering::Less => *self = *other,
            Ordering::Equal => self.count = self.count.saturating_add(other.count),
            Ordering::Greater => {}
        }
    }

    /// Number of chains that are likely cut.
    fn cut(&self) -> u64 {
        // With a higher limit, the longest chain may be whole; several of the same length rarely are.
        let is_limit = self.length == Self::DEFAULT_LENGTH || self.count > 1;
        if is_limit { self.count } else { 0 }
    }
}

impl Default for FullChains {
    fn default() -> Self {
        Self {
            length: Self::DEFAULT_LENGTH,
            count: 0,
        }
    }
}

/// What is missing in the samples of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Losses {
    /// Number of samples.
    pub samples: u64,
    /// Samples that perf lost.
    pub lost: u64,
    /// Samples in JIT code.
    pub jit: u64,
    /// Those without a name.
    pub unnamed: u64,
    /// Samples in files, or in the kernel, without a symbol for the address.
    pub without_symbol: u64,
    /// Samples in nothing that is known.
    pub unknown: u64,
    /// Stacks with callers in nothing that is known.
    pub unknown_callers: u64,
    /// Whether no event of time or cycles counts in the kernel.
    pub without_kernel: bool,
    /// Stacks that were unwound, of all events.
    pub unwound: u64,
    /// Stacks that are not whole: the copy ends too early, or the kernel recorded as many callers as it can.
    pub cut: u64,
    /// Stacks that were unwound up to code without tables or frame pointers, or damage, and not further.
    pub not_unwound: u64,
    /// Samples whose callers were recorded apart from them, and are missing.
    pub deferred: u64,
    /// Samples that end before their last field.
    pub truncated: u64,
    /// Samples without callers because there were too many stacks.
    pub without_callers: u64,
}

impl Losses {
    /// Returns what is missing. `lost` is the number of samples that perf lost, `without_kernel` is whether no event counts in the
    /// kernel.
    pub(super) fn of(counts: &LossCounts, lost: u64, unwound: &Unwound, without_kernel: bool) -> Self {
        let unwound = unwound.summary.unwrap_or_default();
        Self {
            lost,
            without_kernel,
            unwound: unwound.stacks,
            cut: match unwound.stacks {
                0 => counts.full_chains.cut().saturating_add(counts.losses.cut),
                _ => unwound.cut,
            },
            not_unwound: unwound
                .stacks
                .saturating_sub(unwound.to_start)
                .saturating_sub(unwound.cut),
            ..counts.losses
        }
    }

    /// Returns a text for each kind of loss, such as `3 of 90 samples truncated`; none if nothing is missing.
    fn texts(&self) -> Vec<String> {
        const CUT: &str = "stacks cut";
        const CUT_AT_LIMIT: &str =
            "stacks cut at the limit (sysctl kernel.perf_event_max_stack, or max-stack of the event)";
        let Self { samples, jit, .. } = *self;
        // Samples may be those of one event only, unwound stacks are those of all.
        let stacks = self.unwound.max(samples);
        let cut = if self.unwound == 0 { CUT_AT_LIMIT } else { CUT };
        let mut texts = Vec::new();
        if self.lost > 0 {
            texts.push(format!("{} lost", count(self.lost, "sample")));
        }
        texts.extend(shares(&[
            (self.unnamed, jit, "samples in JIT code without a name"),
            (self.without_symbol, samples, "samples in files without a symbol"),
            (self.unknown, samples, "samples in unknown code"),
            (
                self.unknown_callers,
                samples,
                "stacks with callers in unknown code",
            ),
        ]));
        if self.without_kernel {
            texts.push("kernel time not recorded".to_owned());
        }
        texts.extend(shares(&[
            (self.cut, stacks, cut),
            (
                self.not_unwound,
                stacks,
                "stacks end in code that cannot be unwound",
            ),
            (self.deferred, samples, "samples without their deferred callers"),
            (self.truncated, samples, "samples truncated"),
            (
                self.without_callers,
                samples,
                "samples without callers, because stacks are too many",
            ),
        ]));
        texts
    }

    /// Whether anything is missing.
    pub fn is_any(&self) -> bool {
        !self.texts().is_empty()
    }

    /// Returns what is missing, as one line.
    pub fn text(&self) -> String {
        match self.texts() {
            texts if texts.is_empty() => {
                "nothing: no sample lost, all sampled code named, kernel time recorded, no stack cut"
                    .to_owned()
            }
            texts => texts.join("; "),
        }
    }
}

/// Returns `MISSING of ALL WHAT` for each of `kinds` of which something is missing.
fn shares(kinds: &[(u64, u64, &str)]) -> Vec<String> {
    let missing = kinds.iter().filter(|(missing, ..)| *missing > 0);
    let texts = missing.map(|(missing, all, what)| format!("{missing} of {all} {what}"));
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(lengths: &[usize]) -> u64 {
        let parts = lengths.chunks(2).map(|lengths| {
            let mut part = FullChains::default();
            lengths.iter().for_each(|&length| part.add(length));
            part
        });
        let whole = parts.fold(FullChains::default(), |mut whole, part| {
            whole.merge(&part);
            whole
        });
        whole.cut()
    }

    #[test]
    fn chains_are_cut_at_the_default_or_at_the_length_of_the_longest_ones() {
        assert_eq!(cut(&[]), 0);
        assert_eq!(cut(&[126, 126]), 0);
        assert_eq!(cut(&[126, 127, 3]), 1);
        // The limit was higher, and no chain reached it, or several did.
        assert_eq!(cut(&[127, 127, 127, 200]), 0);
        assert_eq!(cut(&[127, 512, 512, 200, 512]), 3);
    }
}
