//! What the values of functions are: shares of the samples, or time per run.

use serde::Serialize;

use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::summary::profile::{EventSummary, FunctionProfile, Unit};
use crate::tools::compare::matching::RunTable;
use crate::tools::compare::options::MeasureChoice;
use crate::tools::compare::summary_file::ParsedSummary;

/// What the values of functions are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Percent of the samples of their own side.
    Share,
    /// CPU time per run, in percent of that of the first side.
    CpuTime,
    /// Cycles per run, in percent of those of the first side.
    Cycles,
    /// Samples per run, in percent of those of the first side.
    Samples,
}

impl Measure {
    /// Returns what 100 percent are.
    pub fn text(self) -> &'static str {
        match self {
            Self::Share => "percent of the samples of each side",
            Self::CpuTime => "CPU time per run, in percent of that before",
            Self::Cycles => "cycles per run, in percent of those before",
            Self::Samples => "samples per run, in percent of those before",
        }
    }

    /// Returns what a whole run costs in this measure.
    pub fn cost(self) -> &'static str {
        match self {
            Self::Share | Self::CpuTime => "CPU time",
            Self::Cycles => "cycles",
            Self::Samples => "samples",
        }
    }
}

/// Converts numbers of samples to values.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Scale {
    /// What the values are.
    pub measure: Measure,
    /// Value of one sample in each run, in percent.
    pub weights: Vec<f64>,
    /// The same for shares.
    pub share_weights: Vec<f64>,
    /// Cost of the runs of each side, if known.
    pub costs: Option<[Vec<f64>; 2]>,
    /// Whether the costs are CPU times in nanoseconds.
    pub has_time: bool,
    /// Warnings about the runs.
    pub diagnostics: Vec<Diagnostic>,
}

impl Scale {
    /// Chooses the measure.
    pub fn of(table: &RunTable<'_>, choice: MeasureChoice) -> Self {
        let runs = 0..table.runs.len();
        let share_weights: Vec<f64> = runs
            .clone()
            .map(|run| 100.0 / table.samples(run).max(1) as f64)
            .collect();
        let different_event = different_event(table);
        let costs = match &different_event {
            Some(_) => None,
            None => costs(&table.runs),
        };
        let samples = || {
            let samples = runs.map(|run| table.samples(run) as f64).collect();
            (Measure::Samples, samples)
        };
        let by_samples = || (choice == MeasureChoice::PerRun && different_event.is_none()).then(samples);
        let costs = costs.or_else(by_samples);
        let costs = costs.filter(|(_, costs)| costs.iter().all(|cost| cost.is_finite() && *cost > 0.0));
        let measure = match (&costs, choice) {
            (None, _) | (_, MeasureChoice::Shares) => Measure::Share,
            (Some((measure, _)), _) => *measure,
        };
        let has_time = matches!(costs, Some((Measure::CpuTime, _)));
        let costs = costs.map(|(_, mut costs)| {
            let after = costs.split_off(table.runs_before.min(costs.len()));
            [costs, after]
        });
        let weights = match &costs {
            Some([before, after]) if measure != Measure::Share => {
                let mean = before.iter().sum::<f64>() / before.len().max(1) as f64;
                let scaled = before.iter().chain(after).zip(&share_weights);
                scaled.map(|(cost, weight)| weight * cost / mean).collect()
            }
            _ => share_weights.clone(),
        };
        Self {
            measure,
            weights,
            share_weights,
            costs,
            has_time,
            diagnostics: different_event
                .into_iter()
                .chain(different_stacks(table))
                .collect(),
        }
    }
}

/// Returns the cost of all runs in the same unit, if known.
fn costs(runs: &[&ParsedSummary]) -> Option<(Measure, Vec<f64>)> {
    let all = |cost: fn(&ParsedSummary) -> Option<u64>| -> Option<Vec<f64>> {
        runs.iter()
            .map(|run| Some(cost(run)? as f64).filter(|cost| *cost > 0.0))
            .collect()
    };
    let time = all(|run| run.profile.cpu_time_ns);
    let nanoseconds = || all(|run| period(run, Unit::Nanoseconds));
    let cycles = || all(|run| period(run, Unit::Cycles));
    let time = time.or_else(nanoseconds).map(|costs| (Measure::CpuTime, costs));
    time.or_else(|| cycles().map(|costs| (Measure::Cycles, costs)))
}

/// Returns the sum of the periods of the first event, if it has this unit.
fn period(run: &ParsedSummary, unit: Unit) -> Option<u64> {
    let event = run.profile.events.first()?;
    (event.unit == unit).then_some(event.period)
}

/// Returns a warning about the first run with another event than the first run, or with kernel time if that has none.
fn different_event(table: &RunTable<'_>) -> Option<Diagnostic> {
    let mut runs = table.runs.iter();
    let first = EventOfRun::of(runs.next()?);
    let (run, other) = runs
        .map(|run| (run, EventOfRun::of(run)))
        .find(|(_, event)| *event != first)?;
    let differs = match (first.name == other.name, first.unit == other.unit) {
        (true, true) => Diagnostic::new(Issue::KernelDiffers)
            .with("this", other.kernel_text())
            .with("first", first.kernel_text()),
        _ => Diagnostic::new(Issue::EventsDiffer)
            .with("event", other.name)
            .with("first", first.name),
    };
    Some(differs.in_file_called(jitdump::printable(run.input.as_bytes())))
}

/// Returns a warning about the first run with call stacks if the first run has none, or the other way round.
fn different_stacks(table: &RunTable<'_>) -> Option<Diagnostic> {
    let with_samples = (0..table.runs.len()).filter(|&run| table.samples(run) > 0);
    let mut runs = with_samples.filter_map(|run| table.runs.get(run));
    let first = has_stacks(runs.next()?);
    let run = runs.find(|run| has_stacks(run) != first)?;
    let text = |has_stacks| match has_stacks {
        true => "with call stacks",
        false => "without call stacks",
    };
    let differs = Diagnostic::new(Issue::StacksDiffer)
        .with("this", text(!first))
        .with("first", text(first));
    Some(differs.in_file_called(jitdump::printable(run.input.as_bytes())))
}

/// Whether any function was sampled below another one.
fn has_stacks(run: &ParsedSummary) -> bool {
    let mut counts = run.profile.functions.iter().map(FunctionProfile::counts);
    counts.any(|(own, total)| total > own)
}

/// What the first event of a run counts.
#[derive(PartialEq)]
struct EventOfRun<'a> {
    name: &'a str,
    unit: Option<Unit>,
    is_user_only: bool,
}

impl<'a> EventOfRun<'a> {
    fn of(run: &'a ParsedSummary) -> Self {
        let event = run.profile.events.first();
        Self {
            name: event.map_or("none", EventSummary::base_name),
            unit: event.map(|event| event.unit),
            is_user_only: event.is_some_and(EventSummary::is_user_only),
        }
    }

    fn kernel_text(&self) -> &'static str {
        match self.is_user_only {
            true => "without kernel time",
            false => "with kernel time",
        }
    }
}
