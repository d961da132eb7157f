//! Call trees in which functions may be recursive.

use std::iter;

use crate::collections::indexed_table::{IndexedTable, TableIndex, index_of};

/// A node of a call tree, as [`visit_outermost`] needs it.
#[derive(Clone, Copy, Debug)]
pub struct CallNode<I> {
    /// Node of the caller, which comes before this one.
    pub caller: Option<I>,
    /// Number of the function.
    pub function: u32,
}

/// Calls `visit` for each node whose function is in none of its callers, with the samples of the node and of all below it:
/// those of a recursive function are counted once. `own` has the samples of each node itself, `add` adds samples up, and
/// functions have numbers below `function_count`.
pub fn visit_outermost<I: TableIndex, S: Copy>(
    own: IndexedTable<I, S>,
    node: impl Fn(I) -> CallNode<I>,
    function_count: usize,
    add: impl Fn(&mut S, S),
    mut visit: impl FnMut(I, S),
) {
    let callees = Callees::new(own.len(), &node);
    let totals = totals(own, &node, add);
    // How many calls of each function are open.
    let mut open: IndexedTable<u32, u32> = vec![0; function_count].into();
    let mut steps: Vec<Step<I>> = callees.roots.iter().copied().map(Step::Enter).collect();
    while let Some(step) = steps.pop() {
        match step {
            Step::Enter(index) => {
                let function = node(index).function;
                if open[function] == 0 {
                    visit(index, totals[index]);
                }
                open[function] += 1;
                steps.push(Step::Leave(function));
                steps.extend(callees.of(index).map(Step::Enter));
            }
            Step::Leave(function) => open[function] -= 1,
        }
    }
}

/// A step on the way through a call tree: into a node, or out of one of a function.
enum Step<I> {
    Enter(I),
    Leave(u32),
}

/// Returns the samples of each node and of all below it.
fn totals<I: TableIndex, S: Copy>(
    own: IndexedTable<I, S>,
    node: impl Fn(I) -> CallNode<I>,
    add: impl Fn(&mut S, S),
) -> IndexedTable<I, S> {
    let mut totals = own;
    for index in (0..totals.len()).map(index_of::<I>).rev() {
        if let Some(caller) = node(index).caller {
            let below = totals[index];
            add(&mut totals[caller], below);
        }
    }
    totals
}

/// The callees of each node. They are not next to each other in the table, so each leads to the one before it.
struct Callees<I> {
    /// Nodes without a caller.
    roots: Vec<I>,
    /// The last callee of each node.
    last: IndexedTable<I, Option<I>>,
    /// The callee of the same caller before each node.
    before: IndexedTable<I, Option<I>>,
}

impl<I: TableIndex> Callees<I> {
    /// Finds the callees of so many nodes.
    fn new(node_count: usize, node: impl Fn(I) -> CallNode<I>) -> Self {
        let mut callees = Self {
            roots: Vec::new(),
            last: vec![None; node_count].into(),
            before: vec![None; node_count].into(),
        };
        for index in (0..node_count).map(index_of::<I>) {
            match node(index).caller {
                Some(caller) => callees.before[index] = callees.last[caller].replace(index),
                None => callees.roots.push(index),
            }
        }
        callees
    }

    /// Returns the callees of a node, the last one first.
    fn of(&self, index: I) -> impl Iterator<Item = I> {
        iter::successors(self.last[index], move |&callee| self.before[callee])
    }
}
