//! Rules of `--fail-on`: which changes are too large.

use std::str::FromStr;

use serde::Serialize;

/// A rule, such as `self > 2%`.
#[derive(Clone, PartialEq, Debug)]
pub struct GateRule {
    pub(super) quantity: Quantity,
    pub(super) limit: f64,
}

/// What a rule limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Quantity {
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

impl FromStr for GateRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, relation, number) = match (text.split_once('>'), text.split_once('<')) {
            (Some((name, number)), None) => (name, '>', number),
            (None, Some((name, number))) => (name, '<', number),
            _ => return Err(FORMS.into()),
        };
        let quantity = match (name.trim(), relation) {
            ("self", '>') => Quantity::Own,
            ("total", '>') => Quantity::Total,
            ("cpu", '>') => Quantity::Cpu,
            ("named", '<') => Quantity::Named,
            _ => return Err(FORMS.into()),
        };
        let number = number.trim();
        let number = number.strip_suffix('%').unwrap_or(number).trim_end();
        // CPU time can more than double; the others are parts of a whole.
        let max_limit = if quantity == Quantity::Cpu { 1e6 } else { 100.0 };
        match number.parse() {
            Ok(limit) if (0.0..=max_limit).contains(&limit) => Ok(Self { quantity, limit }),
            _ => Err(format!("{FORMS}, N from 0 to {max_limit}")),
        }
    }
}

impl std::fmt::Display for GateRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}%", self.quantity.text(), self.limit)
    }
}

impl GateRule {
    /// Returns the least change of a function that breaks the rule, in percentage points.
    pub(super) fn least_change(&self) -> Option<f64> {
        match self.quantity {
            Quantity::Own | Quantity::Total => Some(self.limit),
            Quantity::Cpu | Quantity::Named => None,
        }
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
            assert_eq!(text.parse::<GateRule>().unwrap().to_string(), shown);
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
            let error = text.parse::<GateRule>().unwrap_err();
            assert!(error.contains("'self > N%'"), "{text}: {error}");
        }
    }
}
