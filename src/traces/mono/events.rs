//! Events of a log, replayed for the samples made from them, and for the call chains of a profile's own samples.

use std::io;

use jitdump::{Address, RuntimeTime, Tally, Time};

use crate::code::clock::Alignment;
use crate::collections::hash::HashMap;
use crate::collections::range_map::RangeMap;
use crate::perf::synthetic::SyntheticThread;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::conversion::chain::CallChain;
use crate::traces::conversion::event_selection::ProfileEvent;
use crate::traces::conversion::source::{EventContext, EventSample, ReplaySource, TracedThread};
use crate::traces::conversion::synthesis::Comm;
use crate::traces::conversion::synthesize::Out;
use crate::traces::mono::format::event::{
    CollectionPhase, LogEventKind, ManagedObject, MonitorEvent, TypeReference,
};
use crate::traces::mono::format::list::MethodFrames;
use crate::traces::mono::format::{Log, LogIndex, Method};
use crate::traces::mono::frame_addresses::FrameAddresses;
use crate::traces::mono::heap_shots::HeapShots;
use crate::traces::mono::logs::{Logs, ReadLog};
use crate::traces::mono::prepare::Prepared;
use crate::traces::mono::threads::Threads;
use crate::traces::mono::walk::{ThreadWalk, walks};
use crate::traces::options::MonoEvent;
use crate::units::Pid;

/// Returns a source for each log that was prepared.
///
/// `has_all_heap_shots` is whether objects of all heap shots become samples, and not only those of the last one.
pub fn sources<'l, 'a>(
    logs: &'l mut Logs<'a>,
    has_all_heap_shots: bool,
) -> impl Iterator<Item = LogSource<'l, 'a>> {
    let logs = logs.all.iter_mut().filter_map(LogSource::new);
    logs.map(move |log| LogSource {
        has_all_heap_shots,
        ..log
    })
}

/// Returns a source for each log that has calls, and adds a diagnostic for each log without. The logs must be prepared.
pub fn call_sources<'l, 'a>(logs: &'l mut Logs<'a>) -> impl Iterator<Item = LogSource<'l, 'a>> {
    let Logs { all, diagnostics, .. } = logs;
    all.iter_mut().filter_map(|log| {
        let prepared = log.prepared.as_ref();
        if !prepared.is_some_and(|prepared| prepared.events.contains(&MonoEvent::Calls)) {
            diagnostics.push(Diagnostic::new(Issue::MonoNoCalls).in_file_called(log.name()));
            return None;
        }
        LogSource::new(log)
    })
}

/// A thread that waits for a lock.
#[derive(Debug)]
struct LockWait<'a> {
    since: RuntimeTime,
    lock: ManagedObject,
    frames: MethodFrames<'a>,
}

/// A log to replay.
#[derive(Debug)]
pub struct LogSource<'l, 'a> {
    name: String,
    pid: Pid,
    log: &'l Log<'a>,
    index: &'l LogIndex<'a>,
    threads: &'l Threads<'a>,
    alignment: Alignment,
    frame_addresses: &'l mut FrameAddresses,
    faults: &'l mut Tally<Issue>,
    /// What each thread waits for.
    waiting: HashMap<usize, LockWait<'a>>,
    /// Start time of each collection in progress, by generation.
    collecting: HashMap<u64, RuntimeTime>,
    /// Time at which the runtime stopped the world for a collection.
    stopped: Option<RuntimeTime>,
    /// The heap shots.
    heap_shots: &'l HeapShots,
    is_process_known: bool,
    has_all_heap_shots: bool,
    /// Start of the heap shot that each thread is writing.
    heap_shot: HashMap<usize, RuntimeTime>,
    /// Index of the function at each address of the log's code.
    code: RangeMap<u32>,
}

impl<'l, 'a> LogSource<'l, 'a> {
    /// Returns `None` if the log was not prepared. Clears the faults of its conversion, which an earlier replay may have
    /// counted.
    pub fn new(log: &'l mut ReadLog<'a>) -> Option<Self> {
        let name = log.name();
        let Prepared {
            threads,
            alignment,
            frame_addresses,
            heap_shots,
            is_process_known,
            ..
        } = log.prepared.as_mut()?;
        log.conversion_faults = Tally::default();
        for buffer in log.log.out_of_order_buffers() {
            log.conversion_faults.add(Issue::MonoBufferOrder, buffer.offset);
        }
        let mut code = RangeMap::default();
        for (number, function) in (0u32..).zip(&log.index.code.functions) {
            code.insert(function.range, number);
        }
        Some(Self {
            name,
            pid: log.pid,
            log: &log.log,
            index: &log.index,
            threads,
            alignment: *alignment,
            frame_addresses,
            faults: &mut log.conversion_faults,
            waiting: HashMap::default(),
            collecting: HashMap::default(),
            stopped: None,
            heap_shots,
            is_process_known: *is_process_known,
            has_all_heap_shots: false,
            heap_shot: HashMap::default(),
            code,
        })
    }

    /// Returns the address of the synthetic symbol for a type, whose name gets a prefix.
    fn type_address(&mut self, before: &[u8], class: TypeReference, time: RuntimeTime) -> Address {
        let name = match self.index.names.class(class, time) {
            Some(name) if before.is_empty() => [b"[", name, b"]"].concat(),
            Some(name) => [before, name].concat(),
            None => [before, b"[unknown type]"].concat(),
        };
        self.frame_addresses.synthetic_symbols.address(&name)
    }

    /// Returns a sample of a stack, which is appended to `chain`.
    ///
    /// If Mono logs calls, it writes no stacks with its other events: the calls give the stack as well.
    fn in_stack(
        &mut self,
        context: &EventContext,
        event: ProfileEvent,
        period: u64,
        frames: MethodFrames<'_>,
        chain: &mut CallChain,
    ) -> EventSample {
        self.add_callers(chain, self.pid, frames.iter(), context);
        EventSample {
            event,
            period,
            is_in_calls: frames.is_empty(),
        }
    }

    /// Pairs the begin and the end of a thread's wait for a lock. Returns a sample at the end. The lock is a frame, and `[failed]`
    /// is one inside it.
    fn monitor(
        &mut self,
        context: &EventContext,
        (event, object): (MonitorEvent, ManagedObject),
        frames: MethodFrames<'a>,
        chain: &mut CallChain,
    ) -> Option<EventSample> {
        let wait = LockWait {
            since: context.time,
            lock: object,
            frames,
        };
        let before = match event {
            MonitorEvent::Contention => self.waiting.insert(context.thread, wait),
            MonitorEvent::Done | MonitorEvent::Fail => self.waiting.remove(&context.thread),
            MonitorEvent::Other(_) => return None,
        };
        let is_begin = event == MonitorEvent::Contention;
        if before.is_some() == is_begin {
            self.faults.add(Issue::IntervalUnpaired, context.offset);
        }
        let ended = before.filter(|_| !is_begin)?;
        let symbols = &mut self.frame_addresses.synthetic_symbols;
        let failed = (event == MonitorEvent::Fail).then(|| symbols.address(b"[failed]"));
        let lock = symbols.address(format!("[lock {:#x}]", ended.lock.0).as_bytes());
        chain.restart(None);
        // There is room for two frames.
        let _ = chain.add(failed.into_iter().chain([lock]));
        let waited = context.time.0.saturating_sub(ended.since.0);
        Some(self.in_stack(context, ProfileEvent::MonoContention, waited, ended.frames, chain))
    }

    /// Returns a sample of an object in a heap shot: with its type, and with its shot if there are several.
    fn heap_object(
        &mut self,
        context: &EventContext,
        size: u64,
        class: TypeReference,
        chain: &mut CallChain,
    ) -> Option<EventSample> {
        let start = self.heap_shot.get(&context.thread).copied().unwrap_or_default();
        let (number, count) = (self.heap_shots.number(start), self.heap_shots.count());
        if number < count && !self.has_all_heap_shots {
            return None;
        }
        chain.restart(Some(self.type_address(b"", class, context.time)));
        if count > 1 {
            let name = format!("[heap shot {number}]");
            let address = self.frame_addresses.synthetic_symbols.address(name.as_bytes());
            // There is room for two frames.
            let _ = chain.add(std::iter::once(address));
        }
        Some(EventSample {
            event: ProfileEvent::MonoHeap,
            period: size,
            is_in_calls: false,
        })
    }

    /// Pairs the start and the end of a collection, or of the pause that it causes. Returns a sample at the end.
    fn collection(
        &mut self,
        context: &EventContext,
        phase: CollectionPhase,
        generation: u64,
        chain: &mut CallChain,
    ) -> Option<EventSample> {
        let (event, since) = match phase {
            CollectionPhase::Start => {
                self.collecting.insert(generation, context.time);
                return None;
            }
            CollectionPhase::PostStopWorld => {
                self.stopped = Some(context.time);
                return None;
            }
            CollectionPhase::End => (ProfileEvent::MonoCollection, self.collecting.remove(&generation)),
            CollectionPhase::PostStartWorld => (ProfileEvent::MonoPause, self.stopped.take()),
            _ => return None,
        };
        let Some(since) = since else {
            self.faults.add(Issue::IntervalUnpaired, context.offset);
            return None;
        };
        let leaf = match event {
            ProfileEvent::MonoPause => "[gc pause]".into(),
            _ => format!("[gc gen {generation}]"),
        };
        chain.restart(Some(
            self.frame_addresses.synthetic_symbols.address(leaf.as_bytes()),
        ));
        Some(EventSample {
            event,
            period: context.time.0.saturating_sub(since.0),
            is_in_calls: false,
        })
    }
}

impl<'l, 'a> ReplaySource for LogSource<'l, 'a> {
    const SELF_TIME: ProfileEvent = ProfileEvent::MonoSelfTime;
    const CALL: ProfileEvent = ProfileEvent::MonoCall;
    const CALL_TIME: Option<ProfileEvent> = None;

    type Function = Method;
    type Other = LogEventKind<'a>;
    type Events = ThreadWalk<'l, 'a>;

    fn threads(&self) -> Vec<Option<TracedThread<'_>>> {
        self.threads.all.iter().copied().map(Some).collect()
    }

    fn alignment(&self) -> Alignment {
        self.alignment
    }

    fn events(&self) -> impl Iterator<Item = ThreadWalk<'l, 'a>> {
        walks(self.log, self.threads)
    }

    fn add_frames(
        &mut self,
        chain: &mut CallChain,
        _pid: Pid,
        functions: impl Iterator<Item = Method>,
        time: RuntimeTime,
    ) -> bool {
        chain.add(functions.map(|method| self.frame_addresses.method(self.index, method, time)))
    }

    fn faults(&mut self, _thread: usize) -> Option<&mut Tally<Issue>> {
        Some(self.faults)
    }

    fn sample(
        &mut self,
        context: &EventContext,
        kind: LogEventKind<'a>,
        chain: &mut CallChain,
        _raw: &mut Vec<u8>,
    ) -> Option<EventSample> {
        match kind {
            LogEventKind::Allocation {
                class, size, frames, ..
            } => {
                chain.restart(Some(self.type_address(b"new ", class, context.time)));
                Some(self.in_stack(context, ProfileEvent::MonoAllocation, size, frames, chain))
            }
            LogEventKind::Throw { frames, .. } => {
                Some(self.in_stack(context, ProfileEvent::MonoException, 1, frames, chain))
            }
            LogEventKind::Monitor {
                event,
                object,
                frames,
            } => self.monitor(context, (event, object), frames, chain),
            LogEventKind::Collection { phase, generation } => {
                self.collection(context, phase, generation, chain)
            }
            LogEventKind::HeapStart => {
                self.heap_shot.insert(context.thread, context.time);
                None
            }
            LogEventKind::HeapObject { size, class, .. } if size > 0 => {
                self.heap_object(context, size, class, chain)
            }
            // The sampled address, then the managed callers, or the return addresses if there are none.
            LogEventKind::SampleHit {
                addresses, frames, ..
            } => {
                let address = addresses.iter().next();
                chain.restart(address);
                let innermost = frames.iter().next();
                let code = innermost.and_then(|method| self.frame_addresses.code(method, context.time));
                let is_inside = code
                    .zip(address)
                    .is_some_and(|(code, address)| code.contains(address));
                let callers = frames.iter().skip(usize::from(is_inside));
                self.add_callers(chain, self.pid, callers, context);
                let returns = addresses.iter().skip(1);
                if frames.is_empty() && !chain.add_return_addresses(returns) {
                    self.faults.add(Issue::ChainTooLong, context.offset);
                }
                Some(EventSample {
                    event: ProfileEvent::MonoSample,
                    period: 1,
                    is_in_calls: false,
                })
            }
            _ => None,
        }
    }

    fn write_processes(&self, out: &mut Out<'_>, start: Time) -> io::Result<()> {
        if self.is_process_known {
            return Ok(());
        }
        out.comm(&Comm {
            thread: SyntheticThread::first_of(self.pid),
            time: start,
            name: b"mono",
            is_exec: true,
        })
    }

    fn finish(self, _threads: impl Iterator<Item = Self::Events>) {
        let unpaired = self.waiting.len().saturating_add(self.collecting.len());
        self.faults.add_many(Issue::IntervalUnpaired, unpaired as u64, 0);
        let is_full = self.frame_addresses.synthetic_symbols.is_full;
        self.faults.add_unplaced(Issue::TooManyNames, is_full.into());
    }

    fn processes(&self) -> Vec<(Pid, String)> {
        vec![(self.pid, self.name.clone())]
    }

    fn covers(&self, _pid: Pid, leaf: Address) -> bool {
        self.code.get(leaf).is_some()
    }

    fn is_inside(&mut self, _pid: Pid, method: Method, leaf: Address) -> bool {
        let function = self
            .code
            .get(leaf)
            .and_then(|function| self.index.code.function(function));
        function.is_some_and(|function| function.methods.iter().any(|&(own, _)| own == method))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::files::InputFile;
    use crate::traces::mono::logs::{OpenLog, read};
    use crate::traces::mono::prepare::prepare;
    use crate::units::Pid;

    #[test]
    fn names_beyond_the_limit_are_reported() {
        // The header of a log of data version 12.
        let mut header = vec![0x01, 0x5a, 0x50, 0x4d, 0, 0, 12, 8];
        header.resize(32, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), header).unwrap();
        let file = Arc::new(InputFile::open(file.path()).unwrap());
        let opened = [OpenLog::of(file).unwrap().of_process(Pid(1))];
        let mut logs = read(&opened, None, Vec::new()).unwrap();
        prepare(None, &[], &mut logs);
        for (room, names, expected) in [(3, 0..3, 0), (0, 3..4_u32, 1)] {
            let source = LogSource::new(&mut logs.all[0]).unwrap();
            let symbols = &mut source.frame_addresses.synthetic_symbols;
            symbols.leave_room_for(room);
            for name in names {
                symbols.address(&name.to_le_bytes());
            }
            source.finish(std::iter::empty());
            assert_eq!(logs.all[0].conversion_faults.count(Issue::TooManyNames), expected);
        }
    }
}
