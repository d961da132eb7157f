//! Summary of a run: what was read, written and named, and what to report of it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jitdump::{Tally, Time, printable};

use crate::bytes::printable_path;
use crate::code::CodeFile;
use crate::code::clock::Alignment;
use crate::code::process::AddressSpace;
use crate::code::selection::{Selection, SpaceCounts, TouchedCounts};
use crate::code::timeline::FileIndex;
use crate::collections::hash::{HashMap, HashSet};
use crate::collections::indexed_table::IndexedTable;
use crate::frames::unwind::Unwound;
use crate::inject::cache::CachedObjects;
use crate::inject::objects::Objects;
use crate::inject::options::{InjectOptions, Tiers};
use crate::inject::output;
use crate::load::advice::{SpaceSamples, has_runtime};
use crate::load::{InputKind, Recording, UsedFile, UsedPerfMap, function_of, symbol_of};
use crate::results::FileKind;
use crate::results::diagnostics::issues::EMBEDDED_COMPILER;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::summary::profile::ProfileSummary;
use crate::results::summary::{
    CacheSummary, CodeFileSummary, FORMAT, FunctionSummary, PerfMapSummary, SampleSummary, StackSummary,
    Summary, SymbolSummary, TierSummary, Unnamed,
};
use crate::runtimes::Runtime;
use crate::units::Pid;

/// Everything that a run read and wrote.
#[derive(Clone, Copy)]
pub struct SummaryInput<'a> {
    /// Options of the run.
    pub options: &'a InjectOptions,
    /// The profile and the code of its processes.
    pub recording: &'a Recording<'a>,
    /// What was unwound.
    pub unwound: &'a Unwound,
    /// Code hit by samples.
    pub selection: &'a Selection,
    /// What of it samples alone have hit.
    pub touched: TouchedCounts,
    /// Objects that were written.
    pub objects: &'a Objects,
    /// Mappings that were too complex to trim.
    pub trim_faults: &'a Tally<Issue>,
    /// Source maps that are not used.
    pub source_maps: &'a [Diagnostic],
    /// What to report of the folder for objects.
    pub output: Option<&'a Diagnostic>,
    /// Whether a copy of the kernel's code was left out of the output.
    pub has_lost_kernel_copy: bool,
    /// Feature sections that were left out of the output.
    pub left_out: &'a [u8],
    /// All samples by function, if a summary is written.
    pub profile: Option<&'a ProfileSummary>,
    /// Changes to the build-ID cache, if there is one.
    pub cached: Option<&'a CachedObjects>,
}

impl SummaryInput<'_> {
    /// Returns the summary.
    pub fn summary(&self) -> Summary {
        let has_tiers = self.options.tiers != Tiers::Off;
        let has_objects = !self.objects.placed.is_empty();
        Summary {
            format: FORMAT,
            input: printable_path(&self.options.load.input),
            output: printable_path(&self.options.output),
            elf_dir: has_objects.then(|| printable_path(&output::elf_dir(self.options))),
            build_id_cache: self.build_id_cache(),
            dumps: self.used().iter().map(dump_summary).collect(),
            functions: FunctionSummary {
                loaded: self.used().iter().map(|used| used.counts.loads).sum(),
                moved: self.used().iter().map(|used| used.counts.moves).sum(),
                touched: self.touched.functions,
                written: self.objects.functions,
                objects: self.objects.function_objects,
            },
            traces: self.recording.logs.summaries(),
            perf_maps: self.recording.maps.iter().map(map_summary).collect(),
            symbols: SymbolSummary {
                known: self
                    .recording
                    .maps
                    .iter()
                    .map(|used| used.map.symbols.len() as u64)
                    .sum(),
                touched: self.touched.symbols,
                written: self.objects.symbols,
                objects: self.objects.symbol_objects,
            },
            samples: sample_summary(self.selection, self.has_undescribed_php()),
            unwound: self.unwound.summary,
            tiers: has_tiers.then(|| tiers(self.recording, self.selection)),
            profile: self.profile.cloned(),
            diagnostics: self.diagnostics(),
        }
    }

    fn build_id_cache(&self) -> Option<CacheSummary> {
        let cache = self.cached.filter(|cache| cache.unusable.is_none())?;
        Some(CacheSummary {
            path: printable_path(self.options.build_id_cache.as_deref()?),
            objects: cache.added + cache.present,
            added: cache.added,
        })
    }

    /// Runtime files in use.
    fn used(&self) -> &IndexedTable<FileIndex, UsedFile<'_>> {
        &self.recording.runtime_files.used
    }

    /// Sample counts of all address spaces with samples.
    fn space_counts(&self) -> impl Iterator<Item = (Pid, &SpaceCounts)> {
        let processes = &self.recording.profile.index.processes;
        let counts = self.selection.spaces.iter();
        let counts = counts.filter(|(_, counts)| counts.samples > 0);
        counts.map(|(space, counts)| (processes.space(space).pid, counts))
    }

    /// Collects the diagnostics of the whole run.
    fn diagnostics(&self) -> Vec<Diagnostic> {
        let input = &self.recording.input.name;
        let mut all = self.recording.diagnostics();
        let unwound = self.unwound.diagnostics.iter().cloned();
        all.extend(unwound.map(|diagnostic| diagnostic.in_file_called(input.clone())));
        all.extend(self.lost_samples());
        if self.selection.samples.cut > 0 {
            let cut = Diagnostic::new(Issue::SamplesCut).in_file_called(input.clone());
            all.push(cut.times(self.selection.samples.cut));
        }
        let trim_faults = Diagnostic::of_tally(self.trim_faults, None, false);
        all.extend(trim_faults.map(|fault| fault.in_file_called(input.clone())));
        for (used, line_faults) in self.used().iter().zip(&self.objects.line_faults) {
            let path = Some(used.found.file.path());
            all.extend(Diagnostic::of_tally(line_faults, path, true));
        }
        all.extend(Diagnostic::of_tally(&self.objects.faults, None, false));
        all.extend(self.source_maps.iter().cloned());
        all.extend(self.output.cloned());
        all.extend(
            self.profile
                .iter()
                .flat_map(|profile| profile.diagnostics.iter().cloned()),
        );
        if !self.selection.has_all_symbols {
            all.push(Diagnostic::new(Issue::SymbolsNotWritten));
        }
        all.extend(self.recording.uncertain_clocks(&self.selection.doubtful));
        all.extend(self.late_dumps());
        all.extend(self.nothing_named());
        if let Some(cache) = self.cached {
            let path = self.options.build_id_cache.as_deref();
            all.extend(Diagnostic::of_tally(&cache.faults, path, false));
            all.extend(cache.unusable.clone());
        }
        all.extend(self.hints());
        all
    }

    /// Samples that were lost while recording.
    fn lost_samples(&self) -> Option<Diagnostic> {
        let lost = self.recording.profile.index.lost();
        let all = lost.saturating_add(self.selection.samples.total);
        let diagnostic = samples_lost(lost, all)?;
        Some(diagnostic.in_file_called(self.recording.input.name.clone()))
    }

    /// Warnings of dumps that load all their functions only after the samples at their addresses.
    fn late_dumps(&self) -> impl Iterator<Item = Diagnostic> {
        let mut early: HashMap<Pid, u64> = HashMap::default();
        for (pid, counts) in self.space_counts() {
            *early.entry(pid).or_default() += u64::from(counts.before_load);
        }
        let files = self.used().iter().zip(self.files_with_hits());
        let without_hits = files.filter(|&(_, has_hits)| !has_hits);
        without_hits.filter_map(move |(used, _)| {
            let samples: u64 = used.found.pids.iter().filter_map(|pid| early.get(pid)).sum();
            let late = Diagnostic::new(Issue::ClockLate).times(samples);
            (samples > 0).then(|| late.in_file(used.found.file.path()))
        })
    }

    /// Returns for each file whether samples are in its functions, or may be.
    fn files_with_hits(&self) -> IndexedTable<FileIndex, bool> {
        let mut has_hits = self.selection.doubtful.map(|&doubtful| doubtful > 0);
        let hits = self.recording.timeline.mappings.iter().zip(&self.selection.hits);
        for (mapping, _) in hits.filter(|&(_, &hits)| hits > 0) {
            has_hits[mapping.function.file] = true;
        }
        has_hits
    }

    /// Warnings of a profile in which nothing could be named.
    fn nothing_named(&self) -> Option<Diagnostic> {
        let samples = &self.selection.samples;
        match (samples.total, samples.jit(), samples.named) {
            (0, ..) if self.recording.input.kind == InputKind::Profile => {
                Some(Diagnostic::new(Issue::NoSamples))
            }
            (_, 1.., 0) if samples.doubtful == 0 => {
                Some(Diagnostic::new(Issue::NothingNamed).times(samples.jit()))
            }
            _ => None,
        }
    }

    /// The processes with an address space whose samples match.
    fn processes_with(&self, matches: impl Fn(Pid, &SpaceCounts) -> bool) -> HashSet<Pid> {
        let matching = self.space_counts().filter(|&(pid, counts)| matches(pid, counts));
        matching.map(|(pid, _)| pid).collect()
    }

    /// Whether PHP runs in a process whose jitdump lacks sampled code.
    fn has_undescribed_php(&self) -> bool {
        let all = self.selection.spaces.iter();
        let undescribed = all.filter(|(_, counts)| counts.not_in_dump > 0);
        let spaces = undescribed.map(|(space, _)| space);
        has_runtime(&self.recording.profile, spaces, Runtime::Php)
    }

    /// The processes whose runtimes should have logged their code, or more of it.
    fn silent_processes(&self) -> HashSet<Pid> {
        let samples = &self.selection.samples;
        let with_map: HashSet<Pid> = self.recording.maps.iter().map(|map| map.pid).collect();
        let is_described = |pid, counts: &SpaceCounts| {
            with_map.contains(&pid) && are_few(counts.no_dump, counts.samples) && samples.named > 0
        };
        self.processes_with(|pid, counts| match samples.jit() {
            // An interpreter may have a JIT compiler that was not switched on.
            0 => counts.samples > 0,
            _ if is_described(pid, counts) => false,
            _ => counts.no_dump > 0 || samples.named == 0 && counts.not_in_dump > 0,
        })
    }

    /// The processes that describe their code, each with the time of the first mapping of a jitdump; 0 if there is none. What
    /// the process ran before an exec until then described nothing.
    fn described(&self) -> HashMap<Pid, Time> {
        let maps = self.recording.maps.iter();
        let mut described: HashMap<Pid, Time> = maps.map(|map| (map.pid, Time(0))).collect();
        for found in self.used().iter().map(|used| &used.found) {
            let mut marked: HashMap<Pid, Time> = HashMap::default();
            let markers = &self.recording.profile.index.markers;
            for marker in found.markers.iter().filter_map(|&marker| markers.get(marker)) {
                let first = marked.entry(marker.pid).or_insert(marker.time);
                *first = marker.time.min(*first);
            }
            for pid in &found.pids {
                let time = marked.get(pid).copied().unwrap_or(Time(0));
                let first = described.entry(*pid).or_insert(time);
                *first = time.min(*first);
            }
        }
        described
    }

    /// Runtimes that describe their code, whose functions most recorded stacks lack.
    fn missing_in_stacks(&self) -> Vec<Diagnostic> {
        let described = self.described();
        let is_described = |space: &AddressSpace| {
            let first = described.get(&space.pid);
            first.is_some_and(|&first| first < space.until)
        };
        let spaces = self.recording.profile.index.processes.iter();
        let samples: Vec<SpaceSamples> = spaces
            .filter(|(_, space)| is_described(space))
            .map(|(id, _)| {
                let counts = self.selection.spaces.get(id);
                SpaceSamples {
                    space: id,
                    all: counts.samples.into(),
                    with_jit_code: counts.with_jit_frame.into(),
                }
            })
            .collect();
        self.recording.missing_in_stacks(&samples)
    }

    /// What is missing, and how to get it.
    fn hints(&self) -> Vec<Diagnostic> {
        let mut hints = self.hints_on_names();
        hints.extend(self.missing_in_stacks());
        let left_out = self.left_out.iter();
        hints.extend(left_out.map(|id| Diagnostic::new(Issue::FeatureNotForPipes).with("id", id)));
        let unnamed = self.processes_with(|_, counts| counts.has_unnamed());
        let unreadable = self.recording.found_maps.unreadable.iter();
        let unreadable = unreadable.filter(|pid| unnamed.contains(pid)).count();
        if unreadable > 0 {
            let unreadable = unreadable as u64;
            hints.push(Diagnostic::new(Issue::FileSystemsUnreadable).times(unreadable));
        }
        if self.has_lost_kernel_copy {
            hints.push(Diagnostic::new(Issue::KernelCopyLeftOut));
        }
        if self.recording.loads_in_files > 0 {
            hints.push(Diagnostic::new(Issue::CodeInFiles).times(self.recording.loads_in_files));
        }
        if self.recording.profile.index.has_aux && !self.objects.placed.is_empty() {
            hints.push(Diagnostic::new(Issue::AuxNeedsAll));
        }
        hints
    }

    /// Why samples have no name, and what to do about it.
    fn hints_on_names(&self) -> Vec<Diagnostic> {
        let samples = &self.selection.samples;
        if !self.recording.profile.index.injected.is_empty() {
            return vec![Diagnostic::new(Issue::AlreadyInjected)];
        }
        // There is a warning of a profile without samples already.
        if samples.total == 0 {
            return Vec::new();
        }
        let hints = if self.recording.has_no_code() {
            self.recording.no_code(&self.silent_processes())
        } else if samples.unnamed() > 0 {
            self.recording.undescribed(&self.silent_processes())
        } else {
            return Vec::new();
        };
        if samples.unnamed() > 0 {
            with_embedded_compilers(hints)
        } else {
            hints
        }
    }
}

/// Whether so few of a process's samples are missing in its perf map that it is complete: runtimes leave out some stubs.
fn are_few(missing: u32, samples: u32) -> bool {
    /// Reciprocal of the share.
    const RARE: u32 = 10;
    missing < samples / RARE
}

/// Reports lost samples, of `all` samples of a recording: a warning from the share on at which perf warns.
fn samples_lost(lost: u64, all: u64) -> Option<Diagnostic> {
    const RARELY_LOST: u64 = 20;
    let diagnostic = Diagnostic::new(Issue::SamplesLost).times(lost).with("all", all);
    let diagnostic = if lost > all / RARELY_LOST {
        diagnostic.as_warning()
    } else {
        diagnostic
    };
    (lost > 0).then_some(diagnostic)
}

/// Returns what the summary has of a file with functions.
fn dump_summary(used: &UsedFile<'_>) -> CodeFileSummary {
    CodeFileSummary {
        kind: match used.code {
            CodeFile::Jitdump(_) => FileKind::Jitdump,
            CodeFile::SymbolOnly(ref code) => code.source,
        },
        path: printable_path(used.found.file.path()),
        pids: used.found.pids.iter().map(|pid| pid.0).collect(),
        functions: used.counts.loads,
        same_clock: used.alignment == Alignment::Same,
        clock: used.alignment.to_string(),
    }
}

/// Returns what the summary has of a perf map.
fn map_summary(used: &UsedPerfMap<'_>) -> PerfMapSummary {
    PerfMapSummary {
        path: printable_path(used.file.path()),
        pid: used.pid.0,
        symbols: used.map.symbols.len() as u64,
    }
}

/// Mentions the compilers in libraries that may have made code without a name, where nothing points to a runtime.
fn with_embedded_compilers(hints: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let is_advice = |hint: &Diagnostic| hint.issue == Issue::EnableRuntime;
    let is_python = |hint: &Diagnostic| hint.field("runtime") == Some(Runtime::Python.name());
    // CPython compiles little by itself.
    let is_python_alone = hints.iter().all(|hint| !is_advice(hint) || is_python(hint));
    let may_be_of_library = |hint: &Diagnostic| {
        let issues = [Issue::NoCodeFilesNorRuntime, Issue::UndescribedCodeOfUnknown];
        issues.contains(&hint.issue) || is_advice(hint) && is_python_alone
    };
    let hints = hints.into_iter().map(|hint| {
        if may_be_of_library(&hint) {
            hint.with_remedy(EMBEDDED_COMPILER)
        } else {
            hint
        }
    });
    hints.collect()
}

/// Counts samples. `is_php` is whether PHP runs where a jitdump has no function.
fn sample_summary(selection: &Selection, is_php: bool) -> SampleSummary {
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
            is_php,
        },
        with_named_frame: samples.with_named_frame,
        in_stacks: StackSummary {
            samples: samples.stacks.samples,
            frames: samples.stacks.frames,
            named: samples.stacks.named,
            named_percent: samples.stacks.named_percent(),
        },
    }
}

/// Name of the tier of functions whose compiler is unknown.
const UNKNOWN_TIER: &[u8] = b"not known";

/// Returns the numbers of sampled functions and samples of each compiler, those with most samples first.
fn tiers(recording: &Recording<'_>, selection: &Selection) -> Vec<TierSummary> {
    let Recording {
        timeline,
        runtime_files,
        maps,
        ..
    } = recording;
    let mut summaries: BTreeMap<&[u8], TierSummary> = BTreeMap::new();
    let mut add = |tier: Option<_>, functions: u64, samples: u32| {
        let tier = tier.unwrap_or(UNKNOWN_TIER);
        let summary = summaries.entry(tier).or_insert_with(|| TierSummary {
            tier: printable(tier),
            functions: 0,
            samples: 0,
        });
        summary.functions += functions;
        summary.samples += u64::from(samples);
    };
    let mut seen = HashSet::default();
    let hits = timeline.mappings.iter().zip(&selection.hits);
    for (mapping, &samples) in hits.filter(|&(_, &samples)| samples > 0) {
        if let Some(function) = function_of(&runtime_files.used, mapping.function) {
            // A function that was moved counts once.
            add(function.tier(), u64::from(seen.insert(mapping.function)), samples);
        }
    }
    for (&id, &samples) in &selection.symbol_hits {
        if let Some(symbol) = symbol_of(maps, id) {
            add(symbol.tier(), 1, samples);
        }
    }
    let mut tiers: Vec<TierSummary> = summaries.into_values().collect();
    tiers.sort_by_key(|tier| Reverse(tier.samples));
    tiers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::diagnostics::Severity;

    #[test]
    fn a_perf_map_that_lacks_less_than_a_tenth_of_the_samples_is_complete() {
        assert!(are_few(9, 100));
        assert!(!are_few(10, 100));
    }

    #[test]
    fn more_than_5_of_100_samples_lost_are_a_warning() {
        let severity =
            |lost| samples_lost(lost, 100).map(|diagnostic| (diagnostic.count, diagnostic.severity));
        assert_eq!(severity(0), None);
        assert_eq!(severity(5), Some((5, Severity::Note)));
        assert_eq!(severity(6), Some((6, Severity::Warning)));
    }
}
