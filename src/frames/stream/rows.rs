//! The samples of a part of the records, and their order and stacks in the whole profile.

use std::collections::BTreeMap;

use crate::code::samples::{Located, SampleRecord};
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::IndexedTable;
use crate::collections::interner::Interner;
use crate::frames::stream::call_tree::{CallTree, NodeIndex, StackPosition, merged};
use crate::frames::stream::frame::{FrameAddress, FrameCode};
use crate::frames::stream::losses::{FullChains, LossCounts};
use crate::frames::stream::tables::{Sample, StackIndex, ThreadIndex};
use crate::frames::stream::walk::{SampleWalk, TakenSample};
use crate::perf::Profile;
use crate::perf::sample::USER_DEFERRED;
use crate::units::{Pid, Tid};

/// A thread, by its IDs.
pub type ThreadKey = (Option<Pid>, Option<Tid>);

/// The samples of a part, in file order.
#[derive(Debug, Default)]
pub struct SampleRows {
    /// Their stacks.
    pub tree: CallTree<FrameAddress>,
    /// Samples with threads and stacks of this part, each with the offset of its record in bytes from the first one.
    rows: Vec<(u64, Sample)>,
    /// Threads, with the offset of the first record of each.
    threads: IndexedTable<ThreadIndex, (u64, ThreadKey)>,
    known_threads: HashMap<ThreadKey, ThreadIndex>,
    /// Counts of the samples of each event.
    counts: BTreeMap<u32, LossCounts>,
}

impl SampleRows {
    /// Returns the index of the thread of the record at an offset.
    fn thread(&mut self, offset: u64, key: ThreadKey) -> ThreadIndex {
        // Most samples are of the same thread as the last one.
        if let Some((_, last)) = self.rows.last()
            && self.threads[last.thread].1 == key
        {
            return last.thread;
        }
        let all = &mut self.threads;
        *self
            .known_threads
            .entry(key)
            .or_insert_with(|| all.push((offset, key)))
    }

    /// Adds a sample.
    pub fn add_sample(
        &mut self,
        located: &Located<SampleRecord<'_>>,
        taken: &TakenSample,
        profile: &Profile<'_>,
    ) {
        let SampleRecord { record, sample } = &located.content;
        let attr = profile.attrs.all().get(taken.event as usize);
        let cpu = attr.and_then(|attr| attr.sample_cpu(record, profile.endian));
        let thread = self.thread(record.offset, (located.pid, sample.tid));
        let stack = match taken.position {
            StackPosition::Node(NodeIndex(node)) => Some(StackIndex(node)),
            StackPosition::Outside | StackPosition::NoRoom => None,
        };
        let row = Sample {
            event: taken.event,
            thread,
            // Without times, records have offsets, which only order them.
            time: located.time.filter(|_| profile.attrs.has_times()),
            cpu,
            period: taken.period,
            stack,
        };
        self.rows.push((record.offset, row));
        let counts = self.counts.entry(taken.event).or_default();
        let max_stack = attr.and_then(|attr| attr.max_stack);
        Self::count_losses(counts, &located.content, taken, max_stack);
    }

    /// Counts a sample, and what is missing of it. `max_stack` is the length to which its event limits call chains.
    fn count_losses(
        counts: &mut LossCounts,
        SampleRecord { sample, .. }: &SampleRecord<'_>,
        taken: &TakenSample,
        max_stack: Option<usize>,
    ) {
        let LossCounts { losses, full_chains } = counts;
        losses.samples += 1;
        if sample.ip.is_some()
            && let Some(FrameAddress { code, .. }) = taken.place
        {
            let (is_jit, lost) = match code {
                FrameCode::Function(_) | FrameCode::PerfMapSymbol(_) => (true, None),
                FrameCode::UnnamedJit => (true, Some(&mut losses.unnamed)),
                FrameCode::Native { .. } | FrameCode::Kernel(_) => (false, None),
                FrameCode::Module(_) | FrameCode::KernelModule(_) => {
                    (false, Some(&mut losses.without_symbol))
                }
                FrameCode::Unknown => (false, Some(&mut losses.unknown)),
            };
            if let Some(lost) = lost {
                *lost += 1;
            }
            losses.jit += u64::from(is_jit || taken.is_in_object);
        }
        let entries = sample.callchain.count();
        losses.truncated += u64::from(sample.is_truncated);
        match max_stack {
            // Entries that are no addresses do not count. They are looked for only in chains that may be full.
            Some(most) => {
                losses.cut += u64::from(entries >= most && sample.chain_addresses().count() >= most);
            }
            None if entries >= FullChains::DEFAULT_LENGTH => {
                full_chains.add(sample.chain_addresses().count());
            }
            None => {}
        }
        let deferred = |address: jitdump::Address| address.0 == USER_DEFERRED;
        losses.deferred += u64::from(entries > 0 && sample.callchain.iter().any(deferred));
    }
}

/// The samples of a part, and its threads in the whole profile.
struct PartRows {
    rows: Vec<(u64, Sample)>,
    threads: IndexedTable<ThreadIndex, ThreadIndex>,
}

/// All samples so far.
#[derive(Debug)]
pub struct Collected {
    /// Their stacks.
    pub tree: CallTree<FrameAddress>,
    /// Threads.
    pub threads: Interner<ThreadKey, ThreadIndex>,
    /// Counts of all samples of each event.
    pub counts: BTreeMap<u32, LossCounts>,
    /// For each of the first nodes of the tree, whether a caller is unknown code.
    with_unknown_caller: IndexedTable<NodeIndex, bool>,
}

impl Collected {
    /// Starts with a profile of this many bytes.
    pub fn of_profile(bytes: u64) -> Self {
        Self {
            tree: CallTree::of_profile(bytes),
            threads: Interner::default(),
            counts: BTreeMap::default(),
            with_unknown_caller: IndexedTable::default(),
        }
    }

    /// Whether a caller in a stack is unknown code.
    fn has_unknown_caller(&mut self, node: NodeIndex) -> bool {
        let known = self.with_unknown_caller.len();
        for new in self.tree.nodes.iter().skip(known) {
            let has_unknown = new.caller().is_some_and(|caller| {
                self.with_unknown_caller[caller] || self.tree.nodes[caller].frame.code == FrameCode::Unknown
            });
            self.with_unknown_caller.push(has_unknown);
        }
        self.with_unknown_caller[node]
    }

    /// Calls `consumer` with the samples that walks have seen since the last time, in file order.
    pub fn take<'w, 's: 'w>(
        &mut self,
        walks: impl Iterator<Item = &'w mut SampleWalk<'s>>,
        consumer: &mut dyn FnMut(&Sample, ThreadKey),
    ) {
        self.pass_on(walks.map(SampleWalk::take).collect(), consumer);
    }

    /// Returns the node for a sample whose stack has no room, and counts it. Without the address, there are only as many as
    /// functions.
    fn node_without_callers(&mut self, event: u32, leaf: FrameAddress) -> Option<NodeIndex> {
        self.counts.entry(event).or_default().losses.without_callers += 1;
        self.tree.root(FrameAddress { offset: 0, ..leaf })
    }

    /// Gives the samples of all parts to a consumer, with stacks and threads numbered in file order.
    fn pass_on(&mut self, all: Vec<SampleRows>, consumer: &mut dyn FnMut(&Sample, ThreadKey)) {
        // Threads have numbers in file order, whichever part has them first.
        let mut threads: Vec<(u64, ThreadKey)> =
            all.iter().flat_map(|part| part.threads.iter().copied()).collect();
        threads.sort_unstable_by_key(|&(offset, _)| offset);
        for (_, key) in threads {
            self.threads.of(key);
        }
        let (mut parts, mut trees) = (Vec::new(), Vec::new());
        for part in all {
            for (&event, counts) in &part.counts {
                self.counts.entry(event).or_default().merge(counts);
            }
            let threads = part.threads.iter().map(|&(_, key)| self.threads.of(key));
            parts.push(PartRows {
                threads: threads.collect(),
                rows: part.rows,
            });
            trees.push(part.tree);
        }
        let positions = self.tree.merge(&trees);
        let rows = merged(parts.iter().map(|part| part.rows.iter()), |&&(offset, _)| offset);
        for (part, &(_, sample)) in rows {
            let (Some(PartRows { threads, .. }), Some(positions), Some(tree)) =
                (parts.get(part), positions.get(part), trees.get(part))
            else {
                continue;
            };
            let thread = threads[sample.thread];
            let node = sample.stack.map(|StackIndex(node)| NodeIndex(node));
            let stack = node.and_then(|node| match positions[node] {
                StackPosition::Node(found) => Some(found),
                StackPosition::Outside | StackPosition::NoRoom => {
                    self.node_without_callers(sample.event, tree.frame(node))
                }
            });
            if stack.is_some_and(|stack| self.has_unknown_caller(stack)) {
                let counts = self.counts.entry(sample.event).or_default();
                counts.losses.unknown_callers += 1;
            }
            let sample = Sample {
                thread,
                stack: stack.map(|NodeIndex(stack)| StackIndex(stack)),
                ..sample
            };
            consumer(&sample, self.threads.all[thread]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_numbers_in_file_order_whoever_has_read_them() {
        let thread = |tid| (Some(Pid(1)), Some(Tid(tid)));
        let part = |samples: &[(u64, u32)]| {
            let mut part = SampleRows::default();
            for &(offset, tid) in samples {
                let thread = part.thread(offset, thread(tid));
                let sample = Sample {
                    event: 0,
                    thread,
                    time: None,
                    cpu: None,
                    period: 1,
                    stack: None,
                };
                part.rows.push((offset, sample));
            }
            part
        };
        for parts in [
            vec![part(&[(10, 7), (20, 8), (70, 6)]), part(&[(30, 9), (40, 7)])],
            vec![part(&[(30, 9), (40, 7), (70, 6)]), part(&[(10, 7), (20, 8)])],
        ] {
            let mut all = Collected::of_profile(1000);
            let mut seen = Vec::new();
            all.pass_on(parts, &mut |sample, key| seen.push((sample.thread.0, key)));
            let expected = [(0, 7), (1, 8), (2, 9), (0, 7), (3, 6)];
            assert_eq!(seen, expected.map(|(index, tid)| (index, thread(tid))));
            assert_eq!(all.threads.all.len(), 4);
        }
    }
}
