//! What logs and traces tell beside code, and how it gets into a profile.

use crate::bytes::ByteOrder;
use crate::code::clock::CLOCK_MONOTONIC;
use crate::code::profile_index::ProfileIndex;
use crate::files::MappedFile;
use crate::inject::events::splice::Found;
use crate::inject::events::synthesize::Base;
use crate::inject::events::{Made, splice, synthesize};
use crate::inject::mono::Logs;
use crate::inject::sources::Alignments;
use crate::inject::xray::Traces;
use crate::inject::{Error, Options, mono, xray};
use crate::perf::Profile;
use crate::perf::synthesis::{self, Origin};
use crate::summary::Warning;
use crate::tally::Tally;

/// Logs and traces.
#[derive(Debug)]
pub struct AuxLogs<'a> {
    /// Of Mono's profiler.
    pub logs: Logs<'a>,
    /// Of XRay.
    pub traces: Traces<'a>,
    /// What did not get into the profile as it was.
    pub losses: Tally<synthesis::Loss>,
    /// What became of call chains.
    pub notes: Vec<String>,
}

impl<'a> AuxLogs<'a> {
    /// Those that were read.
    pub fn new(logs: Logs<'a>, traces: Traces<'a>) -> Self {
        Self {
            logs,
            traces,
            losses: Tally::default(),
            notes: Vec::new(),
        }
    }

    /// All files that were read.
    pub fn files(&self) -> impl Iterator<Item = &MappedFile> {
        self.logs.files().chain(self.traces.files())
    }

    /// Whether events are to be made of them, beside a profile's own.
    pub fn has_events(&self, options: &Options) -> bool {
        let of_logs = mono::wanted(options, true).is_none_or(|kinds| !kinds.is_empty());
        let of_traces = xray::wanted(options, true).is_none_or(|kinds| !kinds.is_empty());
        !self.logs.all.is_empty() && of_logs || !self.traces.all.is_empty() && of_traces
    }

    /// Whether they have to do with call chains of a profile.
    pub fn has_stacks(&self, options: &Options) -> bool {
        let has_any = !self.logs.all.is_empty() || !self.traces.all.is_empty();
        has_any && options.splice_stacks
    }

    /// Finds out what their events and stacks need to become those of what was `recorded`, if anything was.
    /// `aligned` tells how the times of logs become those of it.
    pub fn prepare(&mut self, recorded: Option<(&Profile<'_>, &ProfileIndex)>, aligned: &Alignments) {
        mono::prepare(recorded, aligned, &mut self.logs);
    }

    /// Makes a profile of their events, and of what was recorded, if anything was.
    pub fn make_events<'p>(
        &mut self,
        options: &Options,
        recorded: Option<&'p Profile<'p>>,
    ) -> Result<Made<'p>, Error> {
        let is_beside = recorded.is_some();
        let of_logs = mono::select_events(options, &mut self.logs, is_beside, 0);
        let mut definitions = of_logs.definitions().to_vec();
        let of_traces = xray::select_events(options, &self.traces, is_beside, definitions.len());
        definitions.extend_from_slice(of_traces.definitions());
        let clock_id = match self.traces.all.first() {
            Some(trace) => trace.clock.id,
            None => Some(CLOCK_MONOTONIC),
        };
        if !is_beside && !self.logs.all.is_empty() && clock_id != Some(CLOCK_MONOTONIC) {
            self.traces.warnings.push(Warning::new(
                "the traces' times are on another clock than those of the logs, so they can't be compared; make a profile of each",
            ));
        }
        let base = match recorded {
            Some(profile) => Base::Recorded(profile),
            None => Base::Nothing(Origin {
                order: ByteOrder::Little,
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
        let mut sources = mono::event_sources(&mut self.logs, &of_logs);
        sources.extend(xray::event_sources(&mut self.traces, &of_traces, options.shape));
        let made = synthesize(&base, &definitions, sources)?;
        self.losses = made.synthesized.losses.clone();
        Ok(made)
    }

    /// The records of a profile, whose samples have the call chains that are told. Notes how many have.
    pub fn splice_stacks(&mut self, options: &Options, profile: &Profile<'_>) -> Result<MappedFile, Error> {
        let mut sources = mono::stack_sources(&mut self.logs);
        sources.extend(xray::stack_sources(&mut self.traces));
        let names: Vec<String> = sources.iter().map(|source| source.name()).collect();
        let (records, found) = splice(profile, sources)?;
        self.notes.extend(names.iter().zip(found).map(|(name, found)| {
            let Found { known, total } = found;
            format!("{name}: {known} of {total} samples in its code got the call chain that it tells of")
        }));
        if !self.has_events(options) {
            self.traces.look_through();
        }
        Ok(records)
    }
}
