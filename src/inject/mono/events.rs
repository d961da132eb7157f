//! Events of a log as events of a profile.

use std::io::{self, Write};
use std::iter::Peekable;

use rustc_hash::FxHashMap;

use crate::code::call_tree::{CallTree, Exit, Stack};
use crate::inject::mono::ReadLog;
use crate::inject::mono::places::Places;
use crate::inject::mono::prepare::Prepared;
use crate::inject::mono::replay::Replay;
use crate::inject::mono::threads::Number;
use crate::perf::synthesis::{Comm, Definition, Measure, Sample, Synthesis, Task, Thread};
use crate::runtime::RuntimeTime;
use crate::runtime::mono::event::{CollectionPhase, Kind, MonitorEvent, TypeReference};
use crate::runtime::mono::list::Frames;
use crate::runtime::mono::{Event, Index, Method, ThreadId};
use crate::tally::Tally;
use crate::units::{Address, Pid, Tid, Time};

/// What becomes an event of the profile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MonoEvent {
    /// Objects that were allocated.
    Allocations,
    /// Exceptions that were thrown.
    Exceptions,
    /// Waiting for locks.
    Contention,
    /// Garbage collections.
    Collections,
    /// Objects in shots of the heap.
    Heap,
    /// The profiler's own samples.
    Samples,
    /// Calls, and the time between them.
    Calls,
}

impl MonoEvent {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Allocations,
        Self::Exceptions,
        Self::Contention,
        Self::Collections,
        Self::Heap,
        Self::Samples,
        Self::Calls,
    ];

    /// What an event of a log becomes.
    pub fn of(kind: &Kind<'_>) -> Option<Self> {
        match kind {
            Kind::Allocation { .. } => Some(Self::Allocations),
            Kind::Throw { .. } => Some(Self::Exceptions),
            Kind::Monitor { .. } => Some(Self::Contention),
            Kind::Collection { .. } => Some(Self::Collections),
            Kind::HeapObject { .. } => Some(Self::Heap),
            Kind::SampleHit { .. } => Some(Self::Samples),
            Kind::Enter(_) | Kind::Leave(_) | Kind::ExceptionLeave(_) => Some(Self::Calls),
            _ => None,
        }
    }

    /// The option of Mono's profiler that makes it write them.
    pub fn profiler_option(self) -> &'static str {
        match self {
            Self::Contention => "monitor",
            Self::Heap => "heapshot",
            _ => self.name(),
        }
    }

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocations => "alloc",
            Self::Exceptions => "exception",
            Self::Contention => "contention",
            Self::Collections => "gc",
            Self::Heap => "heap",
            Self::Samples => "sample",
            Self::Calls => "calls",
        }
    }
}

/// The events of the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Made {
    Allocation,
    Exception,
    Contention,
    Collection,
    Pause,
    Heap,
    Sample,
    SelfTime,
    Call,
}

/// The events of the profile, with what each is made for.
const MADE: [(MonoEvent, Made, Definition<'static>); 9] = [
    made(
        MonoEvent::Allocations,
        Made::Allocation,
        b"mono/alloc-bytes/",
        Measure::Count,
    ),
    made(
        MonoEvent::Exceptions,
        Made::Exception,
        b"mono/exception/",
        Measure::Count,
    ),
    made(
        MonoEvent::Contention,
        Made::Contention,
        b"mono/contention-ns/",
        Measure::Nanoseconds,
    ),
    made(
        MonoEvent::Collections,
        Made::Collection,
        b"mono/gc-ns/",
        Measure::Nanoseconds,
    ),
    made(
        MonoEvent::Collections,
        Made::Pause,
        b"mono/gc-pause-ns/",
        Measure::Nanoseconds,
    ),
    made(MonoEvent::Heap, Made::Heap, b"mono/heap-bytes/", Measure::Count),
    made(MonoEvent::Samples, Made::Sample, b"mono/sample/", Measure::Count),
    made(
        MonoEvent::Calls,
        Made::SelfTime,
        b"mono/self-ns/",
        Measure::Nanoseconds,
    ),
    made(MonoEvent::Calls, Made::Call, b"mono/calls/", Measure::Count),
];

const fn made(
    asked: MonoEvent,
    made: Made,
    name: &'static [u8],
    measure: Measure,
) -> (MonoEvent, Made, Definition<'static>) {
    (asked, made, Definition { name, measure })
}

/// How many frames a stack has at most: as many as the kernel takes by default (`kernel.perf_event_max_stack`). Without
/// a limit, a small file could ask for stacks of any size, again and again.
pub const MAX_FRAMES: usize = 127;

/// What could not be told of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Loss {
    /// Stacks that were cut.
    Frames,
    /// Methods were left, and no event had told so.
    LostLeave,
    /// Methods were left that the thread was not in.
    UnmatchedLeave,
    /// More types and methods without code than there are addresses for.
    Names,
    /// Calls in too many different stacks.
    Stacks,
    /// Waiting, or a collection, whose end or beginning is missing.
    Unpaired,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Frames => "stacks of more than 127 frames, cut at the outer end",
            Self::LostLeave => "calls whose end is not in the log, ended with the call around them",
            Self::UnmatchedLeave => "ends of calls whose beginning is not in the log, passed over",
            Self::Names => "more than 4 million types and methods without code, the rest of which have the name of the last one",
            Self::Stacks => "calls in more than 4 million different stacks, taken for the calls around them",
            Self::Unpaired => "waits and collections of which one end is not in the log, left out",
        })
    }
}

/// Which events of the profile those that were asked for are, in their order among the profile's own.
#[derive(Clone, Debug)]
pub struct Asked(Vec<(Made, Definition<'static>)>);

impl Asked {
    /// Those of `kinds`.
    pub fn new(kinds: &[MonoEvent]) -> Self {
        let made = MADE.iter().filter(|(asked, ..)| kinds.contains(asked));
        Self(made.map(|&(_, made, definition)| (made, definition)).collect())
    }

    /// What they are called.
    pub fn definitions(&self) -> Vec<Definition<'static>> {
        self.0.iter().map(|&(_, definition)| definition).collect()
    }

    fn place(&self, made: Made) -> Option<usize> {
        self.0.iter().position(|&(other, _)| other == made)
    }
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, Default)]
struct Doing<'a> {
    stack: Stack,
    /// Since when nothing has been told of its calls.
    since: RuntimeTime,
    /// Since when it waits for a lock, and where.
    waiting: Option<(RuntimeTime, Frames<'a>)>,
}

/// Turns the events of a log into samples.
#[derive(Debug)]
pub struct Maker<'l, 'a> {
    pid: Pid,
    index: &'l Index<'a>,
    replay: Peekable<Replay<'a>>,
    prepared: &'l Prepared<'a>,
    places: &'l mut Places,
    losses: &'l mut Tally<Loss>,
    asked: &'l Asked,
    calls: CallTree<Method>,
    doing: FxHashMap<(ThreadId, Tid), Doing<'a>>,
    /// Collections that have started, by generation.
    collecting: FxHashMap<u64, RuntimeTime>,
    /// Since when the world stands.
    stopped: Option<RuntimeTime>,
    chain: Vec<Address>,
}

impl<'l, 'a> Maker<'l, 'a> {
    /// For a log, which must be prepared.
    pub fn new(log: &'l mut ReadLog<'a>, asked: &'l Asked) -> Option<Self> {
        Some(Self {
            pid: log.pid(),
            index: &log.index,
            replay: Replay::of(&log.log).peekable(),
            prepared: log.prepared.as_ref()?,
            places: log.places.as_mut()?,
            losses: &mut log.losses,
            asked,
            calls: CallTree::default(),
            doing: FxHashMap::default(),
            collecting: FxHashMap::default(),
            stopped: None,
            chain: Vec::new(),
        })
    }

    /// When the next event is, on the profile's clock; `None` if there are no more.
    pub fn next_time(&mut self) -> Option<Time> {
        let event = self.replay.peek()?;
        Some(self.prepared.alignment.time(event.time))
    }

    /// Adds what the next event becomes.
    pub fn write_next<W: Write>(&mut self, out: &mut Synthesis<'_, W>) -> io::Result<()> {
        match self.replay.next() {
            Some(event) => self.write_event(&event, out),
            None => Ok(()),
        }
    }

    /// To be called when there are no more events: notes what has not come to an end.
    pub fn finish(self) {
        let waiting = self.doing.values().filter(|doing| doing.waiting.is_some());
        let unpaired = (waiting.count() as u64).saturating_add(self.collecting.len() as u64);
        self.losses.add_many(Loss::Unpaired, unpaired, 0);
        self.losses.add_many(Loss::Names, self.places.is_full().into(), 0);
    }

    /// Adds the threads that the profile does not know, as of `time`; if it `is_alone`, that is all of them.
    pub fn write_threads<W: Write>(
        &self,
        out: &mut Synthesis<'_, W>,
        time: Time,
        is_alone: bool,
    ) -> io::Result<()> {
        let pid = self.pid;
        let first = Thread::first_of(pid);
        if is_alone {
            out.comm(&Comm {
                thread: first,
                time,
                name: b"mono",
                is_exec: true,
            })?;
        }
        for (life, number) in self.prepared.threads.iter() {
            if matches!(number, Number::Known(_)) {
                continue;
            }
            let thread = Thread {
                pid,
                tid: number.tid(),
            };
            out.fork(&Task {
                thread,
                parent: first,
                time,
            })?;
            if let Some((_, name)) = life.name {
                out.comm(&Comm {
                    thread,
                    time,
                    name,
                    is_exec: false,
                })?;
            }
        }
        Ok(())
    }

    fn write_event<W: Write>(&mut self, event: &Event<'a>, out: &mut Synthesis<'_, W>) -> io::Result<()> {
        match event.kind {
            Kind::Allocation {
                class, size, frames, ..
            } => {
                let leaf = self.type_name(b"new ", class, event.time);
                self.put(event, Made::Allocation, size, Some(&leaf), frames, out)
            }
            Kind::Throw { frames, .. } => self.put(event, Made::Exception, 1, None, frames, out),
            Kind::Monitor {
                event: what, frames, ..
            } => self.monitor(event, what, frames, out),
            Kind::Collection { phase, generation } => self.collection(event, phase, generation, out),
            Kind::HeapObject { size, class, .. } if size > 0 => {
                let leaf = self.type_name(b"", class, event.time);
                self.put(event, Made::Heap, size, Some(&leaf), Frames::default(), out)
            }
            Kind::SampleHit {
                addresses, frames, ..
            } => self.hit(event, addresses.iter().next(), frames, out),
            Kind::Enter(_) | Kind::Leave(_) | Kind::ExceptionLeave(_) => self.call(event, out),
            _ => Ok(()),
        }
    }

    /// What a type is called, with something before it.
    fn type_name(&self, before: &[u8], class: TypeReference, time: RuntimeTime) -> Vec<u8> {
        let name = self.index.names.class(class, time);
        match name {
            Some(name) if before.is_empty() => [b"[", name, b"]"].concat(),
            Some(name) => [before, name].concat(),
            None => [before, b"[unknown type]"].concat(),
        }
    }

    /// Adds a sample of a stack, with a frame of its own innermost if there is one.
    fn put<W: Write>(
        &mut self,
        event: &Event<'a>,
        made: Made,
        period: u64,
        leaf: Option<&[u8]>,
        frames: Frames<'_>,
        out: &mut Synthesis<'_, W>,
    ) -> io::Result<()> {
        let Some(number) = self.asked.place(made) else {
            return Ok(());
        };
        self.chain.clear();
        if let Some(leaf) = leaf {
            self.chain.push(self.places.named(leaf));
        }
        self.push_methods(event, frames.iter().take(MAX_FRAMES));
        if frames.len() > MAX_FRAMES {
            self.losses.add(Loss::Frames, event.offset);
        }
        self.put_chain(event, number, period, out)
    }

    fn push_methods(&mut self, event: &Event<'a>, methods: impl Iterator<Item = Method>) {
        for method in methods {
            let start = self.places.method(self.index, method, event.time);
            // A caller is looked for one byte before the address that it goes on at.
            let into = u64::from(!self.chain.is_empty());
            self.chain.push(Address(start.0.saturating_add(into)));
        }
    }

    fn put_chain<W: Write>(
        &mut self,
        event: &Event<'a>,
        number: usize,
        period: u64,
        out: &mut Synthesis<'_, W>,
    ) -> io::Result<()> {
        out.sample(&Sample {
            event: number,
            thread: self.prepared.threads.of(event),
            time: self.prepared.alignment.time(event.time),
            cpu: 0,
            period,
            chain: &self.chain,
            raw: b"",
        })
    }

    fn doing(&mut self, event: &Event<'a>) -> &mut Doing<'a> {
        let tid = self.prepared.threads.of(event).tid;
        self.doing.entry((event.thread, tid)).or_default()
    }

    fn monitor<W: Write>(
        &mut self,
        event: &Event<'a>,
        what: MonitorEvent,
        frames: Frames<'a>,
        out: &mut Synthesis<'_, W>,
    ) -> io::Result<()> {
        let doing = self.doing(event);
        match what {
            MonitorEvent::Contention => {
                let before = doing.waiting.replace((event.time, frames));
                if before.is_some() {
                    self.losses.add(Loss::Unpaired, event.offset);
                }
                Ok(())
            }
            MonitorEvent::Done | MonitorEvent::Fail => match doing.waiting.take() {
                Some((since, frames)) => {
                    let waited = event.time.0.saturating_sub(since.0);
                    self.put(event, Made::Contention, waited, None, frames, out)
                }
                None => {
                    self.losses.add(Loss::Unpaired, event.offset);
                    Ok(())
                }
            },
            MonitorEvent::Other(_) => Ok(()),
        }
    }

    fn collection<W: Write>(
        &mut self,
        event: &Event<'a>,
        phase: CollectionPhase,
        generation: u64,
        out: &mut Synthesis<'_, W>,
    ) -> io::Result<()> {
        let (made, since, leaf) = match phase {
            CollectionPhase::Start => {
                self.collecting.insert(generation, event.time);
                return Ok(());
            }
            CollectionPhase::PostStopWorld => {
                self.stopped = Some(event.time);
                return Ok(());
            }
            CollectionPhase::End => {
                let leaf = format!("[gc gen {generation}]");
                (Made::Collection, self.collecting.remove(&generation), leaf)
            }
            CollectionPhase::PostStartWorld => (Made::Pause, self.stopped.take(), "[gc pause]".into()),
            _ => return Ok(()),
        };
        let Some(since) = since else {
            self.losses.add(Loss::Unpaired, event.offset);
            return Ok(());
        };
        let period = event.time.0.saturating_sub(since.0);
        self.put(event, made, period, Some(leaf.as_bytes()), Frames::default(), out)
    }

    /// A sample of the profiler: where the thread was, and the managed methods around that.
    fn hit<W: Write>(
        &mut self,
        event: &Event<'a>,
        address: Option<Address>,
        frames: Frames<'a>,
        out: &mut Synthesis<'_, W>,
    ) -> io::Result<()> {
        let Some(number) = self.asked.place(Made::Sample) else {
            return Ok(());
        };
        self.chain.clear();
        self.chain.extend(address);
        let innermost = frames.iter().next();
        let code = innermost.and_then(|method| self.places.code(method, event.time));
        let is_inside = address
            .zip(code)
            .is_some_and(|(address, code)| code.contains(address));
        self.push_methods(event, frames.iter().skip(usize::from(is_inside)).take(MAX_FRAMES));
        self.put_chain(event, number, 1, out)
    }

    /// The time since the last call or return was spent in the calls that the thread was in.
    fn call<W: Write>(&mut self, event: &Event<'a>, out: &mut Synthesis<'_, W>) -> io::Result<()> {
        let Doing { stack, since, .. } = *self.doing(event);
        let spent = event.time.0.saturating_sub(since.0);
        if let Some(number) = self.asked.place(Made::SelfTime)
            && stack != Stack::EMPTY
            && spent > 0
        {
            self.put_stack(event, number, spent, stack, out)?;
        }
        let now = match event.kind {
            Kind::Enter(method) => self.calls.enter(stack, method).unwrap_or_else(|| {
                self.losses.add(Loss::Stacks, event.offset);
                stack
            }),
            Kind::Leave(method) | Kind::ExceptionLeave(method) => match self.calls.exit(stack, method) {
                Exit::Left { stack, lost } => {
                    self.losses.add_many(Loss::LostLeave, lost.into(), event.offset);
                    stack
                }
                Exit::Unmatched => {
                    self.losses.add(Loss::UnmatchedLeave, event.offset);
                    stack
                }
            },
            _ => stack,
        };
        let doing = self.doing(event);
        doing.stack = now;
        doing.since = event.time;
        match (event.kind, self.asked.place(Made::Call)) {
            (Kind::Enter(_), Some(number)) => self.put_stack(event, number, 1, now, out),
            _ => Ok(()),
        }
    }

    fn put_stack<W: Write>(
        &mut self,
        event: &Event<'a>,
        number: usize,
        period: u64,
        stack: Stack,
        out: &mut Synthesis<'_, W>,
    ) -> io::Result<()> {
        self.chain.clear();
        let calls = std::mem::take(&mut self.calls);
        let mut methods = calls.functions(stack);
        self.push_methods(event, methods.by_ref().take(MAX_FRAMES));
        if methods.next().is_some() {
            self.losses.add(Loss::Frames, event.offset);
        }
        drop(methods);
        self.calls = calls;
        self.put_chain(event, number, period, out)
    }
}
