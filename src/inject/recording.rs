//! Reading of a profile and the runtime files of its processes, before anything is written.

use std::cell::OnceCell;

use crate::code::file_code;
use crate::code::profile_index::ProfileIndex;
use crate::code::remapped::is_remapped;
use crate::code::timeline::Timeline;
use crate::diagnostics::{Diagnostic, Issue};
use crate::files::Packing;
use crate::inject::aux_logs::AuxLogs;
use crate::inject::dumps::Found;
use crate::inject::input::{self, Expanded, Input};
use crate::inject::ownership::Ownership;
use crate::inject::perf_maps::{self, FoundMaps, UsedMap};
use crate::inject::sources::{self, Alignments, Sources};
use crate::inject::{InputKind, Options, Progress, dumps, mono, output, xray};
use crate::machine::Machine;
use crate::perf::Profile;
use crate::runtime::jitdump::marker;

/// A profile with the code of its processes.
pub struct Recording<'a> {
    /// Options of the run.
    pub options: &'a Options,
    /// Files of the profile.
    pub input: &'a Input,
    /// Repaired or decompressed records, if there are any.
    pub expanded: &'a Stages,
    /// The profile.
    pub profile: &'a Profile<'a>,
    /// Index of the profile.
    pub profile_index: &'a ProfileIndex,
    /// Machine that the profile was recorded on.
    pub machine: Machine,
    /// Logs of Mono's profiler and XRay traces.
    pub aux_logs: &'a AuxLogs<'a>,
    /// Runtime files with code.
    pub sources: Sources<'a>,
    /// Perf maps that were found.
    pub found_maps: &'a FoundMaps,
    /// Contents of the perf maps in use.
    pub maps: Vec<UsedMap<'a>>,
    /// Code of all processes over time.
    pub timeline: Timeline,
    /// Number of loads left to the symbols of the mapped files that contain them, so that stacks can be
    /// unwound.
    pub loads_in_files: u64,
}

/// Records of a profile after they were decompressed, merged and repaired, and after damage inside compressed
/// records was repaired.
pub type Stages = [OnceCell<Expanded>; 2];

/// Reads a profile, or makes one from logs and traces, and reads its runtime files. Passes the result to
/// `then`.
pub fn read<T>(
    options: &Options,
    progress: &mut dyn Progress,
    then: impl FnOnce(&Recording<'_>, &mut dyn Progress) -> Result<T, Diagnostic>,
) -> Result<T, Diagnostic> {
    let input = input::open(options)?;
    progress.input_ended();
    let result = read_input(options, &input, |recording| then(recording, progress));
    // The error may only be a consequence of an input that was truncated.
    result.or_else(|error| input.check().and(Err(error)))
}

fn read_input<T>(
    options: &Options,
    input: &Input,
    then: impl FnOnce(&Recording<'_>) -> Result<T, Diagnostic>,
) -> Result<T, Diagnostic> {
    let expanded = Default::default();
    let trust = Ownership::new(options, input.main.owner());
    let context = Context {
        options,
        input,
        expanded: &expanded,
        trust,
    };
    let kind = input.kind(options);
    let recorded = match kind {
        InputKind::Profile => Some(read_profile(input, &expanded)?),
        InputKind::MonoLog | InputKind::XrayTrace => None,
    };
    let recorded = recorded
        .as_ref()
        .map(|(profile, profile_index)| (profile, profile_index));
    let input_if = |own| (kind == own).then_some(&input.main);
    let processes = recorded.map(|(_, profile_index)| &profile_index.processes);
    let logs = mono::open(options, input_if(InputKind::MonoLog), processes, trust)?;
    let traces = xray::open(options, input_if(InputKind::XrayTrace), trust)?;
    let aux_logs = AuxLogs::new(mono::read(&logs)?, xray::read(options, &traces, recorded)?);
    match recorded {
        Some((profile, profile_index)) => context.read_with_aux_logs(profile, profile_index, aux_logs, then),
        None => context.read_aux_logs_only(aux_logs, then),
    }
}

/// Data that all steps use.
struct Context<'a> {
    options: &'a Options,
    input: &'a Input,
    /// Repaired or decompressed records.
    expanded: &'a Stages,
    trust: Ownership,
}

impl Context<'_> {
    /// Adds the events and call chains of logs and traces to a profile before its code is read.
    fn read_with_aux_logs<T>(
        &self,
        profile: &Profile<'_>,
        profile_index: &ProfileIndex,
        mut aux_logs: AuxLogs<'_>,
        then: impl FnOnce(&Recording<'_>) -> Result<T, Diagnostic>,
    ) -> Result<T, Diagnostic> {
        let (has_events, has_stacks) = (
            aux_logs.has_events(self.options),
            aux_logs.has_stacks(self.options),
        );
        let mut aligned = Alignments::new();
        if has_events || has_stacks {
            // Clocks are aligned with the recorded profile, for all files at once: code and events get the
            // same times.
            let found = dumps::find(profile, profile_index, self.options, self.trust)?;
            aligned = self
                .sources(profile, profile_index, &aux_logs, &found, &aligned)
                .alignments();
            aux_logs.prepare(Some((profile, profile_index)), &aligned);
        }
        let spliced = match has_stacks {
            true => Some(aux_logs.splice_stacks(self.options, profile)?),
            false => None,
        };
        let spliced = spliced
            .as_ref()
            .map(|records| profile.clone().with_records(records));
        if has_events {
            let made = aux_logs.make_events(self.options, Some(spliced.as_ref().unwrap_or(profile)))?;
            return self.continue_with(&made.profile(), &aux_logs, &aligned, then);
        }
        match &spliced {
            Some(spliced) => self.continue_with(spliced, &aux_logs, &aligned, then),
            None => self.read_code(profile, profile_index, &aux_logs, &aligned, then),
        }
    }

    /// Makes a profile from logs and traces alone.
    fn read_aux_logs_only<T>(
        &self,
        mut aux_logs: AuxLogs<'_>,
        then: impl FnOnce(&Recording<'_>) -> Result<T, Diagnostic>,
    ) -> Result<T, Diagnostic> {
        let aligned = Alignments::new();
        aux_logs.prepare(None, &aligned);
        let made = aux_logs.make_events(self.options, None)?;
        self.continue_with(&made.profile(), &aux_logs, &aligned, then)
    }

    /// Continues with a rewritten profile.
    fn continue_with<T>(
        &self,
        profile: &Profile<'_>,
        aux_logs: &AuxLogs<'_>,
        aligned: &Alignments,
        then: impl FnOnce(&Recording<'_>) -> Result<T, Diagnostic>,
    ) -> Result<T, Diagnostic> {
        let profile_index = ProfileIndex::of(profile, marker::dump_path);
        self.read_code(profile, &profile_index, aux_logs, aligned, then)
    }

    /// Reads runtime files that were found.
    fn sources<'f>(
        &self,
        profile: &Profile<'_>,
        profile_index: &ProfileIndex,
        aux_logs: &AuxLogs<'f>,
        found: &'f Found,
        aligned: &Alignments,
    ) -> Sources<'f> {
        let machine = Machine::of_profile(profile.architecture(), profile.endian);
        let clock_offset = self.options.clock_offset;
        sources::read(
            profile,
            profile_index,
            found,
            &aux_logs.logs,
            machine,
            clock_offset,
            aligned,
        )
    }

    /// Finds and reads the runtime files of a profile.
    fn read_code<T>(
        &self,
        profile: &Profile<'_>,
        profile_index: &ProfileIndex,
        aux_logs: &AuxLogs<'_>,
        aligned: &Alignments,
        then: impl FnOnce(&Recording<'_>) -> Result<T, Diagnostic>,
    ) -> Result<T, Diagnostic> {
        let Self { options, input, .. } = *self;
        let machine = Machine::of_profile(profile.architecture(), profile.endian);
        let found = dumps::find(profile, profile_index, options, self.trust)?;
        let found_maps = perf_maps::find(profile, profile_index, &found.dumps, options, self.trust)?;
        output::refuse_conflicts(options, input, &found, &found_maps, aux_logs)?;
        let mut sources = self.sources(profile, profile_index, aux_logs, &found, aligned);
        sources.add_traces(&aux_logs.traces, machine);
        let is_unwound = profile.attrs.copies_stacks();
        let (mut timeline, loads_in_files) = timeline(&mut sources, profile_index, is_unwound);
        let maps = perf_maps::read(&found_maps);
        let tables = maps.iter().map(UsedMap::table).collect();
        timeline.add_symbols(&profile_index.processes, &profile_index.injected, tables);
        then(&Recording {
            options,
            input,
            expanded: self.expanded,
            profile,
            profile_index,
            machine,
            aux_logs,
            sources,
            found_maps: &found_maps,
            maps,
            timeline,
            loads_in_files,
        })
    }
}

/// Returns the code of all processes over time, and the number of loads left to the symbols of mapped files
/// if stacks will be unwound.
fn timeline(sources: &mut Sources<'_>, profile_index: &ProfileIndex, is_unwound: bool) -> (Timeline, u64) {
    let processes = &profile_index.processes;
    let mut events = sources.events(processes);
    let loads_in_files = match is_unwound {
        true => file_code::remove(processes, &mut events),
        false => 0,
    };
    (Timeline::new(processes, events), loads_in_files)
}

/// Parses and indexes the profile. If records have to be decompressed, merged or repaired, the new ones are
/// kept in `expanded`.
fn read_profile<'a>(
    input: &'a Input,
    expanded: &'a Stages,
) -> Result<(Profile<'a>, ProfileIndex), Diagnostic> {
    let path = input.main.path();
    if let Some(packing) = Packing::of(&input.main) {
        let packed = Diagnostic::new(Issue::ProfilePacked).in_file(path);
        return Err(packed.with("program", packing.program()));
    }
    let mut profile = Profile::parse(&input.main).map_err(|error| error.in_file(path))?;
    let [plain, repaired] = expanded;
    let mut profile_index = ProfileIndex::of(&profile, marker::dump_path);
    if profile_index.has_compressed
        || profile_index.has_damage
        || profile_index.has_refused
        || !input.parts.is_empty()
    {
        let made = input.expand(&profile)?;
        profile = profile.with_records(&plain.get_or_init(|| made).file);
        profile_index = ProfileIndex::of(&profile, marker::dump_path);
    }
    if profile_index.has_damage || profile_index.has_refused {
        let made = input.repair(&profile)?;
        profile = profile.with_records(&repaired.get_or_init(|| made).file);
        profile_index = ProfileIndex::of(&profile, marker::dump_path);
    }
    if is_remapped(&profile_index.processes) {
        return Err(Diagnostic::new(Issue::ProfileRemapped).in_file(path));
    }
    Ok((profile, profile_index))
}
