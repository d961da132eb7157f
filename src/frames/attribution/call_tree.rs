//! A tree of call stacks with the samples taken in each.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use serde::Serialize;

use crate::collections::hash::{HashMap, RandomState};
use crate::collections::indexed_table::{IndexedTable, index_of, table_index};
use crate::frames::attribution::frame::Frame;

table_index! {
    /// Index of a node of a call tree.
    NodeIndex
}

/// Maximum number of nodes for a profile: one for this many bytes of it, within these limits. Real profiles have some 100,000
/// nodes. If all stacks differ, memory must still grow as the profile does: a node takes some 200 bytes until the summary is
/// written, and a frame of a profile has 8.
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
pub enum Position {
    /// No function yet.
    #[default]
    Outside,
    /// This node.
    Node(NodeIndex),
    /// There is no room for its node.
    NoRoom,
}

/// What distinguishes the frames of a tree.
pub trait TreeFrame: Copy + Ord + Hash + Debug + Send + Sync {}

impl<T: Copy + Ord + Hash + Debug + Send + Sync> TreeFrame for T {}

/// A function in a stack.
#[derive(Clone, Copy, Debug)]
pub struct Node<F = Frame> {
    /// Index of the caller's node, which comes before this one; `None` for the outermost function.
    pub caller: Option<NodeIndex>,
    /// Index of the event that the samples belong to.
    pub event: u32,
    /// The function.
    pub frame: F,
    /// Samples taken in the function itself.
    pub own: Weight,
}

impl NodeIndex {
    /// Caller of the outermost function.
    const NONE: Self = Self(u32::MAX);
}

/// What no two nodes have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key<F> {
    caller: NodeIndex,
    event: u32,
    frame: F,
}

impl<F> Key<F> {
    fn caller(&self) -> Option<NodeIndex> {
        (self.caller != NodeIndex::NONE).then_some(self.caller)
    }
}

/// Call stacks, in the order of their first samples.
#[derive(Clone, Debug)]
pub struct CallTree<F = Frame> {
    max_nodes: usize,
    nodes: IndexedTable<NodeIndex, Key<F>>,
    /// Samples that added nodes: offset of the sample, and index of its first node.
    runs: Vec<(u64, usize)>,
    /// Offset of the current sample, in bytes from the first record.
    sample: u64,
    /// Samples taken in the functions of nodes themselves. Few have any.
    own: HashMap<NodeIndex, Weight>,
    /// All nodes, by caller, event and function.
    by_key: HashTable<NodeIndex>,
    hasher: RandomState,
    /// Samples whose stack did not fit, by event and sampled function.
    without_callers: HashMap<(u32, F), Weight>,
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

    fn with_limit(max_nodes: usize) -> Self {
        Self {
            max_nodes,
            nodes: IndexedTable::default(),
            runs: Vec::new(),
            sample: 0,
            own: HashMap::default(),
            by_key: HashTable::new(),
            hasher: RandomState::default(),
            without_callers: HashMap::default(),
        }
    }
}

impl<F: TreeFrame> CallTree<F> {
    /// Starts with a sample that comes after all others, at an offset from the first record in bytes.
    pub fn start_sample(&mut self, offset: u64) {
        self.sample = offset;
    }

    /// Adds the samples of trees for later records. Each has some of these. Returns the position here of each node of each tree.
    pub fn merge(&mut self, later: &[Self]) -> Vec<IndexedTable<NodeIndex, Position>> {
        let mut here = vec![IndexedTable::default(); later.len()];
        let mut runs: Vec<_> = later.iter().map(|tree| tree.runs().peekable()).collect();
        loop {
            let heads = runs.iter_mut().enumerate();
            let heads = heads.filter_map(|(tree, runs)| Some((runs.peek()?.0, tree)));
            let Some((_, tree)) = heads.min() else {
                break;
            };
            let (Some(here), Some((_, nodes))) =
                (here.get_mut(tree), runs.get_mut(tree).and_then(Iterator::next))
            else {
                break;
            };
            for node in nodes {
                let caller = node.caller().map_or(Position::Outside, |caller| here[caller]);
                let position = self.child(caller, node.event, node.frame);
                let _: NodeIndex = here.push(position);
            }
        }
        for (tree, here) in later.iter().zip(&here) {
            for (&index, &weight) in &tree.own {
                let node = tree.nodes[index];
                self.weigh(here[index], node.event, node.frame, weight);
            }
            for (&(event, frame), &weight) in &tree.without_callers {
                self.weigh(Position::NoRoom, event, frame, weight);
            }
        }
        here
    }

    /// Returns the samples that added nodes, with their nodes.
    fn runs(&self) -> impl Iterator<Item = (u64, &[Key<F>])> {
        let ends = self.runs.iter().skip(1).map(|&(_, start)| start);
        let ends = ends.chain(std::iter::once(self.nodes.len()));
        let runs = self.runs.iter().zip(ends);
        runs.map(|(&(offset, start), end)| (offset, self.nodes.rows().get(start..end).unwrap_or_default()))
    }

    /// Adds samples taken in a function at a position, or to the function itself if the position has no node.
    pub fn weigh(&mut self, position: Position, event: u32, frame: F, weight: Weight) {
        let own = match position {
            Position::Node(node) => self.own.entry(node).or_default(),
            Position::Outside | Position::NoRoom => self.without_callers.entry((event, frame)).or_default(),
        };
        own.add(weight);
    }

    /// Returns the position of a function called from another one. Creates its node if there is room.
    pub fn child(&mut self, caller: Position, event: u32, frame: F) -> Position {
        let caller = match caller {
            Position::Outside => None,
            Position::Node(caller) => Some(caller),
            Position::NoRoom => return Position::NoRoom,
        };
        match self.node(caller, event, frame, self.max_nodes) {
            Some(node) => Position::Node(node),
            None => Position::NoRoom,
        }
    }

    /// Returns the function of a node.
    pub fn frame(&self, node: NodeIndex) -> F {
        self.nodes[node].frame
    }

    /// Returns the node of a function without callers, which has room always. There must be few such functions.
    pub fn root(&mut self, event: u32, frame: F) -> Option<NodeIndex> {
        self.node(None, event, frame, usize::MAX)
    }

    /// Returns the node of a function below another one. Creates it if there are less than `max_nodes`.
    fn node(
        &mut self,
        caller: Option<NodeIndex>,
        event: u32,
        frame: F,
        max_nodes: usize,
    ) -> Option<NodeIndex> {
        let (nodes, hash) = (&self.nodes, |node: &Key<F>| self.hasher.hash_one(node));
        let new = Key {
            caller: caller.unwrap_or(NodeIndex::NONE),
            event,
            frame,
        };
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

    /// Returns all nodes, each after its caller, and the number of samples whose callers are missing because there
    /// was no room for them.
    pub fn into_nodes(mut self) -> (IndexedTable<NodeIndex, Node<F>>, u64) {
        self.by_key = HashTable::new();
        let nodes = self.nodes.enumerate().map(|(index, key)| Node {
            caller: key.caller(),
            event: key.event,
            frame: key.frame,
            own: self.own.get(&index).copied().unwrap_or_default(),
        });
        let mut nodes: IndexedTable<NodeIndex, Node<F>> = nodes.collect();
        let mut rest: Vec<((u32, F), Weight)> = self.without_callers.into_iter().collect();
        rest.sort_unstable_by_key(|&(key, _)| key);
        let cut = rest.iter().map(|(_, weight)| weight.samples).sum();
        nodes.extend(rest.into_iter().map(|((event, frame), own)| Node {
            caller: None,
            event,
            frame,
            own,
        }));
        (nodes, cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::native::modules::ModuleIndex;

    const ONE: Weight = Weight {
        samples: 1,
        period: 10,
    };

    fn tree(stacks: &[&[u32]]) -> CallTree {
        part(stacks, |_| true)
    }

    /// Returns a tree of some of the stacks.
    fn part(stacks: &[&[u32]], has: impl Fn(usize) -> bool) -> CallTree {
        let mut tree = CallTree::default();
        for (offset, stack) in stacks.iter().enumerate().filter(|&(offset, _)| has(offset)) {
            tree.start_sample(offset as u64);
            let mut frames = stack.iter().map(|&module| Frame::Module(ModuleIndex(module)));
            let position = frames
                .clone()
                .fold(Position::Outside, |caller, frame| tree.child(caller, 0, frame));
            tree.weigh(position, 0, frames.next_back().unwrap(), ONE);
        }
        tree
    }

    fn rows(tree: CallTree) -> Vec<(Option<NodeIndex>, Frame, u64)> {
        let (nodes, cut) = tree.into_nodes();
        assert_eq!(cut, 0);
        nodes
            .iter()
            .map(|node| (node.caller, node.frame, node.own.samples))
            .collect()
    }

    #[test]
    fn stacks_share_their_outer_functions() {
        let found = rows(tree(&[&[1, 2], &[1], &[1, 2], &[3]]));
        let expected = [
            (None, Frame::Module(ModuleIndex(1)), 1),
            (Some(NodeIndex(0)), Frame::Module(ModuleIndex(2)), 2),
            (None, Frame::Module(ModuleIndex(3)), 1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn stacks_without_room_count_for_their_function() {
        let mut full = CallTree::with_limit(2);
        full.merge(&[tree(&[&[1, 2], &[1, 3], &[4, 2], &[1, 3, 2], &[1]])]);
        let (nodes, cut) = full.into_nodes();
        let own = |module| {
            let of_module = nodes
                .iter()
                .filter(move |node| node.frame == Frame::Module(ModuleIndex(module)));
            of_module.map(|node| node.own.samples).sum::<u64>()
        };
        assert_eq!([own(1), own(2), own(3), own(4), cut], [1, 3, 1, 0, 3]);
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
                let of = |tree: CallTree| format!("{:?}", tree.into_nodes());
                assert_eq!(of(merged), of(whole), "{threads} threads, {limit} nodes");
            }
        }
    }
}
