//! Call chains of a profile's samples, from the calls that a log tells of.
//!
//! Mono's code keeps no frame pointer, so that what the kernel takes for callers is whatever lay on the stack. A log
//! of calls knows the stack of each thread at each moment: it replaces all above the sampled function.

use std::io::{self, Write};
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::code::call_tree::{CallTree, Exit, Stack};
use crate::files::{MappedFile, Spool};
use crate::inject::Error;
use crate::inject::mono::events::{MAX_FRAMES, MonoEvent};
use crate::inject::mono::replay::Replay;
use crate::inject::mono::{Logs, ReadLog};
use crate::perf::sample::Sample;
use crate::perf::{Profile, callchain, record};
use crate::range_map::RangeMap;
use crate::runtime::RuntimeTime;
use crate::runtime::mono::Method;
use crate::runtime::mono::event::{CodeBufferKind, Kind};
use crate::units::{Address, Pid, Tid, Time};

/// A sample that was taken in the code of a log.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    tid: Tid,
    time: Time,
    /// Its place among all samples of this kind, in the order of the file.
    place: usize,
}

/// The records of a profile, with all samples in the code of a log having the stack that the log tells of. Notes how
/// many have got one. The logs must be prepared.
///
/// It takes 24 bytes of memory for each such sample, and what [`CallTree`] does for the different stacks.
pub fn splice(profile: &Profile<'_>, logs: &mut Logs<'_>) -> Result<MappedFile, Error> {
    let mut chains: FxHashMap<Pid, Chains> = FxHashMap::default();
    for log in &logs.all {
        match Chains::of(log) {
            Some(found) => {
                chains.insert(log.pid(), found);
            }
            None => {
                let what = "tells of no calls, so no call chain was replaced; start Mono with --profile=log:jit,calls";
                logs.notes.push(format!("{} {what}", log.name()));
            }
        }
    }
    let mut wanted = wanted(profile, &mut chains);
    for log in &logs.all {
        let (Some(chains), Some(wanted)) = (chains.get_mut(&log.pid()), wanted.get_mut(&log.pid())) else {
            continue;
        };
        wanted.sort_by_key(|wanted| (wanted.tid, wanted.time));
        chains.stacks = vec![None; wanted.len()];
        chains.replay(log, wanted);
        let total = wanted.len();
        let known = chains.stacks.iter().filter(|stack| stack.is_some()).count();
        let what = format!("{known} of {total} samples in its code got the call chain that it tells of");
        logs.notes.push(format!("{}: {what}", log.name()));
    }
    rewrite(profile, &mut logs.all, &mut chains).map_err(|cause| Error::Spool { cause })
}

/// The samples in the code of each process that there are `chains` for.
fn wanted(profile: &Profile<'_>, chains: &mut FxHashMap<Pid, Chains>) -> FxHashMap<Pid, Vec<Wanted>> {
    let mut all: FxHashMap<Pid, Vec<Wanted>> = FxHashMap::default();
    for record in profile.records().filter(|record| record.kind == record::SAMPLE) {
        let Some(attr) = profile.attrs.of(&record, profile.order) else {
            continue;
        };
        let sample = Sample::parse(&record, attr, profile.order);
        let of_log = sample.pid.and_then(|pid| Some((pid, chains.get(&pid)?)));
        let Some((pid, of_log)) = of_log else { continue };
        if of_log.leaf(&record, &sample).is_some() {
            let wanted = all.entry(pid).or_default();
            wanted.push(Wanted {
                tid: sample.tid.unwrap_or(Tid(pid.0)),
                time: profile.attrs.time_of(&record, profile.order).unwrap_or_default(),
                place: wanted.len(),
            });
        }
    }
    all
}

/// The stacks of samples.
struct Chains {
    calls: CallTree<Method>,
    /// In the order of the file; `None` of threads that the log does not know.
    stacks: Vec<Option<Stack>>,
    /// How many of them were used.
    used: usize,
    code: RangeMap<Code>,
}

/// What of a log's code matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Code {
    /// A function of the log that is a method's.
    Method(u32),
    Helper,
}

impl Chains {
    /// `None` if the log tells of no calls.
    fn of(log: &ReadLog<'_>) -> Option<Self> {
        let prepared = log.prepared.as_ref()?;
        if !prepared.contents.events.contains(&MonoEvent::Calls) {
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
            calls: CallTree::default(),
            stacks: Vec::new(),
            used: 0,
            code,
        })
    }

    /// The code that a sample of the log's process was taken in.
    fn leaf(&self, record: &record::Record<'_>, sample: &Sample<'_>) -> Option<Code> {
        sample.callchain_offset?;
        self.code.get(callchain::user_address(record, sample)?)
    }

    /// Follows the calls of all threads up to the times of their samples.
    fn replay(&mut self, log: &ReadLog<'_>, wanted: &[Wanted]) {
        let Some(prepared) = &log.prepared else { return };
        let mut threads: FxHashMap<Tid, (Stack, usize)> = FxHashMap::default();
        for tid in prepared.threads.known() {
            let first = wanted.partition_point(|wanted| wanted.tid < tid);
            threads.insert(tid, (Stack::EMPTY, first));
        }
        for event in Replay::of(&log.log) {
            let (Kind::Enter(method) | Kind::Leave(method) | Kind::ExceptionLeave(method)) = event.kind
            else {
                continue;
            };
            let tid = prepared.threads.of(&event).tid;
            let Some((stack, next)) = threads.get_mut(&tid) else {
                continue;
            };
            let time = prepared.alignment.time(event.time);
            while let Some(sample) = wanted.get(*next)
                && sample.tid == tid
                && sample.time < time
            {
                if let Some(known) = self.stacks.get_mut(sample.place) {
                    *known = Some(*stack);
                }
                *next = next.saturating_add(1);
            }
            *stack = match event.kind {
                Kind::Enter(_) => self.calls.enter(*stack, method).unwrap_or(*stack),
                _ => match self.calls.exit(*stack, method) {
                    Exit::Left { stack, .. } => stack,
                    Exit::Unmatched => *stack,
                },
            };
        }
    }

    /// The callers of the next sample, from the innermost out, into `callers`; `false` if they are not known.
    fn next(
        &mut self,
        log: &mut ReadLog<'_>,
        leaf: Code,
        time: RuntimeTime,
        callers: &mut Vec<Address>,
    ) -> bool {
        let stack = self.stacks.get(self.used).copied().flatten();
        self.used = self.used.saturating_add(1);
        callers.clear();
        let (Some(stack), Some(places)) = (stack.filter(|&stack| stack != Stack::EMPTY), &mut log.places)
        else {
            return false;
        };
        let innermost = self.calls.functions(stack).next();
        let is_leaf = |method| match leaf {
            Code::Method(function) => {
                let function = log.index.code.function(function);
                function.is_some_and(|function| function.methods.iter().any(|&(own, _)| own == method))
            }
            Code::Helper => false,
        };
        // A sample that was taken before a method has told that it was entered, or after, is in none of the calls.
        let skipped = usize::from(innermost.is_some_and(is_leaf));
        for method in self.calls.functions(stack).skip(skipped).take(MAX_FRAMES) {
            let start = places.method(&log.index, method, time);
            callers.push(Address(start.0.saturating_add(1)));
        }
        true
    }
}

fn rewrite(
    profile: &Profile<'_>,
    logs: &mut [ReadLog<'_>],
    chains: &mut FxHashMap<Pid, Chains>,
) -> io::Result<MappedFile> {
    let mut spool = Spool::create()?;
    let mut buffer = Vec::new();
    let mut callers = Vec::new();
    let logs_by_pid: FxHashMap<Pid, usize> = logs
        .iter()
        .enumerate()
        .map(|(place, log)| (log.pid(), place))
        .collect();
    for record in profile.records() {
        buffer.clear();
        let mut splice = || {
            if record.kind != record::SAMPLE {
                return None;
            }
            let attr = profile.attrs.of(&record, profile.order)?;
            let sample = Sample::parse(&record, attr, profile.order);
            let pid = sample.pid?;
            let chains = chains.get_mut(&pid)?;
            let log = logs.get_mut(*logs_by_pid.get(&pid)?)?;
            let leaf = chains.leaf(&record, &sample)?;
            let time = profile.attrs.time_of(&record, profile.order).unwrap_or_default();
            let is_known = chains.next(log, leaf, RuntimeTime(time.0), &mut callers);
            let callers = callers.iter().copied();
            is_known
                .then(|| callchain::put_with_callers(&mut buffer, profile.order, &record, attr, callers))?
        };
        match splice() {
            Some(()) => spool.write_all(&buffer)?,
            None => {
                spool.write_all(record.bytes)?;
                spool.write_all(record.payload)?;
            }
        }
    }
    spool.map(Path::new("records"))
}
