//! Reading traces onto the profile's clock, processes and threads.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::code::clock::ProfileClock;
use crate::code::process::Processes;
use crate::code::profile_index::ProfileIndex;
use crate::files::MappedFile;
use crate::files::search::shown;
use crate::hash::HashMap;
use crate::inject::dumps::FoundDump;
use crate::inject::xray::binary::{Base, Binary};
use crate::inject::xray::clock;
use crate::inject::xray::frame_addresses::FrameAddresses;
use crate::inject::xray::threads::{ProfileThreads, TracedThread, threads};
use crate::inject::xray::{Opened, ReadTrace, Seen, TracedProcess, Traces};
use crate::inject::{Error, Options, sources};
use crate::perf::Profile;
use crate::perf::synthesis::Thread;
use crate::runtime::xray::Trace;
use crate::summary::Warning;
use crate::units::{Pid, Time};

/// Reads the traces that were opened, for what was `recorded`, if anything was.
pub fn read<'a>(
    options: &Options,
    opened: &'a Opened,
    recorded: Option<(&Profile<'_>, &ProfileIndex)>,
) -> Result<Traces<'a>, Error> {
    let mut traces = Traces {
        binary: opened.binary.as_ref(),
        notes: opened.notes.clone(),
        ..Traces::default()
    };
    if opened.files.is_empty() {
        return Ok(traces);
    }
    let clock = recorded
        .map(|(profile, profile_index)| sources::profile_clock(profile, profile_index, options.clock_offset));
    let known =
        recorded.map(|(profile, profile_index)| ProfileThreads::of(profile, &profile_index.processes));
    for file in &opened.files {
        traces.add(options, file, clock.as_ref(), known.as_ref())?;
    }
    traces.seen = vec![Seen::default(); traces.all.len()];
    let bases = match (traces.binary, recorded) {
        (Some(binary), Some((profile, _))) => binary.bases(profile, &mut traces.notes),
        _ => HashMap::default(),
    };
    if traces.binary.is_none() {
        let what = "no --xray-binary is given, so functions have numbers for names";
        traces.notes.push(what.into());
    }
    let nobody = Processes::default();
    let processes = recorded.map_or(&nobody, |(_, profile_index)| &profile_index.processes);
    let binary = traces.binary;
    let traced = &mut traces.processes;
    let mut without_base = 0u64;
    for (file, trace) in opened.files.iter().zip(&traces.all) {
        for (thread, found) in trace.index.threads().zip(&trace.threads) {
            let Some(TracedThread {
                thread: Thread { pid, .. },
                ..
            }) = *found
            else {
                continue;
            };
            let process = traced.entry(pid).or_insert_with(|| {
                let base = match recorded {
                    Some(_) => base_of(pid, &bases, processes),
                    None => binary.map(Binary::usual_base),
                };
                without_base = without_base.saturating_add(base.is_none().into());
                TracedProcess::new(file, pid, binary, base, processes)
            });
            let first = thread
                .buffers
                .iter()
                .map(|buffer| trace.clock.clock.time(buffer.tick));
            let first = first.min().unwrap_or_default().0.saturating_sub(1);
            process.since = process.since.min(Time(first));
        }
    }
    if let Some(binary) = binary.filter(|_| !bases.is_empty() && without_base > 0) {
        let name = shown(binary.file.path());
        traces.notes.push(format!(
            "{without_base} of the processes that are traced have not mapped {name}: their functions have numbers for names"
        ));
    }
    Ok(traces)
}

impl<'a> Traces<'a> {
    fn add(
        &mut self,
        options: &Options,
        file: &'a Arc<MappedFile>,
        profile_clock: Option<&ProfileClock>,
        known: Option<&ProfileThreads<'_>>,
    ) -> Result<(), Error> {
        let trace = Trace::parse(file).map_err(|cause| Error::Trace {
            path: file.path().to_owned(),
            cause,
        })?;
        let index = trace.index();
        let clock = clock::find(&trace, &index, profile_clock, options.clock_offset);
        let name = shown(file.path());
        let mut warn = |what| {
            self.warnings.push(Warning {
                file: Some(name.clone()),
                ..Warning::new(what)
            })
        };
        if let Some(warning) = clock.warning {
            warn(warning);
        }
        if self.all.first().is_some_and(|first| first.clock.id != clock.id) {
            warn(
                "its times are on another clock than those of the first trace, so they can't be compared; make a profile of each",
            );
        }
        let threads = threads(&trace, &index, known, options.pid);
        let strangers: BTreeSet<Pid> = threads.iter().filter_map(|thread| thread.err()).collect();
        if let Some(pid) = strangers.first() {
            let others = match strangers.len() {
                1 => String::new(),
                all => format!(" (and {} others that are not, either)", all - 1),
            };
            self.notes.push(format!(
                "{name} is of process {pid}, which is not in the profile{others}: not used; say with --pid which one it is of"
            ));
        }
        self.all.push(ReadTrace {
            file,
            trace,
            index,
            clock,
            threads: threads.into_iter().map(Result::ok).collect(),
        });
        Ok(())
    }
}

/// Where a process has the binary: a child has it where its parent had, until it executes another one.
fn base_of(pid: Pid, bases: &HashMap<Pid, Base>, processes: &Processes) -> Option<Base> {
    let first = processes.spaces_of(pid).next().map(|(space, _)| space);
    let ancestors = first.into_iter().flat_map(|space| processes.all_ancestors(space));
    let mut pids = std::iter::once(pid).chain(ancestors.map(|(_, space)| space.pid));
    pids.find_map(|pid| bases.get(&pid).copied())
}

impl<'a> TracedProcess<'a> {
    fn new(
        file: &Arc<MappedFile>,
        pid: Pid,
        binary: Option<&'a Binary>,
        base: Option<Base>,
        processes: &Processes,
    ) -> Self {
        let spaces = processes.spaces_of(pid);
        let maps = spaces.flat_map(|(_, space)| space.maps.iter().map(|map| map.range));
        let functions = binary.map(|binary| &binary.functions);
        let is_64 = functions.is_none_or(|functions| functions.pointer_size == 8);
        Self {
            found: FoundDump {
                file: file.clone(),
                pids: vec![pid],
                pids_before: Vec::new(),
                marked: None,
                markers: Vec::new(),
            },
            places: FrameAddresses::new(functions.zip(base), maps, is_64),
            base,
            since: Time::LAST,
        }
    }
}
