//! Tests of many functions at once.

/// A test of one function.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WeightedTest {
    /// Probability of its change by chance.
    pub probability: f64,
    /// Its part of the probability that any test is significant by chance, in any unit; without one, it never is.
    pub weight: f64,
}

impl WeightedTest {
    /// Returns the probability for each unit of the weight. The smallest one is the most significant.
    fn ratio(&self) -> f64 {
        if self.weight > 0.0 {
            self.probability / self.weight
        } else {
            f64::INFINITY
        }
    }
}

/// Returns which of several tests are significant, so that with probability `1 - level` none is by chance (Holm): from the
/// most significant one on, each must hold against the weights of itself and of those after it.
pub fn holm(tests: &[WeightedTest], level: f64) -> Vec<bool> {
    let mut order: Vec<(usize, &WeightedTest)> = tests.iter().enumerate().collect();
    order.sort_by(|(_, one), (_, other)| one.ratio().total_cmp(&other.ratio()));
    let mut results = vec![false; tests.len()];
    let mut remaining: f64 = tests.iter().map(|test| test.weight).sum();
    for (index, test) in order {
        if remaining <= 0.0 || test.ratio() > level / remaining {
            break;
        }
        if let Some(result) = results.get_mut(index) {
            *result = true;
        }
        remaining -= test.weight;
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests several probabilities with their weights.
    fn holm_of(tests: &[(f64, f64)]) -> Vec<bool> {
        let tests = tests
            .iter()
            .map(|&(probability, weight)| WeightedTest { probability, weight });
        holm(&tests.collect::<Vec<_>>(), 0.05)
    }

    #[test]
    fn holm_stops_at_the_first_that_may_be_chance() {
        let equal = [0.04, 0.001, 0.03, 0.012].map(|probability| (probability, 1.0));
        assert_eq!(holm_of(&equal), [false, true, false, true]);
        let weighted = [(0.02, 8.0), (0.001, 1.0), (0.02, 1.0)];
        assert_eq!(holm_of(&weighted), [true, true, true]);
        assert_eq!(holm_of(&[(0.02, 1.0), (0.02, 1.0), (0.9, 1.0)]), [false; 3]);
        assert_eq!(holm_of(&[(0.0, 0.0)]), [false]);
        assert!(holm_of(&[]).is_empty());
    }
}
