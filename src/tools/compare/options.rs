//! How summaries are compared.

use crate::tools::compare::rules::GateRule;
use crate::tools::compare::statistics::Assumptions;

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
    pub rules: Vec<GateRule>,
}

/// What functions are compared by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MeasureChoice {
    /// CPU time per run if it is known, otherwise shares.
    #[default]
    Auto,
    /// CPU time per run if it is known, otherwise events or samples per run.
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
    pub(super) fn least_change(&self) -> f64 {
        let rules = self.rules.iter().filter_map(GateRule::least_change);
        rules.fold(self.min_change, f64::min).max(0.0)
    }
}
