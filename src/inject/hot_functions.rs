//! Functions with samples, counted by name and compiler.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::bytes::printable;
use crate::code::selection::Selection;
use crate::hash::{HashMap, HashSet};
use crate::load::{Recording, function_of, symbol_of};
use crate::summary::{SampledFunction, TierSummary};

/// Name and compiler of functions that are counted together.
type Key<'a> = (&'a [u8], Option<&'a [u8]>);

/// Numbers of functions and samples.
#[derive(Clone, Copy, Default)]
struct Counts {
    functions: u64,
    samples: u64,
}

/// Returns the functions and perf map symbols with samples, those with most samples first.
pub fn functions(recording: &Recording<'_>, selection: &Selection) -> Vec<SampledFunction> {
    let Recording {
        timeline,
        sources,
        maps,
        ..
    } = recording;
    let mut counts: HashMap<Key<'_>, Counts> = HashMap::default();
    let mut add = |key, functions: u64, hits: u32| {
        let counts = counts.entry(key).or_default();
        counts.functions += functions;
        counts.samples += u64::from(hits);
    };
    let mut seen = HashSet::default();
    let hits = timeline.mappings().iter().zip(selection.hits.iter().copied());
    for (mapping, hits) in hits.filter(|&(_, hits)| hits > 0) {
        if let Some(view) = function_of(&sources.used, mapping.function) {
            // A function that was moved counts once.
            let is_new = seen.insert(mapping.function);
            add((view.name, view.tier()), u64::from(is_new), hits);
        }
    }
    for (&id, &hits) in &selection.symbol_hits {
        if let Some(symbol) = symbol_of(maps, id) {
            add((symbol.name, symbol.tier()), 1, hits);
        }
    }
    let mut functions: Vec<(Key<'_>, Counts)> = counts.into_iter().collect();
    functions.sort_unstable_by_key(|&(key, counts)| (Reverse(counts.samples), key));
    let summaries = functions
        .into_iter()
        .map(|((name, tier), counts)| SampledFunction {
            name: printable(name),
            tier: tier.map(printable),
            functions: counts.functions,
            samples: counts.samples,
        });
    summaries.collect()
}

/// Returns the totals of each compiler, those with most samples first.
pub fn tiers(functions: &[SampledFunction]) -> Vec<TierSummary> {
    let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
    for function in functions {
        let counts = counts.entry(function.tier_name()).or_default();
        counts.functions += function.functions;
        counts.samples += function.samples;
    }
    let mut tiers: Vec<(&str, Counts)> = counts.into_iter().collect();
    tiers.sort_by_key(|&(_, counts)| Reverse(counts.samples));
    let summaries = tiers.into_iter().map(|(tier, counts)| TierSummary {
        tier: tier.to_owned(),
        functions: counts.functions,
        samples: counts.samples,
    });
    summaries.collect()
}
