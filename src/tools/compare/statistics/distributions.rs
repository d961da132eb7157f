//! Student's t-distribution, and the functions that fitting variances takes.
//!
//! These are a few pages of a textbook. The libraries that have them bring linear algebra and random numbers along, or
//! lose precision in the tails, which a correction for many functions needs.

/// Degrees of freedom from which the t-distribution counts as normal.
pub const MAX_FREEDOM: f64 = 1000.0;

/// Returns the probability that a t-distributed value is at least as far from 0 as `value`.
pub fn two_sided_p(value: f64, freedom: f64) -> f64 {
    if value.is_nan() || freedom.is_nan() {
        return 1.0;
    }
    if value.is_infinite() {
        return 0.0;
    }
    let freedom = freedom.clamp(1.0, MAX_FREEDOM);
    incomplete_beta(freedom / (freedom + value * value), freedom / 2.0, 0.5)
}

/// Returns the value that a t-distributed value exceeds in absolute terms with `probability`.
pub fn two_sided_quantile(probability: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided_p(high, freedom) > probability && high < 1e30 {
        (low, high) = (high, high * 2.0);
    }
    narrowed(probability, freedom, [low, high], 60)
}

/// Returns the same if it is known to be between two values, with a part in a million of their difference.
pub fn quantile_between(probability: f64, freedom: f64, bounds: [f64; 2]) -> f64 {
    if bounds[0] < bounds[1] {
        narrowed(probability, freedom, bounds, 20)
    } else {
        bounds[1]
    }
}

/// Halves the interval with a quantile some times, and returns its upper end.
fn narrowed(probability: f64, freedom: f64, [mut low, mut high]: [f64; 2], times: usize) -> f64 {
    for _ in 0..times {
        let middle = (low + high) / 2.0;
        if two_sided_p(middle, freedom) > probability {
            low = middle
        } else {
            high = middle
        }
    }
    high
}

/// Returns the regularized incomplete beta function, by its continued fraction (Lentz's algorithm).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let scale = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p();
    // The fraction converges fast on one side of the mean.
    if x < (a + 1.0) / (a + b + 2.0) {
        scale.exp() * beta_fraction(x, a, b) / a
    } else {
        1.0 - scale.exp() * beta_fraction(1.0 - x, b, a) / b
    }
}

/// Returns the continued fraction of the incomplete beta function, by Lentz's method (Numerical Recipes, `betacf`). Each
/// step is for an even and an odd coefficient.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    /// Takes the place of a 0 that would be divided by.
    const TINY: f64 = 1e-300;
    /// Steps after which it ends in any case.
    const MAX_STEPS: u32 = 500;
    /// Relative change by a step that is too small to matter.
    const PRECISION: f64 = 1e-14;
    let nonzero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut numerator = 1.0;
    let mut denominator = 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = denominator;
    for step in 1..MAX_STEPS {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for coefficient in [even, odd] {
            denominator = 1.0 / nonzero(1.0 + coefficient * denominator);
            numerator = nonzero(1.0 + coefficient / numerator);
            change = denominator * numerator;
            fraction *= change;
        }
        if (change - 1.0).abs() < PRECISION {
            break;
        }
    }
    fraction
}

/// Returns the logarithm of the gamma function of a positive number, by Stirling's series.
fn ln_gamma(x: f64) -> f64 {
    let (x, shift) = shifted(x, |x| -x.ln());
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series + shift
}

/// Returns the derivative of [`ln_gamma`].
pub fn digamma(x: f64) -> f64 {
    let (x, shift) = shifted(x, |x| -1.0 / x);
    let inverse = 1.0 / (x * x);
    let series = inverse * (1.0 / 12.0 - inverse * (1.0 / 120.0 - inverse / 252.0));
    x.ln() - 0.5 / x - series + shift
}

/// Returns the second derivative of [`ln_gamma`].
pub fn trigamma(x: f64) -> f64 {
    let (x, shift) = shifted(x, |x| 1.0 / (x * x));
    let inverse = 1.0 / (x * x);
    let series = inverse * (1.0 / 6.0 - inverse * (1.0 / 30.0 - inverse / 42.0)) / x;
    1.0 / x + inverse / 2.0 + series + shift
}

/// Returns the number whose [`trigamma`] is `value`.
pub fn trigamma_inverse(value: f64) -> f64 {
    let (mut low, mut high) = (1e-6, 1e8);
    for _ in 0..100 {
        let middle = f64::sqrt(low * high);
        if trigamma(middle) > value {
            low = middle
        } else {
            high = middle
        }
    }
    high
}

/// Moves a number to where a series is precise, by a recurrence. Returns it and the sum of `term` of each step.
fn shifted(x: f64, term: impl Fn(f64) -> f64) -> (f64, f64) {
    let (mut x, mut sum) = (x.max(1e-9), 0.0);
    while x < 10.0 {
        sum += term(x);
        x += 1.0;
    }
    (x, sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn expect(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
    }

    /// Values of R's `qt`, `pt`, `digamma` and `trigamma`.
    #[test]
    fn values_are_those_of_tables() {
        for (probability, freedom, expected) in [
            (0.05, 1.0, 12.706_204_736_174_7),
            (0.05, 4.0, 2.776_445_105_197_79),
            (0.01, 8.0, 3.355_387_331_333_4),
            (0.001, 30.0, 3.645_958_635_044_3),
        ] {
            expect(two_sided_quantile(probability, freedom), expected);
            expect(two_sided_p(expected, freedom), probability);
        }
        // Beyond 1000 degrees of freedom: normal, to three digits.
        assert!((two_sided_quantile(0.05, 1e9) - 1.96).abs() < 0.003);
        assert!((two_sided_quantile(1e-6, 1e9) - 4.89).abs() < 0.04);
        expect(two_sided_p(0.0, 5.0), 1.0);
        assert_eq!(two_sided_p(f64::INFINITY, 5.0), 0.0);
        assert_eq!(two_sided_p(f64::NAN, 5.0), 1.0);
        expect(digamma(1.0), -0.577_215_664_901_532_9);
        expect(trigamma(1.0), std::f64::consts::PI.powi(2) / 6.0);
        expect(trigamma_inverse(trigamma(3.7)), 3.7);
        expect(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln());
        expect(ln_gamma(101.0), 363.739_375_555_563_5);
    }

    #[test]
    fn quantiles_and_probabilities_are_inverse() {
        proptest::proptest!(|(value in 0.01_f64..30.0, freedom in 1_u32..1000)| {
            let freedom = f64::from(freedom);
            let p = two_sided_p(value, freedom);
            proptest::prop_assert!((0.0..=1.0).contains(&p));
            if p > 1e-12 {
                let found = two_sided_quantile(p, freedom);
                proptest::prop_assert!((found / value - 1.0).abs() < 1e-3, "{} {}", found, value);
            }
        });
    }

    #[test]
    fn more_than_a_thousand_degrees_of_freedom_make_no_difference() {
        assert_eq!(two_sided_p(2.0, 1001.0), two_sided_p(2.0, 1000.0));
        assert!(two_sided_p(2.0, 999.0) > two_sided_p(2.0, 1000.0));
    }
}
