//! The call stacks that a summary lists.

use std::cmp::Reverse;

use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::collections::interner::Interner;
use crate::frames::attribution::functions::{CountedFunctions, FunctionIndex};
use crate::frames::attribution::tree::FunctionTree;
use crate::frames::stream::call_tree::NodeIndex;
use crate::results::summary::profile::StackNode;

/// Maximum number of nodes. A flame graph of that many is already finer than a screen.
const MAX: usize = 30_000;

table_index! {
    /// Index of a function below a caller.
    CallIndex
}

/// A function below a caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Call {
    caller: Option<CallIndex>,
    function: FunctionIndex,
}

/// Returns the call stacks of the first event, and the number of samples that are not in the row of their own function.
/// The rows with most samples are kept.
pub fn stacks(tree: &FunctionTree, functions: &CountedFunctions) -> (Vec<StackNode>, u64) {
    // The nodes of one function below one caller are one call.
    let mut calls: Interner<Call, CallIndex> = Interner::default();
    let mut of_nodes: IndexedTable<NodeIndex, Option<CallIndex>> = IndexedTable::default();
    for node in &tree.nodes {
        let call = (node.frame.event == 0).then(|| {
            let caller = node.caller().and_then(|caller| of_nodes[caller]);
            let function = functions.of_identities[node.frame.function];
            calls.of(Call { caller, function })
        });
        of_nodes.push(call);
    }
    let mut own = calls.all.map(|_| 0);
    for (&call, weight) in of_nodes.iter().zip(&tree.own) {
        if let Some(call) = call {
            own[call] += weight.samples;
        }
    }
    keep_largest(&calls.all, own)
}

/// Returns the [`MAX`] calls with most samples, and the number of samples of the others, which count for their nearest
/// caller that is kept. A call has at most as many samples as its caller, which comes first, so callers are kept. `own` are
/// the numbers of samples in the calls themselves.
fn keep_largest(
    calls: &IndexedTable<CallIndex, Call>,
    mut own: IndexedTable<CallIndex, u64>,
) -> (Vec<StackNode>, u64) {
    let mut totals = own.clone();
    for (index, call) in calls.enumerate().rev() {
        if let Some(caller) = call.caller {
            totals[caller] += totals[index];
        }
    }
    let mut order: Vec<CallIndex> = calls.enumerate().map(|(index, _)| index).collect();
    order.sort_by_key(|&index| (Reverse(totals[index]), index));
    let (kept, dropped) = order.split_at(order.len().min(MAX));
    let mut moved = 0;
    // From the innermost call outwards.
    for &index in dropped.iter().rev() {
        let own_samples = own[index];
        moved += own_samples;
        if let Some(caller) = calls[index].caller {
            own[caller] += own_samples;
        }
    }
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    let mut row_of = calls.map(|_| None);
    let mut rows = Vec::with_capacity(kept.len());
    for index in kept {
        let Call { caller, function } = calls[index];
        row_of[index] = Some(rows.len() as u32);
        rows.push(StackNode {
            caller: caller.and_then(|caller| row_of[caller]),
            function: function.0,
            own: own[index],
        });
    }
    (rows, moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_30_000_calls_with_most_samples_are_kept() {
        let kept = |calls: u64| {
            let call = Call {
                caller: None,
                function: FunctionIndex(0),
            };
            let all = (1..=calls).map(|_| call).collect();
            let (kept, moved) = keep_largest(&all, (1..=calls).collect());
            (kept.len(), kept[0].own, moved)
        };
        assert_eq!(kept(30_000), (30_000, 1, 0));
        assert_eq!(kept(30_001), (30_000, 2, 1));
    }
}
