//! The result of comparing two sides, and how it is computed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::collections::hash::HashMap;
use crate::results::summary::SampleSummary;
use crate::results::summary::profile::{CodeOrigin, EventSummary};
use crate::tools::compare::explanation;
use crate::tools::compare::explanation::Explanation;
use crate::tools::compare::matching::{AFTER, BEFORE, MatchedFunction, RunTable};
use crate::tools::compare::measure::{Measure, Part, Scale};
use crate::tools::compare::options::CompareOptions;
use crate::tools::compare::rules::RuleResult;
use crate::tools::compare::significance::{Estimate, FunctionTest};
use crate::tools::compare::statistics::{Quantiles, cost_difference, mean};
use crate::tools::compare::summary_file::ParsedSummary;

/// Version of the JSON format. It changes when a field is removed or changes its meaning.
pub const FORMAT: u32 = 2;

/// Differences between two sides.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// Format version, [`FORMAT`].
    pub format: u32,
    /// The result in one word.
    pub verdict: Verdict,
    /// What the values of functions are.
    pub measure: Measure,
    /// Probability that nothing is significant by chance, in percent.
    pub confidence: f64,
    /// Whether the variation from run to run is assumed, because each side has one run.
    pub is_variation_assumed: bool,
    /// The first side.
    pub before: Side,
    /// The second side.
    pub after: Side,
    /// Change of the CPU time of a run, if known and not only shares are compared.
    pub cpu: Option<CpuChange>,
    /// Rules of `--fail-on`.
    pub rules: Vec<RuleResult>,
    /// Functions, the largest change of their own time first.
    pub functions: Vec<FunctionChange>,
    /// Least change of a function that counts for the verdict, in percentage points; above 0.
    #[serde(skip)]
    pub(super) least_change: f64,
}

/// The result in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No significant change.
    Unchanged,
    /// More CPU time, or functions that take more, with callees if they take no time themselves.
    Slower,
    /// Less CPU time, or functions that take less.
    Faster,
    /// Some functions take more and others less.
    Shifted,
}

/// Figures of one side.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Side {
    /// Profiles of the runs.
    pub inputs: Vec<String>,
    /// Samples of all runs; of several events, those of the first one, which is compared.
    pub samples: u64,
    /// Those in JIT code.
    pub jit: u64,
    /// Share of samples in JIT code that have a name, in percent; that of the worst run.
    pub named_percent: f64,
    /// The same of frames of JIT code in stacks.
    pub named_frames_percent: f64,
    /// Mean CPU time of a run in nanoseconds, if known.
    pub cpu_time_ns: Option<f64>,
    /// Whether samples of the kernel were not recorded, so that CPU times are user time.
    pub excludes_kernel: bool,
    /// Mean number of threads with samples.
    pub threads: f64,
    /// Labels that all runs share.
    pub labels: BTreeMap<String, String>,
}

/// Change of the CPU time of a run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CpuChange {
    /// Change in percent of the first side.
    pub change_percent: f64,
    /// Lower end of its confidence interval.
    pub low_percent: f64,
    /// Upper end of its confidence interval.
    pub high_percent: f64,
    /// Whether the change is more than chance.
    pub is_significant: bool,
}

/// Change of one function.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FunctionChange {
    /// The function.
    #[serde(flatten)]
    pub function: MatchedFunction,
    /// Time in the function.
    #[serde(rename = "self")]
    pub own: Estimate,
    /// Time with the function on the stack.
    pub total: Estimate,
    /// Time in the function by compiler tier.
    pub tiers: Vec<TierChange>,
    /// Where the time went or came from, if it moved between functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Explanation>,
}

/// Time in the code of one tier.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TierChange {
    /// Name of the tier.
    pub tier: String,
    /// Mean of the first side.
    pub before: f64,
    /// Mean of the second side.
    pub after: f64,
}

/// Part of the probability of a change by chance that is for the CPU time. The rest is for the functions, of which there are
/// many.
const CPU_PART: f64 = 0.25;

/// Compares the sides of a table. Rules are checked later.
pub(super) fn compare(table: &RunTable<'_>, scale: &Scale, options: &CompareOptions) -> Comparison {
    let level = (1.0 - options.confidence / 100.0).clamp(1e-9, 0.5);
    let (level, cpu_level) = (level * (1.0 - CPU_PART), level * CPU_PART);
    let least = options.least_change().max(f64::MIN_POSITIVE);
    let rows: Vec<u32> = table.live_rows().map(|(row, _)| row).collect();
    let tests = FunctionTest {
        table,
        scale,
        options,
        level,
        least,
    };
    let cpu = cpu_change(scale, cpu_level, options.assumptions.cost);
    let significant_cpu = cpu.filter(|cpu| cpu.is_significant);
    let change_of_run = significant_cpu.map_or(0.0, |cpu| cpu.change_percent);
    let own = tests.estimates(&rows, Part::Own, change_of_run);
    // Outer callers have most of the time in any case: their totals would only repeat the change of the run.
    let total = tests.estimates(&rows, Part::Total, 0.0);
    let mut tiers = tiers(table, scale);
    let found = table.live_rows().zip(own.into_iter().zip(total));
    let mut functions: Vec<(u32, FunctionChange)> = found
        .map(|((row, function), (own, total))| {
            let change = FunctionChange {
                function: function.clone(),
                own,
                total,
                tiers: tiers.remove(&row).unwrap_or_default(),
                explanation: None,
            };
            (row, change)
        })
        .collect();
    let size = |change: &FunctionChange| (change.own.change.abs(), change.total.change.abs());
    functions.sort_by(|(row, one), (other_row, other)| {
        let ((own, total), (other_own, other_total)) = (size(one), size(other));
        let by_total = other_total.total_cmp(&total);
        other_own.total_cmp(&own).then(by_total).then(row.cmp(other_row))
    });
    let (rows, mut functions): (Vec<u32>, Vec<FunctionChange>) = functions.into_iter().unzip();
    explanation::explain(table, &rows, &mut functions);
    Comparison {
        format: FORMAT,
        verdict: verdict(cpu.as_ref(), &functions, least),
        measure: scale.measure,
        confidence: options.confidence,
        is_variation_assumed: table.is_one_run_each(),
        before: side(table, scale, BEFORE),
        after: side(table, scale, AFTER),
        cpu,
        rules: Vec::new(),
        functions,
        least_change: least,
    }
}

/// Returns the tiers of each function, most time first.
fn tiers(table: &RunTable<'_>, scale: &Scale) -> HashMap<u32, Vec<TierChange>> {
    let mut sums: BTreeMap<(u32, &str), [f64; 2]> = BTreeMap::new();
    for side in [BEFORE, AFTER] {
        let runs = table.runs_of(side).len().max(1) as f64;
        for (run, row, function) in table.entries(side) {
            let Some(tier) = function.tier.as_deref() else {
                continue;
            };
            let weight = scale.weights.get(run).copied().unwrap_or_default();
            let period = scale.period(row, run, Part::Own);
            let value = function.counts().0 as f64 * weight * period / runs;
            let [before, after] = sums.entry((row, tier)).or_default();
            *if side == BEFORE { before } else { after } += value;
        }
    }
    let mut tiers: HashMap<u32, Vec<TierChange>> = HashMap::default();
    for ((row, tier), [before, after]) in sums {
        let tier = tier.to_owned();
        tiers
            .entry(row)
            .or_default()
            .push(TierChange { tier, before, after });
    }
    for tiers in tiers.values_mut() {
        tiers.sort_by(|one, other| (other.before + other.after).total_cmp(&(one.before + one.after)));
    }
    tiers
}

/// Returns the change of the cost of a run, unless only shares are compared.
fn cpu_change(scale: &Scale, level: f64, assumed: f64) -> Option<CpuChange> {
    let costs = scale.costs.as_ref();
    let [before, after] = costs.filter(|_| scale.measure != Measure::Share)?;
    let difference = cost_difference(before, after, assumed);
    let margin = difference.margin(&mut Quantiles::new(level));
    let percent = |log: f64| log.exp_m1() * 100.0;
    Some(CpuChange {
        change_percent: percent(difference.change),
        low_percent: percent(difference.change - margin),
        high_percent: percent(difference.change + margin),
        is_significant: difference.change.abs() > margin,
    })
}

/// Returns the verdict: by CPU time if its change is significant, else by functions that changed by `least` or more.
fn verdict(cpu: Option<&CpuChange>, functions: &[FunctionChange], least: f64) -> Verdict {
    let changed = |direction: f64| {
        if let Some(cpu) = cpu.filter(|cpu| cpu.is_significant) {
            return cpu.change_percent * direction > 0.0;
        }
        let mut changes = functions.iter().map(FunctionChange::significant_change);
        changes.any(|change| change * direction >= least)
    };
    match (changed(1.0), changed(-1.0)) {
        (false, false) => Verdict::Unchanged,
        (true, false) => Verdict::Slower,
        (false, true) => Verdict::Faster,
        (true, true) => Verdict::Shifted,
    }
}

impl FunctionChange {
    /// Returns the change of the time in the function, without what moved from or to other functions.
    pub fn unexplained_own(&self) -> f64 {
        let explanation = self.explanation.as_ref();
        self.own.change - explanation.map(|it| it.own).unwrap_or_default()
    }

    /// Returns the change of the time with the function on the stack, likewise.
    pub fn unexplained_total(&self) -> f64 {
        let explanation = self.explanation.as_ref();
        self.total.change - explanation.map(|it| it.total).unwrap_or_default()
    }

    /// Returns the significant change of the time in the function, without what moved; 0 if there is none.
    pub fn significant_own(&self) -> f64 {
        self.significant(&self.own, self.unexplained_own())
    }

    /// Returns the significant change of the time with the function on the stack, likewise.
    pub fn significant_total(&self) -> f64 {
        self.significant(&self.total, self.unexplained_total())
    }

    /// Returns the significant change that counts for the verdict: that of the time in the function, or, if that is too
    /// small to be tested, of the time with it on the stack. Code that is interpreted runs in the interpreter.
    pub fn significant_change(&self) -> f64 {
        if self.is_judged_by_total() {
            self.significant_total()
        } else {
            self.significant_own()
        }
    }

    fn is_judged_by_total(&self) -> bool {
        self.function.kind == CodeOrigin::Jit && self.own.margin.is_none()
    }

    /// Returns the rest of a significant change. If a part of it is explained, the rest may be chance alone.
    fn significant(&self, estimate: &Estimate, rest: f64) -> f64 {
        let margin = self.explanation.as_ref().and(estimate.margin);
        if estimate.is_significant && rest.abs() > margin.unwrap_or_default() {
            rest
        } else {
            0.0
        }
    }
}

/// Returns the samples of a run that are compared, and how many of them are in JIT code.
fn compared_samples(run: &ParsedSummary) -> (u64, u64) {
    let events = &run.profile.events;
    let is_one = events.iter().skip(1).all(|event| event.samples == 0);
    match events.first().filter(|_| !is_one) {
        Some(first) => {
            let functions = run.profile.functions.iter();
            let jit = functions.filter(|function| function.kind == CodeOrigin::Jit);
            let own = jit.map(|function| function.own.first());
            (first.samples, own.fold(0, u64::saturating_add))
        }
        None => (run.samples.total, run.samples.jit),
    }
}

/// Summarizes the runs of a side.
fn side(table: &RunTable<'_>, scale: &Scale, side: usize) -> Side {
    let runs = || table.runs_of(side).filter_map(|run| table.runs.get(run));
    let sum = |count: fn(&ParsedSummary) -> u64| runs().map(|run| count(run)).fold(0, u64::saturating_add);
    let mut labels = runs()
        .next()
        .map(|run| run.profile.labels.clone())
        .unwrap_or_default();
    for run in runs() {
        labels.retain(|key, value| run.profile.labels.get(key) == Some(value));
    }
    let least =
        |percent: fn(&SampleSummary) -> f64| runs().map(|run| percent(&run.samples)).fold(100.0, f64::min);
    let threads: Vec<f64> = runs().map(|run| run.profile.threads.len() as f64).collect();
    let costs = scale.costs.as_ref().filter(|_| scale.has_time);
    Side {
        inputs: runs().map(|run| run.input.clone()).collect(),
        samples: sum(|run| compared_samples(run).0),
        jit: sum(|run| compared_samples(run).1),
        named_percent: least(|samples| samples.named_percent),
        named_frames_percent: least(|samples| samples.in_stacks.named_percent),
        cpu_time_ns: costs.map(|costs| mean(if side == BEFORE { &costs[0] } else { &costs[1] })),
        excludes_kernel: runs().all(|run| {
            let event = run.profile.events.first();
            event.is_some_and(EventSummary::is_user_only)
        }),
        threads: mean(&threads),
        labels,
    }
}

#[cfg(test)]
mod tests {
    use crate::tools::compare::testing::Profile;
    use crate::tools::compare::{CompareOptions, Comparison, compare};

    fn compared(before: &Profile, after: &Profile) -> Comparison {
        let [before, after] = [[before.parse()], [after.parse()]];
        let compared = compare(&before, &after, &CompareOptions::default(), false);
        compared.unwrap().comparison
    }

    #[test]
    fn the_tier_with_most_time_comes_first_wherever_the_summary_has_it() {
        let profile = (0..40).fold(Profile::new(100), |profile, number| {
            let tier = format!("/profile/functions/{number}/tier");
            let profile = profile.jit("JS:*f /a.js:1:1", if number == 39 { 5 } else { 1 });
            profile.set(&tier, format!("T{number}"))
        });
        let compared = compared(&profile, &profile);
        let tiers = &compared.functions[0].tiers;
        assert_eq!(tiers.len(), 40);
        assert_eq!(tiers[0].tier, "T39");
    }

    #[test]
    fn samples_of_the_first_of_several_events_are_counted() {
        let events = serde_json::json!([
            {"name": "page-faults", "unit": "count", "samples": 9, "period": 9},
            {"name": "cpu-clock", "unit": "ns", "samples": 433, "period": 433},
        ]);
        let profile = Profile::new(442)
            .jit("JS:*f /a.js:1:1", 5)
            .native("memcpy", "/lib/libc.so.6", 4)
            .set("/samples/jit", 300);
        let one = compared(&profile, &profile).before;
        assert_eq!((one.samples, one.jit), (442, 300));
        let profile = profile.set("/profile/events", events);
        let several = compared(&profile, &profile).before;
        assert_eq!((several.samples, several.jit), (9, 5));
    }

    /// Of the 3 percent that the confidence leaves, CPU time has 0.75. With the assumed variation, times that are 1.74 and
    /// 1.8 times as long have a probability of 0.92 and 0.57 percent.
    #[test]
    fn cpu_time_has_a_quarter_of_the_probability_of_changes_by_chance() {
        let is_significant = |time: u64| {
            let run = |time: u64| Profile::new(100).cpu_time(time);
            let cpu = compared(&run(1_000_000_000), &run(time)).cpu;
            cpu.unwrap().is_significant
        };
        assert!(!is_significant(1_740_000_000) && is_significant(1_800_000_000));
    }
}
