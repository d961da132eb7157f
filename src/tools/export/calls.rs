//! Stacks as a tree of calls, in which stacks that a format does not distinguish are one node.

use std::hash::Hash;

use crate::collections::indexed_table::IndexedTable;
use crate::collections::interner::Interner;
use crate::frames::stream::tables::{Call, StackIndex};
use crate::tools::export::profile::ExportedProfile;

/// A node: a call below another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallNode<K> {
    /// Index of the caller's node, which comes before this one.
    pub caller: Option<u32>,
    /// What the format has of the call.
    pub call: K,
}

/// The tree.
#[derive(Debug)]
pub struct CallNodes<K> {
    /// Its nodes.
    pub nodes: IndexedTable<u32, CallNode<K>>,
    of_stacks: IndexedTable<StackIndex, Option<u32>>,
}

impl<K: Copy + Eq + Hash> CallNodes<K> {
    /// Makes the tree of the stacks of a profile. `key` returns what a format has of a call.
    pub fn of(profile: &ExportedProfile, mut key: impl FnMut(Call) -> K) -> Self {
        let tables = &profile.tables;
        let mut nodes: Interner<CallNode<K>> = Interner::default();
        let mut of_stacks: IndexedTable<StackIndex, Option<u32>> = IndexedTable::default();
        for (index, stack) in tables.stacks.enumerate() {
            let mut at = None;
            if profile.is_used(index) {
                at = stack.caller.and_then(|caller| of_stacks[caller]);
                for call in tables.calls_in(stack.frame).rev() {
                    let call = key(call);
                    at = Some(nodes.of(CallNode { caller: at, call }));
                }
            }
            of_stacks.push(at);
        }
        Self {
            nodes: nodes.all,
            of_stacks,
        }
    }

    /// Returns the node of the innermost call of a stack; `None` if nothing of the stack was recorded.
    pub fn node(&self, stack: Option<StackIndex>) -> Option<u32> {
        self.of_stacks[stack?]
    }

    /// Returns the calls down to a node, the outermost first.
    pub fn path(&self, node: Option<u32>) -> Vec<K> {
        let mut path = Vec::new();
        let mut at = node;
        while let Some(node) = at.and_then(|at| self.nodes.row(at)) {
            path.push(node.call);
            at = node.caller;
        }
        path.reverse();
        path
    }
}
