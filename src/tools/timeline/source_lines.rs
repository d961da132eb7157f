//! Samples by source line, and in inlined functions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jitdump::debug_info::DebugInfo;
use jitdump::{Tally, names, printable};

use crate::code::process::SpaceId;
use crate::code::timeline::FunctionId;
use crate::collections::hash::HashMap;
use crate::frames::source_files::names_and_lines::NamesAndLines;
use crate::frames::source_files::{SourceName, text_to_write};
use crate::load::{Recording, function_of};
use crate::results::diagnostics::Issue;
use crate::results::name_style::NameStyle;
use crate::tools::excerpts::{Excerpt, SourceText, WantedLines};
use crate::tools::source_texts::Texts;
use crate::tools::timeline::TimelineOptions;
use crate::tools::timeline::samples::BinnedSamples;
use crate::units::Pid;

/// Maximum number of lines, and of inlined functions, with samples.
const MAX_ROWS: usize = 1 << 16;

/// Samples by source line and in inlined functions, and source text.
#[derive(Debug, Default)]
pub struct SourceLines {
    /// Paths of the files.
    pub files: Vec<String>,
    /// Samples by function, process, index of the file, and line.
    pub samples: BTreeMap<(FunctionId, Pid, u32, u32), u32>,
    /// Samples in inlined functions by the function that contains them, process, and name.
    pub inlined: BTreeMap<(FunctionId, Pid, String), u32>,
    /// Source text around these lines.
    pub excerpts: Vec<Excerpt>,
    /// What is missing, and why.
    pub faults: Tally<Issue>,
}

impl SourceLines {
    /// Finds the lines of all sampled addresses. Functions with most samples come first where there is a limit.
    pub fn of<'a>(
        recording: &'a Recording<'_>,
        names_and_lines: &NamesAndLines<'a>,
        options: &TimelineOptions,
        counts: &BinnedSamples,
    ) -> Self {
        let used = &recording.runtime_files.used;
        let by_function = by_function(counts);
        let mut lines = Self::default();
        let mut files = LineFiles::default();
        for (id, addresses) in &by_function {
            let Some(function) = function_of(used, *id) else {
                continue;
            };
            let track = options.track.as_deref();
            let (info, _) = names_and_lines.lines_of(*id, &function, track);
            let info = info.or_else(|| names::declaration(function.name));
            if let Some(info) = info {
                let owner = used[id.file].found.file.origin().owner;
                let name = names_and_lines.name(function.name);
                lines.add_function(*id, &name, recording, &info, addresses, |file| {
                    files.index_of(&info, file, owner)
                });
            }
        }
        if options.has_sources {
            let mut texts = Texts::new(&options.load, &options.sources);
            lines.excerpts = texts.excerpts(&files.texts, &lines.wanted(&by_function));
            lines.faults.merge(&texts.faults);
        }
        lines.files = files
            .texts
            .iter()
            .map(|file| printable(&file.name.path))
            .collect();
        lines
    }

    /// Adds the samples of a function with the name `name`. `file` returns the index of a file of its debug information.
    fn add_function(
        &mut self,
        function: FunctionId,
        name: &[u8],
        recording: &Recording<'_>,
        info: &DebugInfo<'_>,
        addresses: &Addresses,
        mut file: impl FnMut(u32) -> Option<u32>,
    ) {
        let processes = &recording.profile.index.processes;
        let declared = info
            .functions
            .first()
            .map(|declared| (declared.file, declared.line));
        let mut inlined: BTreeMap<(Pid, u32), u32> = BTreeMap::new();
        let chains = info.frames_at_all(addresses.iter().map(|at| at.offset));
        for (&SampledAddress { space, samples, .. }, chain) in addresses.iter().zip(chains) {
            let pid = processes.space(space).pid;
            let sampled = chain.first().map(|frame| (frame.file, frame.line));
            // The declaration is shown, too, even without samples.
            let places = [(sampled, samples), (declared, 0)];
            for (place, samples) in places {
                let Some((Some(of), line @ 1..)) = place else {
                    continue;
                };
                let Some(of) = file(of) else { continue };
                let key = (function, pid, of, line);
                add_row(&mut self.samples, key, samples, &mut self.faults);
            }
            // A single frame is of the function itself.
            if let [innermost, _, ..] = &chain[..] {
                let count = inlined.entry((pid, innermost.function)).or_default();
                *count = count.saturating_add(samples);
            }
        }
        for ((pid, inlined), samples) in inlined {
            if let Some(inlined) = name_of_inlined(info, inlined, name) {
                let key = (function, pid, inlined);
                add_row(&mut self.inlined, key, samples, &mut self.faults);
            }
        }
    }

    /// Returns the lines to show of each file, those of the functions with most samples first.
    fn wanted(&self, by_function: &[(FunctionId, Addresses)]) -> Vec<WantedLines> {
        let functions = by_function.iter().enumerate();
        let ranks: HashMap<FunctionId, usize> = functions.map(|(rank, (id, _))| (*id, rank)).collect();
        let mut by_file: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        // The rank of the first function in each file.
        let mut first_ranks: HashMap<u32, usize> = HashMap::default();
        for &(function, _, file, line) in self.samples.keys() {
            let rank = ranks.get(&function).copied().unwrap_or(usize::MAX);
            let first = first_ranks.entry(file).or_insert(rank);
            *first = rank.min(*first);
            by_file.entry(file).or_default().push(line);
        }
        let mut wanted = Vec::with_capacity(by_file.len());
        for (file, mut lines) in by_file {
            lines.sort_unstable();
            lines.dedup();
            wanted.push(WantedLines { file, lines });
        }
        wanted.sort_by_key(|WantedLines { file, .. }| (first_ranks.get(file).copied(), *file));
        wanted
    }
}

/// Returns the name of a function that is inlined into one with the name `outer`.
fn name_of_inlined(info: &DebugInfo<'_>, inlined: u32, outer: &[u8]) -> Option<String> {
    let inlined = info.functions.get(inlined as usize)?;
    let file = inlined.file.and_then(|file| info.files.get(file as usize));
    let declared = file.map(|file| names::SourceLocation {
        path: &file.path,
        line: inlined.line,
        column: inlined.column,
    });
    let parts = names::parts(inlined.name);
    let location = parts.location.or(declared);
    Some(NameStyle::Full.name_of_inlined(parts.function, location, outer))
}

/// Adds samples to a row, unless it would be one too many.
fn add_row<K: Ord>(rows: &mut BTreeMap<K, u32>, key: K, samples: u32, faults: &mut Tally<Issue>) {
    if rows.len() >= MAX_ROWS && !rows.contains_key(&key) {
        faults.add(Issue::LinesNotShown, 0);
        return;
    }
    let count = rows.entry(key).or_default();
    *count = count.saturating_add(samples);
}

/// A sampled address of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SampledAddress {
    /// Offset in the code.
    offset: u32,
    space: SpaceId,
    samples: u32,
}

/// Sampled addresses of a function in ascending order.
type Addresses = Vec<SampledAddress>;

/// Returns the sampled addresses of all functions, those with most samples first.
fn by_function(counts: &BinnedSamples) -> Vec<(FunctionId, Addresses)> {
    let mut functions: BTreeMap<FunctionId, Addresses> = BTreeMap::new();
    for (&(function, space, offset), &samples) in &counts.offsets {
        functions.entry(function).or_default().push(SampledAddress {
            offset,
            space,
            samples,
        });
    }
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions
        .iter_mut()
        .for_each(|(_, addresses)| addresses.sort_unstable());
    functions.sort_by_cached_key(|(function, addresses)| {
        let samples: u64 = addresses.iter().map(|at| u64::from(at.samples)).sum();
        (Reverse(samples), *function)
    });
    functions
}

/// Source files of lines.
#[derive(Debug, Default)]
struct LineFiles {
    texts: Vec<SourceText>,
    indices: HashMap<(u32, Vec<u8>), u32>,
}

impl LineFiles {
    /// Returns the index of a file of debug information, which it gets at the first call; `None` if it has no path.
    fn index_of(&mut self, info: &DebugInfo<'_>, file: u32, owner: u32) -> Option<u32> {
        let file = info
            .files
            .get(file as usize)
            .filter(|file| !file.path.is_empty())?;
        let key = (owner, file.path.to_vec());
        if let Some(&known) = self.indices.get(&key) {
            return Some(known);
        }
        let index = u32::try_from(self.texts.len()).ok()?;
        self.texts.push(SourceText {
            name: SourceName::new(owner, file),
            text: text_to_write(file, owner).map(<[u8]>::to_vec),
        });
        self.indices.insert(key, index);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_over_65536_are_counted() {
        let mut rows: BTreeMap<u32, u32> = (0..65_535).map(|row| (row, 1)).collect();
        let mut faults = Tally::default();
        for row in [70_000, 70_001, 70_002, 5] {
            add_row(&mut rows, row, 2, &mut faults);
        }
        assert_eq!(
            [70_000, 70_001, 5].map(|row| rows.get(&row).copied()),
            [Some(2), None, Some(3)]
        );
        let counts: Vec<(Issue, u64)> = faults.iter().map(|(issue, fault)| (issue, fault.count)).collect();
        assert_eq!(counts, [(Issue::LinesNotShown, 2)]);
    }
}
