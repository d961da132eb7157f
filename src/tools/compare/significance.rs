//! Which functions changed by more than chance.

use serde::Serialize;

use crate::results::summary::profile::CodeOrigin;
use crate::tools::compare::matching::{AFTER, BEFORE, RunTable};
use crate::tools::compare::measure::{Measure, Part, Scale};
use crate::tools::compare::options::CompareOptions;
use crate::tools::compare::statistics::{
    Difference, Quantiles, Series, WeightedTest, differences, holm, mean,
};

/// A value on both sides, in percent of the [measure](Measure).
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Estimate {
    /// Mean of the first side.
    pub before: f64,
    /// Mean of the second side.
    pub after: f64,
    /// Difference, in percentage points.
    pub change: f64,
    /// Half the width of its confidence interval; `None` if it was too small to be tested.
    pub margin: Option<f64>,
    /// Whether the change is more than chance.
    pub is_significant: bool,
}

/// Tests which functions changed by more than chance.
pub(super) struct FunctionTest<'t, 's> {
    /// The functions.
    pub table: &'t RunTable<'s>,
    /// What their values are.
    pub scale: &'t Scale,
    /// What is assumed where runs do not show it.
    pub options: &'t CompareOptions,
    /// Probability that any function is significant by chance.
    pub level: f64,
    /// Least change that matters, above 0.
    pub least: f64,
}

/// A function with enough time to be tested.
struct TestedFunction {
    /// Index among all functions.
    index: usize,
    row: u32,
    /// Sum of the means of both sides.
    time: f64,
}

impl FunctionTest<'_, '_> {
    /// Returns the estimates of all functions, in the order of `rows`. Functions with most of the time may change as the
    /// whole run, by `change_of_run`; it is 0 if that is not significant.
    pub fn estimates(&self, rows: &[u32], part: Part, change_of_run: f64) -> Vec<Estimate> {
        let mut estimates: Vec<Estimate> = rows.iter().map(|&row| self.untested(row, part)).collect();
        let tested = self.tested(rows, &estimates);
        let tested_rows: Vec<u32> = tested.iter().map(|function| function.row).collect();
        let shares = self.differences(&tested_rows, &self.scale.share_weights, part);
        let shown = match self.scale.measure {
            Measure::Share => shares.clone(),
            _ => self.differences(&tested_rows, &self.scale.weights, part),
        };
        let changes = shares.iter().zip(&shown);
        let tests = tested.iter().zip(changes).map(|(function, (share, shown))| {
            let may_follow_run = change_of_run != 0.0 && self.has_most(function.row, part);
            WeightedTest {
                probability: if may_follow_run {
                    self.probability_with_run(share, shown, change_of_run)
                } else {
                    self.probability(share, shown)
                },
                weight: function.time,
            }
        });
        let results = holm(&tests.collect::<Vec<_>>(), self.level);
        let mut quantiles = Quantiles::new(self.level);
        for ((function, difference), is_significant) in tested.iter().zip(&shown).zip(results) {
            if let Some(estimate) = estimates.get_mut(function.index) {
                estimate.is_significant = is_significant;
                estimate.margin = Some(difference.margin(&mut quantiles));
            }
        }
        estimates
    }

    /// Returns the means of a function, without a test.
    fn untested(&self, row: u32, part: Part) -> Estimate {
        let [before, after] = self.means(row, &self.scale.weights, part);
        Estimate {
            before,
            after,
            change: after - before,
            ..Estimate::default()
        }
    }

    /// Returns the functions to test, in the order of `rows`.
    ///
    /// A function that changed by `least` has at least half of that on average. The selection depends on the sum of
    /// the sides only, so it does not prefer differences by chance.
    fn tested(&self, rows: &[u32], estimates: &[Estimate]) -> Vec<TestedFunction> {
        let functions = rows.iter().zip(estimates).enumerate();
        let functions = functions.map(|(index, (&row, estimate))| TestedFunction {
            index,
            row,
            time: estimate.before + estimate.after,
        });
        let tested =
            functions.filter(|function| function.time >= self.least && !self.is_unpredictable(function.row));
        tested.collect()
    }

    /// Whether the variation of a function is neither known nor can be assumed. The time of the kernel depends on the whole
    /// machine: clearing pages took from 0.4 to 8 percent of the same program.
    fn is_unpredictable(&self, row: u32) -> bool {
        let is_kernel = self
            .table
            .function(row)
            .is_some_and(|function| function.kind == CodeOrigin::Kernel);
        is_kernel && self.table.is_one_run_each()
    }

    /// Tests the own samples or totals of rows. Runs have `weights`.
    fn differences(&self, rows: &[u32], weights: &[f64], part: Part) -> Vec<Difference> {
        let table = self.table;
        let sampling = [BEFORE, AFTER].map(|side| sampling_variance(table, weights, side));
        let all: f64 = (0..table.runs.len()).map(|run| table.samples(run) as f64).sum();
        // With JIT code, native code is also that of compilers and garbage collectors, which run beside the program.
        let assumed = if table.runs.iter().any(|run| run.samples.jit > 0) {
            self.options.assumptions.jit
        } else {
            self.options.assumptions.other
        };
        let series = |&row: &u32| {
            let samples = || {
                let sides = [BEFORE, AFTER].into_iter();
                sides.flat_map(move |side| self.samples(row, side, part))
            };
            let own: f64 = samples().map(|(_, samples)| samples).sum();
            let weighted: f64 = samples()
                .map(|(run, samples)| samples * self.scale.period(row, run, part))
                .sum();
            let period = if own > 0.0 { weighted / own } else { 1.0 };
            // One more sample with and without the function keep the variance above 0.
            let share = ((own + 1.0) / (all + 2.0)).min(1.0 - 1.0 / (all + 2.0));
            let sampling = sampling.map(|variance| variance * share * (1.0 - share) * period.powi(2));
            Series::of(&self.values_by_run(row, weights, part), sampling, assumed)
        };
        differences(&rows.iter().map(series).collect::<Vec<_>>())
    }

    /// Returns the probability of a change by chance: that of the share, if the shown value changed in the same direction.
    ///
    /// If one function takes longer, the shares of all others fall, but not their times. If a machine is slower, the times
    /// of all functions rise, but not their shares.
    fn probability(&self, share: &Difference, shown: &Difference) -> f64 {
        let is_shown = share.change * shown.change > 0.0 && shown.p() <= self.level;
        if is_shown { share.p() } else { 1.0 }
    }

    /// Returns the same for a function that may change as the whole run: then, its share need not change.
    fn probability_with_run(&self, share: &Difference, shown: &Difference, change_of_run: f64) -> f64 {
        let probability = self.probability(share, shown);
        let is_like_run = shown.change * change_of_run > 0.0 && !self.is_opposed(share, change_of_run);
        if is_like_run {
            probability.min(shown.p())
        } else {
            probability
        }
    }

    /// Whether a share changed against a direction by more than chance.
    fn is_opposed(&self, share: &Difference, direction: f64) -> bool {
        share.change * direction < 0.0 && share.p() <= self.level
    }

    /// Whether a function has more than half of the time on both sides. If it takes longer, so does the whole run, and its
    /// share hardly rises.
    fn has_most(&self, row: u32, part: Part) -> bool {
        let shares = self.means(row, &self.scale.share_weights, part);
        shares.iter().all(|share| *share > 50.0)
    }

    /// Returns the mean values of a function on both sides.
    fn means(&self, row: u32, weights: &[f64], part: Part) -> [f64; 2] {
        [BEFORE, AFTER].map(|side| {
            let values = self.nonzero(row, side, weights, part);
            let sum = values.fold(0.0, |sum, (_, value)| sum + value);
            sum / self.table.runs_of(side).len().max(1) as f64
        })
    }

    /// Returns the values of a function in the runs of both sides.
    fn values_by_run(&self, row: u32, weights: &[f64], part: Part) -> [Vec<f64>; 2] {
        [BEFORE, AFTER].map(|side| {
            let runs = self.table.runs_of(side);
            let mut values = vec![0.0; runs.len()];
            for (run, value) in self.nonzero(row, side, weights, part) {
                if let Some(known) = values.get_mut(run.saturating_sub(runs.start)) {
                    *known = value;
                }
            }
            values
        })
    }

    /// Returns the values of a function in the runs of a side that have it. It is 0 in all others. `weights` has the value
    /// of a sample in each run.
    fn nonzero(
        &self,
        row: u32,
        side: usize,
        weights: &[f64],
        part: Part,
    ) -> impl Iterator<Item = (usize, f64)> {
        self.samples(row, side, part).map(move |(run, samples)| {
            let weight = weights.get(run).copied().unwrap_or_default();
            (run, samples * weight * self.scale.period(row, run, part))
        })
    }

    /// Returns the number of samples in a function, or a part of it, in the runs of a side that have it.
    fn samples(&self, row: u32, side: usize, part: Part) -> impl Iterator<Item = (usize, f64)> {
        let counts = self.table.counts(row, side);
        counts.map(move |(run, (own, total))| match part {
            Part::Own => (run, own as f64),
            Part::Total => (run, total as f64),
        })
    }
}

/// Returns the mean variance by sampling of the values of a side's runs, for a share `p` divided by `p (1 - p)`.
fn sampling_variance(table: &RunTable<'_>, weights: &[f64], side: usize) -> f64 {
    let runs = table.runs_of(side);
    let runs = runs.filter_map(|run| Some((table.samples(run).max(1) as f64, *weights.get(run)?)));
    let variances: Vec<f64> = runs.map(|(samples, weight)| samples * weight * weight).collect();
    mean(&variances)
}
