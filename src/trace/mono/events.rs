//! Conversion of a log's events into samples of a profile.

use std::io;
use std::iter::Peekable;

use crate::diagnostics::Issue;
use crate::hash::HashMap;
use crate::perf::synthesis::{Comm, Sample, Thread, ThreadStart};
use crate::runtime::RuntimeTime;
use crate::runtime::mono::event::{CollectionPhase, Kind, MonitorEvent, TypeReference};
use crate::runtime::mono::list::Frames;
use crate::runtime::mono::{Event, Index, Method, ThreadId};
use crate::tally::Tally;
use crate::trace::call_tree::{CallTree, Stack};
use crate::trace::chain::Chain;
use crate::trace::event_set::EventSet;
use crate::trace::mono::event_selection::ProfileEvent;
use crate::trace::mono::logs::{Logs, ReadLog};
use crate::trace::mono::prepare::Prepared;
use crate::trace::mono::replay::{Replay, step};
use crate::trace::mono::threads::AssignedTid;
use crate::trace::synthesize::{EventSource, Out};
use crate::units::{Address, Pid, Tid, Time};

/// Returns an event source for each log that was prepared.
pub fn event_sources<'l>(
    logs: &'l mut Logs<'_>,
    event_set: &'l EventSet<ProfileEvent>,
) -> Vec<Box<dyn EventSource + 'l>> {
    let mut sources: Vec<Box<dyn EventSource>> = Vec::new();
    for log in &mut logs.all {
        if let Some(events) = LogEvents::new(log, event_set) {
            sources.push(Box::new(events));
        }
    }
    sources
}

/// State of a thread during the replay.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadState<'a> {
    stack: Stack,
    /// Time of the thread's last call or return.
    since: RuntimeTime,
    /// Time at which the thread began to wait for a lock, and its stack there.
    waiting: Option<(RuntimeTime, Frames<'a>)>,
}

/// Converts the events of a log into samples.
#[derive(Debug)]
struct LogEvents<'l, 'a> {
    pid: Pid,
    index: &'l Index<'a>,
    replay: Peekable<Replay<'a>>,
    prepared: &'l mut Prepared<'a>,
    losses: &'l mut Tally<Issue>,
    event_set: &'l EventSet<ProfileEvent>,
    calls: CallTree<Method>,
    threads: HashMap<(ThreadId, Tid), ThreadState<'a>>,
    /// Start time of each collection in progress, by generation.
    collecting: HashMap<u64, RuntimeTime>,
    /// Time at which the runtime stopped the world for a collection.
    stopped: Option<RuntimeTime>,
    chain: Chain,
}

impl<'l, 'a> LogEvents<'l, 'a> {
    /// Returns `None` if the log was not prepared. Clears the log's losses: its calls may have been counted before,
    /// when stacks were looked up.
    fn new(log: &'l mut ReadLog<'a>, event_set: &'l EventSet<ProfileEvent>) -> Option<Self> {
        log.losses = Tally::default();
        Some(Self {
            pid: log.pid,
            index: &log.index,
            replay: Replay::of(&log.log).peekable(),
            prepared: log.prepared.as_mut()?,
            losses: &mut log.losses,
            event_set,
            calls: CallTree::default(),
            threads: HashMap::default(),
            collecting: HashMap::default(),
            stopped: None,
            chain: Chain::default(),
        })
    }

    fn write_event(&mut self, event: &Event<'a>, out: &mut Out<'_>) -> io::Result<()> {
        match event.kind {
            Kind::Allocation {
                class, size, frames, ..
            } => {
                let leaf = self.type_name(b"new ", class, event.time);
                self.write_sample(event, ProfileEvent::Allocation, size, Some(&leaf), frames, out)
            }
            Kind::Throw { frames, .. } => {
                self.write_sample(event, ProfileEvent::Exception, 1, None, frames, out)
            }
            Kind::Monitor {
                event: what, frames, ..
            } => self.monitor(event, what, frames, out),
            Kind::Collection { phase, generation } => self.collection(event, phase, generation, out),
            Kind::HeapObject { size, class, .. } if size > 0 => {
                let leaf = self.type_name(b"", class, event.time);
                self.write_alone(event, ProfileEvent::Heap, size, &leaf, out)
            }
            Kind::SampleHit {
                addresses, frames, ..
            } => self.hit(event, addresses.iter().next(), frames, out),
            _ => self.call(event, out),
        }
    }

    /// Returns the name of a type, with a prefix.
    fn type_name(&self, before: &[u8], class: TypeReference, time: RuntimeTime) -> Vec<u8> {
        let name = self.index.names.class(class, time);
        match name {
            Some(name) if before.is_empty() => [b"[", name, b"]"].concat(),
            Some(name) => [before, name].concat(),
            None => [before, b"[unknown type]"].concat(),
        }
    }

    /// Adds a sample with a single, synthetic frame.
    fn write_alone(
        &mut self,
        event: &Event<'a>,
        profile_event: ProfileEvent,
        period: u64,
        leaf: &[u8],
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        let leaf = self.prepared.frame_addresses.named(leaf);
        self.chain.restart(Some(leaf));
        self.write_chain(event, profile_event, period, out)
    }

    /// Adds a sample of a stack, with a synthetic innermost frame if `leaf` is given.
    ///
    /// If Mono logs calls, it writes no stacks with its other events: the calls give the stack as well.
    fn write_sample(
        &mut self,
        event: &Event<'a>,
        profile_event: ProfileEvent,
        period: u64,
        leaf: Option<&[u8]>,
        frames: Frames<'_>,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        let leaf = leaf.map(|leaf| self.prepared.frame_addresses.named(leaf));
        if frames.is_empty() {
            let stack = self.thread_state(event).stack;
            return self.write_stack(event, profile_event, period, leaf, stack, out);
        }
        self.chain.restart(leaf);
        self.add_methods(event, frames.iter());
        self.write_chain(event, profile_event, period, out)
    }

    /// Adds a sample with the thread's current calls as its stack.
    fn write_stack(
        &mut self,
        event: &Event<'a>,
        profile_event: ProfileEvent,
        period: u64,
        leaf: Option<Address>,
        stack: Stack,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        self.chain.restart(leaf);
        let frame_addresses = &mut self.prepared.frame_addresses;
        let methods = self.calls.functions(stack);
        if !frame_addresses.add_to(&mut self.chain, self.index, methods, event.time) {
            self.losses.add(Issue::ChainTooLong, event.offset);
        }
        self.write_chain(event, profile_event, period, out)
    }

    fn add_methods(&mut self, event: &Event<'a>, methods: impl Iterator<Item = Method>) {
        let frame_addresses = &mut self.prepared.frame_addresses;
        if !frame_addresses.add_to(&mut self.chain, self.index, methods, event.time) {
            self.losses.add(Issue::ChainTooLong, event.offset);
        }
    }

    fn write_chain(
        &mut self,
        event: &Event<'a>,
        profile_event: ProfileEvent,
        period: u64,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        let Some(number) = self.event_set.index_of(profile_event) else {
            return Ok(());
        };
        out.sample(&Sample {
            event: number,
            thread: self.prepared.threads.of(event),
            time: self.prepared.alignment.time(event.time),
            cpu: 0,
            period,
            chain: self.chain.frames(),
            raw: b"",
        })
    }

    fn thread_state(&mut self, event: &Event<'a>) -> &mut ThreadState<'a> {
        let tid = self.prepared.threads.of(event).tid;
        self.threads.entry((event.thread, tid)).or_default()
    }

    fn monitor(
        &mut self,
        event: &Event<'a>,
        what: MonitorEvent,
        frames: Frames<'a>,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        let state = self.thread_state(event);
        match what {
            MonitorEvent::Contention => {
                let before = state.waiting.replace((event.time, frames));
                if before.is_some() {
                    self.losses.add(Issue::IntervalUnpaired, event.offset);
                }
                Ok(())
            }
            MonitorEvent::Done | MonitorEvent::Fail => match state.waiting.take() {
                Some((since, frames)) => {
                    let waited = event.time.0.saturating_sub(since.0);
                    self.write_sample(event, ProfileEvent::Contention, waited, None, frames, out)
                }
                None => {
                    self.losses.add(Issue::IntervalUnpaired, event.offset);
                    Ok(())
                }
            },
            MonitorEvent::Other(_) => Ok(()),
        }
    }

    fn collection(
        &mut self,
        event: &Event<'a>,
        phase: CollectionPhase,
        generation: u64,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        let (profile_event, since, leaf) = match phase {
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
                (
                    ProfileEvent::Collection,
                    self.collecting.remove(&generation),
                    leaf,
                )
            }
            CollectionPhase::PostStartWorld => {
                (ProfileEvent::Pause, self.stopped.take(), "[gc pause]".into())
            }
            _ => return Ok(()),
        };
        let Some(since) = since else {
            self.losses.add(Issue::IntervalUnpaired, event.offset);
            return Ok(());
        };
        let period = event.time.0.saturating_sub(since.0);
        self.write_alone(event, profile_event, period, leaf.as_bytes(), out)
    }

    /// Adds a sample that Mono's profiler took: the sampled address, then the managed callers.
    fn hit(
        &mut self,
        event: &Event<'a>,
        address: Option<Address>,
        frames: Frames<'a>,
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        self.chain.restart(address);
        let innermost = frames.iter().next();
        let code = innermost.and_then(|method| self.prepared.frame_addresses.code(method, event.time));
        let is_inside = address
            .zip(code)
            .is_some_and(|(address, code)| code.contains(address));
        self.add_methods(event, frames.iter().skip(usize::from(is_inside)));
        self.write_chain(event, ProfileEvent::Sample, 1, out)
    }

    /// Attributes the time since the last call or return to the thread's current stack, then applies the call or
    /// return.
    fn call(&mut self, event: &Event<'a>, out: &mut Out<'_>) -> io::Result<()> {
        let Some(step) = step(&event.kind) else {
            return Ok(());
        };
        let ThreadState { stack, since, .. } = *self.thread_state(event);
        let spent = event.time.0.saturating_sub(since.0);
        if stack != Stack::EMPTY && spent > 0 && self.event_set.index_of(ProfileEvent::SelfTime).is_some() {
            self.write_stack(event, ProfileEvent::SelfTime, spent, None, stack, out)?;
        }
        let now = self.calls.follow(stack, step, event.offset, self.losses);
        let state = self.thread_state(event);
        state.stack = now;
        state.since = event.time;
        match event.kind {
            Kind::Enter(_) if self.event_set.index_of(ProfileEvent::Call).is_some() => {
                self.write_stack(event, ProfileEvent::Call, 1, None, now, out)
            }
            _ => Ok(()),
        }
    }
}

impl EventSource for LogEvents<'_, '_> {
    fn next_time(&mut self) -> Option<Time> {
        let event = self.replay.peek()?;
        Some(self.prepared.alignment.time(event.time))
    }

    fn write_start(&self, out: &mut Out<'_>, start: Time, is_alone: bool) -> io::Result<()> {
        let pid = self.pid;
        let first = Thread::first_of(pid);
        if is_alone {
            out.comm(&Comm {
                thread: first,
                time: start,
                name: b"mono",
                is_exec: true,
            })?;
        }
        for (life, assigned) in self.prepared.threads.iter() {
            if matches!(assigned, AssignedTid::Known(_)) {
                continue;
            }
            let thread = Thread {
                pid,
                tid: assigned.tid(),
            };
            out.fork(&ThreadStart {
                thread,
                parent: first,
                time: start,
            })?;
            if let Some((_, name)) = life.name {
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
            None => Ok(()),
        }
    }

    fn finish(&mut self) {
        let waiting = self.threads.values().filter(|state| state.waiting.is_some());
        let unpaired = (waiting.count() as u64).saturating_add(self.collecting.len() as u64);
        self.losses.add_many(Issue::IntervalUnpaired, unpaired, 0);
        self.losses.add_many(
            Issue::TooManyNames,
            self.prepared.frame_addresses.is_full().into(),
            0,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::files::InputFile;
    use crate::trace::mono::logs::{UnpackedLog, read};
    use crate::trace::mono::prepare::prepare;
    use crate::units::Pid;

    #[test]
    fn names_beyond_the_limit_are_reported() {
        const LIMIT: u32 = 1 << 22;
        // The header of a log of data version 12.
        let mut header = vec![0x01, 0x5a, 0x50, 0x4d, 0, 0, 12, 8];
        header.resize(32, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), header).unwrap();
        let file = Arc::new(InputFile::open(file.path()).unwrap());
        let opened = [UnpackedLog::of(file).unwrap().of_process(Pid(1))];
        let mut logs = read(&opened, None, Vec::new()).unwrap();
        prepare(None, &[], &mut logs);
        let event_set = EventSet::new(0, std::iter::empty());
        for (names, expected) in [(0..LIMIT, 0), (LIMIT..LIMIT + 1, 1)] {
            let mut events = LogEvents::new(&mut logs.all[0], &event_set).unwrap();
            for name in names {
                events.prepared.frame_addresses.named(&name.to_le_bytes());
            }
            events.finish();
            drop(events);
            assert_eq!(logs.all[0].losses.count(Issue::TooManyNames), expected);
        }
    }
}
