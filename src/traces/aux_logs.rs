//! Logs of Mono's profiler and XRay traces, and how their events and call stacks get into a profile.

use jitdump::{ByteOrder, Tally};

use crate::code::clock::{Alignment, CLOCK_MONOTONIC};
use crate::code::profile_index::IndexedProfile;
use crate::files::{InputFile, StreamedFile};
use crate::perf::Profile;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::call_stack_replay::CallStackReplay;
use crate::traces::event_selection::{
    EventSet, ProfileEvent, has_all_heap_shots, wanted_of_mono, wanted_of_xray,
};
use crate::traces::mono::Logs;
use crate::traces::options::{SamplingOptions, TraceOptions};
use crate::traces::samples::Samples;
use crate::traces::splice::{StackSource, splice};
use crate::traces::synthesis::Origin;
use crate::traces::synthesize::{BaseProfile, EventSource, SynthesizedProfile, synthesize};
use crate::traces::xray::Traces;
use crate::traces::xray::events::TraceSource;
use crate::traces::{mono, xray};

/// Logs and traces in use.
#[derive(Debug)]
pub struct AuxLogs<'a> {
    /// Logs of Mono's profiler.
    pub logs: Logs<'a>,
    /// XRay traces.
    pub traces: Traces<'a>,
    /// Data that the profile does not contain as it was logged.
    pub losses: Tally<Issue>,
    /// Messages about call chains.
    pub diagnostics: Vec<Diagnostic>,
}

impl AuxLogs<'_> {
    /// Returns all files that were read.
    pub fn files(&self) -> impl Iterator<Item = &InputFile> {
        self.logs.files().chain(self.traces.files())
    }

    /// Whether events are to be added to a profile.
    pub fn has_events(&self, options: &TraceOptions) -> bool {
        let of_logs = wanted_of_mono(options, true).is_none_or(|kinds| !kinds.is_empty());
        let of_traces = wanted_of_xray(options, true).is_none_or(|kinds| !kinds.is_empty());
        !self.logs.all.is_empty() && of_logs || !self.traces.all.is_empty() && of_traces
    }

    /// Whether call chains of a profile are to be replaced.
    pub fn has_stacks(&self, options: &TraceOptions) -> bool {
        let has_any = !self.logs.all.is_empty() || !self.traces.all.is_empty();
        has_any && options.splice_stacks
    }

    /// Prepares the conversion of events and stacks, for a `recorded` profile if there is one. `alignments` has
    /// those of the logs with its clock.
    pub fn prepare(&mut self, recorded: Option<&IndexedProfile<'_>>, alignments: &[Option<Alignment>]) {
        mono::prepare(recorded, alignments, &mut self.logs);
    }

    /// Returns the events to convert.
    fn select_events(&mut self, options: &TraceOptions, is_beside: bool) -> EventSet {
        let mut event_set = EventSet::default();
        if !self.logs.all.is_empty() {
            let prepared = self.logs.all.iter().filter_map(|log| log.prepared.as_ref());
            let logged = prepared.flat_map(|prepared| &prepared.events).copied().collect();
            event_set.add_mono(options, is_beside, &logged, &mut self.logs.diagnostics);
            if event_set.index_of(ProfileEvent::MonoHeap).is_some() && !has_all_heap_shots(options) {
                self.logs.note_earlier_heap_shots();
            }
        }
        if !self.traces.all.is_empty() {
            event_set.add_xray(options, is_beside);
        }
        event_set
    }

    /// Makes a profile of the events, together with a recorded profile if there is one.
    pub fn make_events(
        &mut self,
        options: &TraceOptions,
        recorded: Option<&Profile<'_>>,
    ) -> Result<SynthesizedProfile, Diagnostic> {
        let is_beside = recorded.is_some();
        let event_set = self.select_events(options, is_beside);
        let clock_id = match self.traces.all.first() {
            Some(trace) => trace.clock.id,
            None => Some(CLOCK_MONOTONIC),
        };
        if !is_beside && !self.logs.all.is_empty() && clock_id != Some(CLOCK_MONOTONIC) {
            self.traces
                .diagnostics
                .push(Diagnostic::new(Issue::XrayClockOfLogs));
        }
        let base = match recorded {
            Some(profile) => BaseProfile::Recorded(profile),
            None => BaseProfile::Nothing(Origin {
                endian: ByteOrder::Little,
                clock_id,
                host: b"",
                os_release: b"",
                version: env!("CARGO_PKG_VERSION").as_bytes(),
                architecture: match self.logs.all.is_empty() {
                    true => self.traces.architecture(),
                    false => mono::architecture(&self.logs.all),
                },
                command_line: &[b"jitinject"],
            }),
        };
        let mut sources: Vec<Box<dyn EventSource>> = Vec::new();
        for source in mono::events::sources(&mut self.logs, has_all_heap_shots(options)) {
            sources.push(Box::new(Samples::new(
                source,
                &event_set,
                SamplingOptions::default(),
            )));
        }
        if !self.traces.all.is_empty() {
            let source = TraceSource::new(&mut self.traces, Some(&event_set));
            sources.push(Box::new(Samples::new(source, &event_set, options.sampling)));
        }
        let made = synthesize(&base, &event_set.definitions(), sources)?;
        self.losses = made.synthesized.losses.clone();
        Ok(made)
    }

    /// Returns the records of a profile with call chains from logs and traces. Notes how many were found.
    pub fn splice_stacks(
        &mut self,
        options: &TraceOptions,
        profile: &Profile<'_>,
    ) -> Result<StreamedFile, Diagnostic> {
        let mut sources: Vec<Box<dyn StackSource>> = Vec::new();
        for source in mono::events::call_sources(&mut self.logs) {
            sources.push(Box::new(CallStackReplay::new(source)));
        }
        if let Some(source) = xray::events::call_source(&mut self.traces) {
            sources.push(Box::new(CallStackReplay::new(source)));
        }
        let (records, processes) = splice(profile, sources)?;
        self.diagnostics.extend(processes.iter().map(|chains| {
            let replaced = Diagnostic::new(Issue::ChainsReplaced).with("source", &chains.name);
            replaced.with("known", chains.known).with("total", chains.total)
        }));
        if !self.has_events(options) {
            let source = TraceSource::new(&mut self.traces, None);
            Samples::new(source, &EventSet::default(), SamplingOptions::default()).count();
        }
        Ok(records)
    }
}
