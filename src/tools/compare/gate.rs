//! Checks of the rules of `--fail-on`.

use crate::results::diagnostics::{Diagnostic, Issue};
use crate::tools::compare::comparison::{Comparison, FunctionChange};
use crate::tools::compare::options::MeasureChoice;
use crate::tools::compare::report::shortened;
use crate::tools::compare::rules::{GateRule, Quantity, RuleResult};

/// A significant change of a function, in percentage points.
struct Rise {
    /// 0 if it is not significant.
    change: f64,
    /// `None` if it was not tested.
    margin: Option<f64>,
}

impl GateRule {
    /// Checks the rule. `differences` are warnings about runs that were not recorded alike, `measure` is what was to be
    /// compared.
    pub(super) fn check(
        &self,
        comparison: &Comparison,
        differences: &[Diagnostic],
        measure: MeasureChoice,
    ) -> Result<RuleResult, Diagnostic> {
        let sides = [("before", &comparison.before), ("after", &comparison.after)];
        if let Some((name, _)) = sides.into_iter().find(|(_, side)| side.samples == 0) {
            return Err(self.not_checked(&format!("the runs {name} have no samples")));
        }
        let reason = match self.quantity {
            Quantity::Own => self.functions_above_limit(comparison, |function| Rise {
                change: function.significant_own(),
                margin: function.own.margin,
            }),
            Quantity::Total if differences.iter().any(|it| it.issue == Issue::StacksDiffer) => {
                let cause = "some runs were recorded with call stacks and others without";
                return Err(self.not_checked(cause));
            }
            Quantity::Total => self.functions_above_limit(comparison, |function| Rise {
                change: function.significant_total(),
                margin: function.total.margin,
            }),
            Quantity::Cpu => self.cpu(comparison, differences, measure)?,
            Quantity::Named => self.named(comparison),
        };
        Ok(RuleResult {
            rule: self.to_string(),
            is_broken: reason.is_some(),
            reason: reason.unwrap_or_else(|| "not broken".into()),
        })
    }

    fn not_checked(&self, cause: &str) -> Diagnostic {
        let error = Diagnostic::new(Issue::RuleNotChecked).with("rule", self);
        error.with("cause", cause)
    }

    /// Returns the functions that break the rule, if any, on one line: `f /a.js +2.10 ± 0.40; g /b.js +1.02; 3 more`.
    fn functions_above_limit(
        &self,
        comparison: &Comparison,
        rise_of: impl Fn(&FunctionChange) -> Rise,
    ) -> Option<String> {
        /// Functions that are named; the result is a line.
        const MAX_NAMED: usize = 3;
        let functions = comparison.functions.iter();
        let rises = functions.map(|function| (function, rise_of(function)));
        let mut broken: Vec<(&FunctionChange, Rise)> =
            rises.filter(|(_, rise)| rise.change > self.limit).collect();
        broken.sort_by(|(_, one), (_, other)| other.change.total_cmp(&one.change));
        let named = broken.iter().take(MAX_NAMED).map(|(function, rise)| {
            let margin = rise
                .margin
                .map_or(String::new(), |margin| format!(" ± {margin:.2}"));
            let name = shortened(&function.function.text());
            format!("{name} {:+.2}{margin}", rise.change)
        });
        let mut text = named.collect::<Vec<_>>().join("; ");
        if let Some(more) = broken.len().checked_sub(MAX_NAMED).filter(|&more| more > 0) {
            text.push_str(&format!("; {more} more"));
        }
        (!broken.is_empty()).then_some(text)
    }

    /// Returns why a rule on CPU time is broken, if it is; an error if there is no CPU time to compare.
    fn cpu(
        &self,
        comparison: &Comparison,
        differences: &[Diagnostic],
        measure: MeasureChoice,
    ) -> Result<Option<String>, Diagnostic> {
        let Some(cpu) = comparison.cpu else {
            let mut issues = differences.iter().map(|difference| difference.issue);
            let cause = match issues.find(|issue| *issue != Issue::StacksDiffer) {
                Some(Issue::KernelDiffers) => "some runs were recorded with kernel time and others without",
                Some(_) => "the runs recorded different events",
                None if measure == MeasureChoice::Shares => "--shares compares no CPU time",
                None => {
                    "the summaries have no CPU time; record an event of time or cycles, or pass --per-run"
                }
            };
            return Err(self.not_checked(cause));
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

    /// Returns why a rule on named code is broken, if it is.
    fn named(&self, comparison: &Comparison) -> Option<String> {
        let side = &comparison.after;
        if side.named_percent < self.limit {
            return Some(format!(
                "{:.2} % of the samples in JIT code have a name",
                side.named_percent
            ));
        }
        let frames = side.named_frames_percent;
        (frames < self.limit).then(|| format!("{frames:.2} % of the JIT frames in stacks have a name"))
    }
}

#[cfg(test)]
mod tests {
    use crate::results::diagnostics::Issue;
    use crate::tools::compare::rules::GateRule;
    use crate::tools::compare::testing::{changes, comparison};
    use crate::tools::compare::{Explanation, ExplanationKind, MeasureChoice};

    #[test]
    fn a_side_without_samples_passes_no_rule() {
        for rule in ["self > 1%", "total > 1%", "cpu > 1%", "named < 95%"] {
            let rule: GateRule = rule.parse().unwrap();
            let mut comparison = comparison(Vec::new());
            comparison.after.samples = 0;
            let error = rule.check(&comparison, &[], MeasureChoice::Auto).unwrap_err();
            assert_eq!(error.issue, Issue::RuleNotChecked);
            assert!(
                error.message().contains("the runs after have no samples"),
                "{error}"
            );
        }
    }

    #[test]
    fn three_functions_that_break_a_rule_are_named() {
        let rule: GateRule = "self > 0.5%".parse().unwrap();
        let reason = |count: usize| {
            let result = rule.check(&comparison(changes(count, true)), &[], MeasureChoice::Auto);
            result.unwrap().reason
        };
        assert_eq!(reason(3), "f0 +1.00; f1 +1.00; f2 +1.00");
        assert_eq!(reason(4), "f0 +1.00; f1 +1.00; f2 +1.00; 1 more");
    }

    #[test]
    fn what_is_left_of_explained_time_must_be_more_than_its_margin() {
        let rule: GateRule = "self > 0.5%".parse().unwrap();
        let reason = |margin: f64| {
            let mut functions = changes(1, true);
            functions[0].own.change = 10.25;
            functions[0].own.margin = Some(margin);
            functions[0].explanation = Some(Explanation {
                kind: ExplanationKind::MovedFrom,
                functions: vec!["g".into()],
                own: 9.5,
                total: 0.0,
            });
            rule.check(&comparison(functions), &[], MeasureChoice::Auto)
                .unwrap()
                .reason
        };
        assert_eq!(reason(1.5), "not broken");
        assert_eq!(reason(0.25), "f0 +0.75 ± 0.25");
    }
}
