//! A profile, and what the runtimes of its processes wrote about their code: what there is to be known before anything
//! is written.

use std::cell::OnceCell;

use crate::code::file_code;
use crate::code::profile_index::ProfileIndex;
use crate::code::remapped::is_remapped;
use crate::code::timeline::Timeline;
use crate::files::Packing;
use crate::inject::aux_logs::AuxLogs;
use crate::inject::dumps::Found;
use crate::inject::input::{self, Expanded, Input};
use crate::inject::ownership::Ownership;
use crate::inject::perf_maps::{self, FoundMaps, UsedMap};
use crate::inject::sources::{self, Alignments, Sources};
use crate::inject::{Error, InputKind, Options, Progress, dumps, mono, output, xray};
use crate::machine::Machine;
use crate::perf::Profile;
use crate::runtime::jitdump::marker;

/// A profile with the code of its processes.
pub struct Recording<'a> {
    /// What was asked for.
    pub options: &'a Options,
    /// The files of the profile.
    pub input: &'a Input,
    /// What its records had to be made into.
    pub expanded: &'a Stages,
    /// The profile.
    pub profile: &'a Profile<'a>,
    /// What the first walk over it found.
    pub profile_index: &'a ProfileIndex,
    /// The machine that it was recorded on.
    pub machine: Machine,
    /// Logs and traces.
    pub told: &'a AuxLogs<'a>,
    /// What the runtimes wrote.
    pub sources: Sources<'a>,
    /// Which perf maps there are.
    pub found_maps: &'a FoundMaps,
    /// What is in those that are used.
    pub maps: Vec<UsedMap<'a>>,
    /// Which code was where.
    pub timeline: Timeline,
    /// How many loads are left to the symbols of the files that they are in, so that stacks can be unwound.
    pub loads_in_files: u64,
}

/// What the records of a profile had to be made into, and what that had to be made into if it was damaged
/// itself.
pub type Stages = [OnceCell<Expanded>; 2];

/// Reads a profile, or makes one of what logs and traces tell, and the files of its runtimes. What is to be done with
/// all that is `then`.
pub fn read<T>(
    options: &Options,
    progress: &mut dyn Progress,
    then: impl FnOnce(&Recording<'_>, &mut dyn Progress) -> Result<T, Error>,
) -> Result<T, Error> {
    let input = input::open(options)?;
    progress.input_ended();
    let result = read_input(options, &input, |recording| then(recording, progress));
    // What went wrong may be no more than what comes of an input that was cut off.
    result.or_else(|error| input.check().and(Err(error)))
}

fn read_input<T>(
    options: &Options,
    input: &Input,
    then: impl FnOnce(&Recording<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
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
    let told = AuxLogs::new(mono::read(&logs)?, xray::read(options, &traces, recorded)?);
    match recorded {
        Some((profile, profile_index)) => context.read_told(profile, profile_index, told, then),
        None => context.read_alone(told, then),
    }
}

/// What all steps have in common.
struct Context<'a> {
    options: &'a Options,
    input: &'a Input,
    /// What its records had to be made into.
    expanded: &'a Stages,
    trust: Ownership,
}

impl Context<'_> {
    /// Puts what logs and traces tell into a profile first.
    fn read_told<T>(
        &self,
        profile: &Profile<'_>,
        profile_index: &ProfileIndex,
        mut told: AuxLogs<'_>,
        then: impl FnOnce(&Recording<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (has_events, has_stacks) = (told.has_events(self.options), told.has_stacks(self.options));
        let mut aligned = Alignments::new();
        if has_events || has_stacks {
            // By the profile as it was recorded, for all files at once: code and events get the same times.
            let found = dumps::find(profile, profile_index, self.options, self.trust)?;
            aligned = self
                .sources(profile, profile_index, &told, &found, &aligned)
                .alignments();
            told.prepare(Some((profile, profile_index)), &aligned);
        }
        let spliced = match has_stacks {
            true => Some(told.splice_stacks(self.options, profile)?),
            false => None,
        };
        let spliced = spliced
            .as_ref()
            .map(|records| profile.clone().with_records(records));
        if has_events {
            let made = told.make_events(self.options, Some(spliced.as_ref().unwrap_or(profile)))?;
            return self.read_anew(&made.profile(), &told, &aligned, then);
        }
        match &spliced {
            Some(spliced) => self.read_anew(spliced, &told, &aligned, then),
            None => self.read_code(profile, profile_index, &told, &aligned, then),
        }
    }

    /// Makes a profile of what logs and traces tell.
    fn read_alone<T>(
        &self,
        mut told: AuxLogs<'_>,
        then: impl FnOnce(&Recording<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let aligned = Alignments::new();
        told.prepare(None, &aligned);
        let made = told.make_events(self.options, None)?;
        self.read_anew(&made.profile(), &told, &aligned, then)
    }

    /// Goes on with a profile that is another than the one that was read.
    fn read_anew<T>(
        &self,
        profile: &Profile<'_>,
        told: &AuxLogs<'_>,
        aligned: &Alignments,
        then: impl FnOnce(&Recording<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let profile_index = ProfileIndex::of(profile, marker::dump_path);
        self.read_code(profile, &profile_index, told, aligned, then)
    }

    /// Reads the files of a profile's runtimes.
    fn sources<'f>(
        &self,
        profile: &Profile<'_>,
        profile_index: &ProfileIndex,
        told: &AuxLogs<'f>,
        found: &'f Found,
        aligned: &Alignments,
    ) -> Sources<'f> {
        let machine = Machine::of_profile(profile.architecture(), profile.order);
        let clock_offset = self.options.clock_offset;
        sources::read(
            profile,
            profile_index,
            found,
            &told.logs,
            machine,
            clock_offset,
            aligned,
        )
    }

    /// Finds and reads the files of a profile's runtimes.
    fn read_code<T>(
        &self,
        profile: &Profile<'_>,
        profile_index: &ProfileIndex,
        told: &AuxLogs<'_>,
        aligned: &Alignments,
        then: impl FnOnce(&Recording<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Self { options, input, .. } = *self;
        let machine = Machine::of_profile(profile.architecture(), profile.order);
        let found = dumps::find(profile, profile_index, options, self.trust)?;
        let found_maps = perf_maps::find(profile, profile_index, &found.dumps, options, self.trust)?;
        output::refuse_conflicts(options, input, &found, &found_maps, told)?;
        let mut sources = self.sources(profile, profile_index, told, &found, aligned);
        sources.add_traces(&told.traces, machine);
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
            told,
            sources,
            found_maps: &found_maps,
            maps,
            timeline,
            loads_in_files,
        })
    }
}

/// The code of all processes over time, and how many loads are left to the files that they are in if stacks will be
/// unwound.
fn timeline(sources: &mut Sources<'_>, profile_index: &ProfileIndex, is_unwound: bool) -> (Timeline, u64) {
    let processes = &profile_index.processes;
    let mut events = sources.events(processes);
    let loads_in_files = match is_unwound {
        true => file_code::remove(processes, &mut events),
        false => 0,
    };
    (Timeline::new(processes, events), loads_in_files)
}

/// Reads what the profile says of itself, from plain records: what its own had to be made into first is kept
/// in `expanded`.
fn read_profile<'a>(input: &'a Input, expanded: &'a Stages) -> Result<(Profile<'a>, ProfileIndex), Error> {
    let path = || input.main.path().to_owned();
    if let Some(packing) = Packing::of(&input.main) {
        return Err(Error::Packed {
            path: path(),
            packing,
        });
    }
    let mut profile = Profile::parse(&input.main).map_err(|cause| Error::Profile { path: path(), cause })?;
    let [plain, mended] = expanded;
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
        let made = input.mend(&profile)?;
        profile = profile.with_records(&mended.get_or_init(|| made).file);
        profile_index = ProfileIndex::of(&profile, marker::dump_path);
    }
    if is_remapped(&profile_index.processes) {
        return Err(Error::Remapped(path()));
    }
    Ok((profile, profile_index))
}
