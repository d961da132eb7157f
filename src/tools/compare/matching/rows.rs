//! The table of matched functions, with their samples in each run.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Serialize;

use crate::collections::hash::{HashMap, HashSet};
use crate::collections::indexed_table::IndexedTable;
use crate::results::name_style::ANONYMOUS;
use crate::results::summary::outermost::{CallNode, visit_outermost};
use crate::results::summary::profile::{CodeOrigin, FunctionProfile};
use crate::tools::compare::matching::identity::{Identity, base_name};
use crate::tools::compare::matching::{AFTER, BEFORE};
use crate::tools::compare::summary_file::ParsedSummary;

/// Callers of a function that are examined, those with the most samples. jitinject writes three for each run.
const MAX_CALLERS: usize = 8;

/// Functions of all runs.
#[derive(Debug)]
pub struct RunTable<'s> {
    /// The runs: first those of one side, then those of the other.
    pub runs: Vec<&'s ParsedSummary>,
    /// Number of runs of the first side.
    pub runs_before: usize,
    /// Matched functions. Those that were merged into others are `None`.
    functions: IndexedTable<u32, Option<MatchedFunction>>,
    /// Samples of each function in the runs that have it, in their order: many runs may have different functions.
    counts: IndexedTable<u32, Vec<EntryCounts>>,
    /// For each run, the row of each function of its profile.
    rows: Vec<Vec<u32>>,
}

/// A function of any number of runs: its names are those of the second side, if that has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MatchedFunction {
    /// Name without the tier.
    pub name: String,
    /// Name and file in the first side, if it was renamed or moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// Kind of its code.
    pub kind: CodeOrigin,
    /// Runtime, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Source file, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line of the declaration, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// File name of the module of native code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Whether the names are those of the second side.
    #[serde(skip)]
    pub(crate) is_current: bool,
}

/// Samples of the entries of one function in one run.
#[derive(Clone, Copy, Debug, Default)]
struct EntryCounts {
    run: usize,
    own: u64,
    /// Sum of the entries' totals.
    total: u64,
    /// Largest total of an entry.
    largest: u64,
    entries: u32,
}

/// Sizes of the code of a function by tier.
pub type Sizes<'s> = HashMap<&'s str, BTreeSet<u64>>;

/// Callers of a function on one side, by their row, with numbers of samples; most samples first.
pub type Callers = Vec<(u32, u64)>;

impl MatchedFunction {
    /// Describes a function as a run has it; `is_current` if that is a run of the second side.
    fn new(identity: &Identity<'_>, function: &FunctionProfile, is_current: bool) -> Self {
        let name = match (identity.kind, &*identity.name) {
            // Its identity lacks the number of a module.
            (CodeOrigin::Module, _) => &*function.name,
            (_, "") => ANONYMOUS,
            (_, name) => name,
        };
        let (line, _) = identity.position;
        let has_module = identity.kind == CodeOrigin::Native;
        let module_path = function.module.as_deref().filter(|_| has_module);
        Self {
            name: name.to_owned(),
            previous: None,
            kind: identity.kind,
            runtime: function.runtime.clone().map(Cow::into_owned),
            file: identity.path.as_deref().map(str::to_owned),
            line: Some(line).filter(|&line| line > 0).or(function.line),
            module: module_path.map(|path| base_name(path).to_owned()),
            is_current,
        }
    }

    /// Returns the name and the end of the file's path, the module or the kind.
    pub fn full_name(&self) -> String {
        let place = self
            .file
            .as_deref()
            .filter(|_| self.kind == CodeOrigin::Jit)
            .map(path_end);
        match (place, &self.module) {
            (Some(file), _) => format!("{} {file}", self.name),
            (None, Some(module)) => format!("{} [{module}]", self.name),
            (None, None) => match self.kind {
                CodeOrigin::Kernel => format!("{} [kernel]", self.name),
                CodeOrigin::Module => format!("[{}]", self.name),
                _ => self.name.clone(),
            },
        }
    }

    /// Returns the same, with the line if it is known.
    pub fn text(&self) -> String {
        // Closures of PHP have no file.
        let has_place = self.file.is_some() || self.name.ends_with("{closure}");
        let line = self.line.filter(|_| has_place && self.kind == CodeOrigin::Jit);
        match line {
            Some(line) => format!("{}:{line}", self.full_name()),
            None => self.full_name(),
        }
    }
}

/// Returns the last two parts of a path.
fn path_end(path: &str) -> &str {
    let before_last = path.rmatch_indices('/').nth(1);
    before_last.map_or(path, |(slash, _)| {
        path.get(slash.saturating_add(1)..).unwrap_or(path)
    })
}

impl<'s> RunTable<'s> {
    pub(super) fn new(runs: &[&'s ParsedSummary], runs_before: usize) -> Self {
        let sizes = runs.iter().map(|run| vec![0; run.profile.functions.len()]);
        Self {
            runs: runs.to_vec(),
            runs_before,
            functions: IndexedTable::default(),
            counts: IndexedTable::default(),
            rows: sizes.collect(),
        }
    }

    /// Adds a function without samples; returns its row.
    pub(super) fn add_function(&mut self) -> u32 {
        self.counts.push(Vec::new());
        self.functions.push(None)
    }

    /// Adds the entry `index` of a run to a function. The entries of earlier runs come before.
    pub(super) fn add_entry(&mut self, run: usize, index: usize, row: u32, identity: &Identity<'_>) {
        let functions = self.runs.get(run).map(|run| &run.profile.functions);
        let Some(function) = functions.and_then(|functions| functions.get(index)) else {
            return;
        };
        if let Some(known) = self.rows.get_mut(run).and_then(|rows| rows.get_mut(index)) {
            *known = row;
        }
        let (own, total) = function.counts();
        let in_runs = &mut self.counts[row];
        if in_runs.last().is_none_or(|last| last.run != run) {
            in_runs.push(EntryCounts {
                run,
                ..EntryCounts::default()
            });
        }
        if let Some(counts) = in_runs.last_mut() {
            counts.own = counts.own.saturating_add(own);
            counts.total = counts.total.saturating_add(total);
            counts.largest = counts.largest.max(total);
            counts.entries = counts.entries.saturating_add(1);
        }
        let is_current = run >= self.runs_before;
        let known = &mut self.functions[row];
        let is_better = |known: &MatchedFunction| is_current && !known.is_current;
        if known.as_ref().is_none_or(is_better) {
            *known = Some(MatchedFunction::new(identity, function, is_current));
        }
    }

    /// Removes the line of a row that has several functions.
    pub(super) fn remove_line(&mut self, row: u32) {
        if let Some(function) = &mut self.functions[row] {
            function.line = None;
        }
    }

    /// Returns the samples of a function in a run, and their position, if the run has it.
    fn entry(&self, row: u32, run: usize) -> Option<(usize, &EntryCounts)> {
        let in_runs = self.counts.row(row)?;
        let at = in_runs.binary_search_by_key(&run, |counts| counts.run).ok()?;
        Some((at, in_runs.get(at)?))
    }

    /// Returns the number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Returns the samples in a function, and with it in their stack, in the runs of a side that have it.
    pub fn counts(&self, row: u32, side: usize) -> impl Iterator<Item = (usize, (u64, u64))> {
        let runs = self.runs_of(side);
        let in_runs = self.counts.row(row).into_iter().flatten();
        let of_side = in_runs.filter(move |counts| runs.contains(&counts.run));
        of_side.map(|counts| (counts.run, (counts.own, counts.total)))
    }

    /// Returns the runs of a side.
    pub fn runs_of(&self, side: usize) -> std::ops::Range<usize> {
        match side {
            BEFORE => 0..self.runs_before,
            _ => self.runs_before..self.runs.len(),
        }
    }

    /// Returns the samples in a function, and with it in their stack, in all runs of a side.
    pub fn side_counts(&self, row: u32, side: usize) -> (u64, u64) {
        let (mut own, mut total) = (0u64, 0u64);
        for (_, (own_here, total_here)) in self.counts(row, side) {
            own = own.saturating_add(own_here);
            total = total.saturating_add(total_here);
        }
        (own, total)
    }

    /// Returns the row of a function of a run's profile.
    pub fn row(&self, run: usize, function: usize) -> Option<u32> {
        self.rows.get(run)?.get(function).copied()
    }

    /// Returns the number of samples of the first event in a run.
    pub fn samples(&self, run: usize) -> u64 {
        let events = self.runs.get(run).map(|run| &run.profile.events);
        let event = events.and_then(|events| events.first());
        event.map(|event| event.samples).unwrap_or_default()
    }

    /// Returns each function of a side with its row.
    pub fn entries(&self, side: usize) -> impl Iterator<Item = (usize, u32, &'s FunctionProfile)> {
        let runs = self.runs_of(side);
        runs.filter_map(|run| Some((run, *self.runs.get(run)?)))
            .flat_map(move |(run, summary)| {
                let rows = self.rows.get(run).into_iter().flatten();
                let functions = summary.profile.functions.iter();
                rows.zip(functions)
                    .map(move |(&row, function)| (run, row, function))
            })
    }

    /// Returns the callers of some functions on one side, other than the functions themselves.
    pub fn callers(&self, side: usize, is_wanted: impl Fn(u32) -> bool) -> HashMap<u32, Callers> {
        let mut sums: HashMap<u32, HashMap<u32, u64>> = HashMap::default();
        for (run, row, function) in self.entries(side) {
            if !is_wanted(row) {
                continue;
            }
            for &(caller, samples) in &function.callers {
                let Some(caller) = self.row(run, caller as usize).filter(|&caller| caller != row) else {
                    continue;
                };
                let sum = sums.entry(row).or_default().entry(caller).or_default();
                *sum = sum.saturating_add(samples);
            }
        }
        let sorted = sums.into_iter().map(|(row, callers)| {
            let mut callers: Callers = callers.into_iter().collect();
            callers.sort_by_key(|&(caller, samples)| (std::cmp::Reverse(samples), caller));
            callers.truncate(MAX_CALLERS);
            (row, callers)
        });
        sorted.collect()
    }

    /// Merges rows of the first side into those of the second that `renamed` has for them.
    pub(super) fn merge(&mut self, renamed: &HashMap<u32, u32>) {
        for rows in &mut self.rows {
            for row in rows {
                *row = renamed.get(row).copied().unwrap_or(*row);
            }
        }
        let runs_before = self.runs_before;
        for (&from, &to) in renamed {
            let mut counts = std::mem::take(&mut self.counts[from]);
            counts.retain(|counts| counts.run < runs_before);
            let known = &mut self.counts[to];
            counts.extend(known.iter().filter(|counts| counts.run >= runs_before));
            *known = counts;
            let previous = self.functions[from].take();
            if let (Some(previous), Some(function)) = (previous, &mut self.functions[to]) {
                function.previous = Some(previous.full_name());
            }
        }
    }

    /// Computes the totals of functions with several entries from the call trees, because the sum counts stacks with
    /// two of them twice.
    pub(super) fn correct_totals(&mut self) {
        for run in 0..self.runs.len() {
            let mut rows = self.rows.get(run).cloned().unwrap_or_default();
            rows.sort_unstable();
            rows.dedup();
            rows.retain(|&row| self.entry(row, run).is_some_and(|(_, counts)| counts.entries > 1));
            // If one entry has all samples, the sum has none twice.
            let is_wanted = |row: &u32| {
                let found = self.entry(*row, run);
                found.is_some_and(|(_, counts)| counts.largest < counts.total)
            };
            let wanted: HashSet<u32> = rows.iter().copied().filter(is_wanted).collect();
            let totals = self.tree_totals(run, &wanted);
            let most = self.samples(run);
            for row in rows {
                let at = self.entry(row, run).map(|(at, _)| at);
                let Some(counts) = at.and_then(|at| self.counts[row].get_mut(at)) else {
                    continue;
                };
                // Whatever the tree of a damaged summary has, a function has at least the samples of each entry, and at
                // most those of all, and of the run.
                let from_tree = totals.get(&row).copied().unwrap_or(counts.total);
                let least = counts.largest.max(counts.own);
                counts.total = from_tree.min(counts.total).min(most.max(least)).max(least);
            }
        }
    }

    /// Returns the samples with each of the `wanted` functions in their stack, by the call tree of a run.
    fn tree_totals(&self, run: usize, wanted: &HashSet<u32>) -> HashMap<u32, u64> {
        let mut totals: HashMap<u32, u64> = HashMap::default();
        let (Some(summary), Some(rows)) = (self.runs.get(run), self.rows.get(run)) else {
            return totals;
        };
        if wanted.is_empty() {
            return totals;
        }
        // The entries of a function are one: the first of them.
        let mut first_of_row: HashMap<u32, u32> = HashMap::default();
        let entries = (0_u32..).zip(rows);
        let firsts: Vec<u32> = entries
            .map(|(entry, &row)| *first_of_row.entry(row).or_insert(entry))
            .collect();
        let first = |function: u32| firsts.get(function as usize).copied().unwrap_or_default();
        let stacks = summary.profile.stacks.iter();
        let nodes = stacks.clone().map(|node| CallNode {
            caller: node.caller,
            function: first(node.function),
        });
        let nodes: IndexedTable<u32, CallNode<u32>> = nodes.collect();
        visit_outermost(
            stacks.map(|node| node.own).collect(),
            |index: u32| nodes[index],
            rows.len(),
            |sum: &mut u64, samples| *sum = sum.saturating_add(samples),
            |index, samples| {
                let row = rows.get(nodes[index].function as usize);
                if let Some(&row) = row.filter(|row| wanted.contains(*row)) {
                    let total = totals.entry(row).or_default();
                    *total = total.saturating_add(samples);
                }
            },
        );
        totals
    }

    /// Returns all sizes of code of each function by tier, on one side.
    pub(super) fn sizes(&self, side: usize, is_wanted: impl Fn(u32) -> bool) -> HashMap<u32, Sizes<'s>> {
        let mut sizes: HashMap<u32, Sizes<'s>> = HashMap::default();
        for (_, row, function) in self.entries(side) {
            let Some(size) = function.size.filter(|_| is_wanted(row)) else {
                continue;
            };
            let tier = function.tier.as_deref().unwrap_or_default();
            let known = sizes.entry(row).or_default().entry(tier).or_default();
            known.insert(size);
        }
        sizes
    }

    /// Whether a function has samples on a side.
    pub fn is_on(&self, row: u32, side: usize) -> bool {
        let (own, total) = self.side_counts(row, side);
        own > 0 || total > 0
    }

    /// Returns the rows that are not merged into others.
    pub fn live_rows(&self) -> impl Iterator<Item = (u32, &MatchedFunction)> {
        let rows = self.functions.enumerate();
        rows.filter_map(|(row, function)| Some((row, function.as_ref()?)))
    }

    /// Returns the function of a row.
    pub fn function(&self, row: u32) -> Option<&MatchedFunction> {
        self.functions.row(row)?.as_ref()
    }

    /// Whether each side has one run, so that the variation between runs is unknown.
    pub fn is_one_run_each(&self) -> bool {
        self.runs_before == 1 && self.runs_after() == 1
    }

    /// Returns the number of runs of the second side.
    pub fn runs_after(&self) -> usize {
        self.runs_of(AFTER).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::compare::matching::match_functions;
    use crate::tools::compare::testing::Profile;

    #[test]
    fn the_eight_callers_with_the_most_samples_are_examined() {
        let callers = |count: usize| -> Vec<u32> {
            let profile = (0..=count).fold(Profile::new(1000), |profile, number| {
                profile.jit(&format!("JS:*f{number} /a.js:1:1"), 1)
            });
            let callers: Vec<(usize, u64)> = (1..=count).zip(1..).collect();
            let before = [profile.callers(0, &callers).parse()];
            let table = match_functions(&before, &[]);
            let found = table.callers(BEFORE, |row| row == 0);
            found[&0].iter().map(|&(caller, _)| caller).collect()
        };
        assert_eq!(callers(8), [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(callers(9), [9, 8, 7, 6, 5, 4, 3, 2]);
    }
}
