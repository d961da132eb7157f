//! A comparison as text for a terminal.

use std::fmt::Write as _;

use jitdump::printable;

use crate::results::summary::{count, percent};
use crate::tools::compare::comparison::{Comparison, FunctionChange, Side, Verdict};
use crate::tools::compare::report::shortened;
use crate::tools::compare::significance::Estimate;

/// A table of functions.
struct Table {
    title: &'static str,
    /// Returns the values that it has of a function.
    estimate: fn(&FunctionChange) -> Estimate,
    only_significant: bool,
    /// Rows that are printed. All functions are in the JSON.
    max_rows: usize,
}

const OWN: Table = Table {
    title: "self",
    estimate: |change| change.own,
    only_significant: false,
    max_rows: 40,
};

/// Others than significant ones would repeat each change for all callers.
const TOTALS: Table = Table {
    title: "total",
    estimate: |change| change.total,
    only_significant: true,
    max_rows: 15,
};

/// Labels of a side.
const MAX_LABELS: usize = 8;

impl Verdict {
    /// Returns the verdict in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unchanged => "no significant change",
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Shifted => "some functions slower, others faster",
        }
    }
}

impl Side {
    /// Returns the name of the profile, or the number of runs.
    pub fn label(&self) -> String {
        match &self.inputs[..] {
            [input] => shortened(input),
            inputs => count(inputs.len() as u64, "run"),
        }
    }

    /// Returns the runs and their samples. `quote` is applied to text from the summaries.
    pub(super) fn text(&self, quote: impl Fn(&str) -> String) -> String {
        let mut text = match self.inputs.len() {
            1 => quote(&self.label()),
            _ => self.label(),
        };
        let jit = match self.samples {
            0 => 0.0,
            samples => self.jit as f64 * 100.0 / samples as f64,
        };
        let _ = write!(
            text,
            ": {}, {jit:.1} % in JIT code",
            count(self.samples, "sample")
        );
        if self.jit > 0 {
            let _ = write!(text, ", {} % of them named", percent(self.named_percent));
        }
        if let Some(time) = self.cpu_time_ns {
            let what = if self.excludes_kernel { "user" } else { "CPU" };
            let _ = write!(text, ", {:.3} s of {what} time per run", time / 1e9);
        }
        let threads = self.threads;
        if threads > 0.0 {
            let _ = write!(
                text,
                ", {threads:.0} {}",
                if threads.round() == 1.0 {
                    "thread"
                } else {
                    "threads"
                }
            );
        }
        for (key, value) in self.labels.iter().take(MAX_LABELS) {
            let _ = write!(text, ", {}={}", quote(&shortened(key)), quote(&shortened(value)));
        }
        if let Some(others @ 1..) = self.labels.len().checked_sub(MAX_LABELS) {
            let _ = write!(text, ", {}", count(others as u64, "other label"));
        }
        text
    }
}

impl Comparison {
    /// Returns the change of the CPU time, if known.
    pub(super) fn cpu_text(&self) -> Option<String> {
        let cpu = self.cpu?;
        let mark = match (cpu.is_significant, self.verdict) {
            (true, _) => " *",
            (false, Verdict::Unchanged) => "",
            (false, _) => ", not significant; the verdict is that of functions",
        };
        Some(format!(
            "{} {:+.1} % ({:+.1} to {:+.1}){mark}",
            self.measure.cost(),
            cpu.change_percent,
            cpu.low_percent,
            cpu.high_percent
        ))
    }

    /// Returns what all runs lack, if anything.
    pub(super) fn kernel_text(&self) -> Option<&'static str> {
        let is_lost = self.before.excludes_kernel && self.after.excludes_kernel;
        is_lost.then_some("Kernel time was not recorded.")
    }

    /// Returns the verdict with the number of functions.
    pub(super) fn verdict_text(&self) -> String {
        let mut text = self.verdict.text().to_owned();
        let least = self.least_change;
        let changed = |direction: f64| {
            let changes = self.functions.iter().map(FunctionChange::significant_change);
            changes.filter(|change| change * direction >= least).count()
        };
        let (slower, faster) = (changed(1.0), changed(-1.0));
        let moved = self.functions.iter().filter(|change| {
            let is_large = change.own.is_significant && change.own.change.abs() >= least;
            is_large && change.explanation.is_some() && change.significant_change().abs() < least
        });
        let moved = moved.count();
        for (number, what) in [(slower, "slower"), (faster, "faster")] {
            if number > 0 {
                let _ = write!(text, "; {} {what}", count(number as u64, "function"));
            }
        }
        if moved > 0 {
            let _ = write!(text, "; time moved between {}", count(moved as u64, "function"));
        }
        text
    }

    /// Returns a line for each broken rule.
    pub fn broken_text(&self) -> String {
        let broken = self.rules.iter().filter(|rule| rule.is_broken);
        let lines = broken.map(|rule| {
            let reason = printable(rule.reason.as_bytes());
            format!("rule broken: {}: {reason}\n", rule.rule)
        });
        lines.collect()
    }

    /// Returns the text for a terminal, with changes of at least `min_change` percentage points.
    pub fn text(&self, min_change: f64) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "before  {}", self.before.text(str::to_owned));
        let _ = writeln!(text, "after   {}", self.after.text(str::to_owned));
        let _ = writeln!(text, "verdict: {}", self.verdict_text());
        if let Some(cpu) = self.cpu_text() {
            let _ = writeln!(text, "{cpu}");
        }
        text.push_str(&self.broken_text());
        self.write_table(&mut text, &OWN, min_change);
        self.write_table(&mut text, &TOTALS, min_change);
        let _ = writeln!(
            text,
            "\nValues are {}. * = significant at {confidence} % among all functions. ± = interval of {confidence} % of \
             one function.",
            self.measure.text(),
            confidence = self.confidence,
        );
        if let Some(lost) = self.kernel_text() {
            let _ = writeln!(text, "{lost}");
        }
        if self.is_variation_assumed {
            text.push_str(
                "With one run on each side, the variation from run to run is assumed, and only enormous changes are \
                 significant. Compare five runs of each to see smaller ones.\n",
            );
        }
        text
    }

    /// Writes a table of functions that changed by `min_change` or more, the largest change first; nothing if there are none.
    fn write_table(&self, text: &mut String, table: &Table, min_change: f64) {
        let estimate = table.estimate;
        let is_shown = |change: &&FunctionChange| {
            let estimate = estimate(change);
            let is_needed = estimate.is_significant || !table.only_significant;
            is_needed && estimate.change.abs() >= min_change && estimate.change != 0.0
        };
        let mut shown: Vec<&FunctionChange> = self.functions.iter().filter(is_shown).collect();
        shown.sort_by(|one, other| {
            let size = |change: &FunctionChange| estimate(change).change.abs();
            size(other).total_cmp(&size(one))
        });
        if shown.is_empty() {
            return;
        }
        let _ = writeln!(
            text,
            "\n{:>8} before      after     change             function",
            table.title
        );
        for change in shown.iter().take(table.max_rows) {
            let Estimate {
                before,
                after,
                change: points,
                margin,
                is_significant,
            } = estimate(change);
            let mark = if is_significant { '*' } else { ' ' };
            let margin = margin.map_or(String::new(), |margin| format!("± {margin:.2}"));
            let name = shortened(&change.function.text());
            let _ = writeln!(
                text,
                "{before:13.2} % {after:8.2} % {points:+10.2} {margin:<8} {mark} {name}{}",
                change.notes()
            );
        }
        if let Some(hidden @ 1..) = shown.len().checked_sub(table.max_rows) {
            let _ = writeln!(text, "{hidden} more; --json prints all");
        }
    }
}

impl FunctionChange {
    /// Returns what is known about the change, in brackets.
    fn notes(&self) -> String {
        let notes = self.note_texts();
        if notes.is_empty() {
            String::new()
        } else {
            format!("  ({})", notes.join("; "))
        }
    }

    /// Returns what is known about the change.
    pub(super) fn note_texts(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(previous) = &self.function.previous {
            notes.push(format!("renamed from {}", shortened(previous)));
        }
        if let Some(explanation) = &self.explanation {
            notes.push(shortened(&explanation.text()));
        }
        if let Some(tiers) = self.tier_change() {
            notes.push(tiers);
        }
        notes
    }

    /// Returns the most frequent tier of both sides, if they differ.
    fn tier_change(&self) -> Option<String> {
        let most = |value: fn(&crate::tools::compare::TierChange) -> f64| {
            let tiers = self.tiers.iter().filter(|tier| value(tier) > 0.0);
            tiers.max_by(|one, other| value(one).total_cmp(&value(other)))
        };
        let (before, after) = (most(|tier| tier.before)?, most(|tier| tier.after)?);
        let differs = before.tier != after.tier;
        differs.then(|| format!("{} → {}", shortened(&before.tier), shortened(&after.tier)))
    }
}

#[cfg(test)]
mod tests {
    use crate::tools::compare::testing::{changes, comparison};
    use crate::tools::compare::{Explanation, ExplanationKind};

    #[test]
    fn the_tables_of_own_times_and_totals_have_40_and_15_rows() {
        let hidden = |count: usize, is_significant: bool| -> Vec<String> {
            let text = comparison(changes(count, is_significant)).text(0.5);
            let lines = text.lines().filter(|line| line.contains("--json"));
            lines.map(str::to_owned).collect()
        };
        // Totals are shown if they are significant.
        assert_eq!(hidden(40, false), [""; 0]);
        assert_eq!(hidden(41, false), ["1 more; --json prints all"]);
        assert_eq!(hidden(15, true), [""; 0]);
        assert_eq!(hidden(16, true), ["1 more; --json prints all"]);
    }

    #[test]
    fn functions_of_one_name_are_told_apart_by_their_lines() {
        let mut functions = changes(2, false);
        for (change, line) in functions.iter_mut().zip([7, 21]) {
            change.function.name = "f".into();
            change.function.file = Some("/app/lib.js".into());
            change.function.line = Some(line);
        }
        let text = comparison(functions).text(0.5);
        for place in ["f app/lib.js:7\n", "f app/lib.js:21\n"] {
            assert_eq!(text.matches(place).count(), 1, "{text}");
        }
    }

    #[test]
    fn functions_that_changed_less_than_matters_are_not_counted() {
        let mut functions = changes(6, true);
        functions[0].own.change = 0.4;
        functions[1].own.change = -0.4;
        functions[2].own.change = -0.6;
        for (index, own) in [(3, 1.0), (4, 0.2)] {
            functions[index].explanation = Some(Explanation {
                kind: ExplanationKind::MovedFrom,
                functions: vec!["g".into()],
                own,
                total: 0.0,
            });
        }
        for change in &mut functions {
            change.own.margin = Some(0.1);
        }
        let text = comparison(functions).verdict_text();
        assert_eq!(
            text,
            "no significant change; 2 functions slower; 1 function faster; time moved between 1 function"
        );
    }
}
