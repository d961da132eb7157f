//! Replay of recorded calls to find the call stack of a thread at each sample.

use crate::diagnostics::Issue;
use crate::hash::HashMap;
use crate::runtime::RuntimeTime;
use crate::trace::call_tree::{CallTree, Stack, Step};
use crate::trace::chain::Chain;
use crate::trace::replay::Replay;
use crate::trace::source::{CallSource, EventContext, EventKind, FIRST_SYNTHETIC_TID};
use crate::trace::splice::{SampleKey, StackSource};
use crate::units::{Address, Pid, Tid, Time};

/// Stacks of samples, replayed from the calls of a source.
#[derive(Debug)]
pub struct CallStackReplay<S: CallSource> {
    source: S,
    calls: CallTree<S::Function>,
    /// Threads that samples may be of.
    threads: HashMap<Tid, ThreadState>,
    /// Stacks by sample index, empty if the thread is in no recorded call, each with the time of the event that led to it.
    found: Vec<(Stack, RuntimeTime)>,
}

/// Current stack of a thread, and the index of its first sample that is not reached yet.
#[derive(Clone, Copy, Debug)]
struct ThreadState {
    stack: Stack,
    time: RuntimeTime,
    next: usize,
}

impl<S: CallSource> CallStackReplay<S> {
    /// Prepares the replay of a source.
    pub fn new(source: S) -> Self {
        Self {
            source,
            calls: CallTree::default(),
            threads: HashMap::default(),
            found: Vec::new(),
        }
    }

    /// Finds the stacks of a thread's samples before an entry or exit at `time`, then applies it.
    fn apply(
        &mut self,
        sample_keys: &[SampleKey],
        tid: Tid,
        time: Time,
        context: &EventContext,
        step: Step<S::Function>,
    ) {
        let Some(state) = self.threads.get_mut(&tid) else {
            return;
        };
        while let Some(sample_key) = sample_keys.get(state.next)
            && sample_key.tid == tid
            && sample_key.time < time
        {
            if let Some(found) = self.found.get_mut(sample_key.index) {
                *found = (state.stack, state.time);
            }
            state.next = state.next.saturating_add(1);
        }
        if let Some(losses) = self.source.losses(context.thread) {
            state.stack = self.calls.follow(state.stack, step, context.offset, losses);
        }
        state.time = context.time;
    }
}

impl<S: CallSource> StackSource for CallStackReplay<S> {
    fn name(&self) -> String {
        self.source.name()
    }

    fn pid(&self) -> Pid {
        self.source.pid()
    }

    fn covers(&self, leaf: Address) -> bool {
        self.source.covers(leaf)
    }

    fn find(&mut self, sample_keys: &[SampleKey]) -> usize {
        let threads = self.source.threads();
        let tids: Vec<Option<Tid>> = threads.iter().map(|traced| Some((*traced)?.thread.tid)).collect();
        let in_profile = tids.iter().flatten().filter(|tid| tid.0 < FIRST_SYNTHETIC_TID);
        let states = in_profile.map(|&tid| {
            let state = ThreadState {
                stack: Stack::EMPTY,
                time: RuntimeTime::default(),
                next: sample_keys.partition_point(|sample_key| sample_key.tid < tid),
            };
            (tid, state)
        });
        self.threads = states.collect();
        self.found = vec![(Stack::EMPTY, RuntimeTime::default()); sample_keys.len()];
        let alignment = self.source.alignment();
        for event in Replay::of(&self.source) {
            let context = &event.context;
            let tid = tids.get(context.thread).copied().flatten();
            if let (Some(tid), EventKind::Call(step)) = (tid, event.kind) {
                self.apply(sample_keys, tid, alignment.time(context.time), context, step);
            }
        }
        let known = self.found.iter().filter(|(stack, _)| *stack != Stack::EMPTY);
        known.count()
    }

    fn write_chain(&mut self, sample: usize, leaf: Address, chain: &mut Chain) -> bool {
        let found = self.found.get(sample).copied();
        let Some((stack, time)) = found.filter(|(stack, _)| *stack != Stack::EMPTY) else {
            return false;
        };
        let innermost = self.calls.functions(stack).next();
        // The sampled function is not among the logged calls if it is not instrumented, or in its prologue or epilogue:
        // then all logged calls are callers.
        let is_in_call = innermost.is_some_and(|function| self.source.is_inside(function, leaf));
        let callers = self.calls.functions(stack).skip(usize::from(is_in_call));
        let pid = self.source.pid();
        if !self.source.add_frames(chain, pid, callers, time)
            && let Some(losses) = self.source.losses(0)
        {
            losses.add(Issue::ChainTooLong, 0);
        }
        true
    }
}
