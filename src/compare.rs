//! Compares two summaries: the functions and compilers that became faster or slower from one run to the other.
//!
//! Samples are compared by their share of all samples of their profile, since recordings differ in length.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::bytes::printable;
use crate::diagnostics::{Diagnostic, Issue};
use crate::summary::{self, SampleSummary, SampledFunction};

/// Version of the JSON format. It changes when a field is removed or changes its meaning.
pub const FORMAT: u32 = 1;

/// Fields read from a summary.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct ParsedSummary {
    format: u32,
    input: String,
    samples: SampleSummary,
    sampled_functions: Option<Vec<SampledFunction>>,
}

impl ParsedSummary {
    /// Reads a summary in JSON.
    pub fn parse(json: &[u8]) -> Result<Self, Diagnostic> {
        /// Field of all format versions.
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let not_a_summary = |cause| Diagnostic::new(Issue::NotASummary).with("cause", cause);
        let Format { format } = serde_json::from_slice(json).map_err(not_a_summary)?;
        // Format 1 had other diagnostics, and the same figures.
        if !(1..=summary::FORMAT).contains(&format) {
            let newer = Diagnostic::new(Issue::SummaryFormat).with("format", format);
            return Err(newer.with("newest", summary::FORMAT));
        }
        let figures: Self = serde_json::from_slice(json).map_err(not_a_summary)?;
        match figures.sampled_functions {
            Some(_) => Ok(figures),
            None => Err(Diagnostic::new(Issue::SummaryWithoutFunctions)),
        }
    }

    fn functions(&self) -> &[SampledFunction] {
        self.sampled_functions.as_deref().unwrap_or_default()
    }
}

/// Differences between two summaries.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// Format version, [`FORMAT`].
    pub format: u32,
    /// Figures of the first summary.
    pub before: ProfileTotals,
    /// Figures of the second summary.
    pub after: ProfileTotals,
    /// Changes of compilers, the largest first.
    pub tiers: Vec<Change>,
    /// Changes of functions, the largest first.
    pub functions: Vec<Change>,
}

/// Figures of one summary.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProfileTotals {
    /// Name of the profile.
    pub input: String,
    /// Number of all samples.
    pub total: u64,
    /// Number of samples in JIT code.
    pub jit: u64,
    /// Share of samples in JIT code, in percent of all samples.
    pub jit_percent: f64,
    /// Number of samples in JIT code with a name.
    pub named: u64,
    /// Share of samples with a name, in percent of those in JIT code.
    pub named_percent: f64,
}

/// Change of one function or one compiler.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Change {
    /// Name of the function or the compiler.
    pub name: String,
    /// Compiler of a function, if known; `None` for a compiler.
    pub tier: Option<String>,
    /// Number of samples in the first profile.
    pub before: u64,
    /// Number of samples in the second profile.
    pub after: u64,
    /// Share of all samples of the first profile, in percent.
    pub before_percent: f64,
    /// Share of all samples of the second profile, in percent.
    pub after_percent: f64,
    /// Whether the shares differ by more than three standard deviations, beyond random variation.
    pub is_significant: bool,
}

/// Compares two summaries.
pub fn compare(before: &ParsedSummary, after: &ParsedSummary) -> Comparison {
    let mut functions = BTreeMap::new();
    let mut tiers = BTreeMap::new();
    for (side, figures) in [before, after].into_iter().enumerate() {
        for function in figures.functions() {
            let key = (&function.name[..], function.tier.as_deref());
            add(&mut functions, key, side, function.samples);
            add(&mut tiers, (function.tier_name(), None), side, function.samples);
        }
    }
    let totals = [before.samples.total, after.samples.total];
    Comparison {
        format: FORMAT,
        before: ProfileTotals::of(before),
        after: ProfileTotals::of(after),
        tiers: changes(tiers, totals),
        functions: changes(functions, totals),
    }
}

/// Name of a function and its compiler, or name of a compiler and `None`.
type Key<'a> = (&'a str, Option<&'a str>);

fn add<'a>(counts: &mut BTreeMap<Key<'a>, [u64; 2]>, key: Key<'a>, side: usize, samples: u64) {
    if let Some(count) = counts.entry(key).or_default().get_mut(side) {
        *count = count.saturating_add(samples);
    }
}

fn changes(counts: BTreeMap<Key<'_>, [u64; 2]>, totals: [u64; 2]) -> Vec<Change> {
    let change = |((name, tier), [before, after]): (Key<'_>, [u64; 2])| Change {
        name: name.to_owned(),
        tier: tier.map(str::to_owned),
        before,
        after,
        before_percent: percent(before, totals[0]),
        after_percent: percent(after, totals[1]),
        is_significant: is_significant([before, after], totals),
    };
    let mut changes: Vec<Change> = counts.into_iter().map(change).collect();
    changes.sort_by(|one, other| other.points().abs().total_cmp(&one.points().abs()));
    changes
}

fn percent(part: u64, total: u64) -> f64 {
    match total {
        0 => 0.0,
        total => part as f64 * 100.0 / total as f64,
    }
}

/// Whether two shares differ by more than three standard deviations, by the pooled test for two proportions.
fn is_significant(counts: [u64; 2], totals: [u64; 2]) -> bool {
    let [before, after] = counts.map(|count| count as f64);
    let [total_before, total_after] = totals.map(|total| total as f64);
    if total_before == 0.0 || total_after == 0.0 {
        return false;
    }
    let share = (before + after) / (total_before + total_after);
    let variance = share * (1.0 - share) * (1.0 / total_before + 1.0 / total_after);
    let difference = after / total_after - before / total_before;
    difference * difference > 9.0 * variance
}

impl ProfileTotals {
    fn of(figures: &ParsedSummary) -> Self {
        let samples = &figures.samples;
        Self {
            input: figures.input.clone(),
            total: samples.total,
            jit: samples.jit,
            jit_percent: percent(samples.jit, samples.total),
            named: samples.named,
            named_percent: samples.named_percent,
        }
    }

    fn text(&self) -> String {
        let Self { total, jit, .. } = self;
        let input = printable(self.input.as_bytes());
        let (jit_percent, named_percent) = (self.jit_percent, self.named_percent);
        format!(
            "{input}: {total} samples, {jit} in JIT code ({jit_percent:.1} %), {named_percent:.1} % of them named"
        )
    }
}

impl Change {
    /// Change of the share, in percentage points of all samples.
    pub fn points(&self) -> f64 {
        self.after_percent - self.before_percent
    }

    fn text(&self) -> String {
        let (before, after, points) = (self.before_percent, self.after_percent, self.points());
        let mark = if self.is_significant { '*' } else { ' ' };
        let tier = self.tier.as_ref();
        let name = self.name.clone() + &tier.map_or(String::new(), |tier| format!("  [{tier}]"));
        let name = printable(name.as_bytes());
        format!("{before:8.2} % {after:8.2} % {points:+8.2} {mark} {name}")
    }
}

impl Comparison {
    /// Returns the text for a terminal, with changes of at least `threshold` percentage points.
    pub fn text(&self, threshold: f64) -> String {
        let mut text = format!("before  {}\nafter   {}\n", self.before.text(), self.after.text());
        for (what, changes) in [("tier", &self.tiers), ("function", &self.functions)] {
            let shown = changes.iter().filter(|change| change.points().abs() >= threshold);
            let lines: Vec<String> = shown.map(Change::text).collect();
            if !lines.is_empty() {
                let _ = writeln!(
                    text,
                    "\n{:>10} {:>10} {:>8}   {what}",
                    "before", "after", "change"
                );
                let _ = writeln!(text, "{}", lines.join("\n"));
            }
            let hidden = changes.len() - lines.len();
            if hidden > 0 {
                let hidden = summary::count(hidden as u64, what);
                let _ = writeln!(text, "\n{hidden} changed by less than {threshold}");
            }
        }
        text.push_str("\nPercent of all samples. * is more than chance makes of so many samples (three standard deviations).\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(total: u64, functions: &[(&str, Option<&str>, u64)]) -> Vec<u8> {
        let jit: u64 = functions.iter().map(|&(_, _, samples)| samples).sum();
        let function = |&(name, tier, samples): &(&str, Option<&str>, u64)| serde_json::json!({"name": name, "tier": tier, "functions": 1, "samples": samples});
        let functions: Vec<_> = functions.iter().map(function).collect();
        let unnamed =
            serde_json::json!({"before_load": 0, "not_in_dump": 0, "dump_unusable": 0, "no_dump": 0});
        serde_json::to_vec(&serde_json::json!({
            "format": summary::FORMAT, "input": "perf.data", "sampled_functions": functions,
            "samples": {"total": total, "jit": jit, "named": jit, "named_by_map": 0, "named_percent": 100.0, "unnamed": unnamed, "with_named_frame": jit},
        }))
        .unwrap()
    }

    fn compared(before: &[u8], after: &[u8]) -> Comparison {
        compare(
            &ParsedSummary::parse(before).unwrap(),
            &ParsedSummary::parse(after).unwrap(),
        )
    }

    #[test]
    fn shares_are_compared_and_the_largest_change_comes_first() {
        let before = summary(
            1000,
            &[("f", Some("FTL"), 100), ("g", None, 300), ("gone", None, 10)],
        );
        let after = summary(
            2000,
            &[("g", None, 610), ("f", Some("FTL"), 600), ("new", Some("FTL"), 2)],
        );
        let comparison = compared(&before, &after);
        let rows: Vec<_> = comparison
            .functions
            .iter()
            .map(|change| {
                (
                    &change.name[..],
                    change.before,
                    change.after,
                    change.is_significant,
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("f", 100, 600, true),
                ("gone", 10, 0, true),
                ("g", 300, 610, false),
                ("new", 0, 2, false)
            ]
        );
        assert!((comparison.functions[0].points() - 20.0).abs() < 1e-9);
        let tiers: Vec<_> = comparison
            .tiers
            .iter()
            .map(|change| (&change.name[..], change.before, change.after))
            .collect();
        assert_eq!(tiers, [("FTL", 100, 602), ("not known", 310, 610)]);
        assert!((comparison.before.jit_percent - 41.0).abs() < 1e-9);
    }

    #[test]
    fn a_summary_is_equal_to_itself() {
        let one = summary(500, &[("f", None, 100)]);
        let comparison = compared(&one, &one);
        assert_eq!(comparison.functions[0].points(), 0.0);
        assert!(!comparison.functions[0].is_significant);
        assert!(
            comparison
                .text(0.5)
                .contains("1 function changed by less than 0.5"),
            "{}",
            comparison.text(0.5)
        );
    }

    #[test]
    fn profiles_without_samples_can_be_compared() {
        let comparison = compared(&summary(0, &[]), &summary(10, &[("f", None, 1)]));
        assert_eq!(comparison.functions[0].before_percent, 0.0);
        assert!(!comparison.functions[0].is_significant);
    }

    #[test]
    fn files_other_than_summaries_are_refused() {
        let issue = |json: &[u8]| ParsedSummary::parse(json).unwrap_err().issue;
        assert_eq!(issue(b"{}"), Issue::NotASummary);
        assert_eq!(issue(b"\x7fELF"), Issue::NotASummary);
        assert_eq!(issue(br#"{"format": 99}"#), Issue::SummaryFormat);
        let mut old: serde_json::Value = serde_json::from_slice(&summary(1, &[])).unwrap();
        old.as_object_mut().unwrap().remove("sampled_functions");
        assert_eq!(issue(old.to_string().as_bytes()), Issue::SummaryWithoutFunctions);
    }
}
