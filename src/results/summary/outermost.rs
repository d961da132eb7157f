//! Call trees in which functions may be recursive.

use crate::collections::indexed_table::{IndexedTable, TableIndex, index_of};

/// Visits the nodes whose function is not among their callers already, each with the samples in it and all below it:
/// recursive functions count once. `own` has the samples in each node itself, `add` adds samples up, and `node` returns
/// the caller of a node, which comes before it, and its function, one of so many.
pub fn visit_outermost<I: TableIndex, S: Copy>(
    own: IndexedTable<I, S>,
    add: impl Fn(&mut S, S),
    node: impl Fn(I) -> (Option<I>, u32),
    functions: usize,
    mut visit: impl FnMut(I, S),
) {
    let indices = (0..own.len()).map(index_of::<I>);
    let mut totals = own;
    for index in indices.clone().rev() {
        if let (Some(caller), _) = node(index) {
            let below = totals[index];
            add(&mut totals[caller], below);
        }
    }
    // The last callee of each node, and the callee before each one: other stacks are between a function and its callees.
    let mut last_callees = totals.map(|_| None);
    let mut before = totals.map(|_| None);
    let mut pending = Vec::new();
    for index in indices {
        match node(index).0 {
            Some(caller) => before[index] = last_callees[caller].replace(index),
            None => pending.push((index, false)),
        }
    }
    // Number of times that each function is among the callers of the current node.
    let mut on_path: IndexedTable<u32, u32> = vec![0; functions].into();
    while let Some((index, is_done)) = pending.pop() {
        let depth = &mut on_path[node(index).1];
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
