//! Replay of recorded calls to find the call stack of a thread at each sample.

use jitdump::{Address, RuntimeTime};

use crate::collections::hash::HashMap;
use crate::perf::synthetic::SyntheticThread;
use crate::traces::conversion::call_tree::{ReplayedCalls, ReplayedStack};
use crate::traces::conversion::chain::CallChain;
use crate::traces::conversion::replay::Replay;
use crate::traces::conversion::source::{
    EventContext, EventKind, EventOf, FIRST_SYNTHETIC_TID, ReplaySource,
};
use crate::traces::conversion::splice::{SampleKey, StackSource};
use crate::units::Pid;

/// Stacks of samples, replayed from the calls of a source.
#[derive(Debug)]
pub struct CallStackReplay<S: ReplaySource> {
    source: S,
    calls: ReplayedCalls<S::Function>,
    /// Stacks by sample index, empty if the thread is in no recorded call, each with the time of the call or return that
    /// led to it.
    found: Vec<(ReplayedStack, RuntimeTime)>,
}

/// Current stack of a thread, and the index of its first sample that is not reached yet.
#[derive(Clone, Copy, Debug)]
struct ThreadState {
    stack: ReplayedStack,
    time: RuntimeTime,
    next: usize,
}

impl<S: ReplaySource> CallStackReplay<S> {
    /// Prepares the replay of a source.
    pub fn new(source: S) -> Self {
        Self {
            source,
            calls: ReplayedCalls::default(),
            found: Vec::new(),
        }
    }

    /// Finds the stacks of a thread's samples before an event, then applies the event.
    fn apply(
        &mut self,
        sample_keys: &[SampleKey],
        thread: SyntheticThread,
        state: &mut ThreadState,
        event: &EventOf<S>,
    ) {
        let EventKind::Call(step) = event.kind else {
            return;
        };
        let context = &event.context;
        let time = self.source.alignment().time(context.time);
        while let Some(sample_key) = sample_keys.get(state.next)
            && (sample_key.pid, sample_key.tid) == (thread.pid, thread.tid)
            && sample_key.time < time
        {
            if let Some(found) = self.found.get_mut(sample_key.index) {
                *found = (state.stack, state.time);
            }
            state.next = state.next.saturating_add(1);
        }
        if let Some(faults) = self.source.faults(context.thread) {
            state.stack = self.calls.follow(state.stack, step, context.offset, faults);
        }
        state.time = context.time;
    }
}

impl<S: ReplaySource> StackSource for CallStackReplay<S> {
    fn processes(&self) -> Vec<(Pid, String)> {
        self.source.processes()
    }

    fn covers(&self, pid: Pid, leaf: Address) -> bool {
        self.source.covers(pid, leaf)
    }

    /// Replays all calls once, and keeps the stack at the time of each sample.
    fn find(&mut self, mut sample_keys: Vec<SampleKey>) {
        sample_keys.sort_unstable();
        self.found = vec![(ReplayedStack::EMPTY, RuntimeTime::default()); sample_keys.len()];
        let threads = self.source.threads().into_iter();
        let threads: Vec<Option<SyntheticThread>> = threads.map(|traced| Some(traced?.thread)).collect();
        // A thread may be in several traces.
        let mut states: HashMap<SyntheticThread, ThreadState> = HashMap::default();
        for event in Replay::of(&self.source) {
            let thread = threads.get(event.context.thread).copied().flatten();
            if let Some(thread) = thread.filter(|thread| thread.tid.0 < FIRST_SYNTHETIC_TID) {
                let state = states.entry(thread).or_insert_with(|| ThreadState {
                    stack: ReplayedStack::EMPTY,
                    time: RuntimeTime::default(),
                    next: sample_keys.partition_point(|key| (key.pid, key.tid) < (thread.pid, thread.tid)),
                });
                self.apply(&sample_keys, thread, state, &event);
            }
        }
    }

    fn write_chain(&mut self, pid: Pid, sample: usize, leaf: Address, chain: &mut CallChain) -> bool {
        let found = self.found.get(sample).copied();
        let Some((stack, time)) = found.filter(|(stack, _)| *stack != ReplayedStack::EMPTY) else {
            return false;
        };
        let innermost = self.calls.functions(stack).next();
        // The sampled function is not among the logged calls if it is not instrumented, or in its prologue or epilogue:
        // then all logged calls are callers.
        let is_in_call = innermost.is_some_and(|function| self.source.is_inside(pid, function, leaf));
        let callers = self.calls.functions(stack).skip(usize::from(is_in_call));
        let context = EventContext {
            time,
            ..EventContext::default()
        };
        self.source.add_callers(chain, pid, callers, &context);
        true
    }
}
