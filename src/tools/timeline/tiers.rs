//! Compilers of functions and symbols.

use jitdump::printable;

use crate::collections::hash::HashMap;
use crate::collections::indexed_table::{IndexedTable, index_of, table_index};
use crate::collections::interner::Interner;
use crate::load::Recording;
use crate::load::{all_symbols, function_of};
use crate::tools::timeline::code_box::CodeId;
use crate::tools::timeline::samples::{BinnedSamples, Series};

/// Maximum number of compilers to distinguish by color. Runtimes have up to six each.
const MAX_TIERS: usize = 10;

/// Name for all compilers that are not distinguished.
pub const OTHERS: &str = "other";

table_index! {
    /// Index of a compiler.
    CompilerIndex
}

/// Compilers of all code.
#[derive(Debug, Default)]
pub struct TimelineTiers {
    /// Names of the compilers.
    names: Interner<String, CompilerIndex>,
    /// Compiler of code, if known.
    compilers: HashMap<CodeId, CompilerIndex>,
}

/// Compilers that are distinguished.
#[derive(Debug, Default)]
pub struct Ranks {
    /// Names of the compilers, those with the most samples first.
    pub names: Vec<String>,
    /// For each compiler, its index in `names`.
    ranks: IndexedTable<CompilerIndex, u32>,
}

impl TimelineTiers {
    /// Collects the compilers of a recording.
    pub fn of(recording: &Recording<'_>) -> Self {
        let mut tiers = Self::default();
        for mapping in &recording.timeline.mappings {
            let function = function_of(&recording.runtime_files.used, mapping.function);
            if let Some(tier) = function.and_then(|function| function.tier()) {
                tiers.note(CodeId::Function(mapping.function), tier);
            }
        }
        for (id, symbol) in all_symbols(&recording.maps) {
            if let Some(tier) = symbol.tier() {
                tiers.note(CodeId::Symbol(id), tier);
            }
        }
        tiers
    }

    fn note(&mut self, code: CodeId, tier: &[u8]) {
        let index = self.names.of(printable(tier));
        self.compilers.insert(code, index);
    }

    /// Returns the compiler of code, if known.
    pub fn compiler_of(&self, code: CodeId) -> Option<CompilerIndex> {
        self.compilers.get(&code).copied()
    }

    /// Ranks the compilers by samples, and combines those with the fewest above the limit.
    pub fn ranks(&self, counts: &BinnedSamples) -> Ranks {
        let names = &self.names.all;
        let mut samples = names.map(|_| 0_u64);
        for (&(_, series, _), &count) in &counts.bins {
            if let Series::Tier(Some(tier)) = series {
                samples[tier] += u64::from(count);
            }
        }
        let mut order: Vec<CompilerIndex> = names.enumerate().map(|(tier, _)| tier).collect();
        order.sort_unstable_by(|&one, &other| {
            let by_samples = samples[other].cmp(&samples[one]);
            by_samples.then_with(|| names[one].cmp(&names[other]))
        });
        let has_others = order.len() > MAX_TIERS;
        let distinguished = if has_others { MAX_TIERS - 1 } else { order.len() };
        let mut ranks: IndexedTable<CompilerIndex, u32> = names.map(|_| 0);
        for (rank, &tier) in order.iter().enumerate() {
            ranks[tier] = index_of(rank.min(distinguished));
        }
        let first = order.iter().take(distinguished);
        let first_names = first.map(|&tier| names[tier].clone());
        let others = has_others.then(|| OTHERS.to_owned());
        Ranks {
            names: first_names.chain(others).collect(),
            ranks,
        }
    }
}

impl Ranks {
    /// Returns the index in [`Self::names`] of a compiler.
    pub fn of(&self, tier: CompilerIndex) -> u32 {
        self.ranks[tier]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::perf_map_symbols::{SymbolId, SymbolTableIndex};
    use crate::units::Pid;

    fn ranks(count: u32) -> Ranks {
        let mut tiers = TimelineTiers::default();
        let mut counts = BinnedSamples::default();
        for number in 0..count {
            let code = CodeId::Symbol(SymbolId {
                table: SymbolTableIndex(0),
                symbol: number,
            });
            tiers.note(code, format!("tier {number}").as_bytes());
            let series = Series::Tier(Some(CompilerIndex(number)));
            counts.bins.insert((Pid(1), series, 0), 100 + number);
        }
        tiers.ranks(&counts)
    }

    #[test]
    fn the_compilers_with_fewest_samples_are_told_as_one() {
        let few = ranks(10);
        assert_eq!((&*few.names[0], &*few.names[9]), ("tier 9", "tier 0"));
        let many = ranks(12);
        assert_eq!(many.names.len(), 10);
        assert_eq!((&*many.names[0], &*many.names[9]), ("tier 11", OTHERS));
        assert_eq!(
            [11, 3, 2, 0].map(|tier| many.of(CompilerIndex(tier))),
            [0, 8, 9, 9]
        );
    }
}
