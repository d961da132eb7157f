//! Time that moved between functions: calls that are inlined or no longer inlined, and code that moved to another
//! function, such as a native one.
//!
//! A JIT compiler decides anew in each run what it inlines, so such changes say nothing about the program.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::collections::hash::{HashMap, HashSet};
use crate::tools::compare::comparison::FunctionChange;
use crate::tools::compare::matching::{AFTER, BEFORE, Callers, RunTable};
use crate::tools::compare::significance::Estimate;

/// Least part of the lost time that the other functions must have gained.
const MIN_BALANCE: f64 = 0.6;

/// Part of the moved time by which the total of a function may change and still count as unchanged.
const MAX_CHANGE: f64 = 0.3;

/// Least part of the gain of a further function that a loss explains. Less is what chance has left of the loss.
const MIN_PART: f64 = 0.1;

/// Functions that are examined in each direction, those with the largest changes.
const MAX_FUNCTIONS: usize = 1000;

/// Where the time of a function went or came from.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Explanation {
    /// What happened.
    pub kind: ExplanationKind,
    /// The other functions.
    pub functions: Vec<String>,
    /// Part of the change of the time in the function that it explains, in percentage points.
    #[serde(rename = "self")]
    pub own: f64,
    /// The same of the time with the function on the stack.
    pub total: f64,
}

/// How time moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExplanationKind {
    /// The function was inlined into its callers.
    InlinedInto,
    /// Callees were inlined into the function.
    Inlined,
    /// The function's code moved to other functions.
    MovedTo,
    /// The function has code of other functions.
    MovedFrom,
}

impl Explanation {
    /// Returns the text that is printed after the function.
    pub fn text(&self) -> String {
        let what = match self.kind {
            ExplanationKind::InlinedInto => "inlined into",
            ExplanationKind::Inlined => "includes inlined",
            ExplanationKind::MovedTo => "time moved to",
            ExplanationKind::MovedFrom => "time moved from",
        };
        format!("{what} {}", self.functions.join(", "))
    }
}

/// Adds the explanations to the functions, whose rows are `rows`, the largest change first.
pub(super) fn explain(table: &RunTable<'_>, rows: &[u32], functions: &mut [FunctionChange]) {
    let changed = |accepts: &dyn Fn(&FunctionChange) -> bool| -> Vec<usize> {
        let fitting = functions.iter().enumerate().filter(|(_, change)| accepts(change));
        fitting.map(|(index, _)| index).take(MAX_FUNCTIONS).collect()
    };
    let lost = changed(&|change| change.own.is_significant && change.own.change < 0.0);
    let gained = changed(&|change| {
        let is_up = |estimate: &Estimate| estimate.is_significant && estimate.change > 0.0;
        is_up(&change.own) || is_up(&change.total)
    });
    if lost.is_empty() || gained.is_empty() {
        return;
    }
    let row = |index: &usize| rows.get(*index).copied();
    let wanted = |indexes: &[usize]| -> HashSet<u32> { indexes.iter().filter_map(row).collect() };
    let (lost_rows, gained_rows) = (wanted(&lost), wanted(&gained));
    let index_of: HashMap<u32, usize> = rows.iter().copied().zip(0..).collect();
    let callers_after = table.callers(AFTER, |row| gained_rows.contains(&row));
    let mut callees: HashMap<usize, Vec<usize>> = HashMap::default();
    for index in gained {
        let callers = rows.get(index).and_then(|row| callers_after.get(row));
        for (caller, _) in callers.into_iter().flatten() {
            if let Some(&caller) = index_of.get(caller) {
                callees.entry(caller).or_default().push(index);
            }
        }
    }
    let mut search = ExplanationSearch {
        callers_before: table.callers(BEFORE, |row| lost_rows.contains(&row)),
        index_of,
        rows,
        callees,
        functions,
    };
    for index in lost {
        if !search.explain_inlining(index) {
            search.explain_move(index);
        }
    }
}

struct ExplanationSearch<'c> {
    rows: &'c [u32],
    functions: &'c mut [FunctionChange],
    index_of: HashMap<u32, usize>,
    /// Functions that gained time, by the functions that call them.
    callees: HashMap<usize, Vec<usize>>,
    callers_before: HashMap<u32, Callers>,
}

/// What a function gained.
struct Gain {
    /// The function.
    function: usize,
    /// Percentage points, above 0.
    points: f64,
}

/// Returns the sum of gains, in percentage points.
fn sum_of(gains: &[Gain]) -> f64 {
    gains.iter().map(|gain| gain.points).sum()
}

/// Time that a function has from others, or, if it is negative, has given to them, in percentage points.
#[derive(Clone, Copy)]
struct MovedTime {
    /// Of its own time.
    own: f64,
    /// Of the time with it on the stack.
    total: f64,
}

/// A gain that a loss explains.
struct Covered {
    /// The function.
    function: usize,
    /// What it gained.
    gain: f64,
    /// The part of it that is explained.
    part: f64,
}

/// Covers gains by a loss, those that are nearest to `size` first. Only the last one is covered in part.
fn cover(lost: f64, size: f64, mut gains: Vec<Gain>) -> Vec<Covered> {
    let distance = |gain: &Gain| (gain.points - size).abs();
    gains.sort_by(|one, other| distance(one).total_cmp(&distance(other)));
    let mut rest = lost;
    let mut covered = Vec::new();
    for Gain { function, points } in gains {
        let part = (rest / points).min(1.0);
        if part >= MIN_PART || covered.is_empty() {
            rest -= points * part;
            covered.push(Covered {
                function,
                gain: points,
                part,
            });
        }
    }
    covered
}

/// Whether a value has fallen by half or more.
fn has_vanished(estimate: &Estimate) -> bool {
    estimate.after <= estimate.before / 2.0
}

impl ExplanationSearch<'_> {
    fn callers_before(&self, index: usize) -> Vec<usize> {
        let callers = self.rows.get(index).and_then(|row| self.callers_before.get(row));
        let rows = callers.into_iter().flatten().map(|(caller, _)| caller);
        rows.filter_map(|row| self.index_of.get(row).copied()).collect()
    }

    /// Whether the time with a function on the stack is the same, apart from a part of `moved`.
    fn is_total_unchanged(&self, index: usize, moved: f64) -> bool {
        let total = self.functions.get(index).map(|change| change.total);
        total.is_some_and(|total| !total.is_significant || total.change.abs() <= moved * MAX_CHANGE)
    }

    /// Explains the loss of a function by the gain of its callers, whose totals are unchanged. Returns whether it does.
    fn explain_inlining(&mut self, index: usize) -> bool {
        let Some(change) = self.functions.get(index) else {
            return false;
        };
        let lost = -change.own.change;
        if !has_vanished(&change.own) || !has_vanished(&change.total) {
            return false;
        }
        let gain = |caller: usize| {
            let change = self
                .functions
                .get(caller)
                .filter(|change| change.own.is_significant);
            change.map_or(0.0, FunctionChange::unexplained_own).max(0.0)
        };
        let gains: Vec<Gain> = self
            .callers_before(index)
            .into_iter()
            .filter(|&caller| self.is_total_unchanged(caller, lost))
            .map(|caller| Gain {
                function: caller,
                points: gain(caller),
            })
            .filter(|gain| gain.points > 0.0)
            .collect();
        if sum_of(&gains) < lost * MIN_BALANCE {
            return false;
        }
        let covered = cover(lost, lost, gains);
        for it in &covered {
            // What is called counted for the total of its caller before.
            let moved = MovedTime {
                own: it.gain * it.part,
                total: 0.0,
            };
            self.add_explanation(it.function, ExplanationKind::Inlined, &[index], moved);
        }
        let total = self
            .functions
            .get(index)
            .map_or(0.0, |change| change.total.change);
        let callers: Vec<usize> = covered.into_iter().map(|it| it.function).collect();
        let moved = MovedTime { own: -lost, total };
        self.add_explanation(index, ExplanationKind::InlinedInto, &callers, moved);
        true
    }

    /// Explains the loss of a function by the gain of functions that it calls, or that its callers call in its place.
    fn explain_move(&mut self, index: usize) {
        let Some(change) = self.functions.get(index) else {
            return;
        };
        let (lost, total) = (-change.own.change, change.total);
        if total.change <= 0.0 && self.explain_delegation(index, lost) {
            return;
        }
        let callers: Vec<usize> = if has_vanished(&total) {
            self.callers_before(index)
        } else if self.is_total_unchanged(index, lost) {
            vec![index]
        } else {
            return;
        };
        let callees = callers.iter().filter_map(|caller| self.callees.get(caller));
        let callees: BTreeSet<usize> = callees.flatten().copied().collect();
        let others = callees.into_iter().filter(|other| !callers.contains(other));
        let gains = self.gains(index, others);
        let sum = sum_of(&gains);
        if sum <= 0.0 || sum < lost * MIN_BALANCE {
            return;
        }
        // A function that took the place of another has its total.
        let (gone, size) = if has_vanished(&total) {
            (total.change, -total.change)
        } else {
            (0.0, lost)
        };
        let covered = cover(lost, size, gains);
        let moved = MovedTime {
            own: -lost,
            total: gone,
        };
        self.add_move(index, &covered, moved);
    }

    /// Explains the gain of functions that a function calls, if it lost at least as much and its total did not rise: they do
    /// its work, such as native code in place of JIT code.
    fn explain_delegation(&mut self, index: usize, lost: f64) -> bool {
        let callees = self.callees.get(&index).into_iter().flatten();
        let gains = self.gains(index, callees.copied());
        let sum = sum_of(&gains);
        if sum <= 0.0 || sum > lost * (1.0 + MAX_CHANGE) {
            return false;
        }
        let covered = gains.into_iter().map(|Gain { function, points }| Covered {
            function,
            gain: points,
            part: 1.0,
        });
        let moved = MovedTime {
            own: -sum,
            total: 0.0,
        };
        self.add_move(index, &covered.collect::<Vec<_>>(), moved);
        true
    }

    /// Returns what those of `others` gained that did, without function `index`.
    fn gains(&self, index: usize, others: impl Iterator<Item = usize>) -> Vec<Gain> {
        let gains = others.filter(|&other| other != index).filter_map(|other| {
            let change = self.functions.get(other)?;
            let gain = Gain {
                function: other,
                points: change.unexplained_total(),
            };
            (change.total.is_significant && gain.points > 0.0).then_some(gain)
        });
        gains.collect()
    }

    /// Explains gains as far as they are covered, and those of what the functions call, by what function `index` lost.
    fn add_move(&mut self, index: usize, covered: &[Covered], lost: MovedTime) {
        let (wholly, partly): (Vec<&Covered>, Vec<&Covered>) = covered.iter().partition(|it| it.part >= 1.0);
        for targets in [wholly, partly] {
            let Some(part) = targets.first().map(|it| it.part) else {
                continue;
            };
            let targets: Vec<usize> = targets.iter().map(|it| it.function).collect();
            for reached in self.called_by(&targets) {
                let Some(change) = self.functions.get(reached) else {
                    continue;
                };
                let moved = MovedTime {
                    own: change.unexplained_own().max(0.0) * part,
                    total: change.unexplained_total().max(0.0) * part,
                };
                self.add_explanation(reached, ExplanationKind::MovedFrom, &[index], moved);
            }
        }
        let targets: Vec<usize> = covered.iter().map(|it| it.function).collect();
        self.add_explanation(index, ExplanationKind::MovedTo, &targets, lost);
    }

    /// Returns functions and those that gained time and are mostly called by them.
    fn called_by(&self, functions: &[usize]) -> BTreeSet<usize> {
        let mut reached: BTreeSet<usize> = functions.iter().copied().collect();
        let mut open: Vec<usize> = functions.to_vec();
        while let Some(function) = open.pop() {
            for &callee in self.callees.get(&function).into_iter().flatten() {
                if reached.insert(callee) {
                    open.push(callee);
                }
            }
        }
        reached
    }

    /// Adds time that the function at an index has from `others`, or has given to them. The kind is that of the first
    /// explanation.
    fn add_explanation(&mut self, index: usize, kind: ExplanationKind, others: &[usize], moved: MovedTime) {
        /// Functions that are named.
        const MAX_NAMES: usize = 3;
        let named = others.iter().take(MAX_NAMES);
        let names = named.filter_map(|&other| Some(self.functions.get(other)?.function.name.clone()));
        let names: Vec<String> = names.collect();
        let Some(change) = self.functions.get_mut(index) else {
            return;
        };
        let known = change.explanation.get_or_insert_with(|| Explanation {
            kind,
            functions: Vec::new(),
            own: 0.0,
            total: 0.0,
        });
        known.own += moved.own;
        known.total += moved.total;
        for name in names {
            if known.functions.len() < MAX_NAMES && !known.functions.contains(&name) {
                known.functions.push(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::compare::matching::match_functions;
    use crate::tools::compare::testing::{Profile, changes};

    /// Returns functions with these significant changes of their own time and their total, from 10 percent.
    fn functions(values: &[(f64, f64)]) -> Vec<FunctionChange> {
        let estimate = |change: f64| Estimate {
            before: 10.0,
            after: 10.0 + change,
            change,
            margin: None,
            is_significant: true,
        };
        let mut functions = changes(values.len(), true);
        for (function, &(own, total)) in functions.iter_mut().zip(values) {
            (function.own, function.total) = (estimate(own), estimate(total));
        }
        functions
    }

    /// Returns a search in which function 0 called function 1.
    fn search(functions: &mut [FunctionChange]) -> ExplanationSearch<'_> {
        ExplanationSearch {
            rows: &[0, 1],
            functions,
            index_of: (0..2).zip(0..).collect(),
            callees: HashMap::default(),
            callers_before: [(1, vec![(0, 10)])].into_iter().collect(),
        }
    }

    /// Whether a function that is gone, with its 10 percent, counts as inlined into its caller, by what that gained.
    fn is_inlined(own: f64, total: f64) -> bool {
        let mut functions = functions(&[(own, total), (-10.0, -10.0)]);
        search(&mut functions).explain_inlining(1)
    }

    #[test]
    fn callers_gain_six_tenths_of_what_is_inlined_into_them() {
        assert!(is_inlined(6.1, 0.0) && !is_inlined(5.9, 0.0));
    }

    #[test]
    fn totals_of_callers_change_by_three_tenths_of_what_is_inlined_into_them() {
        assert!(is_inlined(10.0, 2.9) && !is_inlined(10.0, 3.1));
    }

    /// `f1` was replaced by `f2`, and `f3` is new.
    #[test]
    fn the_gain_that_is_nearest_to_a_loss_is_explained() {
        let mut functions = functions(&[(0.0, 0.0), (-10.0, -10.0), (10.0, 10.0), (5.0, 5.0)]);
        let mut search = ExplanationSearch {
            rows: &[0, 1, 2, 3],
            functions: &mut functions,
            index_of: (0..4).zip(0..).collect(),
            callees: [(0, vec![2, 3])].into_iter().collect(),
            callers_before: [(1, vec![(0, 10)])].into_iter().collect(),
        };
        search.explain_move(1);
        let unexplained: Vec<f64> = functions.iter().map(FunctionChange::unexplained_own).collect();
        assert_eq!(unexplained, [0.0, 0.0, 0.0, 5.0]);
        assert_eq!(functions[1].explanation.as_ref().unwrap().functions, ["f2"]);
    }

    #[test]
    fn a_tenth_of_a_further_gain_is_explained() {
        let parts = |gains: &[f64]| -> Vec<f64> {
            let gain = |(function, &points): (usize, &f64)| Gain { function, points };
            let covered = cover(10.0, 10.0, (0..).zip(gains).map(gain).collect());
            covered.iter().map(|it| it.part).collect()
        };
        assert_eq!(parts(&[4.0, 6.0]), [1.0, 1.0]);
        assert_eq!(parts(&[4.0, 9.5]).len(), 2);
        assert_eq!(parts(&[6.0, 9.5]), [1.0]);
        assert_eq!(parts(&[200.0]), [0.05]);
    }

    #[test]
    fn explanations_name_three_functions() {
        let mut functions = changes(5, true);
        let moved = MovedTime { own: 1.0, total: 0.0 };
        search(&mut functions).add_explanation(0, ExplanationKind::Inlined, &[1, 2, 3, 4], moved);
        let explanation = functions[0].explanation.as_ref().unwrap();
        assert_eq!(explanation.text(), "includes inlined f1, f2, f3");
    }

    #[test]
    fn the_thousand_functions_that_lost_most_are_explained() {
        let name = |number: usize| format!("JS:*f{number} /a.js:1:1");
        let after = Profile::new(10_000).jit(&name(0), 1);
        let before = (1..=1001).fold(after.clone(), |profile, number| {
            profile.jit(&name(number), 1).callers(number, &[(0, 1)])
        });
        let (before, after) = ([before.parse()], [after.parse()]);
        let table = match_functions(&before, &after);
        let rows: Vec<u32> = (0..=1001).collect();
        let mut values = vec![(-10.0, -10.0); 1002];
        values[0] = (10_010.0, 0.0);
        let mut functions = functions(&values);
        explain(&table, &rows, &mut functions);
        let is_explained: Vec<bool> = functions.iter().map(|it| it.explanation.is_some()).collect();
        assert_eq!(is_explained, [[true; 1001].as_slice(), &[false]].concat());
    }
}
