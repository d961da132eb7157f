//! The tree of functions, with the inlined ones.

use crate::collections::indexed_table::IndexedTable;
use crate::frames::attribution::identity::{IdentityIndex, IdentityNamer};
use crate::frames::ranking::counts::{SamplesByStack, StackSamples};
use crate::frames::stream::Tables;
use crate::frames::stream::call_tree::{CallTree, CallTreeNode, NodeIndex, StackPosition, Weight};
use crate::frames::stream::tables::StackIndex;

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
        let mut builder = TreeBuilder {
            tables,
            namer,
            tree: CallTree::of_profile(bytes),
            positions: tables.stacks.map(|_| (u32::MAX, StackPosition::Outside)),
            unplaced: Vec::new(),
        };
        let mut own: IndexedTable<NodeIndex, Weight> = IndexedTable::default();
        let mut without_callers: u64 = 0;
        let mut counts: Vec<StackSamples> = counts.iter().collect();
        counts.sort_unstable_by_key(|samples| (samples.event, samples.stack, samples.thread));
        for StackSamples {
            event, stack, weight, ..
        } in counts
        {
            let Some(stack) = stack else { continue };
            let node = match builder.position_of(event, stack) {
                StackPosition::Node(node) => Some(node),
                StackPosition::Outside | StackPosition::NoRoom => {
                    without_callers = without_callers.saturating_add(weight.samples);
                    builder.node_without_callers(event, stack)
                }
            };
            if let Some(node) = node {
                while own.row(node).is_none() {
                    own.push(Weight::default());
                }
                own[node].add(weight);
            }
        }
        let nodes = builder.tree.nodes;
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

/// The tree while stacks are added, those of one event after the other.
struct TreeBuilder<'b, 'a> {
    tables: &'b Tables,
    namer: &'b mut IdentityNamer<'a>,
    tree: CallTree<EventFunction>,
    /// Positions of stacks, each with the event that it is for.
    positions: IndexedTable<StackIndex, (u32, StackPosition)>,
    /// Stacks without a position yet, from the innermost one outwards.
    unplaced: Vec<StackIndex>,
}

impl TreeBuilder<'_, '_> {
    /// Returns the position of a stack in the tree of an event. Adds its functions that are not there yet.
    fn position_of(&mut self, event: u32, stack: StackIndex) -> StackPosition {
        let mut outer = Some(stack);
        while let Some(stack) = outer.filter(|&stack| self.positions[stack].0 != event) {
            self.unplaced.push(stack);
            outer = self.tables.stacks[stack].caller;
        }
        let mut position = outer.map_or(StackPosition::Outside, |stack| self.positions[stack].1);
        for stack in self.unplaced.drain(..).rev() {
            let frame = &self.tables.frames[self.tables.stacks[stack].frame];
            for function in self.namer.count_functions_of(frame) {
                position = self.tree.child(position, EventFunction { event, function });
            }
            self.positions[stack] = (event, position);
        }
        position
    }

    /// Returns the node of the innermost function of a stack, without its callers.
    fn node_without_callers(&mut self, event: u32, stack: StackIndex) -> Option<NodeIndex> {
        let frame = &self.tables.frames[self.tables.stacks[stack].frame];
        let function = self.namer.count_functions_of(frame).last()?;
        self.tree.root(EventFunction { event, function })
    }
}
