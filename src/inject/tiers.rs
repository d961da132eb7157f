//! Samples by the compiler of their function.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jitdump::printable;

use crate::code::selection::Selection;
use crate::collections::hash::HashSet;
use crate::load::{Recording, function_of, symbol_of};
use crate::results::summary::TierSummary;

/// Name of the tier of functions whose compiler is unknown.
const UNKNOWN: &[u8] = b"not known";

/// Returns the numbers of sampled functions and samples of each compiler, those with most samples first.
pub fn tiers(recording: &Recording<'_>, selection: &Selection) -> Vec<TierSummary> {
    let Recording {
        timeline,
        runtime_files,
        maps,
        ..
    } = recording;
    let mut counts: BTreeMap<&[u8], (u64, u64)> = BTreeMap::new();
    let mut add = |tier: Option<_>, functions, samples: u32| {
        let (all_functions, all_samples) = counts.entry(tier.unwrap_or(UNKNOWN)).or_default();
        *all_functions += functions;
        *all_samples += u64::from(samples);
    };
    let mut seen = HashSet::default();
    let hits = timeline.mappings().iter().zip(&selection.hits);
    for (mapping, &samples) in hits.filter(|&(_, &samples)| samples > 0) {
        if let Some(function) = function_of(&runtime_files.used, mapping.function) {
            // A function that was moved counts once.
            add(function.tier(), u64::from(seen.insert(mapping.function)), samples);
        }
    }
    for (&id, &samples) in &selection.symbol_hits {
        if let Some(symbol) = symbol_of(maps, id) {
            add(symbol.tier(), 1, samples);
        }
    }
    let mut tiers: Vec<TierSummary> = counts
        .into_iter()
        .map(|(tier, (functions, samples))| TierSummary {
            tier: printable(tier),
            functions,
            samples,
        })
        .collect();
    tiers.sort_by_key(|tier| Reverse(tier.samples));
    tiers
}
