//! The stacks of a profile's samples, from the calls that a log tells of.

use rustc_hash::FxHashMap;

use crate::code::call_tree::Stack;
use crate::inject::events::{Calls, Chain, Loss, Moment, StackSource};
use crate::inject::mono::asked::MonoEvent;
use crate::inject::mono::prepare::Prepared;
use crate::inject::mono::replay::{Replay, step};
use crate::inject::mono::{Logs, ReadLog};
use crate::range_map::RangeMap;
use crate::runtime::RuntimeTime;
use crate::runtime::mono::event::CodeBufferKind;
use crate::runtime::mono::{Index, Log, Method};
use crate::tally::Tally;
use crate::units::{Address, Pid, Tid};

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
    calls: Calls<Method>,
    code: RangeMap<Code>,
    /// In the order of the file: the stack, and when the log told of it; `None` where it tells nothing.
    found: Vec<Option<(Stack, RuntimeTime)>>,
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
            calls: Calls::default(),
            code,
            found: Vec::new(),
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

    fn find(&mut self, moments: &[Moment]) -> usize {
        /// What a thread is in, and the first of its moments that are left.
        #[derive(Clone, Copy)]
        struct Doing {
            stack: Stack,
            since: RuntimeTime,
            next: usize,
        }
        let known = self.prepared.threads.known().map(|tid| {
            let doing = Doing {
                stack: Stack::EMPTY,
                since: RuntimeTime::default(),
                next: moments.partition_point(|moment| moment.tid < tid),
            };
            (tid, doing)
        });
        let mut threads: FxHashMap<Tid, Doing> = known.collect();
        self.found = vec![None; moments.len()];
        for event in Replay::of(self.log) {
            let Some(step) = step(&event.kind) else { continue };
            let tid = self.prepared.threads.of(&event).tid;
            let Some(doing) = threads.get_mut(&tid) else {
                continue;
            };
            let time = self.prepared.alignment.time(event.time);
            while let Some(moment) = moments.get(doing.next)
                && moment.tid == tid
                && moment.time < time
            {
                if let Some(found) = self.found.get_mut(moment.place) {
                    *found = (doing.stack != Stack::EMPTY).then_some((doing.stack, doing.since));
                }
                doing.next = doing.next.saturating_add(1);
            }
            doing.stack = self.calls.follow(doing.stack, step, event.offset, self.losses);
            doing.since = event.time;
        }
        self.found.iter().flatten().count()
    }

    fn put_chain(&mut self, place: usize, leaf: Address, chain: &mut Chain) -> bool {
        let Some((stack, time)) = self.found.get(place).copied().flatten() else {
            return false;
        };
        let innermost = self.calls.functions(stack).next();
        // A sample that was taken before a method has told that it was entered, or after, is in none of the calls.
        let is_in_call = innermost.is_some_and(|method| self.is_at(method, leaf));
        let callers = self.calls.functions(stack).skip(usize::from(is_in_call));
        let places = &mut self.prepared.places;
        if !places.add_to(chain, self.index, callers, time) {
            self.losses.add(Loss::Frames, 0);
        }
        true
    }
}
