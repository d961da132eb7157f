//! Logs as files beside a profile.

use std::iter;

use jitdump::Machine;

use crate::code::clock::{Alignment, CLOCK_MONOTONIC, RuntimeClock};
use crate::code::profile_index::IndexedProfile;
use crate::files::InputFile;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::conversion::call_stack_replay::CallStackReplay;
use crate::traces::conversion::event_selection::{
    EventSet, ProfileEvent, has_all_heap_shots, wanted_of_mono,
};
use crate::traces::conversion::log_format::LogFormat;
use crate::traces::conversion::samples::ReplayedSamples;
use crate::traces::conversion::splice::StackSource;
use crate::traces::conversion::synthesize::EventSource;
use crate::traces::mono::events;
use crate::traces::mono::logs::{Logs, ReadLog, architecture};
use crate::traces::mono::memory::MonoMemory;
use crate::traces::mono::prepare::prepare;
use crate::traces::options::{SamplingOptions, TraceOptions};
use crate::traces::used_logs::{FormatFiles, LoggedCode, LoggedCollections};

impl FormatFiles for Logs<'_> {
    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the logs, and the compressed files that some of them came from.
    fn files(&self) -> Vec<&InputFile> {
        let logs = self.all.iter().map(|log| &**log.file);
        logs.chain(self.packed.iter().copied()).collect()
    }

    fn garbage_collections(&self, alignments: &[Option<Alignment>]) -> Vec<LoggedCollections> {
        let alignments = alignments.iter().copied().chain(iter::repeat(None));
        let logs = self.all.iter().zip(alignments).filter_map(|(log, alignment)| {
            let prepared = log.prepared.as_ref().map(|prepared| prepared.alignment);
            let alignment = prepared.or(alignment)?;
            let (all, unpaired) = log.garbage_collections();
            Some(LoggedCollections {
                pid: log.pid,
                alignment,
                all,
                unpaired,
            })
        });
        logs.collect()
    }

    fn faults(&self) -> Vec<Diagnostic> {
        let logs = self.all.iter().flat_map(|log| {
            let faults = [log.packing_faults, &log.index.faults, &log.conversion_faults].into_iter();
            faults.flat_map(|faults| Diagnostic::of_tally(faults, Some(log.file.path()), true))
        });
        let packed = self.packed.iter().filter_map(|file| file.shrunk());
        logs.chain(packed).collect()
    }

    fn diagnostics(&self) -> Vec<Diagnostic> {
        self.diagnostics.clone()
    }
}

impl<'a> LogFormat<'a> for Logs<'a> {
    fn has_events(&self, options: &TraceOptions) -> bool {
        wanted_of_mono(options, true).is_none_or(|kinds| !kinds.is_empty())
    }

    fn architecture(&self) -> &[u8] {
        architecture(&self.all)
    }

    fn clock_id(&self) -> Option<i32> {
        Some(CLOCK_MONOTONIC)
    }

    fn prepare(&mut self, recorded: Option<&IndexedProfile<'_>>, alignments: &[Option<Alignment>]) {
        prepare(recorded, alignments, self);
    }

    fn select_events(&mut self, options: &TraceOptions, is_beside: bool, event_set: &mut EventSet) {
        let prepared = self.all.iter().filter_map(|log| log.prepared.as_ref());
        let logged = prepared.flat_map(|prepared| &prepared.events).copied().collect();
        event_set.add_mono(options, is_beside, &logged, &mut self.diagnostics);
        if event_set.index_of(ProfileEvent::MonoHeap).is_some() && !has_all_heap_shots(options) {
            self.note_earlier_heap_shots();
        }
    }

    fn event_sources<'s>(
        &'s mut self,
        options: &TraceOptions,
        event_set: &'s EventSet,
    ) -> Vec<Box<dyn EventSource + 's>> {
        let sources = events::sources(self, has_all_heap_shots(options));
        let samples =
            sources.map(|source| ReplayedSamples::new(source, event_set, SamplingOptions::default()));
        samples.map(|samples| Box::new(samples) as _).collect()
    }

    fn stack_sources<'s>(&'s mut self) -> Vec<Box<dyn StackSource + 's>> {
        let sources = events::call_sources(self);
        sources
            .map(|source| Box::new(CallStackReplay::new(source)) as _)
            .collect()
    }

    fn code<'s>(
        &'s self,
        profile: &'s IndexedProfile<'_>,
        machine: Machine,
        with_bytes: bool,
    ) -> Box<dyn Iterator<Item = LoggedCode<'a>> + 's>
    where
        'a: 's,
    {
        let core = self.core.filter(|_| with_bytes);
        Box::new(
            self.all
                .iter()
                .map(move |log| log.logged_code(profile, machine, core)),
        )
    }
}

impl<'a> ReadLog<'a> {
    /// Returns the log's functions, and what it shows of its clock.
    fn logged_code(
        &self,
        profile: &IndexedProfile<'_>,
        machine: Machine,
        core: Option<&MonoMemory>,
    ) -> LoggedCode<'a> {
        let code = self.code(&profile.index.processes, core, machine);
        let without_bytes = core.filter(|_| !code.is_empty() && !code.has_code());
        let (first, last) = self.index.times.unwrap_or_default();
        LoggedCode {
            file: self.file,
            name: self.name(),
            pid: self.pid,
            code,
            clock: RuntimeClock {
                born: None,
                distance_by_maps: None,
                counts_cycles: false,
                made: self.log.header().startup_ns.unwrap_or(first.0),
                first,
                last,
            },
            diagnostic: without_bytes.map(|core| {
                let without = Diagnostic::new(Issue::CoreWithoutCode).in_file(core.path());
                without.with("log", self.name())
            }),
        }
    }
}
