//! Telling what happened.

use std::cell::OnceCell;
use std::fmt::Display;
use std::path::Path;

use crate::code::clock::Alignment;
use crate::code::mmap_trim;
use crate::code::profile_index::ProfileIndex;
use crate::code::selection::{Selection, SpaceCounts};
use crate::code::timeline::Timeline;
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
use crate::runtime::{Change, CodeFile, FileKind, jitdump};
use crate::summary::{
    self, CacheSummary, DumpSummary, FORMAT, FunctionSummary, PerfMapSummary, SampleSummary, Summary,
    SymbolSummary, Unnamed, Warning,
};
use crate::tally::Tally;
use crate::units::Pid;

/// What is said of a file of a runtime if it was cut off.
fn shrunk(file: &MappedFile) -> Option<Warning> {
    let what = "got shorter while it was read: its end is missing";
    file.has_shrunk().then(|| Warning {
        file: Some(shown(file.path())),
        ..Warning::new(what)
    })
}

/// What is said where names depend on a distance between clocks that nothing shows.
const DOUBTFUL: &str = "samples at addresses that held several functions are not counted as named: its clock is not the profile's, and \
     how far apart they are is not known well enough to tell these functions apart; record with perf record -k mono, or give the \
     distance with --clock-offset";

/// What is said where no name does.
const GUESSED: &str = "nothing shows how far its clock is from the profile's; no sample was taken where that changes the name \
     (perf record -k mono uses its clock, and --clock-offset gives the distance)";

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
    pub told: &'a AuxLogs<'a>,
    /// What was written.
    pub objects: &'a Objects,
    /// Maps that were too much to follow.
    pub cover_faults: &'a Tally<mmap_trim::Fault>,
    /// Whether a copy of the kernel's code was left out of the output.
    pub has_lost_kernel_copy: bool,
    /// Feature sections that were left out of the output.
    pub left_out: &'a [u8],
    /// What was done with a build-id cache, if there is to be one.
    pub cached: Option<&'a Filled>,
}

impl Run<'_> {
    /// Puts together what is to be told.
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
            traces: self.told.traces.summaries(),
            perf_maps: self.maps.iter().map(map_summary).collect(),
            symbols: self.symbols(),
            samples: sample_summary(self.selection),
            tiers: sampled.as_deref().filter(|_| has_tiers).map(hot_functions::tiers),
            sampled_functions: sampled.filter(|_| is_written),
            warnings: self.warnings(),
            notes: self.notes(),
            details: self.details(),
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

    fn warnings(&self) -> Vec<Warning> {
        let mut warnings = profile_warnings(self.options, self.profile, self.profile_index, self.expanded);
        let input = Some(shown_input(&self.options.input));
        if self.selection.samples.cut > 0 {
            warnings.push(Warning {
                what: "samples that end before their fields do, kept as they are".into(),
                count: self.selection.samples.cut,
                file: input.clone(),
                first_offset: None,
            });
        }
        let given_up =
            warned(self.cover_faults, None, false).chain(warned(self.timeline.faults(), None, false));
        warnings.extend(given_up.map(|warning| Warning {
            file: input.clone(),
            ..warning
        }));
        warnings.extend(self.sources.warnings.iter().cloned());
        for (used, line_faults) in self.sources.used.iter().zip(&self.objects.line_faults) {
            warnings.extend(dump_faults(used));
            let lines = told(line_faults, Some(used.found.file.path()), true);
            let lost = lines.filter(|&(fault, _)| fault != jitdump::Fault::RepairedName);
            warnings.extend(lost.map(|(_, warning)| warning));
            warnings.extend(dump_losses(used));
        }
        warnings.extend(told_warnings(self.options, self.told));
        warnings.extend(map_warnings(self.found_maps, self.maps));
        warnings.extend(warned(&self.objects.faults, None, false));
        if !self.selection.has_all_symbols {
            let reason = "not all symbols of perf maps are written: memory is mapped anew too often";
            warnings.push(Warning::new(reason));
        }
        warnings.extend(self.doubtful_names());
        warnings.extend(self.late_dumps());
        warnings.extend(self.nothing_named());
        if let Some(filled) = self.cached {
            let path = self.options.build_id_cache.as_deref();
            warnings.extend(warned(&filled.faults, path, false));
        }
        warnings
    }

    /// Warnings of files with functions whose samples depend on a distance between clocks that nothing shows.
    fn doubtful_names(&self) -> impl Iterator<Item = Warning> {
        let files = self.sources.used.iter().zip(&self.selection.doubtful);
        files
            .filter(|&(_, &count)| count > 0)
            .map(|(used, &count)| Warning {
                what: DOUBTFUL.into(),
                count,
                file: Some(shown(used.found.file.path())),
                first_offset: None,
            })
    }

    /// Warnings of dumps that load all their functions only after the samples at their addresses.
    fn late_dumps(&self) -> impl Iterator<Item = Warning> {
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
            (count > 0).then(|| Warning {
                what: "all samples in its process' JIT code were taken before a function was loaded there, so its clock must be another \
                       than the profile's; record with perf record -k mono, or give the distance with --clock-offset"
                    .into(),
                count,
                file: Some(shown(used.found.file.path())),
                first_offset: None,
            })
        })
    }

    /// Warnings of a profile in which nothing could be named.
    fn nothing_named(&self) -> Option<Warning> {
        let samples = &self.selection.samples;
        let (what, count) = match (samples.total, samples.jit(), samples.named) {
            (0, ..) if self.input_kind == InputKind::Profile => (
                "the profile has no samples; record for longer, or at a higher frequency (perf record -F)",
                1,
            ),
            (_, 1.., 0) if samples.doubtful == 0 => ("no sample in JIT code has a name", samples.jit()),
            _ => return None,
        };
        Some(Warning {
            count,
            ..Warning::new(what)
        })
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

    fn notes(&self) -> Vec<String> {
        let mut notes = source_notes(self.sources.notes, self.found_maps, self.told);
        let guessed = self.sources.used.iter().zip(&self.selection.doubtful);
        let guessed = guessed.filter(|&(used, &doubtful)| used.alignment.is_guess() && doubtful == 0);
        notes.extend(guessed.map(|(used, _)| format!("{}: {GUESSED}", shown(used.found.file.path()))));
        if !self.profile_index.injected.is_empty() {
            notes.push(
                "the profile has been through jitinject or perf inject --jit already; the maps of their objects are left as they are"
                    .into(),
            );
        } else if self.selection.samples.total == 0 {
            // A warning has it all.
        } else if is_silent(self.profile_index, self.sources, self.maps, self.told) {
            let pids = self.silent_processes();
            notes.extend(silence(
                self.profile,
                self.profile_index,
                &pids,
                "so there is nothing to inject",
            ));
        } else if self.selection.samples.unnamed() > 0 {
            let pids = self.silent_processes();
            notes.extend(unlogged(self.profile, self.profile_index, &pids));
        }
        notes.extend(self.left_out.iter().map(|id| {
            format!("feature section {id} of the profile is not for pipes and was left out; write to a file to keep it")
        }));
        let unnamed = self.processes_with(SpaceCounts::has_unnamed);
        let unreadable = self.found_maps.unreadable.iter();
        let unreadable = unreadable.filter(|pid| unnamed.contains(pid)).count();
        if unreadable > 0 {
            notes.push(format!(
                "cannot read the file systems of {}, which may hold their perf maps; run this as their user or as root",
                summary::count_of(unreadable as u64, "process with unnamed samples", "processes with unnamed samples")
            ));
        }
        if self.has_lost_kernel_copy {
            notes.push(
                "the copy of the kernel's code is not for pipes and was left out; write to a file to keep it"
                    .into(),
            );
        }
        if self.loads_in_files > 0 {
            notes.push(format!(
                "{} functions are in the mapping of a file: their samples are native code with the symbols of that file, so that stacks can be unwound",
                self.loads_in_files
            ));
        }
        notes
    }

    /// Repairs, and choices that lose nothing.
    fn details(&self) -> Vec<String> {
        let mut details = Vec::new();
        for (used, line_faults) in self.sources.used.iter().zip(&self.objects.line_faults) {
            let lines = told(line_faults, Some(used.found.file.path()), true);
            let repaired = lines.filter(|&(fault, _)| fault == jitdump::Fault::RepairedName);
            details.extend(repaired.map(|(_, warning)| warning.to_string()));
        }
        if self.profile_index.has_aux && !self.objects.placed.is_empty() {
            details.push("the profile has AUX data, so all functions are written".into());
        }
        details
    }
}

impl Recording<'_> {
    /// What went wrong while the profile and the files of its runtimes were read.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = profile_warnings(self.options, self.profile, self.profile_index, self.expanded);
        warnings.extend(self.sources.warnings.iter().cloned());
        for used in &self.sources.used {
            warnings.extend(dump_faults(used));
            warnings.extend(dump_losses(used));
        }
        warnings.extend(told_warnings(self.options, self.told));
        warnings.extend(map_warnings(self.found_maps, &self.maps));
        warnings
    }

    /// What else was noticed meanwhile. The runtimes of the processes `asked` should have logged their code.
    pub fn notes(&self, asked: &HashSet<Pid>) -> Vec<String> {
        let mut notes = source_notes(self.sources.notes, self.found_maps, self.told);
        let moved = self
            .sources
            .used
            .iter()
            .filter(|used| used.alignment != Alignment::Same);
        notes.extend(moved.map(|used| {
            let file = shown(used.found.file.path());
            format!("{file}: clock: {}", used.alignment)
        }));
        if is_silent(self.profile_index, &self.sources, &self.maps, self.told) {
            let consequence = "so there is no code with a name";
            notes.extend(silence(self.profile, self.profile_index, asked, consequence));
        }
        notes
    }
}

/// Whether no runtime is known to have told of its code.
fn is_silent(
    profile_index: &ProfileIndex,
    sources: &Sources<'_>,
    maps: &[UsedMap<'_>],
    told: &AuxLogs<'_>,
) -> bool {
    profile_index.markers.is_empty()
        && sources.used.is_empty()
        && maps.is_empty()
        && told.traces.all.is_empty()
}

/// The consequence of that, and what to do about it for the processes `pids`.
fn silence(
    profile: &Profile<'_>,
    profile_index: &ProfileIndex,
    pids: &HashSet<Pid>,
    consequence: &str,
) -> Vec<String> {
    let found = format!("no process in the profile mapped a jitdump or has a perf map, {consequence}");
    let name_files = "name the files with --jitdump or --perf-map";
    let how = runtimes::how_to_ask(profile, &profile_index.processes, pids);
    let first = match how.is_empty() {
        true => format!("{found}; {name_files}. No sampled process runs a known JIT runtime"),
        false => format!("{found}; {name_files}, or record again, with these options of the runtimes:"),
    };
    std::iter::once(first).chain(how).collect()
}

/// The options with which the processes `pids` log the code that samples without a name were taken in.
fn unlogged(profile: &Profile<'_>, profile_index: &ProfileIndex, pids: &HashSet<Pid>) -> Vec<String> {
    if pids.is_empty() {
        return Vec::new();
    }
    let processes = summary::count_of(pids.len() as u64, "process has", "processes have");
    let how = runtimes::how_to_ask(profile, &profile_index.processes, pids);
    let first = match how.is_empty() {
        true => format!("{processes} samples in JIT code that no file describes, and no known JIT runtime"),
        false => format!(
            "{processes} samples in JIT code that no file describes; record again, with these options of the runtimes:"
        ),
    };
    std::iter::once(first).chain(how).collect()
}

fn source_notes(of_dumps: &[String], found_maps: &FoundMaps, told: &AuxLogs<'_>) -> Vec<String> {
    let of_told = [&told.logs.notes, &told.traces.notes, &told.notes];
    let mut notes = [of_dumps, &found_maps.notes].concat();
    notes.extend(of_told.into_iter().flatten().cloned());
    notes
}

/// What is wrong with the profile itself.
fn profile_warnings(
    options: &Options,
    profile: &Profile<'_>,
    profile_index: &ProfileIndex,
    expanded: &Stages,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let input = Some(shown_input(&options.input));
    let of_input = |warning| Warning {
        file: input.clone(),
        ..warning
    };
    warnings.extend(warned(&profile.faults, None, true).map(of_input));
    if profile_index.has_compressed {
        let what = "compressed records inside compressed ones, which nobody reads, kept as they are";
        warnings.push(of_input(Warning::new(what)));
    }
    for expanded in expanded.iter().filter_map(OnceCell::get) {
        for (path, faults) in &expanded.faults {
            warnings.extend(warned(faults, Some(path), true));
        }
        let damage = expanded.damage.iter().filter(|(_, damage)| !damage.is_empty());
        warnings.extend(damage.map(|(path, damage)| Warning {
            what: format!(
                "damage among its records, {} bytes of them left out",
                damage.bytes
            ),
            count: damage.places,
            file: Some(shown(path)),
            first_offset: Some(damage.first_offset),
        }));
    }
    let lost = (profile.data.len() as u64).saturating_sub(profile_index.data_end);
    if lost > 0 {
        warnings.push(Warning {
            what: format!("the last {lost} bytes of its records are cut off or damaged, and left out"),
            count: 1,
            file: input.clone(),
            first_offset: Some(profile.data_offset.saturating_add(profile_index.data_end)),
        });
    }
    warnings
}

/// What is wrong with the records of a dump.
fn dump_faults(used: &UsedFile<'_>) -> Vec<Warning> {
    match &used.code {
        CodeFile::Jitdump(dump) => warned(dump.faults(), Some(used.found.file.path()), true).collect(),
        CodeFile::Named(_) => Vec::new(),
    }
}

/// What of a dump is lost.
fn dump_losses(used: &UsedFile<'_>) -> impl Iterator<Item = Warning> {
    let file = &used.found.file;
    let lost = |what: &str, count| {
        (count > 0).then(|| Warning {
            count,
            file: Some(shown(file.path())),
            ..Warning::new(what)
        })
    };
    let uncopied =
        "records left out for processes that had the dump before the profile began: too many of them";
    let ownerless = "records of a child that may be any of several processes, passed over";
    let losses = [
        shrunk(file),
        lost(uncopied, used.uncopied),
        lost(ownerless, used.ownerless),
    ];
    losses.into_iter().flatten()
}

/// What is wrong with logs and traces.
fn told_warnings(options: &Options, told: &AuxLogs<'_>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for log in &told.logs.all {
        let path = Some(log.found.file.path());
        warnings.extend(warned(log.packing_faults, path, true));
        warnings.extend(warned(&log.index.faults, path, true));
        warnings.extend(warned(&log.losses, path, true));
    }
    let traces = &told.traces;
    warnings.extend(traces.warnings.iter().cloned());
    for (trace, seen) in traces.all.iter().zip(&traces.seen) {
        let path = Some(trace.file.path());
        warnings.extend(shrunk(trace.file));
        warnings.extend(warned(&trace.index.faults, path, true));
        warnings.extend(warned(&seen.faults, path, true));
        warnings.extend(warned(&seen.losses, path, true));
    }
    let input = shown_input(&options.input);
    warnings.extend(warned(&told.losses, None, false).map(|warning| Warning {
        file: Some(input.clone()),
        ..warning
    }));
    warnings
}

/// What is wrong with perf maps.
fn map_warnings(found_maps: &FoundMaps, maps: &[UsedMap<'_>]) -> Vec<Warning> {
    let mut warnings = found_maps.warnings.clone();
    for used in maps {
        let path = used.found.file.path();
        warnings.extend(warned(&used.map.faults, Some(path), true));
        warnings.extend(shrunk(&used.found.file));
    }
    warnings
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
            CodeFile::Named(ref code) => code.told_by,
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

/// What there is to say of each kind of fault. Where an offset means nothing, `has_offsets` is false.
fn told<K: Ord + Copy + Display>(
    faults: &Tally<K>,
    file: Option<&Path>,
    has_offsets: bool,
) -> impl Iterator<Item = (K, Warning)> {
    faults.iter().map(move |(kind, seen)| {
        let warning = Warning {
            what: kind.to_string(),
            count: seen.count,
            file: file.map(shown),
            first_offset: has_offsets.then_some(seen.first_offset),
        };
        (kind, warning)
    })
}

/// The same as warnings.
fn warned<K: Ord + Copy + Display>(
    faults: &Tally<K>,
    file: Option<&Path>,
    has_offsets: bool,
) -> impl Iterator<Item = Warning> {
    told(faults, file, has_offsets).map(|(_, warning)| warning)
}
