//! The summary of a run, as text and as JSON.

pub mod event_counts;
pub mod outermost;
pub mod profile;

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::results::FileKind;
use crate::results::diagnostics::Diagnostic;
use crate::results::summary::profile::ProfileSummary;

/// Version of the JSON format. It changes when a field is removed or changes its meaning.
pub const FORMAT: u32 = 3;

/// Summary of a run. In JSON, it also has the types of its files, and all samples by function if a summary is
/// [written](crate::inject::InjectOptions::summary).
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// [`FORMAT`].
    pub format: u32,
    /// Input profile; `-` is standard input.
    pub input: String,
    /// Output profile; `-` is standard output.
    pub output: String,
    /// Directory of the objects; `None` if none was written.
    pub elf_dir: Option<String>,
    /// Build-id cache, if the objects were added to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_id_cache: Option<CacheSummary>,
    /// Code files that were used: jitdumps and Mono logs. The name is that in JSON.
    pub dumps: Vec<CodeFileSummary>,
    /// Counts of functions.
    pub functions: FunctionSummary,
    /// XRay traces.
    pub traces: Vec<TraceSummary>,
    /// Perf maps that were used.
    pub perf_maps: Vec<PerfMapSummary>,
    /// Counts of their symbols.
    pub symbols: SymbolSummary,
    /// Counts of samples.
    pub samples: SampleSummary,
    /// Counts of unwound stacks, if [requested](crate::inject::InjectOptions::unwind).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwound: Option<UnwindSummary>,
    /// Compiler tiers of sampled functions, if [requested](crate::inject::InjectOptions::tiers); most samples first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tiers: Option<Vec<TierSummary>>,
    /// All samples by function. Present if a summary is [written](crate::inject::InjectOptions::summary).
    #[doc(hidden)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileSummary>,
    /// Warnings and notes, in the order in which the input was read.
    pub diagnostics: Vec<Diagnostic>,
}

/// A build-id cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct CacheSummary {
    /// Directory of the cache.
    pub path: String,
    /// Number of the run's objects in it.
    pub objects: u64,
    /// Number of those that are new.
    pub added: u64,
}

/// A file with functions.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct CodeFileSummary {
    /// Type of the file.
    #[doc(hidden)]
    pub kind: FileKind,
    /// Path of the file.
    pub path: String,
    /// Processes that use it.
    pub pids: Vec<u32>,
    /// Number of functions that it loads.
    pub functions: u64,
    /// Whether it uses the profile's clock.
    pub same_clock: bool,
    /// Conversion of its times to the profile's clock.
    pub clock: String,
}

/// An XRay trace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct TraceSummary {
    /// Path of the trace.
    pub path: String,
    /// Version of its format.
    pub version: u16,
    /// Number of its threads in the profile.
    pub threads: u64,
    /// Number of their calls.
    pub calls: u64,
    /// Number of custom and typed events.
    pub events: u64,
    /// Conversion of its times to the profile's clock.
    pub clock: String,
}

/// A perf map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct PerfMapSummary {
    /// Path of the file.
    pub path: String,
    /// Process that it describes.
    pub pid: u32,
    /// Number of its symbols.
    pub symbols: u64,
}

/// Counts of perf map symbols.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct SymbolSummary {
    /// Symbols in all perf maps.
    pub known: u64,
    /// Symbols at addresses in samples where no jitdump has a function.
    pub touched: u64,
    /// Symbols written to objects.
    pub written: u64,
    /// Objects with symbols.
    pub objects: u64,
}

/// Counts of functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct FunctionSummary {
    /// LOAD records in all jitdumps.
    pub loaded: u64,
    /// MOVE records in all jitdumps.
    pub moved: u64,
    /// Functions at addresses in samples. A moved function counts once per address.
    pub touched: u64,
    /// Functions written to objects.
    pub written: u64,
    /// Objects with functions.
    pub objects: u64,
}

/// Counts of samples.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SampleSummary {
    /// All samples.
    pub total: u64,
    /// Samples in JIT code.
    pub jit: u64,
    /// Samples in JIT code with a function name.
    pub named: u64,
    /// Samples whose name is from a perf map.
    pub named_by_map: u64,
    /// Percentage of samples in JIT code that have a name; 100 if there are none in JIT code.
    pub named_percent: f64,
    /// Samples in JIT code without a name, by reason.
    pub unnamed: Unnamed,
    /// Samples with a named function anywhere in the recorded call chain.
    pub with_named_frame: u64,
    /// JIT code in the sampled functions and their recorded callers.
    pub in_stacks: StackSummary,
}

/// JIT code in whole call stacks.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StackSummary {
    /// Samples with JIT code anywhere in their stack.
    pub samples: u64,
    /// Frames in JIT code.
    pub frames: u64,
    /// Frames in JIT code with a name.
    pub named: u64,
    /// Percentage of the frames in JIT code that have a name; 100 if there are none.
    pub named_percent: f64,
}

impl Default for SampleSummary {
    fn default() -> Self {
        Self {
            total: 0,
            jit: 0,
            named: 0,
            named_by_map: 0,
            named_percent: 100.0,
            unnamed: Unnamed::default(),
            with_named_frame: 0,
            in_stacks: StackSummary::default(),
        }
    }
}

impl Default for StackSummary {
    fn default() -> Self {
        Self {
            samples: 0,
            frames: 0,
            named: 0,
            named_percent: 100.0,
        }
    }
}

/// Counts of unwound stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct UnwindSummary {
    /// Stacks that were unwound.
    pub stacks: u64,
    /// Frames in them.
    pub frames: u64,
    /// Stacks that are complete, up to the start of their thread.
    pub to_start: u64,
    /// Stacks that end where the recorded copy of the stack does.
    pub cut: u64,
}

/// A compiler tier of a runtime.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct TierSummary {
    /// Name of the tier.
    pub tier: String,
    /// Number of its sampled functions.
    pub functions: u64,
    /// Samples in them.
    pub samples: u64,
}

/// Samples in JIT code without a name, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Unnamed {
    /// The name depends on an uncertain clock offset.
    pub doubtful: u64,
    /// A function was loaded at the address only later.
    pub before_load: u64,
    /// The jitdump has no function at the address.
    pub not_in_dump: u64,
    /// The jitdump of the process is missing or unusable.
    pub dump_unusable: u64,
    /// The process has no jitdump.
    pub no_dump: u64,
    /// Whether PHP runs where a jitdump has no function at the address.
    #[serde(skip)]
    pub(crate) is_php: bool,
}

impl TraceSummary {
    /// Returns the line of the summary about a trace.
    fn text(&self) -> String {
        let mut text = format!("{}: XRay trace, {}", self.path, count(self.threads, "thread"));
        if self.calls > 0 || self.events > 0 {
            let (calls, events) = (count(self.calls, "call"), count(self.events, "logged event"));
            let _ = write!(text, ", {calls}, {events}");
        }
        let _ = write!(text, "; {}", self.clock);
        text
    }
}

impl Summary {
    /// Returns the number of files of each kind, such as `2 jitdumps, 1 Mono log`.
    fn file_counts_text(&self) -> String {
        let counts = FileKind::ALL.into_iter().filter_map(|kind| {
            let files = self.dumps.iter().filter(|dump| dump.kind == kind).count() as u64;
            (files > 0).then(|| count(files, &kind.to_string()))
        });
        let counts: Vec<String> = counts.collect();
        if counts.is_empty() {
            count(0, &FileKind::Jitdump.to_string())
        } else {
            counts.join(", ")
        }
    }

    /// Returns whether the output has names that the input lacks.
    fn has_names(&self) -> bool {
        self.functions.touched > 0 || self.symbols.touched > 0 || !self.traces.is_empty()
    }

    /// Returns the text for a terminal, without the diagnostics. `is_verbose` adds a line for each file.
    pub fn text(&self, is_verbose: bool) -> String {
        let mut text = self.counts_text(is_verbose);
        if let Some(CacheSummary { path, objects, added }) = &self.build_id_cache {
            let objects = count(*objects, "object");
            let _ = writeln!(
                text,
                "{objects} in the build-id cache {path}, {added} of them new"
            );
        }
        if let Some(command) = self.next_command() {
            let _ = writeln!(text, "next: {command}");
        }
        text
    }

    /// Returns the command that shows the output, if it has names that the input lacks.
    #[doc(hidden)]
    pub fn next_command(&self) -> Option<String> {
        let is_shown = self.output != "-" && self.has_names();
        is_shown.then(|| format!("perf report -i {}", shell_word(&self.output)))
    }

    /// Returns the counts for a terminal, and a line for each file if `is_verbose`.
    #[doc(hidden)]
    pub fn counts_text(&self, is_verbose: bool) -> String {
        let mut text = self.files_text(is_verbose);
        if let Some(unwound) = &self.unwound {
            let _ = writeln!(
                text,
                "{} unwound, {}; {} to the start of the thread, {} cut off by the size of the copy",
                count(unwound.stacks, "stack"),
                count(unwound.frames, "frame"),
                unwound.to_start,
                unwound.cut,
            );
        }
        text.push_str(&self.samples_text());
        for tier in self.tiers.iter().flatten() {
            let functions = count(tier.functions, "function");
            let samples = count(tier.samples, "sample");
            let _ = writeln!(text, "  {samples} in {functions} of tier {}", tier.tier);
        }
        text
    }

    /// Returns what was read of files, and written. Each jitdump and perf map has a line if `is_verbose`; a jitdump of
    /// another clock has one anyway, as its names may be wrong.
    fn files_text(&self, is_verbose: bool) -> String {
        let mut text = String::new();
        for dump in &self.dumps {
            if is_verbose || !dump.same_clock {
                let _ = writeln!(text, "{}", dump.text());
            }
        }
        for map in self.perf_maps.iter().filter(|_| is_verbose) {
            let symbols = count(map.symbols, "symbol");
            let _ = writeln!(text, "{}: process {}, {symbols}", map.path, map.pid);
        }
        if !self.perf_maps.is_empty() {
            let _ = writeln!(
                text,
                "{}, {}, {} touched by samples",
                count(self.perf_maps.len() as u64, "perf map"),
                count(self.symbols.known, "symbol"),
                self.symbols.touched,
            );
        }
        for trace in &self.traces {
            let _ = writeln!(text, "{}", trace.text());
        }
        let objects = self.functions.objects.saturating_add(self.symbols.objects);
        // Of traces alone, no objects are expected.
        if self.traces.is_empty() || !self.dumps.is_empty() || objects > 0 {
            // Perf maps have their own line.
            if self.perf_maps.is_empty() || !self.dumps.is_empty() {
                text.push_str(&self.functions_text());
            }
            let folder = self.elf_dir.as_ref();
            let folder = folder.map_or(String::new(), |folder| format!(" to {folder}"));
            let _ = writeln!(text, "{} written{folder}", count(objects, "object"));
        }
        text
    }

    /// Returns the functions that were read, to be put before the number of objects.
    fn functions_text(&self) -> String {
        let functions = &self.functions;
        let moved = match functions.moved {
            0 => String::new(),
            moved => format!("{moved} moved, "),
        };
        format!(
            "{}, {} loaded, {moved}{} touched by samples, ",
            self.file_counts_text(),
            count(functions.loaded, "function"),
            functions.touched,
        )
    }

    /// Returns how many samples have a name, and why others have none:
    ///
    /// ```text
    /// 905 samples, 300 in JIT code, 290 of them named (96.7 %)
    /// 520 samples with JIT code in their stacks, 690 of their 702 JIT frames named (98.3 %)
    ///   10 not named: sampled before a function was loaded at the address
    ///   2 callers not named: no jitdump or perf map has a function at the address at that time
    /// ```
    fn samples_text(&self) -> String {
        let samples = &self.samples;
        let mut text = count(samples.total, "sample");
        match samples.jit {
            // XRay traces native code, so none in JIT code is no surprise.
            0 if !self.traces.is_empty() => {}
            0 => text.push_str(", none in JIT code"),
            _ => text.push_str(&samples.named_text()),
        }
        text.push('\n');
        // Without frames of callers, all frames are those of the line above.
        let has_callers = samples.in_stacks.frames > samples.jit;
        if has_callers {
            text.push_str(&samples.in_stacks.text());
        }
        for (unnamed, reason) in samples.unnamed.reasons() {
            let _ = writeln!(text, "  {unnamed} not named: {reason}");
        }
        let unnamed_callers = samples.unnamed_callers();
        if has_callers && unnamed_callers > 0 {
            let _ = writeln!(
                text,
                "  {} not named: no jitdump or perf map has a function at the address at that time",
                count(unnamed_callers, "caller"),
            );
        }
        text
    }
}

impl SampleSummary {
    /// Returns how many of the samples in JIT code have a name, to be put after the number of all samples.
    fn named_text(&self) -> String {
        let by_map = match self.named_by_map {
            0 => String::new(),
            by_map => format!(", {by_map} by a perf map"),
        };
        format!(
            ", {} in JIT code, {} of them named ({} %){by_map}",
            self.jit,
            self.named,
            percent(self.named_percent),
        )
    }

    /// Returns the number of JIT frames without a name, other than the sampled functions: these have their reasons in
    /// [`Unnamed`].
    fn unnamed_callers(&self) -> u64 {
        let unnamed_leaves: u64 = self.unnamed.reasons().map(|(unnamed, _)| unnamed).sum();
        let unnamed_frames = self.in_stacks.frames.saturating_sub(self.in_stacks.named);
        unnamed_frames.saturating_sub(unnamed_leaves)
    }
}

impl StackSummary {
    /// Returns how many JIT frames have a name, as a line.
    fn text(&self) -> String {
        let whose = if self.samples == 1 { "its" } else { "their" };
        format!(
            "{} with JIT code in {whose} stacks, {} of their {} named ({} %)\n",
            count(self.samples, "sample"),
            self.named,
            count(self.frames, "JIT frame"),
            percent(self.named_percent),
        )
    }
}

impl CodeFileSummary {
    fn text(&self) -> String {
        let pids: Vec<String> = self.pids.iter().map(u32::to_string).collect();
        format!(
            "{}: process {}, {}, clock: {}",
            self.path,
            pids.join(", "),
            count(self.functions, "function"),
            self.clock
        )
    }
}

impl Unnamed {
    /// Returns the reasons of samples, each with their number, which is above 0.
    fn reasons(&self) -> impl Iterator<Item = (u64, &'static str)> {
        [
            (
                self.doubtful,
                "the address held several functions, and the clock offset is too uncertain to choose one",
            ),
            (
                self.before_load,
                "sampled before a function was loaded at the address",
            ),
            (
                self.not_in_dump,
                if self.is_php {
                    "the jitdump has no function at the address, and no perf map has a symbol there; PCRE, for example, logs no code"
                } else {
                    "the jitdump has no function at the address, and no perf map has a symbol there"
                },
            ),
            (
                self.dump_unusable,
                "the jitdump of the process is missing or unusable",
            ),
            (
                self.no_dump,
                "the process has no jitdump, and no perf map has a symbol at the address",
            ),
        ]
        .into_iter()
        .filter(|(samples, _)| *samples > 0)
    }
}

/// Formats a number and a noun with a regular plural.
pub fn count(number: u64, noun: &str) -> String {
    count_of(number, noun, &format!("{noun}s"))
}

/// Formats a number and a noun.
pub fn count_of(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Formats a share in percent with one decimal. Only all is 100.0.
pub fn percent(share: f64) -> String {
    let shown = if share < 100.0 { share.min(99.9) } else { share };
    format!("{shown:.1}")
}

/// Quotes a word for the shell.
pub fn shell_word(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "/._-+:@%,=".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_all_is_100_percent() {
        let shares = [0.0, 0.04, 99.94, 99.96, 99.999, 100.0];
        assert_eq!(
            shares.map(percent),
            ["0.0", "0.0", "99.9", "99.9", "99.9", "100.0"]
        );
    }

    #[test]
    fn names_with_spaces_are_quoted_for_the_shell() {
        assert_eq!(shell_word("out.data"), "out.data");
        assert_eq!(shell_word("my out.data"), "'my out.data'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }
}
