//! Compilers of functions and symbols.

use std::cmp::Reverse;

use crate::bytes::printable;
use crate::code::perf_map_symbols::SymbolId;
use crate::hash::HashMap;
use crate::load::Recording;
use crate::load::function_of;
use crate::timeline::code_box::Item;
use crate::timeline::samples::{Counts, Series};

/// Maximum number of compilers to distinguish by colour. Runtimes have up to six each.
const MAX_TIERS: usize = 10;

/// Name for all compilers without a colour of their own.
const OTHERS: &str = "other";

/// Compilers of all code.
#[derive(Debug, Default)]
pub struct Tiers {
    /// Names of the compilers.
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Index of the compiler of each item, if known.
    compilers: HashMap<Item, u32>,
}

/// Compilers that are distinguished.
#[derive(Debug, Default)]
pub struct Ranks {
    /// Names of the compilers, those with the most samples first.
    pub names: Vec<String>,
    /// For each compiler, its index in `names`.
    ranks: Vec<u32>,
}

impl Tiers {
    /// Collects the compilers of a recording.
    pub fn of(recording: &Recording<'_>) -> Self {
        let mut tiers = Self::default();
        for mapping in recording.timeline.mappings() {
            let view = function_of(&recording.sources.used, mapping.function);
            if let Some(tier) = view.and_then(|view| view.tier()) {
                tiers.note(Item::Function(mapping.function), tier);
            }
        }
        for (table, used) in (0u32..).zip(&recording.maps) {
            for (symbol, of_map) in (0u32..).zip(&used.map.symbols) {
                if let Some(tier) = of_map.tier() {
                    tiers.note(Item::Symbol(SymbolId { table, symbol }), tier);
                }
            }
        }
        tiers
    }

    fn note(&mut self, item: Item, tier: &[u8]) {
        let name = printable(tier);
        let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let names = &mut self.names;
        let number = *self.numbers.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            next
        });
        self.compilers.insert(item, number);
    }

    /// Returns the index of the compiler of an item, if known.
    pub fn compiler_of(&self, item: Item) -> Option<u32> {
        self.compilers.get(&item).copied()
    }

    /// Ranks the compilers by samples, and combines those with the fewest above the limit.
    pub fn ranks(&self, counts: &Counts) -> Ranks {
        let mut samples = vec![0u64; self.names.len()];
        for (&(_, series, _), &count) in &counts.bins {
            if let Series::Tier(Some(tier)) = series
                && let Some(samples) = samples.get_mut(tier as usize)
            {
                *samples += u64::from(count);
            }
        }
        let mut order: Vec<(Reverse<u64>, &String, usize)> = samples
            .into_iter()
            .zip(&self.names)
            .enumerate()
            .map(|(number, (samples, name))| (Reverse(samples), name, number))
            .collect();
        order.sort_unstable();
        let has_others = order.len() > MAX_TIERS;
        let distinguished = if has_others { MAX_TIERS - 1 } else { order.len() };
        let mut ranks = Ranks {
            names: order
                .iter()
                .take(distinguished)
                .map(|(_, name, _)| (*name).clone())
                .collect(),
            ranks: vec![0; order.len()],
        };
        ranks.names.extend(has_others.then(|| OTHERS.to_owned()));
        for (rank, &(_, _, number)) in order.iter().enumerate() {
            if let Some(place) = ranks.ranks.get_mut(number) {
                *place = u32::try_from(rank.min(distinguished)).unwrap_or(u32::MAX);
            }
        }
        ranks
    }
}

impl Ranks {
    /// Returns the index in [`Self::names`] of a compiler.
    pub fn of(&self, tier: u32) -> Option<u32> {
        self.ranks.get(tier as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Pid;

    #[test]
    fn the_compilers_with_fewest_samples_are_told_as_one() {
        let mut tiers = Tiers::default();
        let mut counts = Counts::default();
        for number in 0..12_u32 {
            let item = Item::Symbol(SymbolId {
                table: 0,
                symbol: number,
            });
            tiers.note(item, format!("tier {number}").as_bytes());
            counts
                .bins
                .insert((Pid(1), Series::Tier(Some(number)), 0), 100 + number);
        }
        let ranks = tiers.ranks(&counts);
        assert_eq!(ranks.names.len(), MAX_TIERS);
        assert_eq!((&*ranks.names[0], &*ranks.names[9]), ("tier 11", OTHERS));
        assert_eq!(
            (ranks.of(11), ranks.of(3), ranks.of(2), ranks.of(0)),
            (Some(0), Some(8), Some(9), Some(9))
        );
    }
}
