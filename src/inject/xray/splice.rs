//! The stacks of a profile's samples, from the calls that traces tell of.

use rustc_hash::FxHashMap;

use crate::code::call_tree::Stack;
use crate::inject::events::{Calls, Chain, Loss, Moment, StackSource};
use crate::inject::xray::binary::{Base, Binary};
use crate::inject::xray::places::Places;
use crate::inject::xray::replay::{replay, step};
use crate::inject::xray::{ReadTrace, Traces};
use crate::tally::Tally;
use crate::units::{Address, Pid, Tid};

/// How many processes get call chains. All traces are walked for each of them.
const MAX_PROCESSES: usize = 100;

/// The sources of all processes whose binary is known.
pub fn stack_sources<'l>(traces: &'l mut Traces<'_>) -> Vec<Box<dyn StackSource + 'l>> {
    let Some(binary) = traces.binary else {
        if !traces.all.is_empty() {
            let what = "call chains need --xray-binary, so that none is replaced by the calls of traces";
            traces.notes.push(what.into());
        }
        return Vec::new();
    };
    let left_out = traces.processes.len().saturating_sub(MAX_PROCESSES);
    if left_out > 0 {
        traces.notes.push(format!(
            "the call chains of {left_out} traced processes are left as they are: no more than {MAX_PROCESSES} are looked after"
        ));
    }
    let all = &*traces.all;
    let mut sources: Vec<Box<dyn StackSource>> = Vec::new();
    for (&pid, process) in traces.processes.iter_mut().take(MAX_PROCESSES) {
        if let Some(base) = process.base {
            sources.push(Box::new(TraceStacks {
                pid,
                traces: all,
                binary,
                base,
                places: &mut process.places,
                calls: Calls::default(),
                found: Vec::new(),
            }));
        }
    }
    sources
}

/// The stacks of samples of a process.
struct TraceStacks<'l, 'a> {
    pid: Pid,
    traces: &'l [ReadTrace<'a>],
    binary: &'l Binary,
    base: Base,
    places: &'l mut Places<'a>,
    calls: Calls<u32>,
    /// In the order of the file; `None` where nothing is told.
    found: Vec<Option<Stack>>,
}

impl StackSource for TraceStacks<'_, '_> {
    fn name(&self) -> String {
        format!("process {}", self.pid)
    }

    fn pid(&self) -> Pid {
        self.pid
    }

    fn covers(&self, leaf: Address) -> bool {
        let linked = self.base.linked(leaf);
        let mut segments = self.binary.code.segments.iter();
        segments.any(|segment| segment.range.contains(linked))
    }

    fn find(&mut self, moments: &[Moment]) -> usize {
        /// What a thread is in, and the first of its moments that are left.
        struct Doing {
            stack: Stack,
            next: usize,
        }
        let mut threads: FxHashMap<Tid, Doing> = FxHashMap::default();
        let mut tids: Vec<Option<Tid>> = Vec::new();
        for traced in self.traces.iter().flat_map(|trace| &trace.threads) {
            let tid = traced.map(|traced| traced.thread.tid);
            tids.push(tid);
            if let Some(tid) = tid {
                threads.entry(tid).or_insert_with(|| Doing {
                    stack: Stack::EMPTY,
                    next: moments.partition_point(|moment| moment.tid < tid),
                });
            }
        }
        self.found = vec![None; moments.len()];
        // They are counted when the events are made, or would be.
        let mut losses: Tally<Loss> = Tally::default();
        let mut replay = replay(self.traces, 0, |thread| thread.pid == self.pid);
        while let Some(thread) = replay.next() {
            let place = thread.place;
            let Some(timed) = thread.advance() else { continue };
            let Some(step) = step(&timed.record.what) else {
                continue;
            };
            let tid = tids.get(place).copied().flatten();
            let Some((tid, doing)) = tid.and_then(|tid| Some((tid, threads.get_mut(&tid)?))) else {
                continue;
            };
            while let Some(moment) = moments.get(doing.next)
                && moment.tid == tid
                && moment.time < timed.time
            {
                if let Some(found) = self.found.get_mut(moment.place) {
                    *found = (doing.stack != Stack::EMPTY).then_some(doing.stack);
                }
                doing.next = doing.next.saturating_add(1);
            }
            doing.stack = self
                .calls
                .follow(doing.stack, step, timed.record.offset, &mut losses);
        }
        self.found.iter().flatten().count()
    }

    fn put_chain(&mut self, place: usize, leaf: Address, chain: &mut Chain) -> bool {
        let Some(stack) = self.found.get(place).copied().flatten() else {
            return false;
        };
        let sampled = self.binary.function_at(self.base.linked(leaf));
        let sampled = sampled.map(|start| self.base.loaded(start));
        let innermost = self.calls.functions(stack).next();
        let innermost = innermost.map(|function| self.places.address(function));
        // A function that is not instrumented, or has not told yet that it was entered, is in none of the calls.
        let is_in_call = innermost.is_some() && innermost == sampled;
        let callers = self.calls.functions(stack).skip(usize::from(is_in_call));
        // Cut chains are as long as any can be.
        let _is_whole = chain.add(callers.map(|function| self.places.address(function)));
        true
    }
}
