//! Whether a difference between runs is more than their variation.
//!
//! # Model
//!
//! The value of a function in one run, such as its share of the samples, varies for three reasons. The model follows
//! them, so that few runs suffice:
//!
//! 1. Sampling: a share `p` of `n` samples has the variance `p (1 - p) / n`. This is the least that any value has.
//! 2. The run: caches, clock frequencies, and the decisions of a JIT compiler change the time of each function by some
//!    part. That part, the [relative variation](Variation), is the weighted median over all functions.
//! 3. The function: some vary more than others. How much more follows from the spread of the observed variances around
//!    those of 1 and 2, as in limma (Smyth, Linear models and empirical Bayes methods, 2004). The variance of a function
//!    is a mean of its own observed variance and the expected one, weighted by their degrees of freedom.
//!
//! The difference of two sides is tested by Welch's t-test with these variances, never with less than the sampling
//! variance. A side with one run has the variation of the other side.
//!
//! With one run on each side, nothing shows how much runs vary. Then the sampling variance is multiplied by
//! [`OVERDISPERSION`], because samples of a timer that are close in time are not independent, and the relative variation
//! is [assumed](ASSUMED_VARIATION). Only large changes are significant.
//!
//! # Many functions
//!
//! With hundreds of functions, some differ by chance. [`holm`] therefore limits the probability that any function is
//! significant by chance.

mod distributions;

use self::distributions::{
    MAX_FREEDOM, digamma, trigamma, trigamma_inverse, two_sided_p, two_sided_quantile,
};

/// Factor of the sampling variance if each side has one run. Over 14 runs of one program in Node.js 20, the functions
/// with the least variation had 0.8 to 1.7 times the sampling variance.
pub const OVERDISPERSION: f64 = 1.5;

/// Relative variation of a function's time from run to run if each side has one run. In the same runs, that of functions
/// which are not inlined now and then was 0 to 11 percent.
pub const ASSUMED_VARIATION: f64 = 0.1;

/// The same for the CPU time of a whole run.
pub const ASSUMED_COST_VARIATION: f64 = 0.05;

/// Relative variation before any run is seen, and its weight in degrees of freedom.
const PRIOR_VARIATION: (f64, f64) = (0.02, 2.0);

/// Least relative variation of CPU time.
const MIN_COST_VARIATION: f64 = 0.001;

/// Samples in each run from which on a function shows how much functions vary.
const MIN_SAMPLES: f64 = 5.0;

/// Number of observed variances from which on their spread can be estimated.
const MIN_VARIANCES: usize = 6;

/// Values of one function in all runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Values by side and run.
    pub values: [Vec<f64>; 2],
    /// Variance of the value of one run by sampling, by side.
    pub sampling: [f64; 2],
}

/// Difference between the means of two sides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Difference {
    /// Mean of the second side minus that of the first.
    pub change: f64,
    /// Standard error of the change.
    pub error: f64,
    /// Degrees of freedom of the standard error.
    pub freedom: f64,
}

impl Difference {
    /// Returns the probability of a change of at least this size, up or down, if there is none.
    pub fn p(&self) -> f64 {
        match self.error > 0.0 {
            true => two_sided_p(self.change / self.error, self.freedom),
            false => f64::from(u8::from(self.change == 0.0)),
        }
    }

    /// Returns half the width of the interval that has the true change with probability `1 - level`.
    pub fn margin(&self, level: f64) -> f64 {
        // Rounding down makes the interval wider.
        two_sided_quantile(level, self.freedom.floor().max(1.0)) * self.error
    }
}

/// Mean and observed variance of the values of one side.
#[derive(Clone, Copy, Debug)]
struct Moments {
    mean: f64,
    variance: f64,
    /// Degrees of freedom of the variance.
    freedom: f64,
    runs: f64,
}

impl Moments {
    fn of(values: &[f64]) -> Self {
        let runs = values.len() as f64;
        let mean = match values.len() {
            0 => 0.0,
            _ => values.iter().sum::<f64>() / runs,
        };
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let freedom = (runs - 1.0).max(0.0);
        Self {
            mean,
            variance: if freedom > 0.0 { squares / freedom } else { 0.0 },
            freedom,
            runs: runs.max(1.0),
        }
    }
}

/// How much the values of functions vary beyond sampling.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Variation {
    /// Relative variation from run to run, squared.
    relative: f64,
    /// Ratio of observed variances to those expected by sampling and the relative variation.
    ratio: f64,
    /// Degrees of freedom that the expected variance counts for.
    freedom: f64,
    /// Factor of the sampling variance.
    overdispersion: f64,
}

impl Variation {
    /// Estimates it from the observed variances of all functions.
    fn of(functions: &[([Moments; 2], [f64; 2])]) -> Self {
        let sides = functions
            .iter()
            .flat_map(|(moments, sampling)| moments.iter().zip(sampling));
        let observed: Vec<(&Moments, f64)> = sides
            .filter(|(moments, sampling)| {
                moments.freedom > 0.0 && moments.mean * moments.mean >= MIN_SAMPLES * **sampling
            })
            .map(|(moments, sampling)| (moments, *sampling))
            .collect();
        let all = functions.first().map(|(moments, _)| moments.iter());
        let freedom: f64 = all.into_iter().flatten().map(|moments| moments.freedom).sum();
        if freedom == 0.0 {
            return Self {
                relative: ASSUMED_VARIATION.powi(2),
                ratio: 1.0,
                freedom: MAX_FREEDOM,
                overdispersion: OVERDISPERSION,
            };
        }
        let (prior, weight) = PRIOR_VARIATION;
        let relative =
            (freedom * relative_variation(&observed) + weight * prior.powi(2)) / (freedom + weight);
        let expected = |moments: &Moments, sampling: f64| sampling + relative * moments.mean.powi(2);
        let ratios: Vec<(f64, f64)> = observed
            .iter()
            .map(|&(moments, sampling)| (moments.variance / expected(moments, sampling), moments.freedom))
            .collect();
        let (ratio, own) = fit_ratios(&ratios);
        Self {
            relative,
            ratio,
            // All functions share the runs, so they show less than as many independent values.
            freedom: own.min(4.0 * (freedom + weight)),
            overdispersion: 1.0,
        }
    }

    /// Returns the variance of the value of one run, as far as it is known without the function's own.
    fn expected(&self, mean: f64, sampling: f64) -> f64 {
        self.ratio * (self.overdispersion * sampling + self.relative * mean.powi(2))
    }
}

/// Returns the weighted median of the relative variations beyond sampling, squared.
fn relative_variation(observed: &[(&Moments, f64)]) -> f64 {
    let mut values: Vec<(f64, f64)> = observed
        .iter()
        .map(|(moments, sampling)| {
            // The median of a variance is less than its mean (Wilson and Hilferty).
            let median = (1.0 - 2.0 / (9.0 * moments.freedom)).powi(3);
            let square = moments.mean.powi(2);
            let beyond = (moments.variance / median - sampling).max(0.0) / square;
            (beyond, moments.freedom * square / sampling)
        })
        .collect();
    values.sort_by(|one, other| one.0.total_cmp(&other.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    for (value, weight) in values {
        sum += weight;
        if sum >= half {
            return value;
        }
    }
    0.0
}

/// Fits an F-distribution to ratios of variances with their degrees of freedom: returns its scale, at least 1, and its
/// second degrees of freedom.
fn fit_ratios(ratios: &[(f64, f64)]) -> (f64, f64) {
    const MIN_RATIO: f64 = 0.01;
    if ratios.len() < MIN_VARIANCES {
        return (1.0, 0.0);
    }
    let count = ratios.len() as f64;
    let logs: Vec<f64> = ratios
        .iter()
        .map(|&(ratio, freedom)| ratio.max(MIN_RATIO).ln() - digamma(freedom / 2.0) + (freedom / 2.0).ln())
        .collect();
    let mean = logs.iter().sum::<f64>() / count;
    let spread = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let by_chance = ratios
        .iter()
        .map(|&(_, freedom)| trigamma(freedom / 2.0))
        .sum::<f64>()
        / count;
    let beyond = spread - by_chance;
    if beyond <= 0.0 {
        return (mean.exp().max(1.0), MAX_FREEDOM);
    }
    let half = trigamma_inverse(beyond);
    let scale = (mean + digamma(half) - half.ln()).exp();
    (scale.max(1.0), (2.0 * half).min(MAX_FREEDOM))
}

/// Returns the difference between the sides for each function.
pub fn differences(functions: &[Series]) -> Vec<Difference> {
    let moments = |series: &Series| {
        (
            series.values.each_ref().map(|side| Moments::of(side)),
            series.sampling,
        )
    };
    let functions: Vec<_> = functions.iter().map(moments).collect();
    let variation = Variation::of(&functions);
    let differences = functions
        .iter()
        .map(|(moments, sampling)| difference(&variation, moments, *sampling));
    differences.collect()
}

fn difference(variation: &Variation, moments: &[Moments; 2], sampling: [f64; 2]) -> Difference {
    let [before, after] = moments;
    let common = (before.mean + after.mean) / 2.0;
    let has_spread = before.freedom + after.freedom > 0.0;
    // With one run on each side, both have the variation of their mean.
    let expected_mean = |side: &Moments| if has_spread { side.mean } else { common };
    let expected = |side: &Moments, sampling| variation.expected(expected_mean(side), sampling);
    let own = |side: &Moments, sampling: f64| {
        let freedom = variation.freedom + side.freedom;
        let sum = variation.freedom * expected(side, sampling) + side.freedom * side.variance;
        (if freedom > 0.0 { sum / freedom } else { 0.0 }, freedom)
    };
    let [one, other] = sampling;
    let (mut variances, mut freedoms) = ([0.0; 2], [0.0; 2]);
    (variances[0], freedoms[0]) = own(before, one);
    (variances[1], freedoms[1]) = own(after, other);
    // A side with one run varies as the other one.
    if before.freedom == 0.0 && after.freedom > 0.0 {
        let scale = expected(before, one) / expected(after, other);
        variances[0] = variances[1] * scale;
    } else if after.freedom == 0.0 && before.freedom > 0.0 {
        let scale = expected(after, other) / expected(before, one);
        variances[1] = variances[0] * scale;
    }
    let terms = [
        variances[0].max(one) / before.runs,
        variances[1].max(other) / after.runs,
    ];
    let is_shared = before.freedom == 0.0 || after.freedom == 0.0;
    let freedom = match is_shared {
        true => freedoms[0].max(freedoms[1]),
        false => welch(terms, freedoms),
    };
    Difference {
        change: after.mean - before.mean,
        error: (terms[0] + terms[1]).sqrt(),
        freedom: freedom.clamp(1.0, MAX_FREEDOM),
    }
}

/// Returns the degrees of freedom of a sum of variances (Welch and Satterthwaite).
fn welch(terms: [f64; 2], freedoms: [f64; 2]) -> f64 {
    let squares: f64 = terms
        .iter()
        .zip(freedoms)
        .map(|(term, freedom)| term * term / freedom.max(1.0))
        .sum();
    match squares > 0.0 {
        true => (terms[0] + terms[1]).powi(2) / squares,
        false => MAX_FREEDOM,
    }
}

/// Returns the difference between the logarithms of costs of runs, such as CPU time. All must be positive.
pub fn cost_difference(before: &[f64], after: &[f64]) -> Difference {
    let logs = |side: &[f64]| Moments::of(&side.iter().map(|cost| cost.ln()).collect::<Vec<_>>());
    let (before, after) = (logs(before), logs(after));
    let change = after.mean - before.mean;
    let least = MIN_COST_VARIATION.powi(2);
    let (variances, freedom) = match (before.freedom > 0.0, after.freedom > 0.0) {
        (false, false) => ([ASSUMED_COST_VARIATION.powi(2); 2], MAX_FREEDOM),
        (true, false) => ([before.variance.max(least); 2], before.freedom),
        (false, true) => ([after.variance.max(least); 2], after.freedom),
        (true, true) => {
            let variances = [before.variance.max(least), after.variance.max(least)];
            let terms = [variances[0] / before.runs, variances[1] / after.runs];
            (variances, welch(terms, [before.freedom, after.freedom]))
        }
    };
    Difference {
        change,
        error: (variances[0] / before.runs + variances[1] / after.runs).sqrt(),
        freedom: freedom.clamp(1.0, MAX_FREEDOM),
    }
}

/// Result of one of several tests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tested {
    /// Whether the difference is more than chance.
    pub is_significant: bool,
    /// Probability below which it would have been.
    pub level: f64,
}

/// Corrects the probabilities of several tests (Holm): with probability `1 - level`, none is significant by chance.
pub fn holm(probabilities: &[f64], level: f64) -> Vec<Tested> {
    let mut order: Vec<(usize, f64)> = probabilities.iter().copied().enumerate().collect();
    order.sort_by(|one, other| one.1.total_cmp(&other.1));
    let nothing = Tested {
        is_significant: false,
        level,
    };
    let mut results = vec![nothing; probabilities.len()];
    let mut remaining = probabilities.len() as f64;
    let mut is_significant = true;
    for (index, probability) in order {
        let corrected = level / remaining;
        is_significant &= probability <= corrected;
        if let Some(result) = results.get_mut(index) {
            *result = Tested {
                is_significant,
                level: corrected,
            };
        }
        if is_significant {
            remaining -= 1.0;
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holm_stops_at_the_first_that_may_be_chance() {
        let results = holm(&[0.04, 0.001, 0.03, 0.012], 0.05);
        let significant: Vec<bool> = results.iter().map(|result| result.is_significant).collect();
        assert_eq!(significant, [false, true, false, true]);
        let levels: Vec<f64> = results.iter().map(|result| result.level).collect();
        assert_eq!(levels, [0.025, 0.0125, 0.025, 0.05 / 3.0]);
        assert!(holm(&[], 0.05).is_empty());
    }

    #[test]
    fn a_side_with_one_run_varies_as_the_other() {
        let series = |after: &[f64]| Series {
            values: [vec![20.0, 21.0, 22.0, 20.5, 21.5], after.to_vec()],
            sampling: [0.1, 0.1],
        };
        let [one] = differences(&[series(&[21.0])])[..] else {
            panic!()
        };
        let [five] = differences(&[series(&[20.0, 21.0, 22.0, 20.5, 21.5])])[..] else {
            panic!()
        };
        assert!(
            one.error > five.error && one.freedom < five.freedom,
            "{one:?} {five:?}"
        );
        assert_eq!(one.change, 0.0);
    }

    #[test]
    fn single_runs_are_compared_with_assumptions() {
        let series = |before: f64, after: f64| Series {
            values: [vec![before], vec![after]],
            sampling: [0.16, 0.16],
        };
        let small = differences(&[series(20.0, 24.0)]);
        assert!(small[0].p() > 0.01, "{small:?}");
        let large = differences(&[series(20.0, 40.0)]);
        assert!(large[0].p() < 0.001, "{large:?}");
        let cost = cost_difference(&[10.0], &[11.0]);
        assert!(cost.p() > 0.01 && cost_difference(&[10.0], &[15.0]).p() < 0.001);
    }

    #[test]
    fn impossible_values_have_no_significance() {
        let nothing = Series {
            values: [vec![], vec![]],
            sampling: [0.0; 2],
        };
        let results = differences(&[nothing]);
        assert_eq!(results[0].p(), 1.0);
        assert!(differences(&[]).is_empty());
    }
}
