//! Call chains for a profile's samples, from the calls in traces.

use crate::diagnostics::{Diagnostic, Issue};
use crate::tally::Tally;
use crate::trace::call_stack_replay::{CallRecord, CallStackReplay, SampleKey};
use crate::trace::chain::Chain;
use crate::trace::splice::StackSource;
use crate::trace::xray::binary::{Binary, LoadBias};
use crate::trace::xray::frame_addresses::FrameAddresses;
use crate::trace::xray::replay::{Timed, replay, step};
use crate::trace::xray::traces::{ReadTrace, Traces};
use crate::units::{Address, Pid, Tid};

/// Maximum number of processes that get call chains. All traces are replayed for each of them.
const MAX_PROCESSES: usize = 100;

/// Returns a stack source for each process with a known load bias of the binary, and diagnostics for the others.
pub fn stack_sources<'l>(traces: &'l mut Traces<'_>) -> Vec<Box<dyn StackSource + 'l>> {
    let Some(binary) = traces.binary else {
        if !traces.all.is_empty() {
            traces
                .diagnostics
                .push(Diagnostic::new(Issue::XrayChainsNeedBinary));
        }
        return Vec::new();
    };
    let left_out = traces.processes.len().saturating_sub(MAX_PROCESSES);
    if left_out > 0 {
        let limited = Diagnostic::new(Issue::XrayChainsLimited).times(left_out as u64);
        traces.diagnostics.push(limited.with("limit", MAX_PROCESSES));
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
                frame_addresses: &mut process.frame_addresses,
                replay_state: CallStackReplay::default(),
            }));
        }
    }
    sources
}

/// Stacks of the samples of a process, replayed from its calls.
struct TraceStacks<'l, 'a> {
    pid: Pid,
    traces: &'l [ReadTrace<'a>],
    binary: &'l Binary,
    base: LoadBias,
    frame_addresses: &'l mut FrameAddresses<'a>,
    replay_state: CallStackReplay<u32, ()>,
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
        self.replay_state
            .start(sample_keys, tids.iter().copied().flatten());
        // Losses are counted when the records are converted or counted.
        let mut losses: Tally<Issue> = Tally::default();
        let mut replay = replay(self.traces, 0, |thread| thread.pid == self.pid);
        while let Some(thread) = replay.next() {
            let tid = tids.get(thread.index).copied().flatten();
            let Some(Timed { time, record }) = thread.advance() else {
                continue;
            };
            if let (Some(tid), Some(step)) = (tid, step(&record.kind)) {
                let call = CallRecord {
                    tid,
                    time,
                    step,
                    offset: record.offset,
                    mark: (),
                };
                self.replay_state.apply(sample_keys, &call, &mut losses);
            }
        }
        self.replay_state.known()
    }

    fn write_chain(&mut self, sample: usize, leaf: Address, chain: &mut Chain) -> bool {
        let Some((stack, ())) = self.replay_state.at(sample) else {
            return false;
        };
        let sampled = self.binary.function_at(self.base.linked(leaf));
        let sampled = sampled.map(|start| self.base.loaded(start));
        let innermost = self.replay_state.functions(stack).next();
        let innermost = innermost.map(|function| self.frame_addresses.address(function));
        // The sampled function is not among the logged calls if it is not instrumented or has not logged its entry yet.
        let is_in_call = innermost.is_some() && innermost == sampled;
        let callers = self.replay_state.functions(stack).skip(usize::from(is_in_call));
        // A chain that is cut has the maximum number of frames, which is enough.
        let _is_whole = chain.add(callers.map(|function| self.frame_addresses.address(function)));
        true
    }
}
