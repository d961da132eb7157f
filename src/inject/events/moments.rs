//! The stacks that threads are in at the moments of samples, by what is told of their calls.

use std::hash::Hash;

use crate::code::call_tree::Stack;
use crate::hash::HashMap;
use crate::inject::events::{Calls, Loss, Step};
use crate::tally::Tally;
use crate::units::{Tid, Time};

/// When a sample was taken that is to get another call chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment {
    /// In which thread.
    pub tid: Tid,
    /// On the profile's clock.
    pub time: Time,
    /// Its place among all of its source's, in the order of the file.
    pub place: usize,
}

/// What is told of a thread's calls.
#[derive(Clone, Copy, Debug)]
pub struct Told<F, M> {
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

/// Calls of functions `F`, followed past moments; each stack has the mark of what made it.
#[derive(Clone, Debug)]
pub struct Followed<F, M> {
    calls: Calls<F>,
    threads: HashMap<Tid, Doing<M>>,
    /// By the places of moments; `None` where a thread is in no call that is told of.
    found: Vec<Option<(Stack, M)>>,
}

/// What a thread is in, and the first of its moments that are left.
#[derive(Clone, Copy, Debug)]
struct Doing<M> {
    stack: Stack,
    mark: M,
    next: usize,
}

impl<F, M> Default for Followed<F, M> {
    fn default() -> Self {
        Self {
            calls: Calls::default(),
            threads: HashMap::default(),
            found: Vec::new(),
        }
    }
}

impl<F: Copy + Eq + Hash, M: Copy + Default> Followed<F, M> {
    /// Starts with threads in no call. `moments` are sorted, as they must be for [`Self::go_on`].
    pub fn start(&mut self, moments: &[Moment], tids: impl Iterator<Item = Tid>) {
        let doing = tids.map(|tid| {
            let doing = Doing {
                stack: Stack::EMPTY,
                mark: M::default(),
                next: moments.partition_point(|moment| moment.tid < tid),
            };
            (tid, doing)
        });
        self.threads = doing.collect();
        self.found = vec![None; moments.len()];
    }

    /// Finds the stacks of a thread's moments before what is told, and follows that. What is told of other threads than
    /// those of the start is passed over.
    pub fn go_on(&mut self, moments: &[Moment], told: &Told<F, M>, losses: &mut Tally<Loss>) {
        let Some(doing) = self.threads.get_mut(&told.tid) else {
            return;
        };
        while let Some(moment) = moments.get(doing.next)
            && moment.tid == told.tid
            && moment.time < told.time
        {
            if let Some(found) = self.found.get_mut(moment.place) {
                *found = (doing.stack != Stack::EMPTY).then_some((doing.stack, doing.mark));
            }
            doing.next = doing.next.saturating_add(1);
        }
        doing.stack = self.calls.follow(doing.stack, told.step, told.offset, losses);
        doing.mark = told.mark;
    }

    /// How many moments have a stack.
    pub fn known(&self) -> usize {
        self.found.iter().flatten().count()
    }

    /// The stack at the moment with a place, and its mark.
    pub fn at(&self, place: usize) -> Option<(Stack, M)> {
        self.found.get(place).copied().flatten()
    }

    /// The functions of a stack, innermost first.
    pub fn functions(&self, stack: Stack) -> impl Iterator<Item = F> {
        self.calls.functions(stack)
    }
}
