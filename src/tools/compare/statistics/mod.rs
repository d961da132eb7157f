//! Whether a difference between runs is more than their variation.
//!
//! # Model
//!
//! The value of a function in one run, such as its share of the samples, varies for three reasons. The model follows
//! them, so that few runs suffice:
//!
//! 1. Sampling: a share `p` of `n` samples has the variance `p (1 - p) / n`. This is the least that any value has.
//! 2. The run: caches, clock frequencies, and the decisions of a JIT compiler change the time of each function by some
//!    part. That part, the relative variation, is the weighted median over all functions.
//! 3. The function: some vary more than others. How much more follows from the spread of the observed variances around
//!    those of 1 and 2, as in limma (Smyth, Linear models and empirical Bayes methods, 2004). The variance of a function
//!    is a mean of its own observed variance and the expected one, weighted by their degrees of freedom.
//!
//! The difference of two sides is tested by Welch's t-test with these variances, never with less than the sampling
//! variance. A side with one run has the variation of the other side.
//!
//! With one run on each side, nothing shows how much runs vary. Then the sampling variance is multiplied by
//! [`OVERDISPERSION`], because samples of a timer that are close in time are not independent, and the relative variation
//! is [assumed](Assumptions). As JIT compilers inline other calls in each run, and collect garbage at other times, only
//! enormous changes of programs with JIT code are significant then.
//!
//! # Many functions
//!
//! With hundreds of functions, some differ by chance. [`holm`] therefore limits the probability that any function is
//! significant by chance. Each function has a part of that probability in proportion to its time, so that the many small
//! ones do not hide the changes of the large ones.

mod distributions;
mod many_tests;
mod quantiles;

pub use self::many_tests::{WeightedTest, holm};
pub use self::quantiles::Quantiles;

use self::distributions::{MAX_FREEDOM, digamma, trigamma, trigamma_inverse, two_sided_p};

/// Factor of the sampling variance if each side has one run. Over 14 runs of one program in Node.js 20, the functions
/// with the least variation had 0.8 to 1.7 times the sampling variance.
pub const OVERDISPERSION: f64 = 1.5;

/// Relative variations from run to run that are assumed if each side has one run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Assumptions {
    /// Variation of the time in a function of a program with JIT code.
    pub jit: f64,
    /// Variation of the time in a function of other programs.
    pub other: f64,
    /// Variation of the CPU time of a run.
    pub cost: f64,
}

impl Default for Assumptions {
    /// In the same 14 runs, the variation was 3 to 44 percent for the six largest functions of JIT code, and 14 percent
    /// for the CPU time: the compiler chose other calls to inline.
    fn default() -> Self {
        Self {
            jit: 0.25,
            other: 0.05,
            cost: 0.15,
        }
    }
}

impl Assumptions {
    /// Assumes one variation of everything.
    pub fn all(variation: f64) -> Self {
        Self {
            jit: variation,
            other: variation,
            cost: variation,
        }
    }
}

/// Relative variation before any run is seen: with a side of fewer than three runs, and otherwise. Few runs may have the
/// same decisions of a compiler by chance.
const PRIOR_VARIATIONS: [f64; 2] = [0.25, 0.02];

/// Weight of that in degrees of freedom.
const PRIOR_WEIGHT: f64 = 2.0;

/// Least relative variation of CPU time.
const MIN_COST_VARIATION: f64 = 0.001;

/// Samples in each run from which on a function shows how much functions vary.
const MIN_SAMPLES: f64 = 5.0;

/// Number of observed variances from which on their spread can be estimated.
const MIN_VARIANCES: usize = 6;

/// Values of one function in all runs.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    moments: [Moments; 2],
    sampling: [f64; 2],
    assumed: f64,
}

impl Series {
    /// Takes values by side and run. `sampling` is the variance of the value of one run by sampling, by side, `assumed` the
    /// relative variation from run to run, if each side has one run.
    pub fn of(values: &[Vec<f64>; 2], sampling: [f64; 2], assumed: f64) -> Self {
        Self {
            moments: values.each_ref().map(|side| Moments::of(side)),
            sampling,
            assumed,
        }
    }
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
        if self.error > 0.0 {
            two_sided_p(self.change / self.error, self.freedom)
        } else {
            f64::from(u8::from(self.change == 0.0))
        }
    }

    /// Returns half the width of the interval that has the true change with probability `1 - level`.
    pub fn margin(&self, quantiles: &mut Quantiles) -> f64 {
        quantiles.get(self.freedom) * self.error
    }
}

/// Returns the mean of some values; 0 if there are none.
pub fn mean(values: &[f64]) -> f64 {
    match values.len() {
        0 => 0.0,
        count => values.iter().sum::<f64>() / count as f64,
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
    /// Computes them. The variance of fewer than two values is 0.
    fn of(values: &[f64]) -> Self {
        let runs = values.len() as f64;
        let mean = mean(values);
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
    /// Relative variation from run to run, squared; `None` if it is assumed.
    relative: Option<f64>,
    /// Ratio of observed variances to those expected by sampling and the relative variation.
    ratio: f64,
    /// Degrees of freedom that the expected variance counts for.
    freedom: f64,
    /// Factor of the sampling variance.
    overdispersion: f64,
}

/// A side of several runs of a function with enough samples to show how much functions vary.
struct Observed<'f> {
    moments: &'f Moments,
    /// Variance of the value of one run by sampling.
    sampling: f64,
}

impl Observed<'_> {
    /// Returns those of functions.
    fn of(functions: &[Series]) -> Vec<Observed<'_>> {
        let sides = functions
            .iter()
            .flat_map(|function| function.moments.iter().zip(function.sampling));
        let observed = sides.map(|(moments, sampling)| Observed { moments, sampling });
        observed.filter(Observed::shows_variation).collect()
    }

    /// Whether there are several runs and, as far as the variance by sampling tells, [`MIN_SAMPLES`] in each.
    fn shows_variation(&self) -> bool {
        let mean = self.moments.mean;
        self.moments.freedom > 0.0 && mean * mean >= MIN_SAMPLES * self.sampling
    }
}

/// Ratio of an observed variance to the expected one.
#[derive(Clone, Copy)]
struct VarianceRatio {
    value: f64,
    /// Degrees of freedom of the observed variance.
    freedom: f64,
}

/// The distribution of such ratios.
#[derive(Clone, Copy, PartialEq, Debug)]
struct FittedRatios {
    /// At least 1.
    scale: f64,
    /// Second degrees of freedom: how much the expected variances are worth. 0 if there are too few ratios.
    freedom: f64,
}

impl Variation {
    /// Estimates it from the observed variances of all functions.
    fn of(functions: &[Series]) -> Self {
        let runs = functions
            .first()
            .map(|function| function.moments.map(|side| side.runs));
        let [runs_before, runs_after] = runs.unwrap_or([1.0; 2]);
        let freedom = runs_before + runs_after - 2.0;
        // Of one run on each side, nothing is observed.
        if freedom == 0.0 {
            return Self {
                relative: None,
                ratio: 1.0,
                freedom: MAX_FREEDOM,
                overdispersion: OVERDISPERSION,
            };
        }
        let [with_few, with_many] = PRIOR_VARIATIONS;
        let prior = if runs_before.min(runs_after) < 3.0 {
            with_few
        } else {
            with_many
        };
        let observed = Observed::of(functions);
        let sum = freedom * relative_variation(&observed) + PRIOR_WEIGHT * prior.powi(2);
        let relative = sum / (freedom + PRIOR_WEIGHT);
        let ratio = |observed: &Observed<'_>| {
            let expected = observed.sampling + relative * observed.moments.mean.powi(2);
            VarianceRatio {
                value: observed.moments.variance / expected,
                freedom: observed.moments.freedom,
            }
        };
        let fitted = fit_ratios(&observed.iter().map(ratio).collect::<Vec<_>>());
        Self {
            relative: Some(relative),
            ratio: fitted.scale,
            // All functions share the runs, so they show less than as many independent values.
            freedom: fitted.freedom.min(2.0 * (freedom + PRIOR_WEIGHT)),
            overdispersion: 1.0,
        }
    }

    /// Returns the variance of the value of one run, as far as it is known without the function's own.
    fn expected(&self, function: &Series, side: usize) -> f64 {
        let [before, after] = function.moments;
        let relative = match (self.relative, side) {
            (Some(relative), 0) => relative * before.mean.powi(2),
            (Some(relative), _) => relative * after.mean.powi(2),
            // A function that one run did not have at all may have as much as in the other one.
            (None, _) => (function.assumed * before.mean.max(after.mean)).powi(2),
        };
        let [one, other] = function.sampling;
        self.ratio * (self.overdispersion * if side == 0 { one } else { other } + relative)
    }

    /// Returns the variance of a side's values: the mean of the observed and the `expected` one, weighted by their degrees of
    /// freedom; 0 if there is neither.
    fn mean_variance(&self, side: &Moments, expected: f64) -> f64 {
        let freedom = self.freedom + side.freedom;
        let sum = self.freedom * expected + side.freedom * side.variance;
        if freedom > 0.0 { sum / freedom } else { 0.0 }
    }
}

/// Returns the weighted median of the relative variations beyond sampling, squared; 0 if nothing is observed.
fn relative_variation(observed: &[Observed<'_>]) -> f64 {
    let mut variations: Vec<(f64, f64)> = observed
        .iter()
        .map(|Observed { moments, sampling }| {
            // The median of a variance is less than its mean (Wilson and Hilferty).
            let median = (1.0 - 2.0 / (9.0 * moments.freedom)).powi(3);
            let square = moments.mean.powi(2);
            let beyond = (moments.variance / median - sampling).max(0.0) / square;
            let weight = moments.freedom * square / sampling;
            (beyond, weight)
        })
        .collect();
    variations.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let half = variations.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    for (beyond, weight) in variations {
        sum += weight;
        if sum >= half {
            return beyond;
        }
    }
    0.0
}

/// Fits an F-distribution to ratios of variances, by the mean and the spread of their logarithms, as limma does.
fn fit_ratios(ratios: &[VarianceRatio]) -> FittedRatios {
    /// Smaller ratios count as this: of few values, all may be equal, and 0 has no logarithm.
    const MIN_RATIO: f64 = 0.01;
    if ratios.len() < MIN_VARIANCES {
        return FittedRatios {
            scale: 1.0,
            freedom: 0.0,
        };
    }
    let count = ratios.len() as f64;
    // Less what is expected of the logarithm by its degrees of freedom.
    let logs: Vec<f64> = ratios
        .iter()
        .map(|&VarianceRatio { value, freedom }| {
            value.max(MIN_RATIO).ln() - digamma(freedom / 2.0) + (freedom / 2.0).ln()
        })
        .collect();
    let mean = logs.iter().sum::<f64>() / count;
    let spread = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let expected_spreads = ratios.iter().map(|ratio| trigamma(ratio.freedom / 2.0));
    let by_chance = expected_spreads.sum::<f64>() / count;
    let beyond = spread - by_chance;
    // All functions have the same expected variance.
    if beyond <= 0.0 {
        return FittedRatios {
            scale: mean.exp().max(1.0),
            freedom: MAX_FREEDOM,
        };
    }
    let half = trigamma_inverse(beyond);
    let scale = (mean + digamma(half) - half.ln()).exp();
    FittedRatios {
        scale: scale.max(1.0),
        freedom: (2.0 * half).min(MAX_FREEDOM),
    }
}

/// Returns the difference between the sides for each function.
pub fn differences(functions: &[Series]) -> Vec<Difference> {
    let variation = Variation::of(functions);
    let differences = functions.iter().map(|function| difference(&variation, function));
    differences.collect()
}

/// Returns the difference between the sides for a function.
fn difference(variation: &Variation, function: &Series) -> Difference {
    let [before, after] = &function.moments;
    let [expected_before, expected_after] = [0, 1].map(|side| variation.expected(function, side));
    let mut variance_before = variation.mean_variance(before, expected_before);
    let mut variance_after = variation.mean_variance(after, expected_after);
    // A side with one run varies as the other one.
    if before.freedom == 0.0 && after.freedom > 0.0 {
        variance_before = variance_after * expected_before / expected_after;
    } else if after.freedom == 0.0 && before.freedom > 0.0 {
        variance_after = variance_before * expected_after / expected_before;
    }
    let [least_before, least_after] = function.sampling;
    let terms = [
        variance_before.max(least_before) / before.runs,
        variance_after.max(least_after) / after.runs,
    ];
    let freedoms = [before, after].map(|side| variation.freedom + side.freedom);
    // Welch's formula is for independent variances.
    let is_shared = before.freedom == 0.0 || after.freedom == 0.0;
    let freedom = if is_shared {
        freedoms[0].max(freedoms[1])
    } else {
        welch(terms, freedoms)
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
    if squares > 0.0 {
        (terms[0] + terms[1]).powi(2) / squares
    } else {
        MAX_FREEDOM
    }
}

/// Variation of the mean CPU time between groups of runs, beyond that between runs: the runs of a side are mostly recorded
/// one after the other, and the speed of a machine drifts. On a machine busy with other work, the standard deviation of 60
/// groups of five consecutive runs of one program in Node.js 20 was 0.77 percent; machines for measurements are quieter.
const DRIFT: f64 = 0.005;

/// Returns the difference between the logarithms of costs of runs, such as CPU time. All must be positive.
pub fn cost_difference(before: &[f64], after: &[f64], assumed: f64) -> Difference {
    let logs = |side: &[f64]| Moments::of(&side.iter().map(|cost| cost.ln()).collect::<Vec<_>>());
    let (before, after) = (logs(before), logs(after));
    let change = after.mean - before.mean;
    let least = MIN_COST_VARIATION.powi(2);
    let (variances, freedom) = match (before.freedom > 0.0, after.freedom > 0.0) {
        (false, false) => ([assumed.powi(2).max(least); 2], MAX_FREEDOM),
        (true, false) => ([before.variance.max(least); 2], before.freedom),
        (false, true) => ([after.variance.max(least); 2], after.freedom),
        (true, true) => {
            let variances = [before.variance.max(least), after.variance.max(least)];
            let terms = [variances[0] / before.runs, variances[1] / after.runs];
            (variances, welch(terms, [before.freedom, after.freedom]))
        }
    };
    let observed = variances[0] / before.runs + variances[1] / after.runs;
    let sum = observed + 2.0 * DRIFT.powi(2);
    Difference {
        change,
        error: sum.sqrt(),
        // Welch's formula; the drift is known, so that it has infinitely many degrees of freedom.
        freedom: (freedom * (sum / observed).powi(2)).clamp(1.0, MAX_FREEDOM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(before: &[f64], after: &[f64], assumed: f64) -> Series {
        Series::of(&[before.to_vec(), after.to_vec()], [0.16, 0.16], assumed)
    }

    #[test]
    fn a_side_with_one_run_varies_as_the_other() {
        let values = [20.0, 21.0, 22.0, 20.5, 21.5];
        let one = differences(&[series(&values, &[21.0], 0.1)])[0];
        let five = differences(&[series(&values, &values, 0.1)])[0];
        assert!(
            one.error > five.error && one.freedom < five.freedom,
            "{one:?} {five:?}"
        );
        assert_eq!(one.change, 0.0);
    }

    #[test]
    fn single_runs_are_compared_with_assumptions() {
        let p = |after, assumed| differences(&[series(&[20.0], &[after], assumed)])[0].p();
        assert!(p(24.0, 0.25) > 0.1 && p(40.0, 0.25) > 0.01);
        assert!(p(24.0, 0.02) < 0.001);
        let cost = |after, assumed| cost_difference(&[10.0], &[after], assumed).p();
        assert!(cost(12.0, 0.15) > 0.1 && cost(30.0, 0.15) < 0.001 && cost(12.0, 0.02) < 0.001);
    }

    #[test]
    fn functions_with_few_samples_do_not_show_how_much_functions_vary() {
        let relative = |mean: f64| {
            let moments = Moments {
                mean,
                variance: mean * mean,
                freedom: 4.0,
                runs: 5.0,
            };
            let function = Series {
                moments: [moments; 2],
                sampling: [mean; 2],
                assumed: 0.0,
            };
            Variation::of(&[function]).relative.unwrap()
        };
        assert!(relative(4.9) < 0.01 && relative(5.0) > 0.1, "{}", relative(5.0));
    }

    #[test]
    fn few_variances_do_not_show_their_spread() {
        let ratios = [0.1, 10.0].map(|value| VarianceRatio { value, freedom: 4.0 });
        let ratios = ratios.repeat(3);
        let unknown = FittedRatios {
            scale: 1.0,
            freedom: 0.0,
        };
        assert_eq!(fit_ratios(&ratios[..5]), unknown);
        assert_ne!(fit_ratios(&ratios), unknown);
    }

    #[test]
    fn impossible_values_have_no_significance() {
        let nothing = Series::of(&[vec![], vec![]], [0.0; 2], 0.0);
        let results = differences(&[nothing]);
        assert_eq!(results[0].p(), 1.0);
        assert!(differences(&[]).is_empty());
    }

    #[test]
    fn single_runs_vary_one_and_a_half_times_as_much_as_by_sampling() {
        let difference = differences(&[series(&[20.0], &[21.0], 0.0)])[0];
        let variance = difference.error.powi(2);
        assert!((variance - 2.0 * 1.5 * 0.16).abs() < 1e-9, "{variance}");
    }

    #[test]
    fn the_variation_before_any_run_has_two_degrees_of_freedom() {
        let relative = |runs: f64| {
            let moments = Moments {
                mean: 100.0,
                variance: 0.0,
                freedom: runs - 1.0,
                runs,
            };
            let function = Series {
                moments: [moments; 2],
                sampling: [1.0; 2],
                assumed: 0.0,
            };
            Variation::of(&[function]).relative.unwrap()
        };
        // Runs without variation have the other 8 degrees, or with two runs on each side 2.
        assert!((relative(5.0) - 0.02_f64.powi(2) * 2.0 / 10.0).abs() < 1e-9);
        assert!((relative(2.0) - 0.25_f64.powi(2) * 2.0 / 4.0).abs() < 1e-9);
    }

    #[test]
    fn changes_of_the_size_of_their_margin_have_the_probability_of_the_level() {
        let mut quantiles = Quantiles::new(0.0075);
        for freedom in [1.0, 1.01, 1.9, 2.5, 7.3, 40.75, 999.5, 1000.0] {
            let difference = |change| Difference {
                change,
                error: 0.5,
                freedom,
            };
            let p = difference(difference(0.0).margin(&mut quantiles)).p();
            assert!((p / 0.0075 - 1.0).abs() < 1e-4, "{freedom}: {p}");
        }
    }

    #[test]
    fn ratios_below_a_hundredth_count_as_a_hundredth() {
        let fit = |least: f64| {
            let ratios = [least, 1.0].map(|value| VarianceRatio { value, freedom: 4.0 });
            fit_ratios(&ratios.repeat(3))
        };
        assert_eq!(fit(0.0), fit(0.01));
        assert_ne!(fit(0.011), fit(0.01));
    }

    #[test]
    fn equal_costs_vary_by_a_thousandth() {
        let difference = cost_difference(&[10.0], &[10.0], 0.0);
        // The rest is the drift of both sides.
        let variance = difference.error.powi(2) - 2.0 * 0.005_f64.powi(2);
        assert!((variance - 2.0 * 0.001_f64.powi(2)).abs() < 1e-9, "{variance}");
    }

    #[test]
    fn sides_without_variation_drift_by_half_a_percent() {
        let p = |after: f64| cost_difference(&[1.0; 5], &[after; 5], 0.15).p();
        assert!(p(1.01) > 0.05 && p(1.02) < 0.05, "{} {}", p(1.01), p(1.02));
    }
}
