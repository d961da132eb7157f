//! Stacks as a tree of calls, in which stacks that a format does not distinguish are one node.

use std::hash::Hash;

use crate::collections::hash::HashMap;
use crate::frames::stream::tables::{Call, StackIndex};
use crate::tools::export::profile::ExportedProfile;

/// A node: a call below another one.
#[derive(Clone, Copy, Debug)]
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
    pub nodes: Vec<CallNode<K>>,
    of_stack: Vec<Option<u32>>,
}

impl<K: Copy + Eq + Hash> CallNodes<K> {
    /// Makes the tree of the stacks of a profile. `key` returns what a format has of a call.
    pub fn of(profile: &ExportedProfile, mut key: impl FnMut(Call) -> K) -> Self {
        let tables = &profile.tables;
        let mut calls = Self {
            nodes: Vec::new(),
            of_stack: Vec::with_capacity(tables.stacks.len()),
        };
        let mut known: HashMap<(Option<u32>, K), u32> = HashMap::default();
        for (index, stack) in tables.stacks.enumerate() {
            if !profile.is_used(index) {
                calls.of_stack.push(None);
                continue;
            }
            let mut at = calls.node(stack.caller);
            for call in tables.calls_in(stack.frame).rev() {
                let call = key(call);
                at = Some(*known.entry((at, call)).or_insert_with(|| {
                    calls.nodes.push(CallNode { caller: at, call });
                    u32::try_from(calls.nodes.len().saturating_sub(1)).unwrap_or(u32::MAX)
                }));
            }
            calls.of_stack.push(at);
        }
        calls
    }

    /// Returns the node of the innermost call of a stack; `None` if nothing of the stack was recorded.
    pub fn node(&self, stack: Option<StackIndex>) -> Option<u32> {
        let StackIndex(stack) = stack?;
        *self.of_stack.get(stack as usize)?
    }

    /// Returns the calls down to a node, the outermost first.
    pub fn path(&self, node: Option<u32>) -> Vec<K> {
        let mut path = Vec::new();
        let mut at = node;
        while let Some(node) = at.and_then(|at| self.nodes.get(at as usize)) {
            path.push(node.call);
            at = node.caller;
        }
        path.reverse();
        path
    }
}
