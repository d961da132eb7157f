//! The stacks of a profile's samples, from the calls that a log tells of.

use crate::inject::events::{CallRecord, CallStackReplay, Chain, Loss, SampleKey, StackSource};
use crate::inject::mono::event_selection::MonoEvent;
use crate::inject::mono::prepare::Prepared;
use crate::inject::mono::replay::{Replay, step};
use crate::inject::mono::{Logs, ReadLog};
use crate::range_map::RangeMap;
use crate::runtime::RuntimeTime;
use crate::runtime::mono::event::CodeBufferKind;
use crate::runtime::mono::{Index, Log, Method};
use crate::tally::Tally;
use crate::units::{Address, Pid};

/// The sources of the logs that tell of calls; notes those that don't. The logs must be prepared.
pub fn stack_sources<'l>(logs: &'l mut Logs<'_>) -> Vec<Box<dyn StackSource + 'l>> {
    let Logs { all, notes, .. } = logs;
    let mut sources: Vec<Box<dyn StackSource>> = Vec::new();
    for log in all {
        let name = log.name();
        match LogStacks::of(log) {
            Some(source) => sources.push(Box::new(source)),
            None => notes.push(format!(
                "{name} tells of no calls, so no call chain was replaced; start Mono with --profile=log:jit,calls"
            )),
        }
    }
    sources
}

/// The stacks of samples.
struct LogStacks<'l, 'a> {
    name: String,
    pid: Pid,
    log: &'l Log<'a>,
    index: &'l Index<'a>,
    prepared: &'l mut Prepared<'a>,
    losses: &'l mut Tally<Loss>,
    /// Stacks, and when the log told of them.
    followed: CallStackReplay<Method, RuntimeTime>,
    code: RangeMap<Code>,
}

/// What of a log's code matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Code {
    /// A function of the log that is a method's.
    Method(u32),
    Helper,
}

impl<'l, 'a> LogStacks<'l, 'a> {
    /// `None` if the log tells of no calls.
    fn of(log: &'l mut ReadLog<'a>) -> Option<Self> {
        let (name, pid) = (log.name(), log.pid());
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
            followed: CallStackReplay::default(),
            code,
        })
    }

    /// Whether a method is the one whose code holds an address.
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
        self.followed.start(sample_keys, self.prepared.threads.known());
        for event in Replay::of(self.log) {
            if let Some(step) = step(&event.kind) {
                let told = CallRecord {
                    tid: self.prepared.threads.of(&event).tid,
                    time: self.prepared.alignment.time(event.time),
                    step,
                    offset: event.offset,
                    mark: event.time,
                };
                self.followed.go_on(sample_keys, &told, self.losses);
            }
        }
        self.followed.known()
    }

    fn put_chain(&mut self, place: usize, leaf: Address, chain: &mut Chain) -> bool {
        let Some((stack, time)) = self.followed.at(place) else {
            return false;
        };
        let innermost = self.followed.functions(stack).next();
        // A sample that was taken before a method has told that it was entered, or after, is in none of the calls.
        let is_in_call = innermost.is_some_and(|method| self.is_at(method, leaf));
        let callers = self.followed.functions(stack).skip(usize::from(is_in_call));
        let places = &mut self.prepared.places;
        if !places.add_to(chain, self.index, callers, time) {
            self.losses.add(Loss::Frames, 0);
        }
        true
    }
}
