//! Call trees in which functions may be recursive.

use crate::collections::indexed_table::IndexedTable;
use crate::results::summary::profile::StackNode;

/// Visits the nodes whose function is not among their callers already, each with the number of samples in it and all below it:
/// recursive functions count once. `node` returns each of so many nodes, which come after their callers.
pub fn visit_outermost(
    nodes: usize,
    functions: usize,
    node: impl Fn(u32) -> StackNode,
    mut visit: impl FnMut(u32, u64),
) {
    let indices = 0..nodes as u32;
    let mut totals: IndexedTable<u32, u64> = indices.clone().map(|index| node(index).own).collect();
    for index in indices.clone().rev() {
        if let Some(caller) = node(index).caller {
            totals[caller] = totals[caller].saturating_add(totals[index]);
        }
    }
    // The last callee of each node, and the callee before each one: other stacks are between a function and its callees.
    let mut last_callees = totals.map(|_| None);
    let mut before = totals.map(|_| None);
    let mut pending = Vec::new();
    for index in indices {
        match node(index).caller {
            Some(caller) => before[index] = last_callees[caller].replace(index),
            None => pending.push((index, false)),
        }
    }
    // Number of times that each function is among the callers of the current node.
    let mut on_path: IndexedTable<u32, u32> = vec![0; functions].into();
    while let Some((index, is_done)) = pending.pop() {
        let depth = &mut on_path[node(index).function];
        if is_done {
            *depth -= 1;
            continue;
        }
        if *depth == 0 {
            visit(index, totals[index]);
        }
        *depth += 1;
        pending.push((index, true));
        let callees = std::iter::successors(last_callees[index], |&callee| before[callee]);
        pending.extend(callees.map(|callee| (callee, false)));
    }
}
