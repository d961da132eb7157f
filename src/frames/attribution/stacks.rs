//! The call stacks that a summary lists.

use std::cmp::Reverse;

use crate::collections::hash::HashMap;
use crate::collections::indexed_table::{IndexedTable, table_index};
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
#[derive(Clone, Copy, Debug)]
struct FunctionBelow {
    caller: Option<CallIndex>,
    function: FunctionIndex,
    /// Number of samples in the function itself.
    own: u64,
    /// Number of samples in it or below it.
    total: u64,
}

/// Returns the call stacks of the first event, and the number of samples that are not in the row of their own function.
/// The rows with most samples are kept.
pub fn stacks(tree: &FunctionTree, functions: &CountedFunctions) -> (Vec<StackNode>, u64) {
    keep_largest(calls(tree, functions))
}

/// Merges the nodes of one function below one caller.
fn calls(tree: &FunctionTree, functions: &CountedFunctions) -> IndexedTable<CallIndex, FunctionBelow> {
    let mut calls: IndexedTable<CallIndex, FunctionBelow> = IndexedTable::default();
    let mut known: HashMap<(Option<CallIndex>, FunctionIndex), CallIndex> = HashMap::default();
    let mut of_nodes: IndexedTable<NodeIndex, Option<CallIndex>> = IndexedTable::default();
    for (index, node) in tree.nodes.enumerate() {
        let call = (node.frame.event == 0).then(|| {
            let (caller, function) = (
                node.caller().and_then(|caller| of_nodes[caller]),
                functions.of_identities[node.frame.function],
            );
            let new = || {
                calls.push(FunctionBelow {
                    caller,
                    function,
                    own: 0,
                    total: 0,
                })
            };
            let call = *known.entry((caller, function)).or_insert_with(new);
            calls[call].own += tree.own[index].samples;
            call
        });
        of_nodes.push(call);
    }
    let indices: Vec<CallIndex> = calls.enumerate().map(|(index, _)| index).collect();
    for index in indices.into_iter().rev() {
        calls[index].total += calls[index].own;
        if let Some(caller) = calls[index].caller {
            calls[caller].total += calls[index].total;
        }
    }
    calls
}

/// Returns the [`MAX`] calls with most samples, and the number of samples of the others, which count for their nearest
/// caller that is kept. A call has at most as many samples as its caller, which comes first, so callers are kept.
fn keep_largest(mut calls: IndexedTable<CallIndex, FunctionBelow>) -> (Vec<StackNode>, u64) {
    let mut order: Vec<CallIndex> = calls.enumerate().map(|(index, _)| index).collect();
    order.sort_by_key(|&index| (Reverse(calls[index].total), index));
    let (kept, dropped) = order.split_at(order.len().min(MAX));
    let mut moved = 0;
    // From the innermost call outwards.
    for &index in dropped.iter().rev() {
        let FunctionBelow { caller, own, .. } = calls[index];
        moved += own;
        if let Some(caller) = caller {
            calls[caller].own += own;
        }
    }
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    let mut row_of = calls.map(|_| None);
    let mut rows = Vec::with_capacity(kept.len());
    for index in kept {
        let FunctionBelow {
            caller,
            function,
            own,
            ..
        } = calls[index];
        row_of[index] = Some(rows.len() as u32);
        rows.push(StackNode {
            caller: caller.and_then(|caller| row_of[caller]),
            function: function.0,
            own,
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
            let call = |own| FunctionBelow {
                caller: None,
                function: FunctionIndex(0),
                own,
                total: own,
            };
            let (kept, moved) = keep_largest((1..=calls).map(call).collect());
            (kept.len(), kept[0].own, moved)
        };
        assert_eq!(kept(30_000), (30_000, 1, 0));
        assert_eq!(kept(30_001), (30_000, 2, 1));
    }
}
