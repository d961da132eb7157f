//! Samples of the functions in a tree.

use std::cmp::Reverse;

use crate::collections::hash::HashMap;
use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::frames::attribution::identity::{IdentityIndex, IdentityNamer};
use crate::frames::attribution::tree::{EventFunction, FunctionTree};
use crate::frames::stream::call_tree::{NodeIndex, Weight};
use crate::results::summary::outermost::{CallNode, visit_outermost};
use crate::results::summary::profile::FunctionProfile;

/// Number of callers listed for each function.
const CALLERS: usize = 3;

table_index! {
    /// Index of a function in the summary.
    FunctionIndex
}

/// Functions of a tree, and the function of each identity.
#[derive(Debug)]
pub struct CountedFunctions {
    /// All functions, those with most samples of their own first.
    pub all: IndexedTable<FunctionIndex, FunctionProfile>,
    /// Index of each function.
    pub of_identities: IndexedTable<IdentityIndex, FunctionIndex>,
}

impl CountedFunctions {
    /// Adds up the samples of the functions that `namer` has named. `events` is the number of events.
    pub fn new(tree: &FunctionTree, namer: IdentityNamer<'_>, events: usize) -> Self {
        let identities = &namer.identities.all;
        let codes = identities.iter().zip(&namer.counts);
        let mut rows: IndexedTable<IdentityIndex, FunctionProfile> = codes
            .map(|(identity, &counts)| identity.profile(counts, events))
            .collect();
        count(&mut rows, tree);
        // By their own samples, then by all.
        let mut order: Vec<IdentityIndex> = rows.enumerate().map(|(index, _)| index).collect();
        order.sort_by(|&one, &other| {
            let (row, other_row) = (&rows[one], &rows[other]);
            let by_samples = (&other_row.own, &other_row.total).cmp(&(&row.own, &row.total));
            by_samples.then_with(|| identities[one].cmp(&identities[other]))
        });
        let mut of_identities = rows.map(|_| FunctionIndex(0));
        for (number, &identity) in (0..).zip(&order) {
            of_identities[identity] = FunctionIndex(number);
        }
        // Callers are identities until here.
        for row in &mut rows {
            for (caller, _) in &mut row.callers {
                *caller = of_identities[IdentityIndex(*caller)].0;
            }
        }
        Self {
            all: order
                .into_iter()
                .map(|index| std::mem::take(&mut rows[index]))
                .collect(),
            of_identities,
        }
    }
}

/// Samples of a function in an event.
#[derive(Clone, Copy, Default)]
struct FunctionSamples {
    /// In its own code.
    own: Weight,
    /// In its code and that of functions that it calls.
    total: Weight,
}

/// Adds up the samples of each function, and finds its callers, which are named by their identities.
fn count(rows: &mut IndexedTable<IdentityIndex, FunctionProfile>, tree: &FunctionTree) {
    let mut callers: HashMap<(IdentityIndex, IdentityIndex), u64> = HashMap::default();
    let mut samples: HashMap<(IdentityIndex, u32), FunctionSamples> = HashMap::default();
    let node = |index: NodeIndex| {
        let node = &tree.nodes[index];
        CallNode {
            caller: node.caller(),
            function: node.frame.function.0,
        }
    };
    // A function that calls itself counts once for a sample, so its inner calls are left out.
    let own = tree.own.clone();
    visit_outermost(own, node, rows.len(), Weight::add, |index, below| {
        let node = &tree.nodes[index];
        let EventFunction { event, function } = node.frame;
        samples.entry((function, event)).or_default().total.add(below);
        if let Some(caller) = node.caller().filter(|_| event == 0) {
            let caller = tree.nodes[caller].frame.function;
            *callers.entry((function, caller)).or_default() += below.samples;
        }
    });
    for (node, &own) in tree
        .nodes
        .iter()
        .zip(&tree.own)
        .filter(|(_, own)| own.samples > 0)
    {
        let EventFunction { event, function } = node.frame;
        samples.entry((function, event)).or_default().own.add(own);
    }
    add_samples(rows, samples);
    add_callers(rows, callers);
}

/// Adds the samples of functions, each in an event, to their rows.
fn add_samples(
    rows: &mut IndexedTable<IdentityIndex, FunctionProfile>,
    samples: HashMap<(IdentityIndex, u32), FunctionSamples>,
) {
    let mut samples: Vec<_> = samples.into_iter().collect();
    // The order of a hash table is random.
    samples.sort_unstable_by_key(|&(key, _)| key);
    for ((function, event), FunctionSamples { own, total }) in samples {
        let row = &mut rows[function];
        row.own.add(event, own.samples);
        row.total.add(event, total.samples);
        row.self_period.add(event, own.period);
        row.total_period.add(event, total.period);
    }
}

/// Adds the [`CALLERS`] with most samples of each function to its row. `callers` has the samples of each function and caller.
fn add_callers(
    rows: &mut IndexedTable<IdentityIndex, FunctionProfile>,
    callers: HashMap<(IdentityIndex, IdentityIndex), u64>,
) {
    let mut callers: Vec<_> = callers.into_iter().filter(|&(_, samples)| samples > 0).collect();
    callers.sort_unstable_by_key(|&((function, caller), samples)| (function, Reverse(samples), caller));
    for ((function, caller), samples) in callers {
        let callers = &mut rows[function].callers;
        if callers.len() < CALLERS {
            callers.push((caller.0, samples));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::stream::call_tree::{CallTree, StackPosition};
    use crate::results::summary::event_counts::EventCounts;

    #[test]
    fn a_function_lists_the_three_callers_with_most_samples() {
        let frame = |function| EventFunction {
            event: 0,
            function: IdentityIndex(function),
        };
        let mut tree = CallTree::default();
        for caller in 1..=4 {
            let caller = tree.child(StackPosition::Outside, frame(caller));
            tree.child(caller, frame(0));
        }
        let nodes = tree.nodes;
        // Below each caller, the first function has as many samples as the number of the caller.
        let number = |caller: NodeIndex| u64::from(nodes[caller].frame.function.0);
        let own = nodes.map(|node| Weight {
            samples: node.caller().map_or(0, number),
            period: 0,
        });
        let tree = FunctionTree {
            nodes,
            own,
            without_callers: 0,
        };
        let mut rows = (0..5).map(|_| FunctionProfile::default()).collect();
        count(&mut rows, &tree);
        assert_eq!(rows[IdentityIndex(0)].callers, [(4, 4), (3, 3), (2, 2)]);
    }

    #[test]
    fn periods_are_added_up_as_samples_are() {
        let frame = |function| EventFunction {
            event: 0,
            function: IdentityIndex(function),
        };
        // The first function calls the second one, which calls itself.
        let mut tree = CallTree::default();
        let mut position = StackPosition::Outside;
        for function in [0, 1, 1] {
            position = tree.child(position, frame(function));
        }
        let nodes = tree.nodes;
        let weights = [(1, 10), (2, 200), (3, 3000)];
        let tree = FunctionTree {
            nodes,
            own: weights
                .map(|(samples, period)| Weight { samples, period })
                .into_iter()
                .collect(),
            without_callers: 0,
        };
        let mut rows: IndexedTable<IdentityIndex, FunctionProfile> = (0..2)
            .map(|_| FunctionProfile {
                own: EventCounts::zero(1),
                total: EventCounts::zero(1),
                self_period: EventCounts::zero(1),
                total_period: EventCounts::zero(1),
                ..FunctionProfile::default()
            })
            .collect();
        count(&mut rows, &tree);
        let found = rows.map(|row| [&row.total, &row.self_period, &row.total_period].map(EventCounts::first));
        assert_eq!(found.rows(), [[6, 10, 3210], [5, 3200, 3200]]);
    }
}
