//! Compares the summaries of two sides, each with one or more runs: finds functions that became slower or faster by more
//! than chance.
//!
//! - [`summary_file`] reads the summaries, and checks them.
//! - `matching` finds the same function in all runs, whatever its line, directory or tier, also if it was renamed.
//! - `measure` turns samples into shares or time per run, `significance` and [`statistics`] test the differences.
//! - `explanation` finds time that only moved between functions, because a compiler inlined a call or not.
//! - `rules` parses the rules of `--fail-on`, and `gate` checks them.
//! - [`report`] writes the result as text, Markdown or a flame graph.

mod comparison;
mod explanation;
mod gate;
mod matching;
mod measure;
mod options;
pub mod report;
mod rules;
mod significance;
#[cfg(test)]
mod simulations;
pub mod statistics;
pub mod summary_file;
#[cfg(test)]
mod testing;

pub use self::comparison::{Comparison, CpuChange, FORMAT, FunctionChange, Side, TierChange, Verdict};
pub use self::explanation::{Explanation, ExplanationKind};
pub use self::matching::MatchedFunction;
pub use self::measure::Measure;
pub use self::options::{CompareOptions, MeasureChoice};
pub use self::report::flame_graph::ComparedFlameGraph;
pub use self::rules::{GateRule, RuleResult};
pub use self::significance::Estimate;
pub use self::summary_file::ParsedSummary;

use crate::results::diagnostics::Diagnostic;
use crate::tools::compare::measure::Scale;

/// Result of comparing two sides.
#[derive(Debug)]
pub struct Compared {
    /// The differences.
    pub comparison: Comparison,
    /// The call trees of both sides.
    pub flame_graph: ComparedFlameGraph,
    /// Warnings.
    pub diagnostics: Vec<Diagnostic>,
}

/// Compares the runs of two sides. `wants_graph` is whether the call trees are needed.
pub fn compare(
    before: &[ParsedSummary],
    after: &[ParsedSummary],
    options: &CompareOptions,
    wants_graph: bool,
) -> Result<Compared, Diagnostic> {
    let table = matching::match_functions(before, after);
    let scale = Scale::of(&table, options.measure);
    let mut comparison = comparison::compare(&table, &scale, options);
    let rules = options
        .rules
        .iter()
        .map(|rule| rule.check(&comparison, &scale.diagnostics, options.measure));
    comparison.rules = rules.collect::<Result<_, _>>()?;
    let flame_graph = if wants_graph {
        ComparedFlameGraph::of(&table, &scale)
    } else {
        ComparedFlameGraph::default()
    };
    Ok(Compared {
        comparison,
        flame_graph,
        diagnostics: scale.diagnostics,
    })
}
