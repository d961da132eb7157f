//! Compares the summaries of two sides, each with one or more runs: what became slower or faster, and whether that is
//! more than chance.
//!
//! - [`summary_file`] reads the summaries, and checks them.
//! - `matching` finds the same function in all runs, whatever its line, folder, tier or name.
//! - `measure` turns samples into shares or time per run, [`statistics`] tests the differences.
//! - `explanation` finds time that only moved between functions, because a compiler inlined a call or not.
//! - `rules` checks the rules of `--fail-on`.
//! - [`report`] writes the result as text, Markdown or a flame graph.

mod comparison;
mod explanation;
mod matching;
mod measure;
pub mod report;
mod rules;
#[cfg(test)]
mod simulations;
pub mod statistics;
pub mod summary_file;
#[cfg(test)]
mod testing;

pub use self::comparison::{
    Comparison, CpuChange, Estimate, FunctionChange, ShownFunction, Side, TierChange, Verdict,
};
pub use self::explanation::{Explanation, ExplanationKind};
pub use self::measure::Measure;
pub use self::report::flame_graph::FlameGraph;
pub use self::rules::{Rule, RuleResult};
pub use self::summary_file::ParsedSummary;

use crate::compare::measure::Scale;
use crate::compare::statistics::Assumptions;
use crate::diagnostics::Diagnostic;

/// Version of the JSON format. It changes when a field is removed or changes its meaning.
pub const FORMAT: u32 = 2;

/// How summaries are compared.
#[derive(Clone, PartialEq, Debug)]
pub struct CompareOptions {
    /// What functions are compared by.
    pub measure: MeasureChoice,
    /// Probability that nothing is significant by chance, in percent.
    pub confidence: f64,
    /// Changes of functions below this are not examined, in percentage points.
    pub min_change: f64,
    /// Variations from run to run that single runs cannot show.
    pub assumptions: Assumptions,
    /// Rules to check.
    pub rules: Vec<Rule>,
}

/// What functions are compared by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MeasureChoice {
    /// CPU time per run if it is known, otherwise shares.
    #[default]
    Auto,
    /// CPU time per run if it is known, otherwise samples per run.
    PerRun,
    /// Shares.
    Shares,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            measure: MeasureChoice::Auto,
            confidence: 97.0,
            min_change: 0.5,
            assumptions: Assumptions::default(),
            rules: Vec::new(),
        }
    }
}

impl CompareOptions {
    /// Returns the least change of a function that matters to a rule or the reader, in percentage points.
    fn least_change(&self) -> f64 {
        let rules = self.rules.iter().filter_map(Rule::least_change);
        rules.fold(self.min_change, f64::min).max(0.0)
    }
}

/// Result of comparing two sides.
#[derive(Debug)]
pub struct Compared {
    /// The differences.
    pub comparison: Comparison,
    /// The call trees of both sides.
    pub flame_graph: FlameGraph,
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
    let rules = options.rules.iter().map(|rule| rule.check(&comparison));
    comparison.rules = rules.collect::<Result<_, _>>()?;
    let flame_graph = match wants_graph {
        true => FlameGraph::of(&table, &scale),
        false => FlameGraph::default(),
    };
    Ok(Compared {
        comparison,
        flame_graph,
        diagnostics: scale.diagnostics,
    })
}
