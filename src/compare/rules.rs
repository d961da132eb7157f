//! Rules of `--fail-on`: which changes are too large.

use std::str::FromStr;

use serde::Serialize;

use crate::compare::comparison::{Comparison, Estimate, FunctionChange};
use crate::diagnostics::{Diagnostic, Issue};

/// A rule, such as `self > 2%`.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    quantity: Quantity,
    limit: f64,
}

/// What a rule limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Quantity {
    /// Growth of the time in a function, in percentage points.
    Own,
    /// Growth of the time with a function on the stack, in percentage points.
    Total,
    /// Growth of the CPU time, in percent.
    Cpu,
    /// Share of samples and frames of JIT code with a name, in percent.
    Named,
}

impl Quantity {
    fn text(self) -> &'static str {
        match self {
            Self::Own => "self >",
            Self::Total => "total >",
            Self::Cpu => "cpu >",
            Self::Named => "named <",
        }
    }
}

/// A rule that was checked.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RuleResult {
    /// The rule.
    pub rule: String,
    /// Whether it is broken.
    pub is_broken: bool,
    /// What broke it, or that nothing did.
    pub reason: String,
}

/// What a rule may look like.
const FORMS: &str = "expected 'self > N%', 'total > N%', 'cpu > N%' or 'named < N%'";

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, sign, number) = match (text.split_once('>'), text.split_once('<')) {
            (Some((name, number)), None) => (name, '>', number),
            (None, Some((name, number))) => (name, '<', number),
            _ => return Err(FORMS.into()),
        };
        let quantity = match (name.trim(), sign) {
            ("self", '>') => Quantity::Own,
            ("total", '>') => Quantity::Total,
            ("cpu", '>') => Quantity::Cpu,
            ("named", '<') => Quantity::Named,
            _ => return Err(FORMS.into()),
        };
        let number = number.trim();
        let number = number.strip_suffix('%').unwrap_or(number).trim_end();
        // CPU time can more than double; the others are parts of a whole.
        let most = if quantity == Quantity::Cpu { 1e6 } else { 100.0 };
        match number.parse() {
            Ok(limit) if (0.0..=most).contains(&limit) => Ok(Self { quantity, limit }),
            _ => Err(format!("{FORMS}, N from 0 to {most}")),
        }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}%", self.quantity.text(), self.limit)
    }
}

impl Rule {
    /// Returns the least change of a function that breaks the rule, in percentage points.
    pub(super) fn least_change(&self) -> Option<f64> {
        matches!(self.quantity, Quantity::Own | Quantity::Total).then_some(self.limit)
    }

    /// Checks the rule.
    pub(super) fn check(&self, comparison: &Comparison) -> Result<RuleResult, Diagnostic> {
        let reason = match self.quantity {
            Quantity::Own => self.functions(comparison, |it| (it.own, it.unexplained_own())),
            Quantity::Total => self.functions(comparison, |it| (it.total, it.unexplained_total())),
            Quantity::Cpu => self.cpu(comparison)?,
            Quantity::Named => self.named(comparison),
        };
        Ok(RuleResult {
            rule: self.to_string(),
            is_broken: reason.is_some(),
            reason: reason.unwrap_or_else(|| "not broken".into()),
        })
    }

    /// Returns the functions that break the rule, if any.
    fn functions(
        &self,
        comparison: &Comparison,
        value: impl Fn(&FunctionChange) -> (Estimate, f64),
    ) -> Option<String> {
        /// Functions that are named; the result is a line.
        const MAX_NAMED: usize = 3;
        let mut broken: Vec<(f64, &FunctionChange, Estimate)> = comparison
            .functions
            .iter()
            .map(|function| (function, value(function)))
            .filter(|(_, (estimate, rise))| estimate.is_significant && *rise > self.limit)
            .map(|(function, (estimate, rise))| (rise, function, estimate))
            .collect();
        broken.sort_by(|one, other| other.0.total_cmp(&one.0));
        let named = broken.iter().take(MAX_NAMED).map(|(_, function, estimate)| {
            let margin = estimate
                .margin
                .map_or(String::new(), |margin| format!(" ± {margin:.2}"));
            let name = crate::compare::report::shortened(&function.function.full_name);
            format!("{name} {:+.2}{margin}", estimate.change)
        });
        let mut text = named.collect::<Vec<_>>().join("; ");
        if let Some(more) = broken.len().checked_sub(MAX_NAMED).filter(|&more| more > 0) {
            text.push_str(&format!("; {more} more"));
        }
        (!broken.is_empty()).then_some(text)
    }

    fn cpu(&self, comparison: &Comparison) -> Result<Option<String>, Diagnostic> {
        let Some(cpu) = comparison.cpu else {
            let cause =
                "the summaries have no CPU time; record an event of time or cycles, or pass --per-run";
            let unknown = Diagnostic::new(Issue::RuleNotChecked).with("rule", self);
            return Err(unknown.with("cause", cause));
        };
        let is_broken = cpu.is_significant && cpu.change_percent > self.limit;
        Ok(is_broken.then(|| {
            format!(
                "{} {:+.1} % ({:+.1} to {:+.1})",
                comparison.measure.cost(),
                cpu.change_percent,
                cpu.low_percent,
                cpu.high_percent
            )
        }))
    }

    fn named(&self, comparison: &Comparison) -> Option<String> {
        let side = &comparison.after;
        let frames = side.named_frames_percent.filter(|&percent| percent < self.limit);
        if side.named_percent < self.limit {
            return Some(format!(
                "{:.2} % of the samples in JIT code have a name",
                side.named_percent
            ));
        }
        frames.map(|percent| format!("{percent:.2} % of the JIT frames in stacks have a name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_parsed_strictly() {
        for (text, shown) in [
            ("self > 2%", "self > 2%"),
            ("self>2", "self > 2%"),
            (" total > 0.5 % ", "total > 0.5%"),
            ("cpu > 150%", "cpu > 150%"),
            ("named < 95", "named < 95%"),
        ] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            "self",
            "self < 2%",
            "named > 95",
            "self > 2 > 3",
            "self > x",
            "self > -1",
            "total > 101",
            "cpu > inf",
            "self > NaN",
            "time > 2%",
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert!(error.contains("'self > N%'"), "{text}: {error}");
        }
    }
}
