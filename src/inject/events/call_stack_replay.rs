//! The stacks that threads are in at the sample_keys of samples, by what is told of their calls.

use std::hash::Hash;

use crate::code::call_tree::Stack;
use crate::hash::HashMap;
use crate::inject::events::{Calls, Loss, Step};
use crate::tally::Tally;
use crate::units::{Tid, Time};

/// When a sample was taken that is to get another call chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SampleKey {
    /// In which thread.
    pub tid: Tid,
    /// On the profile's clock.
    pub time: Time,
    /// Its place among all of its source's, in the order of the file.
    pub place: usize,
}

/// What is told of a thread's calls.
#[derive(Clone, Copy, Debug)]
pub struct CallRecord<F, M> {
    /// Which thread.
    pub tid: Tid,
    /// On the profile's clock.
    pub time: Time,
    /// What happened.
    pub step: Step<F>,
    /// Where in the file.
    pub offset: u64,
    /// What else the source wants to know of the stack that this makes.
    pub mark: M,
}

/// Calls of functions `F`, followed past sample_keys; each stack has the mark of what made it.
#[derive(Clone, Debug)]
pub struct CallStackReplay<F, M> {
    calls: Calls<F>,
    threads: HashMap<Tid, ThreadState<M>>,
    /// By the places of sample_keys; `None` where a thread is in no call that is told of.
    found: Vec<Option<(Stack, M)>>,
}

/// What a thread is in, and the first of its sample_keys that are left.
#[derive(Clone, Copy, Debug)]
struct ThreadState<M> {
    stack: Stack,
    mark: M,
    next: usize,
}

impl<F, M> Default for CallStackReplay<F, M> {
    fn default() -> Self {
        Self {
            calls: Calls::default(),
            threads: HashMap::default(),
            found: Vec::new(),
        }
    }
}

impl<F: Copy + Eq + Hash, M: Copy + Default> CallStackReplay<F, M> {
    /// Starts with threads in no call. `sample_keys` are sorted, as they must be for [`Self::go_on`].
    pub fn start(&mut self, sample_keys: &[SampleKey], tids: impl Iterator<Item = Tid>) {
        let doing = tids.map(|tid| {
            let doing = ThreadState {
                stack: Stack::EMPTY,
                mark: M::default(),
                next: sample_keys.partition_point(|sample_key| sample_key.tid < tid),
            };
            (tid, doing)
        });
        self.threads = doing.collect();
        self.found = vec![None; sample_keys.len()];
    }

    /// Finds the stacks of a thread's sample_keys before what is told, and follows that. What is told of other threads than
    /// those of the start is passed over.
    pub fn go_on(&mut self, sample_keys: &[SampleKey], told: &CallRecord<F, M>, losses: &mut Tally<Loss>) {
        let Some(doing) = self.threads.get_mut(&told.tid) else {
            return;
        };
        while let Some(sample_key) = sample_keys.get(doing.next)
            && sample_key.tid == told.tid
            && sample_key.time < told.time
        {
            if let Some(found) = self.found.get_mut(sample_key.place) {
                *found = (doing.stack != Stack::EMPTY).then_some((doing.stack, doing.mark));
            }
            doing.next = doing.next.saturating_add(1);
        }
        doing.stack = self.calls.follow(doing.stack, told.step, told.offset, losses);
        doing.mark = told.mark;
    }

    /// How many sample_keys have a stack.
    pub fn known(&self) -> usize {
        self.found.iter().flatten().count()
    }

    /// The stack at the sample_key with a place, and its mark.
    pub fn at(&self, place: usize) -> Option<(Stack, M)> {
        self.found.get(place).copied().flatten()
    }

    /// The functions of a stack, innermost first.
    pub fn functions(&self, stack: Stack) -> impl Iterator<Item = F> {
        self.calls.functions(stack)
    }
}
