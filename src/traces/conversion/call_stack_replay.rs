//! Replay of recorded calls to find the call stack of a thread at each sample.

use jitdump::{Address, RuntimeTime, Time};

use crate::collections::hash::HashMap;
use crate::perf::synthetic::SyntheticThread;
use crate::traces::conversion::call_tree::{ReplayedCalls, ReplayedStack};
use crate::traces::conversion::chain::CallChain;
use crate::traces::conversion::replay::Replay;
use crate::traces::conversion::source::{EventContext, EventKind, FIRST_SYNTHETIC_TID, ReplaySource};
use crate::traces::conversion::splice::{SampleKey, StackSource};
use crate::units::Pid;

/// Stacks of samples, replayed from the calls of a source.
#[derive(Debug)]
pub struct CallStackReplay<S: ReplaySource> {
    source: S,
    calls: ReplayedCalls<S::Function>,
    /// By sample index.
    found: Vec<TimedStack>,
}

/// Stack of a thread; empty if the thread is in no recorded call.
#[derive(Clone, Copy, Debug, Default)]
struct TimedStack {
    stack: ReplayedStack,
    /// Time of the call or return that led to it, as in the log.
    since: RuntimeTime,
}

/// State of a thread during the replay.
#[derive(Clone, Copy, Debug)]
struct ThreadState {
    current: TimedStack,
    /// Index in the sorted keys of its first sample that is not reached yet.
    next_sample: usize,
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

    /// Gives the current stack of a thread to its samples before `time`.
    fn pass_samples(
        &mut self,
        sample_keys: &[SampleKey],
        thread: SyntheticThread,
        state: &mut ThreadState,
        time: Time,
    ) {
        while let Some(sample_key) = sample_keys.get(state.next_sample)
            && (sample_key.pid, sample_key.tid) == (thread.pid, thread.tid)
            && sample_key.time < time
        {
            if let Some(found) = self.found.get_mut(sample_key.index) {
                *found = state.current;
            }
            state.next_sample = state.next_sample.saturating_add(1);
        }
    }
}

impl<S: ReplaySource> StackSource for CallStackReplay<S> {
    fn processes(&self) -> Vec<(Pid, String)> {
        self.source.processes()
    }

    fn covers(&self, pid: Pid, leaf: Address) -> bool {
        self.source.covers(pid, leaf)
    }

    /// Replays all calls once, and keeps the stack at the time of each sample. Samples after the last call or return of their
    /// thread have none.
    fn find_stacks(&mut self, mut sample_keys: Vec<SampleKey>) {
        sample_keys.sort_unstable();
        self.found = vec![TimedStack::default(); sample_keys.len()];
        let threads = self.source.threads().into_iter();
        let threads: Vec<Option<SyntheticThread>> = threads.map(|traced| Some(traced?.thread)).collect();
        // A thread may be in several traces.
        let mut states: HashMap<SyntheticThread, ThreadState> = HashMap::default();
        for event in Replay::of(&self.source) {
            let EventKind::Call(step) = event.kind else {
                continue;
            };
            let context = event.context;
            let thread = threads.get(context.thread).copied().flatten();
            let Some(thread) = thread.filter(|thread| thread.tid.0 < FIRST_SYNTHETIC_TID) else {
                continue;
            };
            let state = states.entry(thread).or_insert_with(|| ThreadState {
                current: TimedStack::default(),
                next_sample: sample_keys.partition_point(|key| (key.pid, key.tid) < (thread.pid, thread.tid)),
            });
            // A sample at the time of a call or return has the stack after it.
            let time = self.source.alignment().time(context.time);
            self.pass_samples(&sample_keys, thread, state, time);
            if let Some(faults) = self.source.faults(context.thread) {
                let stack = state.current.stack;
                state.current.stack = self.calls.follow(stack, step, context.offset, faults);
            }
            state.current.since = context.time;
        }
    }

    fn write_chain(&mut self, pid: Pid, sample: usize, leaf: Address, chain: &mut CallChain) -> bool {
        let found = self.found.get(sample).copied();
        let Some(TimedStack { stack, since }) = found.filter(|found| found.stack != ReplayedStack::EMPTY)
        else {
            return false;
        };
        let innermost = self.calls.functions(stack).next();
        // The sampled function is not among the logged calls if it is not instrumented, or in its prologue or epilogue:
        // then all logged calls are callers.
        let is_in_call = innermost.is_some_and(|function| self.source.is_inside(pid, function, leaf));
        let callers = self.calls.functions(stack).skip(usize::from(is_in_call));
        let context = EventContext {
            time: since,
            ..EventContext::default()
        };
        self.source.add_callers(chain, pid, callers, &context);
        true
    }
}
