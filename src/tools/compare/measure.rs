//! What the values of functions are: shares of the samples, or time per run.

use serde::Serialize;

use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::summary::profile::{EventSummary, FunctionProfile, Unit};
use crate::tools::compare::matching::{AFTER, BEFORE, RunTable};
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
    /// Events per run, of which a sample stands for several, in percent of those of the first side.
    Events,
}

/// What is measured of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// Its own code.
    Own,
    /// It and the functions that it calls.
    Total,
}

impl Measure {
    /// Returns what 100 percent are.
    pub fn text(self) -> &'static str {
        match self {
            Self::Share => "percent of the samples of each side",
            Self::CpuTime => "CPU time per run, in percent of that before",
            Self::Cycles => "cycles per run, in percent of those before",
            Self::Samples => "samples per run, in percent of those before",
            Self::Events => "events per run, in percent of those before",
        }
    }

    /// Returns what a whole run costs in this measure.
    pub fn cost(self) -> &'static str {
        match self {
            Self::Share | Self::CpuTime => "CPU time",
            Self::Cycles => "cycles",
            Self::Samples => "samples",
            Self::Events => "events",
        }
    }
}

/// Converts numbers of samples to values. A value is a number of samples, times a weight and the mean
/// [period](Self::period).
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Scale {
    /// What the values are.
    pub measure: Measure,
    /// Value of one sample in each run, in percent.
    pub weights: Vec<f64>,
    /// The same for shares.
    pub share_weights: Vec<f64>,
    /// Mean periods of the samples in each function, by row, in the runs that have it; empty if all samples count the same.
    periods: Vec<Vec<MeanPeriods>>,
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
        let share_weights: Vec<f64> = (0..table.runs.len())
            .map(|run| 100.0 / table.samples(run).max(1) as f64)
            .collect();
        let different_event = different_event(table);
        // Costs of different events have different units.
        let measured = match &different_event {
            Some(_) => None,
            None => measured_costs(table, choice),
        };
        let measure = match (&measured, choice) {
            (None, _) | (_, MeasureChoice::Shares) => Measure::Share,
            (Some(costs), _) => costs.measure,
        };
        let has_time = measured
            .as_ref()
            .is_some_and(|costs| costs.measure == Measure::CpuTime);
        let costs = measured.map(|costs| {
            let mut before = costs.of_runs;
            let after = before.split_off(table.runs_before.min(before.len()));
            [before, after]
        });
        // A run that costs more than the mean of the first side has more than 100 percent.
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
            periods: mean_periods(table),
            costs,
            has_time,
            diagnostics: different_event
                .into_iter()
                .chain(different_stacks(table))
                .collect(),
        }
    }

    /// Returns the mean period of the samples in a part of a function, relative to that of all samples of the run.
    pub fn period(&self, row: u32, run: usize, part: Part) -> f64 {
        let in_runs = self.periods.get(row as usize).map(Vec::as_slice);
        let in_runs = in_runs.unwrap_or_default();
        let at = in_runs.binary_search_by_key(&run, |periods| periods.run).ok();
        let found = at.and_then(|at| in_runs.get(at));
        found.map_or(1.0, |periods| match part {
            Part::Own => periods.own,
            Part::Total => periods.total,
        })
    }
}

/// Mean periods of the samples in a function in a run, relative to that of all samples of the run.
#[derive(Clone, Copy, PartialEq, Debug)]
struct MeanPeriods {
    run: usize,
    own: f64,
    total: f64,
}

/// Samples, and the sum of their periods.
#[derive(Clone, Copy, Default)]
struct Periods {
    samples: f64,
    period: f64,
}

impl Periods {
    fn add(&mut self, samples: u64, period: u64) {
        self.samples += samples as f64;
        self.period += period as f64;
    }

    /// Returns the mean period, relative to that of these.
    fn relative_to(&self, all: &Self) -> f64 {
        if self.samples > 0.0 && all.period > 0.0 {
            self.period / self.samples * (all.samples / all.period)
        } else {
            1.0
        }
    }
}

/// Samples in a function in a run, with their periods.
#[derive(Clone, Default)]
struct FunctionPeriods {
    run: usize,
    own: Periods,
    total: Periods,
}

/// Returns the mean periods of each function, by row, in the runs that have it, unless samples are those of a clock, or a
/// summary of an earlier version lacks the periods. perf changes the periods of other events to get as many samples each
/// second.
fn mean_periods(table: &RunTable<'_>) -> Vec<Vec<MeanPeriods>> {
    if !table.runs.iter().all(|run| has_periods(run)) {
        return Vec::new();
    }
    let mut sums: Vec<Vec<FunctionPeriods>> = vec![Vec::new(); table.len()];
    let entries = [BEFORE, AFTER].into_iter().flat_map(|side| table.entries(side));
    for (run, row, function) in entries {
        let Some(in_runs) = sums.get_mut(row as usize) else {
            continue;
        };
        // Entries are in the order of runs, which may have several of a function.
        if in_runs.last().is_none_or(|last| last.run != run) {
            in_runs.push(FunctionPeriods {
                run,
                ..FunctionPeriods::default()
            });
        }
        if let Some(periods) = in_runs.last_mut() {
            let (own_samples, total_samples) = function.counts();
            periods.own.add(own_samples, function.self_period.first());
            periods.total.add(total_samples, function.total_period.first());
        }
    }
    let all: Vec<Periods> = (0..table.runs.len())
        .map(|run| {
            let period = table.runs.get(run).map_or(0, |run| first_period(run));
            let mut all = Periods::default();
            all.add(table.samples(run), period);
            all
        })
        .collect();
    let mean = |FunctionPeriods { run, own, total }: FunctionPeriods| {
        let all = all.get(run).copied().unwrap_or_default();
        MeanPeriods {
            run,
            own: own.relative_to(&all),
            total: total.relative_to(&all),
        }
    };
    let rows = sums.into_iter();
    rows.map(|in_runs| in_runs.into_iter().map(mean).collect())
        .collect()
}

/// Whether samples count by their periods, which are known for each function.
fn has_periods(run: &ParsedSummary) -> bool {
    let mut functions = run.profile.functions.iter();
    let is_time = |event: &EventSummary| event.unit == Unit::Nanoseconds;
    run.profile.events.first().is_some_and(|event| !is_time(event))
        && functions.all(|function| function.total.first() == 0 || function.total_period.is_known())
}

/// Returns the sum of the periods of the first event.
fn first_period(run: &ParsedSummary) -> u64 {
    run.profile.events.first().map_or(0, |event| event.period)
}

/// Costs of all runs.
struct Costs {
    /// What they are; never a share.
    measure: Measure,
    of_runs: Vec<f64>,
}

/// Returns the costs of runs with the same event: what the summaries have or, if values per run are wanted, the number of
/// events. `None` if a run has none, or an impossible one.
fn measured_costs(table: &RunTable<'_>, choice: MeasureChoice) -> Option<Costs> {
    let by_count = || (choice == MeasureChoice::PerRun).then(|| event_counts(table));
    let costs = recorded_costs(&table.runs).or_else(by_count)?;
    let are_possible = costs.of_runs.iter().all(|cost| cost.is_finite() && *cost > 0.0);
    are_possible.then_some(costs)
}

/// Returns the number of events in each run, or of samples if each is of one event or the number is unknown.
fn event_counts(table: &RunTable<'_>) -> Costs {
    let samples: Vec<u64> = (0..table.runs.len()).map(|run| table.samples(run)).collect();
    let periods: Vec<u64> = table.runs.iter().map(|run| first_period(run)).collect();
    let (measure, counts) = if periods.contains(&0) || periods == samples {
        (Measure::Samples, samples)
    } else {
        (Measure::Events, periods)
    };
    Costs {
        measure,
        of_runs: counts.into_iter().map(|count| count as f64).collect(),
    }
}

/// Returns the cost of all runs in the same unit, if known: CPU time, else cycles.
fn recorded_costs(runs: &[&ParsedSummary]) -> Option<Costs> {
    let all = |cost: fn(&ParsedSummary) -> Option<u64>| -> Option<Vec<f64>> {
        runs.iter()
            .map(|run| Some(cost(run)? as f64).filter(|cost| *cost > 0.0))
            .collect()
    };
    let cpu_time = all(|run| run.profile.cpu_time_ns);
    let nanoseconds = || all(|run| period(run, Unit::Nanoseconds));
    if let Some(of_runs) = cpu_time.or_else(nanoseconds) {
        let measure = Measure::CpuTime;
        return Some(Costs { measure, of_runs });
    }
    let of_runs = all(|run| period(run, Unit::Cycles))?;
    let measure = Measure::Cycles;
    Some(Costs { measure, of_runs })
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
    let text = |has_stacks| {
        if has_stacks {
            "with call stacks"
        } else {
            "without call stacks"
        }
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
    /// Returns what the events of runs are compared by.
    fn of(run: &'a ParsedSummary) -> Self {
        let event = run.profile.events.first();
        Self {
            name: event.map_or("none", EventSummary::base_name),
            unit: event.map(|event| event.unit),
            is_user_only: event.is_some_and(EventSummary::is_user_only),
        }
    }

    fn kernel_text(&self) -> &'static str {
        if self.is_user_only {
            "without kernel time"
        } else {
            "with kernel time"
        }
    }
}
