//! Logs of Mono's profiler and XRay traces, and how their events and call stacks get into a profile.

use std::sync::Arc;

use jitdump::{ByteOrder, Machine, Tally};

use crate::code::clock::{Alignment, CLOCK_MONOTONIC};
use crate::code::profile_index::IndexedProfile;
use crate::code::symbol_only_code::SymbolOnlyCode;
use crate::files::{InputFile, StreamedFile};
use crate::perf::Profile;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::conversion::event_selection::EventSet;
use crate::traces::conversion::log_format::{LogFormat, OpenedFiles};
use crate::traces::conversion::splice::splice;
use crate::traces::conversion::synthesis::EventOrigin;
use crate::traces::conversion::synthesize::{BaseProfile, SynthesizedProfile, synthesize};
use crate::traces::options::TraceOptions;
use crate::traces::used_logs::{LoggedCode, UsedLogs};
use crate::units::Pid;

/// Logs and traces while they are converted.
#[derive(Debug)]
pub struct LogConversion<'a> {
    /// Those of each format.
    formats: Vec<Box<dyn LogFormat<'a> + 'a>>,
    /// Data that the profile does not contain as it was logged.
    faults: Tally<Issue>,
    /// Messages about clocks and call chains.
    diagnostics: Vec<Diagnostic>,
}

impl<'a> LogConversion<'a> {
    /// Reads logs and traces; see [`OpenedFiles::read`].
    pub fn read(
        opened: &'a [Box<dyn OpenedFiles>],
        options: &TraceOptions,
        clock_offset: Option<i64>,
        recorded: Option<&IndexedProfile<'_>>,
    ) -> Result<Self, Diagnostic> {
        let formats = opened
            .iter()
            .map(|opened| opened.read(options, clock_offset, recorded));
        Ok(Self {
            formats: formats.collect::<Result<_, _>>()?,
            faults: Tally::default(),
            diagnostics: Vec::new(),
        })
    }

    /// Returns those of each format that has any.
    fn used(&self) -> impl Iterator<Item = &(dyn LogFormat<'a> + 'a)> {
        let formats = self.formats.iter().map(|format| &**format);
        formats.filter(|format| !format.is_empty())
    }

    /// Whether events are to be added to a profile.
    pub fn has_events(&self, options: &TraceOptions) -> bool {
        self.used().any(|format| format.has_events(options))
    }

    /// Whether call chains of a profile are to be replaced.
    pub fn has_stacks(&self, options: &TraceOptions) -> bool {
        self.used().next().is_some() && options.splice_stacks
    }

    /// Prepares the conversion of events and stacks; see [`LogFormat::prepare`].
    pub fn prepare(&mut self, recorded: Option<&IndexedProfile<'_>>, alignments: &[Option<Alignment>]) {
        let formats = self.formats.iter_mut();
        formats.for_each(|format| format.prepare(recorded, alignments));
    }

    /// Returns the code of each log; see [`LogFormat::code`].
    pub fn code<'s>(
        &'s self,
        profile: &'s IndexedProfile<'_>,
        machine: Machine,
        with_bytes: bool,
    ) -> impl Iterator<Item = LoggedCode<'a>> + 's {
        let formats = self.formats.iter();
        formats.flat_map(move |format| format.code(profile, machine, with_bytes))
    }

    /// Returns the synthetic symbols of each process that has no other code.
    pub fn symbols(
        &self,
        machine: Machine,
    ) -> impl Iterator<Item = (&Arc<InputFile>, Pid, SymbolOnlyCode<'static>)> {
        let formats = self.formats.iter();
        formats.flat_map(move |format| format.symbols(machine))
    }

    /// Makes a profile of the events, together with a recorded profile if there is one.
    pub fn make_events(
        &mut self,
        options: &TraceOptions,
        recorded: Option<&Profile<'_>>,
    ) -> Result<SynthesizedProfile, Diagnostic> {
        let is_beside = recorded.is_some();
        let mut event_set = EventSet::default();
        for format in self.formats.iter_mut().filter(|format| !format.is_empty()) {
            format.select_events(options, is_beside, &mut event_set);
        }
        let clock_id = self
            .used()
            .last()
            .map_or(Some(CLOCK_MONOTONIC), |last| last.clock_id());
        if !is_beside && self.used().any(|format| format.clock_id() != clock_id) {
            self.diagnostics.push(Diagnostic::new(Issue::XrayClockOfLogs));
        }
        let architecture = self.used().next().map(|first| first.architecture().to_vec());
        let architecture = architecture.unwrap_or_default();
        let base = match recorded {
            Some(profile) => BaseProfile::Recorded(profile),
            None => BaseProfile::Nothing(EventOrigin {
                endian: ByteOrder::Little,
                clock_id,
                architecture: &architecture,
            }),
        };
        let formats = self.formats.iter_mut();
        let sources = formats.flat_map(|format| format.event_sources(options, &event_set));
        let made = synthesize(&base, &event_set.definitions(), sources.collect())?;
        self.faults = made.synthesized.faults.clone();
        Ok(made)
    }

    /// Returns the records of a profile with call chains from logs and traces. Notes how many were found.
    pub fn splice_stacks(
        &mut self,
        options: &TraceOptions,
        profile: &Profile<'_>,
    ) -> Result<StreamedFile, Diagnostic> {
        let formats = self.formats.iter_mut();
        let sources = formats.flat_map(|format| format.stack_sources());
        let (records, processes) = splice(profile, sources.collect())?;
        self.diagnostics.extend(processes.iter().map(|chains| {
            let replaced = Diagnostic::new(Issue::ChainsReplaced).with("source", &chains.name);
            replaced.with("known", chains.known).with("total", chains.total)
        }));
        if !self.has_events(options) {
            self.formats.iter_mut().for_each(|format| format.count());
        }
        Ok(records)
    }

    /// Ends the conversion.
    pub fn finish(self) -> UsedLogs<'a> {
        let formats = self.formats.into_iter();
        UsedLogs {
            formats: formats.map(|format| format as _).collect(),
            faults: self.faults,
            diagnostics: self.diagnostics,
        }
    }
}
