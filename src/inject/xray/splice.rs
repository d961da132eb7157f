//! The stacks of a profile's samples, from the calls that traces tell of.

use crate::inject::events::{CallRecord, CallStackReplay, Chain, Loss, SampleKey, StackSource};
use crate::inject::xray::binary::{Base, Binary};
use crate::inject::xray::frame_addresses::FrameAddresses;
use crate::inject::xray::replay::{Timed, replay, step};
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
                followed: CallStackReplay::default(),
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
    places: &'l mut FrameAddresses<'a>,
    followed: CallStackReplay<u32, ()>,
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

    fn find(&mut self, sample_keys: &[SampleKey]) -> usize {
        let threads = self.traces.iter().flat_map(|trace| &trace.threads);
        let tids: Vec<Option<Tid>> = threads.map(|traced| Some((*traced)?.thread.tid)).collect();
        self.followed.start(sample_keys, tids.iter().copied().flatten());
        // They are counted when the events are made, or would be.
        let mut losses: Tally<Loss> = Tally::default();
        let mut replay = replay(self.traces, 0, |thread| thread.pid == self.pid);
        while let Some(thread) = replay.next() {
            let tid = tids.get(thread.place).copied().flatten();
            let Some(Timed { time, record }) = thread.advance() else {
                continue;
            };
            if let (Some(tid), Some(step)) = (tid, step(&record.what)) {
                let told = CallRecord {
                    tid,
                    time,
                    step,
                    offset: record.offset,
                    mark: (),
                };
                self.followed.go_on(sample_keys, &told, &mut losses);
            }
        }
        self.followed.known()
    }

    fn put_chain(&mut self, place: usize, leaf: Address, chain: &mut Chain) -> bool {
        let Some((stack, ())) = self.followed.at(place) else {
            return false;
        };
        let sampled = self.binary.function_at(self.base.linked(leaf));
        let sampled = sampled.map(|start| self.base.loaded(start));
        let innermost = self.followed.functions(stack).next();
        let innermost = innermost.map(|function| self.places.address(function));
        // A function that is not instrumented, or has not told yet that it was entered, is in none of the calls.
        let is_in_call = innermost.is_some() && innermost == sampled;
        let callers = self.followed.functions(stack).skip(usize::from(is_in_call));
        // Cut chains are as long as any can be.
        let _is_whole = chain.add(callers.map(|function| self.places.address(function)));
        true
    }
}
