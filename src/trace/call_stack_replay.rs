//! Replay of recorded calls to find the call stack of a thread at each sample.

use std::hash::Hash;

use crate::diagnostics::Issue;
use crate::hash::HashMap;
use crate::tally::Tally;
use crate::trace::call_tree::{CallTree, Stack, Step};
use crate::units::{Tid, Time};

/// Thread and time of a sample that may get another call chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SampleKey {
    /// Thread ID.
    pub tid: Tid,
    /// Time on the profile's clock.
    pub time: Time,
    /// Index among the samples of the source, in file order.
    pub index: usize,
}

/// A recorded function entry or exit.
#[derive(Clone, Copy, Debug)]
pub struct CallRecord<F, M> {
    /// Thread ID.
    pub tid: Tid,
    /// Time on the profile's clock.
    pub time: Time,
    /// Entry or exit.
    pub step: Step<F>,
    /// Offset of the record in the file, in bytes.
    pub offset: u64,
    /// What else the source needs of the resulting stack.
    pub mark: M,
}

/// Replay of calls to functions `F`. Each stack has the mark of the record that led to it.
#[derive(Clone, Debug, Default)]
pub struct CallStackReplay<F, M> {
    calls: CallTree<F>,
    threads: HashMap<Tid, ThreadState<M>>,
    /// Stacks by sample index; `None` if the thread is in no recorded call.
    found: Vec<Option<(Stack, M)>>,
}

/// Current stack of a thread, and the index of its first sample that is not reached yet.
#[derive(Clone, Copy, Debug)]
struct ThreadState<M> {
    stack: Stack,
    mark: M,
    next: usize,
}

impl<F: Copy + Eq + Hash, M: Copy + Default> CallStackReplay<F, M> {
    /// Starts with all threads in no call. `sample_keys` must be sorted, and the same for [`Self::apply`].
    pub fn start(&mut self, sample_keys: &[SampleKey], tids: impl Iterator<Item = Tid>) {
        let state = tids.map(|tid| {
            let state = ThreadState {
                stack: Stack::EMPTY,
                mark: M::default(),
                next: sample_keys.partition_point(|sample_key| sample_key.tid < tid),
            };
            (tid, state)
        });
        self.threads = state.collect();
        self.found = vec![None; sample_keys.len()];
    }

    /// Finds the stacks of a thread's samples before a call record, then applies the record. Records of
    /// threads other than those passed to [`Self::start`] are skipped.
    pub fn apply(&mut self, sample_keys: &[SampleKey], call: &CallRecord<F, M>, losses: &mut Tally<Issue>) {
        let Some(state) = self.threads.get_mut(&call.tid) else {
            return;
        };
        while let Some(sample_key) = sample_keys.get(state.next)
            && sample_key.tid == call.tid
            && sample_key.time < call.time
        {
            if let Some(found) = self.found.get_mut(sample_key.index) {
                *found = (state.stack != Stack::EMPTY).then_some((state.stack, state.mark));
            }
            state.next = state.next.saturating_add(1);
        }
        state.stack = self.calls.follow(state.stack, call.step, call.offset, losses);
        state.mark = call.mark;
    }

    /// Returns the number of samples with a stack.
    pub fn known(&self) -> usize {
        self.found.iter().flatten().count()
    }

    /// Returns the stack and its mark at a sample, or `None` if the thread is in no recorded call.
    pub fn at(&self, index: usize) -> Option<(Stack, M)> {
        self.found.get(index).copied().flatten()
    }

    /// Returns the functions of a stack, innermost first.
    pub fn functions(&self, stack: Stack) -> impl Iterator<Item = F> {
        self.calls.functions(stack)
    }
}
