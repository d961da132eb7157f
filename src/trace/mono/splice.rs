//! Call chains for a profile's samples, from the calls in a log.

use crate::diagnostics::{Diagnostic, Issue};
use crate::range_map::RangeMap;
use crate::runtime::RuntimeTime;
use crate::runtime::mono::event::CodeBufferKind;
use crate::runtime::mono::{Index, Log, Method};
use crate::tally::Tally;
use crate::trace::call_stack_replay::{CallRecord, CallStackReplay, SampleKey};
use crate::trace::chain::Chain;
use crate::trace::mono::logs::{Logs, ReadLog};
use crate::trace::mono::prepare::Prepared;
use crate::trace::mono::replay::{Replay, step};
use crate::trace::options::MonoEvent;
use crate::trace::splice::StackSource;
use crate::units::{Address, Pid};

/// Returns a stack source for each log that has calls, and adds a diagnostic for each log without. The logs must be prepared.
pub fn stack_sources<'l>(logs: &'l mut Logs<'_>) -> Vec<Box<dyn StackSource + 'l>> {
    let Logs { all, diagnostics, .. } = logs;
    let mut sources: Vec<Box<dyn StackSource>> = Vec::new();
    for log in all {
        let name = log.name();
        match LogStacks::of(log) {
            Some(source) => sources.push(Box::new(source)),
            None => diagnostics.push(Diagnostic::new(Issue::MonoNoCalls).in_file_called(name)),
        }
    }
    sources
}

/// Stacks of samples, replayed from a log's calls.
struct LogStacks<'l, 'a> {
    name: String,
    pid: Pid,
    log: &'l Log<'a>,
    index: &'l Index<'a>,
    prepared: &'l mut Prepared<'a>,
    losses: &'l mut Tally<Issue>,
    /// Replayed stacks, each with the log's time of the last call or return.
    replay_state: CallStackReplay<Method, RuntimeTime>,
    code: RangeMap<Code>,
}

/// Kind of the log's code at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Code {
    /// Code of a method, as an index into the log's functions.
    Method(u32),
    Helper,
}

impl<'l, 'a> LogStacks<'l, 'a> {
    /// Returns `None` if the log has no calls or was not prepared.
    fn of(log: &'l mut ReadLog<'a>) -> Option<Self> {
        let (name, pid) = (log.name(), log.pid);
        let prepared = log.prepared.as_mut()?;
        if !prepared.events.contains(&MonoEvent::Calls) {
            return None;
        }
        let mut code = RangeMap::default();
        for (number, function) in (0u32..).zip(log.index.code.functions()) {
            let what = match function.kind {
                CodeBufferKind::Method => Code::Method(number),
                _ => Code::Helper,
            };
            code.insert(function.range, what, |_, _| {});
        }
        Some(Self {
            name,
            pid,
            log: &log.log,
            index: &log.index,
            prepared,
            losses: &mut log.losses,
            replay_state: CallStackReplay::default(),
            code,
        })
    }

    /// Returns whether `leaf` is in the code of `method`.
    fn is_at(&self, method: Method, leaf: Address) -> bool {
        let Some(Code::Method(function)) = self.code.get(leaf) else {
            return false;
        };
        let function = self.index.code.function(function);
        function.is_some_and(|function| function.methods.iter().any(|&(own, _)| own == method))
    }
}

impl StackSource for LogStacks<'_, '_> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn pid(&self) -> Pid {
        self.pid
    }

    fn covers(&self, leaf: Address) -> bool {
        self.code.get(leaf).is_some()
    }

    fn find(&mut self, sample_keys: &[SampleKey]) -> usize {
        self.replay_state
            .start(sample_keys, self.prepared.threads.known());
        for event in Replay::of(self.log) {
            if let Some(step) = step(&event.kind) {
                let call = CallRecord {
                    tid: self.prepared.threads.of(&event).tid,
                    time: self.prepared.alignment.time(event.time),
                    step,
                    offset: event.offset,
                    mark: event.time,
                };
                self.replay_state.apply(sample_keys, &call, self.losses);
            }
        }
        self.replay_state.known()
    }

    fn write_chain(&mut self, sample: usize, leaf: Address, chain: &mut Chain) -> bool {
        let Some((stack, time)) = self.replay_state.at(sample) else {
            return false;
        };
        let innermost = self.replay_state.functions(stack).next();
        // In a prologue or epilogue, the sampled method's call is not logged yet or not any more: all logged calls are
        // callers.
        let is_in_call = innermost.is_some_and(|method| self.is_at(method, leaf));
        let callers = self.replay_state.functions(stack).skip(usize::from(is_in_call));
        let frame_addresses = &mut self.prepared.frame_addresses;
        if !frame_addresses.add_to(chain, self.index, callers, time) {
            self.losses.add(Issue::ChainTooLong, 0);
        }
        true
    }
}
