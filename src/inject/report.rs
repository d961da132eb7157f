//! Telling what happened.

use std::cell::OnceCell;
use std::path::Path;

use crate::code::clock::Alignment;
use crate::code::profile_index::ProfileIndex;
use crate::code::selection::{Selection, SpaceCounts};
use crate::code::timeline::Timeline;
use crate::diagnostics::{Diagnostic, Issue};
use crate::files::MappedFile;
use crate::files::search::shown;
use crate::hash::{HashMap, HashSet};
use crate::inject::aux_logs::AuxLogs;
use crate::inject::cache::Filled;
use crate::inject::objects::Objects;
use crate::inject::perf_maps::{FoundMaps, UsedMap};
use crate::inject::recording::{Recording, Stages};
use crate::inject::sources::{Sources, UsedFile};
use crate::inject::{InputKind, Options, Tiers, hot_functions, is_standard, output, runtimes};
use crate::perf::Profile;
use crate::runtime::{Change, CodeFile, FileKind};
use crate::summary::{
    CacheSummary, DumpSummary, FORMAT, FunctionSummary, PerfMapSummary, SampleSummary, Summary,
    SymbolSummary, Unnamed,
};
use crate::tally::Tally;
use crate::units::Pid;

/// Reports a file of a runtime that was truncated while it was read.
fn shrunk(file: &MappedFile) -> Option<Diagnostic> {
    file.has_shrunk()
        .then(|| Diagnostic::new(Issue::FileShrunk).in_file(file.path()))
}

/// All that a run found and did.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// What was asked for.
    pub options: &'a Options,
    /// What the input is.
    pub input_kind: InputKind,
    /// The profile.
    pub profile: &'a Profile<'a>,
    /// What its records had to be made into.
    pub expanded: &'a Stages,
    /// What the first walk over it found.
    pub profile_index: &'a ProfileIndex,
    /// Which code was where.
    pub timeline: &'a Timeline,
    /// How many loads are left to the symbols of the files that they are in.
    pub loads_in_files: u64,
    /// Which of it is written, and how many samples have a name.
    pub selection: &'a Selection,
    /// How many functions and symbols samples touch.
    pub touched: (u64, u64),
    /// What the runtimes wrote.
    pub sources: &'a Sources<'a>,
    /// Which perf maps there are.
    pub found_maps: &'a FoundMaps,
    /// What is in those that are used.
    pub maps: &'a [UsedMap<'a>],
    /// Logs and traces.
    pub aux_logs: &'a AuxLogs<'a>,
    /// What was written.
    pub objects: &'a Objects,
    /// Maps that were too much to follow.
    pub cover_faults: &'a Tally<Issue>,
    /// Whether a copy of the kernel's code was left out of the output.
    pub has_lost_kernel_copy: bool,
    /// Feature sections that were left out of the output.
    pub left_out: &'a [u8],
    /// What was done with a build-id cache, if there is to be one.
    pub cached: Option<&'a Filled>,
}

impl Run<'_> {
    /// Puts together what is to be aux_logs.
    pub fn summary(&self) -> Summary {
        let has_tiers = self.options.tiers != Tiers::Off;
        let is_written = self.options.summary.is_some();
        let sampled = (has_tiers || is_written)
            .then(|| hot_functions::functions(self.timeline, self.selection, self.sources, self.maps));
        let events = self.sources.used.iter().flat_map(|used| used.code.events());
        let loaded = events.clone().filter(|event| event.change == Change::Load);
        let moved = events.filter(|event| matches!(event.change, Change::Move { .. }));
        let has_objects = !self.objects.placed.is_empty();
        Summary {
            format: FORMAT,
            input: shown(&self.options.input),
            output: shown(&self.options.output),
            elf_dir: has_objects.then(|| shown(&output::elf_dir(self.options))),
            build_id_cache: self.build_id_cache(),
            dumps: self.sources.used.iter().map(dump_summary).collect(),
            functions: FunctionSummary {
                loaded: loaded.count() as u64,
                moved: moved.count() as u64,
                touched: self.touched.0,
                written: self.objects.functions,
                objects: self.objects.function_objects,
            },
            traces: self.aux_logs.traces.summaries(),
            perf_maps: self.maps.iter().map(map_summary).collect(),
            symbols: self.symbols(),
            samples: sample_summary(self.selection),
            tiers: sampled.as_deref().filter(|_| has_tiers).map(hot_functions::tiers),
            sampled_functions: sampled.filter(|_| is_written),
            diagnostics: self.diagnostics(),
        }
    }

    fn build_id_cache(&self) -> Option<CacheSummary> {
        let filled = self.cached?;
        Some(CacheSummary {
            path: shown(self.options.build_id_cache.as_deref()?),
            objects: filled.added + filled.present,
            added: filled.added,
        })
    }

    fn symbols(&self) -> SymbolSummary {
        SymbolSummary {
            known: self.maps.iter().map(|used| used.map.symbols.len() as u64).sum(),
            touched: self.touched.1,
            written: self.objects.symbols,
        }
    }

    fn diagnostics(&self) -> Vec<Diagnostic> {
        let input = shown_input(&self.options.input);
        let of_input = |diagnostic: Diagnostic| diagnostic.in_file_called(input.clone());
        let mut all = profile_diagnostics(self.options, self.profile, self.profile_index, self.expanded);
        if self.selection.samples.cut > 0 {
            let cut = Diagnostic::new(Issue::SamplesCut);
            all.push(of_input(cut.times(self.selection.samples.cut)));
        }
        for faults in [self.cover_faults, self.timeline.faults()] {
            all.extend(Diagnostic::of_tally(faults, None, false).map(of_input));
        }
        all.extend(self.sources.diagnostics.iter().cloned());
        for (used, line_faults) in self.sources.used.iter().zip(&self.objects.line_faults) {
            all.extend(dump_faults(used));
            all.extend(Diagnostic::of_tally(
                line_faults,
                Some(used.found.file.path()),
                true,
            ));
            all.extend(dump_losses(used));
        }
        all.extend(aux_log_diagnostics(self.options, self.aux_logs));
        all.extend(map_diagnostics(self.found_maps, self.maps));
        all.extend(Diagnostic::of_tally(&self.objects.faults, None, false));
        if !self.selection.has_all_symbols {
            all.push(Diagnostic::new(Issue::SymbolsNotWritten));
        }
        all.extend(self.uncertain_clocks());
        all.extend(self.late_dumps());
        all.extend(self.nothing_named());
        if let Some(filled) = self.cached {
            let path = self.options.build_id_cache.as_deref();
            all.extend(Diagnostic::of_tally(&filled.faults, path, false));
        }
        all.extend(self.hints());
        all
    }

    /// Files whose clock differs from the profile's by a distance that nothing shows.
    fn uncertain_clocks(&self) -> impl Iterator<Item = Diagnostic> {
        let files = self.sources.used.iter().zip(&self.selection.doubtful);
        files.filter_map(|(used, &count)| {
            let diagnostic = match count {
                0 if used.alignment.is_guess() => Diagnostic::new(Issue::ClockGuessed),
                0 => return None,
                count => Diagnostic::new(Issue::ClockDoubtful).times(count),
            };
            Some(diagnostic.in_file(used.found.file.path()))
        })
    }

    /// Warnings of dumps that load all their functions only after the samples at their addresses.
    fn late_dumps(&self) -> impl Iterator<Item = Diagnostic> {
        let mut has_hits = vec![false; self.sources.used.len()];
        let hits = self.timeline.mappings().iter().zip(&self.selection.hits);
        for (mapping, _) in hits.filter(|&(_, &hits)| hits > 0) {
            if let Some(has_hits) = has_hits.get_mut(mapping.function.file as usize) {
                *has_hits = true;
            }
        }
        let mut early: HashMap<Pid, u64> = HashMap::default();
        let spaces = self.profile_index.processes.spaces().iter();
        for (space, counts) in spaces.zip(&self.selection.spaces) {
            *early.entry(space.pid).or_default() += u64::from(counts.before_load);
        }
        for (has_hits, &doubtful) in has_hits.iter_mut().zip(&self.selection.doubtful) {
            *has_hits |= doubtful > 0;
        }
        let without_hits = self
            .sources
            .used
            .iter()
            .zip(has_hits)
            .filter(|&(_, has_hits)| !has_hits);
        without_hits.filter_map(move |(used, _)| {
            let counts = used.found.pids.iter().filter_map(|pid| early.get(pid));
            let count: u64 = counts.sum();
            (count > 0).then(|| {
                let late = Diagnostic::new(Issue::ClockLate).times(count);
                late.in_file(used.found.file.path())
            })
        })
    }

    /// Warnings of a profile in which nothing could be named.
    fn nothing_named(&self) -> Option<Diagnostic> {
        let samples = &self.selection.samples;
        match (samples.total, samples.jit(), samples.named) {
            (0, ..) if self.input_kind == InputKind::Profile => Some(Diagnostic::new(Issue::NoSamples)),
            (_, 1.., 0) if samples.doubtful == 0 => {
                Some(Diagnostic::new(Issue::NothingNamed).times(samples.jit()))
            }
            _ => None,
        }
    }

    /// The processes with an address space whose samples are as asked.
    fn processes_with(&self, is_asked: impl Fn(&SpaceCounts) -> bool) -> HashSet<Pid> {
        let spaces = self.profile_index.processes.spaces().iter();
        let asked = spaces.zip(&self.selection.spaces);
        asked
            .filter(|(_, counts)| is_asked(counts))
            .map(|(space, _)| space.pid)
            .collect()
    }

    /// The processes whose runtimes should have logged their code, or more of it.
    fn silent_processes(&self) -> HashSet<Pid> {
        let samples = &self.selection.samples;
        self.processes_with(|counts| match samples.jit() {
            // An interpreter may have a JIT compiler that was not switched on.
            0 => counts.samples > 0,
            _ => counts.no_dump > 0 || samples.named == 0 && counts.not_in_dump > 0,
        })
    }

    /// What is missing, and how to get it.
    fn hints(&self) -> Vec<Diagnostic> {
        let mut hints = Vec::new();
        if !self.profile_index.injected.is_empty() {
            hints.push(Diagnostic::new(Issue::AlreadyInjected));
        } else if self.selection.samples.total == 0 {
            // There is a warning of that already.
        } else if has_no_code(self.profile_index, self.sources, self.maps, self.aux_logs) {
            let pids = self.silent_processes();
            hints.extend(no_code(self.profile, self.profile_index, &pids));
        } else if self.selection.samples.unnamed() > 0 {
            let pids = self.silent_processes();
            hints.extend(undescribed(self.profile, self.profile_index, &pids));
        }
        let left_out = self.left_out.iter();
        hints.extend(left_out.map(|id| Diagnostic::new(Issue::FeatureNotForPipes).with("id", id)));
        let unnamed = self.processes_with(SpaceCounts::has_unnamed);
        let unreadable = self.found_maps.unreadable.iter();
        let unreadable = unreadable.filter(|pid| unnamed.contains(pid)).count();
        if unreadable > 0 {
            let unreadable = unreadable as u64;
            hints.push(Diagnostic::new(Issue::FileSystemsUnreadable).times(unreadable));
        }
        if self.has_lost_kernel_copy {
            hints.push(Diagnostic::new(Issue::KernelCopyLeftOut));
        }
        if self.loads_in_files > 0 {
            hints.push(Diagnostic::new(Issue::CodeInFiles).times(self.loads_in_files));
        }
        if self.profile_index.has_aux && !self.objects.placed.is_empty() {
            hints.push(Diagnostic::new(Issue::AuxNeedsAll));
        }
        hints
    }
}

impl Recording<'_> {
    /// What to report of the profile and the files of its runtimes.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        let mut all = profile_diagnostics(self.options, self.profile, self.profile_index, self.expanded);
        all.extend(self.sources.diagnostics.iter().cloned());
        for used in &self.sources.used {
            all.extend(dump_faults(used));
            all.extend(dump_losses(used));
        }
        all.extend(aux_log_diagnostics(self.options, self.aux_logs));
        all.extend(map_diagnostics(self.found_maps, &self.maps));
        all
    }

    /// How the runtimes of the processes `pids` describe their code, if none has.
    pub fn hints(&self, pids: &HashSet<Pid>) -> Vec<Diagnostic> {
        match has_no_code(self.profile_index, &self.sources, &self.maps, self.aux_logs) {
            true => no_code(self.profile, self.profile_index, pids),
            false => Vec::new(),
        }
    }

    /// How the clocks of files that differ from the profile's were aligned, for people.
    pub fn clocks(&self) -> Vec<String> {
        let used = self.sources.used.iter();
        let other = used.filter(|used| used.alignment != Alignment::Same);
        let clocks =
            other.map(|used| format!("{}: clock: {}", shown(used.found.file.path()), used.alignment));
        clocks.collect()
    }
}

/// Whether no runtime has described any code.
fn has_no_code(
    profile_index: &ProfileIndex,
    sources: &Sources<'_>,
    maps: &[UsedMap<'_>],
    aux_logs: &AuxLogs<'_>,
) -> bool {
    profile_index.markers.is_empty()
        && sources.used.is_empty()
        && maps.is_empty()
        && aux_logs.traces.all.is_empty()
}

/// Reports that, and how the runtimes of the processes `pids` describe their code.
fn no_code(profile: &Profile<'_>, profile_index: &ProfileIndex, pids: &HashSet<Pid>) -> Vec<Diagnostic> {
    let issues = [Issue::NoCodeFiles, Issue::NoCodeFilesNorRuntime];
    with_enabling(issues, 1, profile, profile_index, pids)
}

/// Reports samples without a name in the processes `pids`, and how their runtimes describe their code.
fn undescribed(profile: &Profile<'_>, profile_index: &ProfileIndex, pids: &HashSet<Pid>) -> Vec<Diagnostic> {
    if pids.is_empty() {
        return Vec::new();
    }
    let issues = [Issue::UndescribedCode, Issue::UndescribedCodeOfUnknown];
    with_enabling(issues, pids.len() as u64, profile, profile_index, pids)
}

/// Reports an issue and the options of the runtimes of the processes `pids`, or the other issue if none is known.
fn with_enabling(
    [known, unknown]: [Issue; 2],
    count: u64,
    profile: &Profile<'_>,
    profile_index: &ProfileIndex,
    pids: &HashSet<Pid>,
) -> Vec<Diagnostic> {
    let enable = runtimes::how_to_enable(profile, &profile_index.processes, pids);
    let issue = if enable.is_empty() { unknown } else { known };
    let first = Diagnostic::new(issue).times(count);
    std::iter::once(first).chain(enable).collect()
}

/// What to report of the profile itself.
fn profile_diagnostics(
    options: &Options,
    profile: &Profile<'_>,
    profile_index: &ProfileIndex,
    expanded: &Stages,
) -> Vec<Diagnostic> {
    let input = shown_input(&options.input);
    let of_input = |diagnostic: Diagnostic| diagnostic.in_file_called(input.clone());
    let mut all: Vec<Diagnostic> = Diagnostic::of_tally(&profile.faults, None, true)
        .map(of_input)
        .collect();
    if profile_index.has_compressed {
        all.push(of_input(Diagnostic::new(Issue::ProfileNestedCompression)));
    }
    for expanded in expanded.iter().filter_map(OnceCell::get) {
        for (path, faults) in &expanded.faults {
            all.extend(Diagnostic::of_tally(faults, Some(path), true));
        }
        let damage = expanded.damage.iter().filter(|(_, damage)| !damage.is_empty());
        all.extend(damage.map(|(path, damage)| {
            let damaged = Diagnostic::new(Issue::ProfileDamage)
                .in_file(path)
                .at(damage.first_offset);
            damaged.times(damage.places).with("bytes", damage.bytes)
        }));
    }
    let lost = (profile.data.len() as u64).saturating_sub(profile_index.data_end);
    if lost > 0 {
        let tail = Diagnostic::new(Issue::ProfileTail).with("bytes", lost);
        all.push(of_input(tail).at(profile.data_offset.saturating_add(profile_index.data_end)));
    }
    all
}

/// What to report of the records of a dump.
fn dump_faults(used: &UsedFile<'_>) -> Vec<Diagnostic> {
    match &used.code {
        CodeFile::Jitdump(dump) => {
            Diagnostic::of_tally(dump.faults(), Some(used.found.file.path()), true).collect()
        }
        CodeFile::Named(_) => Vec::new(),
    }
}

/// What of a dump is not used.
fn dump_losses(used: &UsedFile<'_>) -> impl Iterator<Item = Diagnostic> {
    let file = &used.found.file;
    let lost = |issue, count| (count > 0).then(|| Diagnostic::new(issue).times(count).in_file(file.path()));
    // Traces are reported with their records.
    let is_trace = matches!(&used.code, CodeFile::Named(code) if code.source == FileKind::XrayTrace);
    let losses = [
        shrunk(file).filter(|_| !is_trace),
        lost(Issue::JitdumpNotInherited, used.uncopied),
        lost(Issue::JitdumpChildAmbiguous, used.ownerless),
    ];
    losses.into_iter().flatten()
}

/// What to report of logs and traces.
fn aux_log_diagnostics(options: &Options, aux_logs: &AuxLogs<'_>) -> Vec<Diagnostic> {
    let mut all = Vec::new();
    for log in &aux_logs.logs.all {
        let path = Some(log.found.file.path());
        for faults in [log.packing_faults, &log.index.faults, &log.losses] {
            all.extend(Diagnostic::of_tally(faults, path, true));
        }
    }
    all.extend(aux_logs.logs.packed.iter().filter_map(|file| shrunk(file)));
    let traces = &aux_logs.traces;
    for (trace, seen) in traces.all.iter().zip(&traces.seen) {
        let path = Some(trace.file.path());
        all.extend(shrunk(trace.file));
        for faults in [&trace.index.faults, &seen.faults, &seen.losses] {
            all.extend(Diagnostic::of_tally(faults, path, true));
        }
    }
    for own in [
        &aux_logs.logs.diagnostics,
        &traces.diagnostics,
        &aux_logs.diagnostics,
    ] {
        all.extend(own.iter().cloned());
    }
    let input = shown_input(&options.input);
    let losses = Diagnostic::of_tally(&aux_logs.losses, None, false);
    all.extend(losses.map(|loss| loss.in_file_called(input.clone())));
    all
}

/// What to report of perf maps.
fn map_diagnostics(found_maps: &FoundMaps, maps: &[UsedMap<'_>]) -> Vec<Diagnostic> {
    let mut all = found_maps.diagnostics.clone();
    for used in maps {
        all.extend(Diagnostic::of_tally(
            &used.map.faults,
            Some(used.found.file.path()),
            true,
        ));
        all.extend(shrunk(&used.found.file));
    }
    all
}

/// What to call the input.
pub fn shown_input(path: &Path) -> String {
    if is_standard(path) {
        return "standard input".into();
    }
    shown(path)
}

fn dump_summary(used: &UsedFile<'_>) -> DumpSummary {
    let loads = used.code.events().iter();
    let loads = loads.filter(|event| event.change == Change::Load);
    DumpSummary {
        kind: match used.code {
            CodeFile::Jitdump(_) => FileKind::Jitdump,
            CodeFile::Named(ref code) => code.source,
        },
        path: shown(used.found.file.path()),
        pids: used.found.pids.iter().map(|pid| pid.0).collect(),
        functions: loads.count() as u64,
        same_clock: used.alignment == Alignment::Same,
        clock: used.alignment.to_string(),
    }
}

fn map_summary(used: &UsedMap<'_>) -> PerfMapSummary {
    PerfMapSummary {
        path: shown(used.found.file.path()),
        pid: used.found.pid.0,
        symbols: used.map.symbols.len() as u64,
    }
}

fn sample_summary(selection: &Selection) -> SampleSummary {
    let samples = &selection.samples;
    SampleSummary {
        total: samples.total,
        jit: samples.jit(),
        named: samples.named,
        named_by_map: samples.named_by_map,
        named_percent: samples.named_percent(),
        unnamed: Unnamed {
            doubtful: samples.doubtful,
            before_load: samples.before_load,
            not_in_dump: samples.not_in_dump,
            dump_unusable: samples.dump_unusable,
            no_dump: samples.no_dump,
        },
        with_named_frame: samples.with_named_frame,
    }
}
