//! Samples of a profile, made from the events of logs and traces.
//!
//! Calls become samples of the time between them, each with the stack of calls in that time, and samples of the calls
//! themselves. Each other event becomes at most one sample.

use std::io;

use jitdump::{RuntimeTime, Time};

use crate::code::clock::Alignment;
use crate::collections::hash::HashMap;
use crate::perf::synthetic::SyntheticThread;
use crate::traces::conversion::call_tree::{CallStep, ReplayedCalls, ReplayedStack};
use crate::traces::conversion::chain::CallChain;
use crate::traces::conversion::event_selection::{EventSet, ProfileEvent};
use crate::traces::conversion::replay::Replay;
use crate::traces::conversion::source::{EventContext, EventKind, EventOf, ReplaySource};
use crate::traces::conversion::synthesis::{Comm, SyntheticSample, ThreadStart};
use crate::traces::conversion::synthesize::{EventSource, Out};
use crate::traces::options::SamplingOptions;

/// Maximum number of samples that resampling makes of long calls, beyond one per record. After that, the time between
/// two records becomes one sample, whose period is all of its steps.
const MAX_EXTRA_SAMPLES: u64 = 1 << 22;

/// Number of samples that resampling can still make beyond one per record.
#[derive(Clone, Copy, Debug)]
struct ExtraSamples(u64);

impl Default for ExtraSamples {
    fn default() -> Self {
        Self(MAX_EXTRA_SAMPLES)
    }
}

impl ExtraSamples {
    /// Returns the number of samples for `steps` steps of `step` nanoseconds, and the period of each.
    fn split(&mut self, steps: u64, step: u64) -> (u64, u64) {
        match self.0.checked_sub(steps) {
            Some(left) => {
                self.0 = left;
                (steps, step)
            }
            None => (1, steps.saturating_mul(step)),
        }
    }
}

/// State of a thread during the replay.
#[derive(Clone, Copy, Debug)]
struct ThreadState {
    thread: SyntheticThread,
    stack: ReplayedStack,
    /// Time of the thread's last entry or exit.
    since: RuntimeTime,
}

/// Totals of a stack of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    nanoseconds: u64,
    calls: u64,
}

/// Converts the events of a source into samples.
#[derive(Debug)]
pub struct ReplayedSamples<'l, S: ReplaySource> {
    source: S,
    replay: Replay<S>,
    alignment: Alignment,
    /// State of each thread; `None` for threads that are not used.
    threads: Vec<Option<ThreadState>>,
    event_set: &'l EventSet,
    sampling: SamplingOptions,
    calls: ReplayedCalls<S::Function>,
    chain: CallChain,
    raw: Vec<u8>,
    /// Totals by thread and stack, if samples are aggregated.
    sums: HashMap<(usize, ReplayedStack), Sum>,
    /// Times at which the calls of each thread's stack began, outermost first; empty if durations are not selected.
    begins: Vec<Vec<RuntimeTime>>,
    /// Totals that remain to be written at the end.
    left: std::vec::IntoIter<((usize, ReplayedStack), Sum)>,
    extra_samples: ExtraSamples,
    latest: RuntimeTime,
}

impl<'l, S: ReplaySource> ReplayedSamples<'l, S> {
    /// Starts the replay of a source.
    pub fn new(source: S, event_set: &'l EventSet, sampling: SamplingOptions) -> Self {
        let threads = source.threads().into_iter().map(|traced| {
            Some(ThreadState {
                thread: traced?.thread,
                stack: ReplayedStack::EMPTY,
                since: RuntimeTime::default(),
            })
        });
        let threads: Vec<_> = threads.collect();
        Self {
            begins: vec![Vec::new(); threads.len()],
            threads,
            replay: Replay::of(&source),
            alignment: source.alignment(),
            source,
            event_set,
            sampling,
            calls: ReplayedCalls::default(),
            chain: CallChain::default(),
            raw: Vec::new(),
            sums: HashMap::default(),
            left: Vec::new().into_iter(),
            extra_samples: ExtraSamples::default(),
            latest: RuntimeTime::default(),
        }
    }

    /// Replays all events without making samples, for what is counted on the way.
    pub fn count(mut self) {
        while let Some(event) = self.replay.next() {
            self.follow(&event);
        }
        self.source.finish(self.replay.into_threads());
    }

    /// Applies an event to its thread. Returns the thread's state before and after.
    fn follow(&mut self, event: &EventOf<S>) -> Option<(ThreadState, ThreadState)> {
        let context = &event.context;
        let state = self.threads.get_mut(context.thread)?.as_mut()?;
        let before = *state;
        self.latest = context.time;
        if let EventKind::Call(step) = event.kind {
            let faults = self.source.faults(context.thread)?;
            state.stack = self.calls.follow(before.stack, step, context.offset, faults);
            state.since = context.time;
        }
        Some((before, *state))
    }

    /// Writes the samples that an event stands for.
    fn write_event(&mut self, event: &EventOf<S>, out: &mut Out<'_>) -> io::Result<()> {
        let Some((before, now)) = self.follow(event) else {
            return Ok(());
        };
        match event.kind {
            EventKind::Call(step) => self.write_step(&event.context, step, before, now.stack, out),
            EventKind::Other(other) => self.write_other(&event.context, other, now.stack, out),
        }
    }

    /// Writes the samples of an entry or exit, which has led to the stack `now`: of the time before it, and of the call that
    /// began or those that ended.
    fn write_step(
        &mut self,
        context: &EventContext,
        step: CallStep<S::Function>,
        before: ThreadState,
        now: ReplayedStack,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        if before.stack != ReplayedStack::EMPTY {
            self.write_time(context, before, out)?;
        }
        match step {
            CallStep::Enter(_) => {
                self.begin_call(context, before.stack, now);
                self.write_call(context, now, out)
            }
            CallStep::Exit(_) => self.write_call_times(context, before.stack, now, out),
        }
    }

    /// Writes the sample of an event in `stack` that is no call, if its source makes one.
    fn write_other(
        &mut self,
        context: &EventContext,
        event: S::Other,
        stack: ReplayedStack,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        self.clear_chain();
        let (chain, raw) = (&mut self.chain, &mut self.raw);
        let Some(sample) = self.source.sample(context, event, chain, raw) else {
            return Ok(());
        };
        if sample.is_in_calls {
            self.add_calls(context, stack);
        }
        self.write_sample(sample.event, context, sample.period, out)
    }

    /// Attributes the time since the last entry or exit to the thread's stack.
    fn write_time(
        &mut self,
        context: &EventContext,
        before: ThreadState,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        let spent = context.time.0.saturating_sub(before.since.0);
        if spent == 0 || self.event_set.index_of(S::SELF_TIME).is_none() {
            return Ok(());
        }
        if self.sampling.aggregate {
            let sum = self.sums.entry((context.thread, before.stack)).or_default();
            sum.nanoseconds = sum.nanoseconds.saturating_add(spent);
            return Ok(());
        }
        let (count, period) = match self.sampling.resample {
            None => (1, spent),
            Some(step) => {
                let step = step.max(1);
                let steps = (context.time.0 / step).saturating_sub(before.since.0 / step);
                self.extra_samples.split(steps, step)
            }
        };
        if count == 0 {
            return Ok(());
        }
        self.start_chain(context, before.stack);
        for _ in 0..count {
            self.write_sample(S::SELF_TIME, context, period, out)?;
        }
        Ok(())
    }

    /// Writes a sample for a call, or counts it if samples are sums.
    fn write_call(
        &mut self,
        context: &EventContext,
        stack: ReplayedStack,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        if self.event_set.index_of(S::CALL).is_none() {
            return Ok(());
        }
        if self.sampling.aggregate {
            let sum = self.sums.entry((context.thread, stack)).or_default();
            sum.calls = sum.calls.saturating_add(1);
            return Ok(());
        }
        self.start_chain(context, stack);
        self.write_sample(S::CALL, context, 1, out)
    }

    /// Notes the time of a call that has led from one stack to another.
    fn begin_call(&mut self, context: &EventContext, before: ReplayedStack, now: ReplayedStack) {
        if before != now
            && S::CALL_TIME.is_some_and(|event| self.event_set.index_of(event).is_some())
            && let Some(begins) = self.begins.get_mut(context.thread)
        {
            begins.push(context.time);
        }
    }

    /// Writes a sample for each call that an exit has ended: those in `stack` that are not in `outer`.
    fn write_call_times(
        &mut self,
        context: &EventContext,
        mut stack: ReplayedStack,
        outer: ReplayedStack,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        let Some(event) = S::CALL_TIME else {
            return Ok(());
        };
        while stack != outer
            && let Some(begin) = self.begins.get_mut(context.thread).and_then(Vec::pop)
            && let Some(caller) = self.calls.caller(stack)
        {
            self.start_chain(context, stack);
            let duration = context.time.0.saturating_sub(begin.0);
            self.write_sample(event, context, duration, out)?;
            stack = caller;
        }
        Ok(())
    }

    /// Starts a chain without calls.
    fn clear_chain(&mut self) {
        self.chain.restart(None);
        self.raw.clear();
    }

    /// Starts a chain with the calls of a stack.
    fn start_chain(&mut self, context: &EventContext, stack: ReplayedStack) {
        self.clear_chain();
        self.add_calls(context, stack);
    }

    /// Adds the calls of a stack to the current chain.
    fn add_calls(&mut self, context: &EventContext, stack: ReplayedStack) {
        let Some(state) = self.threads.get(context.thread).copied().flatten() else {
            return;
        };
        let functions = self.calls.functions(stack);
        self.source
            .add_callers(&mut self.chain, state.thread.pid, functions, context);
    }

    /// Adds a sample with the current chain.
    fn write_sample(
        &self,
        event: ProfileEvent,
        context: &EventContext,
        period: u64,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        let state = self.threads.get(context.thread).copied().flatten();
        let (Some(event), Some(state)) = (self.event_set.index_of(event), state) else {
            return Ok(());
        };
        out.sample(&SyntheticSample {
            event,
            thread: state.thread,
            time: self.alignment.time(context.time),
            cpu: context.cpu,
            period,
            chain: self.chain.frames(),
            raw: &self.raw,
        })
    }

    /// Adds the samples for the totals of the next stack.
    fn write_sum(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        let Some(((thread, stack), sum)) = self.left.next() else {
            return Ok(());
        };
        let context = &EventContext {
            thread,
            time: self.latest,
            ..EventContext::default()
        };
        self.start_chain(context, stack);
        for (event, period) in [(S::SELF_TIME, sum.nanoseconds), (S::CALL, sum.calls)] {
            if period > 0 {
                self.write_sample(event, context, period, out)?;
            }
        }
        Ok(())
    }
}

impl<S: ReplaySource> EventSource for ReplayedSamples<'_, S> {
    fn next_time(&mut self) -> Option<Time> {
        if let Some(time) = self.replay.next_time() {
            return Some(self.alignment.time(time));
        }
        if !self.sums.is_empty() {
            let mut sums: Vec<_> = std::mem::take(&mut self.sums).into_iter().collect();
            sums.sort_unstable_by_key(|&(key, _)| key);
            self.left = sums.into_iter();
        }
        (self.left.len() > 0).then(|| self.alignment.time(self.latest))
    }

    fn write_start(&self, out: &mut Out<'_>, start: Time, is_alone: bool) -> io::Result<()> {
        if is_alone {
            self.source.write_processes(out, start)?;
        }
        for traced in self.source.threads().into_iter().flatten() {
            let thread = traced.thread;
            let parent = SyntheticThread::first_of(thread.pid);
            if traced.is_introduced || thread == parent {
                continue;
            }
            out.fork(&ThreadStart {
                thread,
                parent,
                time: start,
            })?;
            if let Some(name) = traced.name {
                out.comm(&Comm {
                    thread,
                    time: start,
                    name,
                    is_exec: false,
                })?;
            }
        }
        Ok(())
    }

    fn write_next(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        match self.replay.next() {
            Some(event) => self.write_event(&event, out),
            None => self.write_sum(out),
        }
    }

    fn finish(self: Box<Self>) {
        self.source.finish(self.replay.into_threads());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_calls_are_split_into_4_194_304_samples_and_later_ones_stay_whole() {
        let mut extra = ExtraSamples::default();
        assert_eq!(extra.split(4_194_305, 10), (1, 41_943_050));
        assert_eq!(extra.split(4_194_304, 10), (4_194_304, 10));
        assert_eq!(extra.split(2, 10), (1, 20));
    }
}
