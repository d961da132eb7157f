//! Finds the intervals at an address among those that share addresses with others.
//!
//! A segment tree over the addresses where these intervals start or end. Each interval is in the lists of the largest
//! nodes that it covers. The intervals of one list all contain the addresses of its node, at different times.

use crate::collections::indexed_table::{IndexedTable, index_of, table_index};
use crate::history::IntervalIndex;
use crate::units::{Address, AddressRange};

table_index! {
    /// Index of a node. The parent of node n is n / 2, and the root is node 1. The second half of all nodes are the
    /// leaves, by address.
    NodeIndex
}

impl NodeIndex {
    /// Not a node of the tree.
    pub const NONE: Self = Self(0);
}

/// A node of the tree.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Start of its list in [`Overlaps::lists`]; it ends where that of the next node starts.
    start: usize,
    /// Nearest ancestor with a list that is not empty.
    above: Option<NodeIndex>,
}

/// Intervals that share addresses with others.
#[derive(Clone, Debug)]
pub struct Overlaps {
    /// All nodes, and another one for the end of the last list.
    nodes: IndexedTable<NodeIndex, Node>,
    /// Lists of all nodes, each in the order of time.
    lists: Vec<IntervalIndex>,
}

impl Overlaps {
    /// Builds the tree of `intervals`, in any order and with repetitions, and sets the leaf of each of `slots`, which
    /// are addresses with several intervals.
    pub fn new<'a>(
        mut intervals: Vec<IntervalIndex>,
        range: impl Fn(IntervalIndex) -> AddressRange,
        slots: impl Iterator<Item = (Address, &'a mut NodeIndex)>,
    ) -> Self {
        intervals.sort_unstable();
        intervals.dedup();
        let leaves = Leaves::of(intervals.iter().map(|&interval| range(interval)));
        for (address, leaf) in slots {
            *leaf = leaves.at(address);
        }
        let nodes_of = |interval| leaves.covering(range(interval));
        let mut overlaps = Self::with_lists(&intervals, leaves.count(), nodes_of);
        overlaps.find_lists_above(leaves.count());
        overlaps
    }

    /// Fills the lists of the nodes with `intervals`, which must be in the order of time. `nodes_of` returns the nodes of each.
    fn with_lists<N: Iterator<Item = NodeIndex>>(
        intervals: &[IntervalIndex],
        leaf_count: usize,
        nodes_of: impl Fn(IntervalIndex) -> N,
    ) -> Self {
        let mut nodes: IndexedTable<NodeIndex, Node> =
            (0..=leaf_count * 2).map(|_| Node::default()).collect();
        // First the length of each list, then its end, and when it is filled its start.
        for node in intervals.iter().copied().flat_map(&nodes_of) {
            nodes[node].start += 1;
        }
        let mut end = 0;
        for node in &mut nodes {
            end += node.start;
            node.start = end;
        }
        let mut lists = vec![IntervalIndex(0); end];
        for &interval in intervals.iter().rev() {
            for node in nodes_of(interval) {
                let start = &mut nodes[node].start;
                *start -= 1;
                if let Some(place) = lists.get_mut(*start) {
                    *place = interval;
                }
            }
        }
        Self { nodes, lists }
    }

    /// Finds the nearest ancestor with a list of each node. Ancestors have smaller indices.
    fn find_lists_above(&mut self, leaf_count: usize) {
        for node in 2..leaf_count * 2 {
            let parent = index_of(node / 2);
            let has_list = self.list(parent).is_some();
            let above = if has_list {
                Some(parent)
            } else {
                self.nodes[parent].above
            };
            self.nodes[index_of(node)].above = above;
        }
    }

    /// Returns the lists of the intervals that contain the addresses of a leaf.
    pub fn lists_of(&self, leaf: NodeIndex) -> impl Iterator<Item = &[IntervalIndex]> {
        std::iter::successors(Some(leaf), |&node| self.nodes[node].above).filter_map(|node| self.list(node))
    }

    /// Returns the number of entries in all lists.
    #[cfg(test)]
    pub fn list_entries(&self) -> usize {
        self.lists.len()
    }

    /// Returns the list of a node, unless it is empty.
    fn list(&self, node: NodeIndex) -> Option<&[IntervalIndex]> {
        let end = self.nodes[NodeIndex(node.0 + 1)].start;
        let list = self.lists.get(self.nodes[node].start..end)?;
        (!list.is_empty()).then_some(list)
    }
}

/// The leaves of the tree: the addresses where an interval starts or ends, sorted.
struct Leaves {
    addresses: Vec<Address>,
}

impl Leaves {
    fn of(ranges: impl Iterator<Item = AddressRange>) -> Self {
        let mut addresses: Vec<Address> = ranges.flat_map(|range| [range.start, range.end]).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Self { addresses }
    }

    fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Returns the leaf of an address, which is that of the last one up to it.
    fn at(&self, address: Address) -> NodeIndex {
        let after = self.addresses.partition_point(|&start| start <= address);
        index_of(self.count() + after.saturating_sub(1))
    }

    /// Returns the largest nodes that cover the range of an interval.
    fn covering(&self, range: AddressRange) -> impl Iterator<Item = NodeIndex> {
        let leaf = |address| self.count() + self.addresses.partition_point(|&other| other < address);
        covering(leaf(range.start), leaf(range.end))
    }
}

/// Returns the largest nodes that cover the leaves from `low` up to, but not including, `high`.
fn covering(mut low: usize, mut high: usize) -> impl Iterator<Item = NodeIndex> {
    let levels = std::iter::from_fn(move || {
        if low >= high {
            return None;
        }
        let first = (low % 2 == 1).then_some(low);
        let last = (high % 2 == 1).then_some(high - 1);
        low = low.div_ceil(2);
        high /= 2;
        Some([first, last])
    });
    levels.flatten().flatten().map(index_of)
}
