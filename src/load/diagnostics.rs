//! What to report of a recording and its runtime files.

use crate::bytes::printable_path;
use crate::code::CodeFile;
use crate::code::clock::Alignment;
use crate::code::timeline::FileIndex;
use crate::collections::hash::HashSet;
use crate::collections::indexed_table::IndexedTable;
use crate::load::advice::{self as runtimes, SpaceSamples};
use crate::load::find::perf_maps::{FoundPerfMaps, UsedPerfMap};
use crate::load::recording::Recording;
use crate::load::runtime_files::UsedFile;
use crate::results::FileKind;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::Pid;

impl Recording<'_> {
    /// What to report of the profile and the files of its runtimes.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        let mut all = self.of_profile();
        all.extend(self.runtime_files.diagnostics.iter().cloned());
        for used in &self.runtime_files.used {
            all.extend(dump_faults(used));
            all.extend(dump_losses(used));
        }
        all.extend(self.logs.diagnostics());
        let faults = Diagnostic::of_tally(&self.logs.faults, None, false);
        all.extend(faults.map(|fault| self.of_input(fault)));
        all.extend(of_maps(self.found_maps, self.maps.rows()));
        all
    }

    fn of_input(&self, diagnostic: Diagnostic) -> Diagnostic {
        diagnostic.in_file_called(self.input.name.clone())
    }

    /// What to report of the profile itself.
    fn of_profile(&self) -> Vec<Diagnostic> {
        let (profile, index) = (&self.profile.profile, &self.profile.index);
        let of_input = |diagnostic| self.of_input(diagnostic);
        let mut all: Vec<Diagnostic> = Diagnostic::of_tally(&profile.faults, None, true)
            .map(of_input)
            .collect();
        if index.has_compressed {
            all.push(of_input(Diagnostic::new(Issue::ProfileNestedCompression)));
        }
        for expanded in self.data.rewritten() {
            for (path, faults) in &expanded.faults {
                all.extend(Diagnostic::of_tally(faults, Some(path), true));
            }
            let damage = expanded.damage.iter().filter(|(_, damage)| !damage.is_empty());
            all.extend(damage.map(|(path, damage)| {
                let damaged = Diagnostic::new(Issue::ProfileDamage)
                    .in_file(path)
                    .at(damage.first_offset);
                damaged.times(damage.areas).with("bytes", damage.bytes)
            }));
        }
        let lost = profile.data.len().saturating_sub(index.data_end);
        if lost > 0 {
            let tail = Diagnostic::new(Issue::ProfileTail).with("bytes", lost);
            all.push(of_input(tail).at(profile.data_offset.saturating_add(index.data_end)));
        }
        let timeline_faults = Diagnostic::of_tally(&self.timeline.faults, None, false);
        all.extend(timeline_faults.map(of_input));
        all
    }

    /// How the runtimes of the processes `pids` describe their code, if none has.
    pub fn hints(&self, pids: &HashSet<Pid>) -> Vec<Diagnostic> {
        if !self.has_no_code() {
            Vec::new()
        } else if self.profile.index.injected.is_empty() {
            self.no_code(pids)
        } else {
            vec![Diagnostic::new(Issue::AlreadyInjected)]
        }
    }

    /// Files whose clock differs from the profile's by a distance that nothing shows. `doubtful` are the samples of each file whose
    /// function depends on it.
    pub fn uncertain_clocks(&self, doubtful: &IndexedTable<FileIndex, u64>) -> Vec<Diagnostic> {
        let files = self.runtime_files.used.iter().zip(doubtful);
        let uncertain = files.filter_map(|(used, &count)| {
            let diagnostic = match count {
                0 if used.alignment.is_guess() => Diagnostic::new(Issue::ClockGuessed),
                0 => return None,
                count => Diagnostic::new(Issue::ClockDoubtful).times(count),
            };
            Some(diagnostic.in_file(used.found.file.path()))
        });
        uncertain.collect()
    }

    /// How the clocks of files that differ from the profile's were aligned, for people.
    pub fn clocks(&self) -> Vec<String> {
        let used = self.runtime_files.used.iter();
        let other = used.filter(|used| used.alignment != Alignment::Same);
        let clocks = other.map(|used| {
            format!(
                "{}: clock: {}",
                printable_path(used.found.file.path()),
                used.alignment
            )
        });
        clocks.collect()
    }

    /// Whether no runtime has described any code.
    pub fn has_no_code(&self) -> bool {
        self.profile.index.markers.is_empty()
            && self.runtime_files.used.is_empty()
            && self.maps.is_empty()
            && self.logs.summaries().is_empty()
    }

    /// Reports that, and how the runtimes of the processes `pids` describe their code.
    pub fn no_code(&self, pids: &HashSet<Pid>) -> Vec<Diagnostic> {
        self.with_enabling([Issue::NoCodeFiles, Issue::NoCodeFilesNorRuntime], 1, pids)
    }

    /// Reports samples without a name in the processes `pids`, and how their runtimes describe their code. Runtimes whose
    /// jitdump is truncated did so, and those whose times cannot be converted, which is reported.
    pub fn undescribed(&self, pids: &HashSet<Pid>) -> Vec<Diagnostic> {
        let truncated = self.processes_with_dump(is_truncated);
        let unordered = self.processes_with_dump(|used| used.is_without_order());
        let mut silent = pids.clone();
        silent.retain(|pid| !truncated.contains(pid));
        // The options of a known runtime are for the right clock, too.
        if !unordered.is_empty() && runtimes::how_to_enable(&self.profile, &silent).is_empty() {
            silent.retain(|pid| !unordered.contains(pid));
        }
        if silent.is_empty() {
            return Vec::new();
        }
        let issues = [Issue::UndescribedCode, Issue::UndescribedCodeOfUnknown];
        self.with_enabling(issues, silent.len() as u64, &silent)
    }

    /// The processes with a jitdump for which `is_it` is true.
    fn processes_with_dump(&self, is_it: impl Fn(&UsedFile<'_>) -> bool) -> HashSet<Pid> {
        let used = self.runtime_files.used.iter().filter(|used| is_it(used));
        used.flat_map(|used| used.found.pids.iter().copied()).collect()
    }

    /// Reports runtimes whose functions are missing from most recorded stacks.
    pub fn missing_in_stacks(&self, samples: &[SpaceSamples]) -> Vec<Diagnostic> {
        if self.profile.profile.attrs.copies_stacks() {
            // Only unwinding shows what the stacks have.
            Vec::new()
        } else {
            runtimes::missing_in_stacks(&self.profile, samples)
        }
    }

    /// Reports an issue and the options of the runtimes of the processes `pids`, or the other issue if none is known.
    fn with_enabling(
        &self,
        [known, unknown]: [Issue; 2],
        count: u64,
        pids: &HashSet<Pid>,
    ) -> Vec<Diagnostic> {
        let enable = runtimes::how_to_enable(&self.profile, pids);
        let issue = if enable.is_empty() { unknown } else { known };
        let first = Diagnostic::new(issue).times(count);
        std::iter::once(first).chain(enable).collect()
    }
}

/// Whether a jitdump has lost its end.
fn is_truncated(used: &UsedFile<'_>) -> bool {
    match &used.code {
        CodeFile::Jitdump(dump) => {
            let mut faults = dump.faults().iter();
            faults.any(|(fault, _)| fault == jitdump::Fault::CutTail)
        }
        CodeFile::SymbolOnly(_) => false,
    }
}

/// What to report of the records of a dump.
fn dump_faults(used: &UsedFile<'_>) -> Vec<Diagnostic> {
    match &used.code {
        CodeFile::Jitdump(dump) => {
            Diagnostic::of_tally(dump.faults(), Some(used.found.file.path()), true).collect()
        }
        CodeFile::SymbolOnly(_) => Vec::new(),
    }
}

/// What of a dump is not used.
fn dump_losses(used: &UsedFile<'_>) -> impl Iterator<Item = Diagnostic> {
    let file = &used.found.file;
    let lost = |issue, count| (count > 0).then(|| Diagnostic::new(issue).times(count).in_file(file.path()));
    // Traces are reported with their records.
    let is_trace = matches!(&used.code, CodeFile::SymbolOnly(code) if code.source == FileKind::XrayTrace);
    let is_shrunk = file.has_shrunk() && !is_trace;
    let losses = [
        is_shrunk.then(|| Diagnostic::new(Issue::FileShrunk).in_file(file.path())),
        lost(Issue::JitdumpNotInherited, used.counts.uncopied),
        lost(Issue::JitdumpChildAmbiguous, used.counts.ownerless),
    ];
    losses.into_iter().flatten()
}

/// What to report of perf maps.
fn of_maps(found_maps: &FoundPerfMaps, maps: &[UsedPerfMap<'_>]) -> Vec<Diagnostic> {
    let mut all = found_maps.diagnostics.clone();
    for used in maps {
        all.extend(Diagnostic::of_tally(
            &used.map.faults,
            Some(used.file.path()),
            true,
        ));
        all.extend(used.file.shrunk());
    }
    all
}
