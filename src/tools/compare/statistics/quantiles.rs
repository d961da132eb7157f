//! Quantiles of the t-distribution.

use crate::tools::compare::statistics::distributions::{MAX_FREEDOM, quantile_between, two_sided_quantile};

/// Quantiles of the t-distribution at one level, computed once for each whole degree of freedom.
#[derive(Debug)]
pub struct Quantiles {
    level: f64,
    known: Vec<Option<f64>>,
}

impl Quantiles {
    /// Creates those of values that are exceeded with a probability of `level`.
    pub fn new(level: f64) -> Self {
        Self {
            level,
            known: vec![None; MAX_FREEDOM as usize + 1],
        }
    }

    /// Returns that of a distribution with these degrees of freedom, by those with the whole numbers around them.
    pub fn get(&mut self, freedom: f64) -> f64 {
        let freedom = freedom.clamp(1.0, MAX_FREEDOM);
        let bounds = [freedom.ceil(), freedom.floor()].map(|whole| self.whole(whole as usize));
        quantile_between(self.level, freedom, bounds)
    }

    fn whole(&mut self, freedom: usize) -> f64 {
        let level = self.level;
        let compute = || two_sided_quantile(level, freedom as f64);
        match self.known.get_mut(freedom) {
            Some(known) => *known.get_or_insert_with(compute),
            None => compute(),
        }
    }
}
