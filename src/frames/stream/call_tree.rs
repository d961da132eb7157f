//! A tree of call stacks.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use serde::Serialize;

use crate::collections::hash::RandomState;
use crate::collections::indexed_table::{IndexedTable, index_of, table_index};

table_index! {
    /// Index of a node of a call tree.
    NodeIndex
}

/// Maximum number of nodes for a profile: one for this many bytes of it, within these limits. Real profiles have some 100,000
/// nodes. If all stacks differ, memory must still grow as the profile does: a node takes some 100 bytes, and a frame of a profile has 8.
const BYTES_OF_NODE: u64 = 32;
const MIN_NODES: u64 = 1 << 18;
const MAX_NODES: u64 = 1 << 22;

/// Samples of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Weight {
    /// Number of samples.
    pub samples: u64,
    /// Sum of their periods, in units of their event.
    pub period: u64,
}

impl Weight {
    /// Adds the samples of another weight.
    pub fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.period = self.period.saturating_add(other.period);
    }
}

/// Position of a stack in a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StackPosition {
    /// No function yet.
    #[default]
    Outside,
    /// This node.
    Node(NodeIndex),
    /// There is no room for its node.
    NoRoom,
}

/// A function in a stack. No two nodes are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallTreeNode<F> {
    /// Index of the caller's node, or [`NodeIndex::NONE`].
    caller: NodeIndex,
    /// What the function is in.
    pub frame: F,
}

impl NodeIndex {
    /// Caller of the outermost function.
    const NONE: Self = Self(u32::MAX);
}

impl<F> CallTreeNode<F> {
    /// Returns the index of the caller's node, which comes before this one; `None` for the outermost function.
    pub fn caller(&self) -> Option<NodeIndex> {
        (self.caller != NodeIndex::NONE).then_some(self.caller)
    }
}

/// Call stacks, in the order of their first samples.
#[derive(Clone, Debug)]
pub struct CallTree<F> {
    max_nodes: usize,
    /// All nodes, each after its caller.
    pub nodes: IndexedTable<NodeIndex, CallTreeNode<F>>,
    /// Samples that added nodes: offset of the sample, and index of its first node.
    runs: Vec<(u64, usize)>,
    /// Offset of the current sample, in bytes from the first record.
    sample: u64,
    /// All nodes, by caller and function.
    by_key: HashTable<NodeIndex>,
    hasher: RandomState,
}

impl<F> Default for CallTree<F> {
    /// A tree without a limit, for a part of a profile.
    fn default() -> Self {
        Self::with_limit(usize::MAX)
    }
}

impl<F> CallTree<F> {
    /// Creates a tree for a profile of this many bytes.
    pub fn of_profile(bytes: u64) -> Self {
        let nodes = (bytes / BYTES_OF_NODE).clamp(MIN_NODES, MAX_NODES);
        Self::with_limit(usize::try_from(nodes).unwrap_or(usize::MAX))
    }

    /// Creates a tree with at most so many nodes, and roots.
    pub fn with_limit(max_nodes: usize) -> Self {
        Self {
            max_nodes,
            nodes: IndexedTable::default(),
            runs: Vec::new(),
            sample: 0,
            by_key: HashTable::new(),
            hasher: RandomState::default(),
        }
    }
}

impl<F: Copy + Eq + Hash> CallTree<F> {
    /// Starts with a sample that comes after all others, at an offset from the first record in bytes.
    pub fn start_sample(&mut self, offset: u64) {
        self.sample = offset;
    }

    /// Adds the nodes of trees for later records. Each has some of these. Returns the position here of each node of each tree.
    pub fn merge(&mut self, later: &[Self]) -> Vec<IndexedTable<NodeIndex, StackPosition>> {
        let mut here = vec![IndexedTable::default(); later.len()];
        for (tree, (_, nodes)) in merged(later.iter().map(Self::runs), |&(sample, _)| sample) {
            let Some(here) = here.get_mut(tree) else {
                continue;
            };
            for node in nodes {
                let caller = node
                    .caller()
                    .map_or(StackPosition::Outside, |caller| here[caller]);
                let position = self.child(caller, node.frame);
                let _: NodeIndex = here.push(position);
            }
        }
        here
    }

    /// Returns the samples that added nodes, with their nodes.
    fn runs(&self) -> impl Iterator<Item = (u64, &[CallTreeNode<F>])> {
        let ends = self.runs.iter().skip(1).map(|&(_, start)| start);
        let ends = ends.chain(std::iter::once(self.nodes.len()));
        let runs = self.runs.iter().zip(ends);
        runs.map(|(&(offset, start), end)| (offset, self.nodes.rows().get(start..end).unwrap_or_default()))
    }

    /// Returns the position of a function called from another one. Creates its node if there is room.
    pub fn child(&mut self, caller: StackPosition, frame: F) -> StackPosition {
        let caller = match caller {
            StackPosition::Outside => NodeIndex::NONE,
            StackPosition::Node(caller) => caller,
            StackPosition::NoRoom => return StackPosition::NoRoom,
        };
        match self.node(CallTreeNode { caller, frame }, self.max_nodes) {
            Some(node) => StackPosition::Node(node),
            None => StackPosition::NoRoom,
        }
    }

    /// Returns the function of a node.
    pub fn frame(&self, node: NodeIndex) -> F {
        self.nodes[node].frame
    }

    /// Returns the node of a function without callers, which has room always. There must be few such functions.
    pub fn root(&mut self, frame: F) -> Option<NodeIndex> {
        let caller = NodeIndex::NONE;
        self.node(CallTreeNode { caller, frame }, usize::MAX)
    }

    /// Returns the index of a node. Creates it if there are less than `max_nodes`.
    fn node(&mut self, new: CallTreeNode<F>, max_nodes: usize) -> Option<NodeIndex> {
        let (nodes, hash) = (&self.nodes, |node: &CallTreeNode<F>| self.hasher.hash_one(node));
        let entry = self
            .by_key
            .entry(hash(&new), |&node| nodes[node] == new, |&node| hash(&nodes[node]));
        match entry {
            Entry::Occupied(found) => Some(*found.get()),
            Entry::Vacant(_) if nodes.len() >= max_nodes => None,
            Entry::Vacant(free) => {
                if self.runs.last().is_none_or(|&(sample, _)| sample != self.sample) {
                    self.runs.push((self.sample, nodes.len()));
                }
                free.insert(index_of(nodes.len()));
                Some(self.nodes.push(new))
            }
        }
    }
}

/// Merges what several parts have, each sorted by offset. Each item comes with the number of its part.
pub(super) fn merged<I: Iterator>(
    parts: impl Iterator<Item = I>,
    offset: impl Fn(&I::Item) -> u64,
) -> impl Iterator<Item = (usize, I::Item)> {
    let mut parts: Vec<_> = parts.map(Iterator::peekable).collect();
    std::iter::from_fn(move || {
        let heads = parts.iter_mut().enumerate();
        let heads = heads.filter_map(|(part, items)| Some((offset(items.peek()?), part)));
        let (_, part) = heads.min()?;
        Some((part, parts.get_mut(part)?.next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(stacks: &[&[u32]]) -> CallTree<u32> {
        part(stacks, |_| true)
    }

    /// Returns a tree of some of the stacks.
    fn part(stacks: &[&[u32]], has: impl Fn(usize) -> bool) -> CallTree<u32> {
        let mut tree = CallTree::default();
        for (offset, stack) in stacks.iter().enumerate().filter(|&(offset, _)| has(offset)) {
            tree.start_sample(offset as u64);
            let frames = stack.iter();
            frames.fold(StackPosition::Outside, |caller, &frame| tree.child(caller, frame));
        }
        tree
    }

    fn rows(tree: CallTree<u32>) -> Vec<(Option<NodeIndex>, u32)> {
        let nodes = tree.nodes;
        nodes.iter().map(|node| (node.caller(), node.frame)).collect()
    }

    #[test]
    fn stacks_share_their_outer_functions() {
        let found = rows(tree(&[&[1, 2], &[1], &[1, 2], &[3]]));
        assert_eq!(found, [(None, 1), (Some(NodeIndex(0)), 2), (None, 3)]);
    }

    #[test]
    fn stacks_without_room_have_no_node() {
        let mut full = CallTree::with_limit(2);
        let here = full.merge(&[tree(&[&[1, 2], &[1, 3, 2], &[4]])]);
        let has_room = here[0].iter().map(|position| *position != StackPosition::NoRoom);
        assert_eq!(has_room.collect::<Vec<_>>(), [true, true, false, false, false]);
        assert_eq!(full.root(4), Some(NodeIndex(2)));
        assert_eq!(full.root(1), Some(NodeIndex(0)));
    }

    /// Whether the tree of a profile of so many bytes has room for another node after so many.
    fn has_room(bytes: u64, nodes: usize) -> bool {
        let mut tree: CallTree<u32> = CallTree::of_profile(bytes);
        let root = CallTreeNode {
            caller: NodeIndex::NONE,
            frame: 0,
        };
        tree.nodes = std::iter::repeat_n(root, nodes).collect();
        tree.child(StackPosition::Outside, 1) != StackPosition::NoRoom
    }

    #[test]
    fn the_size_of_a_profile_limits_the_number_of_nodes() {
        for (bytes, nodes) in [(0, 1 << 18), (32 << 20, 1 << 20), (u64::MAX, 1 << 22)] {
            assert!(has_room(bytes, nodes - 1), "{bytes}");
            assert!(!has_room(bytes, nodes), "{bytes}");
        }
    }

    #[test]
    fn trees_of_parts_add_up_to_that_of_the_whole() {
        let stacks: [&[u32]; 6] = [&[1, 2], &[1], &[2], &[1, 2], &[4, 1, 2], &[1]];
        for cut in 0..=stacks.len() {
            let (first, rest) = stacks.split_at(cut);
            let mut merged = tree(first);
            merged.merge(&[tree(rest)]);
            assert_eq!(rows(merged), rows(tree(&stacks)), "{cut}");
        }
        // Several threads have samples in turn.
        for threads in 1..4 {
            for limit in 0..6 {
                let parts = (0..threads).map(|own| part(&stacks, |sample| sample % threads == own));
                let mut merged = CallTree::with_limit(limit);
                merged.merge(&parts.collect::<Vec<_>>());
                let mut whole = CallTree::with_limit(limit);
                whole.merge(&[tree(&stacks)]);
                assert_eq!(rows(merged), rows(whole), "{threads} threads, {limit} nodes");
            }
        }
    }
}
