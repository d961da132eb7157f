//! The tree of functions, with the inlined ones.

use crate::collections::indexed_table::IndexedTable;
use crate::frames::attribution::identity::{IdentityIndex, IdentityNamer};
use crate::frames::ranking::counts::SamplesByStack;
use crate::frames::stream::Tables;
use crate::frames::stream::call_tree::{CallTree, CallTreeNode, NodeIndex, StackPosition, Weight};

/// A function in the stacks of one event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EventFunction {
    /// Index of the event.
    pub event: u32,
    /// The function.
    pub function: IdentityIndex,
}

/// All samples by stack.
#[derive(Debug)]
pub struct FunctionTree {
    /// Functions, each after its caller.
    pub nodes: IndexedTable<NodeIndex, CallTreeNode<EventFunction>>,
    /// Samples taken in the functions of nodes themselves.
    pub own: IndexedTable<NodeIndex, Weight>,
    /// Number of samples without callers because there was no room for them.
    pub without_callers: u64,
}

impl FunctionTree {
    /// Builds the tree of a profile of so many bytes.
    pub fn of(tables: &Tables, counts: &SamplesByStack, namer: &mut IdentityNamer<'_>, bytes: u64) -> Self {
        let mut tree = CallTree::of_profile(bytes);
        let mut own: IndexedTable<NodeIndex, Weight> = IndexedTable::default();
        let mut without_callers: u64 = 0;
        // Positions of stacks, each with the event that it is for.
        let mut known = tables.stacks.map(|_| (u32::MAX, StackPosition::Outside));
        let mut counts: Vec<_> = counts.iter().collect();
        counts.sort_unstable_by_key(|&(event, stack, thread, _)| (event, stack, thread));
        let mut inner = Vec::new();
        for (event, stack, _, weight) in counts {
            let Some(sampled) = stack else { continue };
            let mut outer = stack;
            while let Some(stack) = outer.filter(|&stack| known[stack].0 != event) {
                inner.push(stack);
                outer = tables.stacks[stack].caller;
            }
            let mut position = outer.map_or(StackPosition::Outside, |stack| known[stack].1);
            for stack in inner.drain(..).rev() {
                for function in namer.count_functions_of(&tables.frames[tables.stacks[stack].frame]) {
                    position = tree.child(position, EventFunction { event, function });
                }
                known[stack] = (event, position);
            }
            let node = match position {
                StackPosition::Node(node) => Some(node),
                StackPosition::Outside | StackPosition::NoRoom => {
                    without_callers = without_callers.saturating_add(weight.samples);
                    let frame = &tables.frames[tables.stacks[sampled].frame];
                    let innermost = namer.count_functions_of(frame).last();
                    innermost.and_then(|function| tree.root(EventFunction { event, function }))
                }
            };
            if let Some(node) = node {
                while own.row(node).is_none() {
                    own.push(Weight::default());
                }
                own[node].add(weight);
            }
        }
        let nodes = tree.into_nodes();
        while own.len() < nodes.len() {
            own.push(Weight::default());
        }
        Self {
            nodes,
            own,
            without_callers,
        }
    }
}
