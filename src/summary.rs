//! What happened: for people as text, for programs as JSON.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::hash::HashMap;
use crate::runtime::FileKind;

/// The version of the JSON form. It changes when a field changes its meaning or goes.
pub const FORMAT: u32 = 1;

/// All that is told at the end of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// [`FORMAT`].
    pub format: u32,
    /// The profile that was read; `-` is standard input.
    pub input: String,
    /// The one that was written; `-` is standard output.
    pub output: String,
    /// The folder with the objects; none if no object was written.
    pub elf_dir: Option<String>,
    /// The build-id cache, if the objects were to be added to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_id_cache: Option<CacheSummary>,
    /// The dumps and logs that were used.
    pub dumps: Vec<DumpSummary>,
    /// The functions in them.
    pub functions: FunctionSummary,
    /// The traces of XRay.
    pub traces: Vec<TraceSummary>,
    /// The perf maps that were used.
    pub perf_maps: Vec<PerfMapSummary>,
    /// The symbols in them.
    pub symbols: SymbolSummary,
    /// The samples in the profile.
    pub samples: SampleSummary,
    /// The compilers of the functions that samples were taken in, if that was asked for; those with most
    /// samples first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tiers: Option<Vec<TierSummary>>,
    /// The functions that samples were taken in, those with most samples first. It is there if a summary is
    /// [written](crate::inject::Options::summary).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_functions: Option<Vec<SampledFunction>>,
    /// What went wrong and did not stop the run.
    pub warnings: Vec<Warning>,
    /// What to know beside that.
    pub notes: Vec<String>,
    /// Repairs, and choices that lose nothing.
    pub details: Vec<String>,
}

/// A build-id cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct CacheSummary {
    /// Its folder.
    pub path: String,
    /// How many of the objects are in it now.
    pub objects: u64,
    /// How many of those were not before.
    pub added: u64,
}

/// One file with functions.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct DumpSummary {
    /// What kind of file it is.
    pub kind: FileKind,
    /// Where it was found.
    pub path: String,
    /// The processes that use it.
    pub pids: Vec<u32>,
    /// How many functions it loads.
    pub functions: u64,
    /// Whether its clock is the profile's.
    pub same_clock: bool,
    /// How its times became the profile's.
    pub clock: String,
}

/// One trace of XRay.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct TraceSummary {
    /// Where it is.
    pub path: String,
    /// The version of its format.
    pub version: u16,
    /// How many of its threads are in the profile.
    pub threads: u64,
    /// How many calls of them are.
    pub calls: u64,
    /// How many events that the program logged are.
    pub events: u64,
    /// How its times became the profile's.
    pub clock: String,
}

/// One perf map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct PerfMapSummary {
    /// Where it was found.
    pub path: String,
    /// The process that it is of.
    pub pid: u32,
    /// How many symbols it has.
    pub symbols: u64,
}

/// Symbols of perf maps, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct SymbolSummary {
    /// In all perf maps.
    pub known: u64,
    /// Which an address in a sample lies in, where no jitdump has a function.
    pub touched: u64,
    /// Written as objects.
    pub written: u64,
}

/// Functions, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct FunctionSummary {
    /// Loaded, in all dumps.
    pub loaded: u64,
    /// Moved, in all dumps.
    pub moved: u64,
    /// Whose code an address in a sample lies in; a function counts once for each place that it was at.
    pub touched: u64,
    /// Written, one each or many to an object.
    pub written: u64,
    /// The objects that they are in.
    pub objects: u64,
}

/// Samples, counted.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SampleSummary {
    /// All.
    pub total: u64,
    /// Taken in JIT code.
    pub jit: u64,
    /// Of those, in a function with a name.
    pub named: u64,
    /// Of these, by a perf map.
    pub named_by_map: u64,
    /// The share of those in JIT code that have a name, in percent; 100 where there are none.
    pub named_percent: f64,
    /// Of those in JIT code, without a name, by the reason.
    pub unnamed: Unnamed,
    /// With a named function anywhere in the recorded call chain.
    pub with_named_frame: u64,
}

/// One compiler of a runtime.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct TierSummary {
    /// Its name.
    pub tier: String,
    /// The functions of it that samples were taken in.
    pub functions: u64,
    /// Those samples.
    pub samples: u64,
}

/// The functions of one name that one compiler made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SampledFunction {
    /// Their name.
    pub name: String,
    /// The compiler, where it is known.
    pub tier: Option<String>,
    /// How many there are: one function compiled again, or several of one name.
    pub functions: u64,
    /// The samples that were taken in them.
    pub samples: u64,
}

/// Samples in JIT code that have no name, by the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Unnamed {
    /// They have a name, but another one if the clocks are as far apart as they can be.
    #[serde(default)]
    pub doubtful: u64,
    /// A function came to that address only later.
    pub before_load: u64,
    /// The dump says nothing of that address.
    pub not_in_dump: u64,
    /// The process' dump is lost or can't be used.
    pub dump_unusable: u64,
    /// The process has no dump.
    pub no_dump: u64,
}

/// Something that went wrong, as often as it did.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct Warning {
    /// What.
    pub what: String,
    /// How often.
    pub count: u64,
    /// In which file, if it was in one.
    pub file: Option<String>,
    /// Where in it first, in bytes from its start.
    pub first_offset: Option<u64>,
}

impl Warning {
    /// A warning that stands for itself.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            count: 1,
            file: None,
            first_offset: None,
        }
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        f.write_str(&self.what)?;
        match (self.count, self.first_offset) {
            (1, None) => Ok(()),
            (1, Some(offset)) => write!(f, " (at {offset:#x})"),
            (count, None) => write!(f, " ({count})"),
            (count, Some(offset)) => write!(f, " ({count}, the first at {offset:#x})"),
        }
    }
}

impl TraceSummary {
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
    /// How many files of each kind functions come from.
    fn files(&self) -> String {
        let of_kind = |(kind, name)| {
            let number = self.dumps.iter().filter(|dump| dump.kind == kind).count() as u64;
            (number > 0).then(|| count(number, name))
        };
        let kinds = [
            (FileKind::Jitdump, "jitdump"),
            (FileKind::MonoLog, "Mono log"),
            (FileKind::XrayTrace, "XRay trace"),
        ];
        let files: Vec<String> = kinds.into_iter().filter_map(of_kind).collect();
        match files.is_empty() {
            true => count(0, "jitdump"),
            false => files.join(", "),
        }
    }

    /// Whether the output shows more names than the input: of functions at addresses of samples, or of made events.
    fn has_names(&self) -> bool {
        self.functions.touched > 0 || self.symbols.touched > 0 || !self.traces.is_empty()
    }

    /// The text for a terminal: some lines, without the name of the program before them. `is_verbose` adds a
    /// line for each dump, and [`Self::details`].
    pub fn text(&self, is_verbose: bool) -> String {
        let mut text = String::new();
        let mut notes = self.notes.clone();
        notes.extend(self.details.iter().filter(|_| is_verbose).cloned());
        put_warnings(
            &mut text,
            &self.warnings,
            &notes,
            "--summary FILE writes all of them",
        );
        for dump in &self.dumps {
            if is_verbose || !dump.same_clock {
                let _ = writeln!(text, "{}", dump.text());
            }
        }
        for map in self.perf_maps.iter().filter(|_| is_verbose) {
            let symbols = count(map.symbols, "symbol");
            let _ = writeln!(text, "{}: process {}, {symbols}", map.path, map.pid);
        }
        let (functions, symbols) = (&self.functions, &self.symbols);
        if !self.perf_maps.is_empty() {
            let _ = writeln!(
                text,
                "{}, {}, {} touched by samples",
                count(self.perf_maps.len() as u64, "perf map"),
                count(symbols.known, "symbol"),
                symbols.touched,
            );
        }
        for trace in &self.traces {
            let _ = writeln!(text, "{}", trace.text());
        }
        let objects = functions.objects.saturating_add(symbols.written);
        if self.traces.is_empty() || !self.dumps.is_empty() || objects > 0 {
            let _ = writeln!(
                text,
                "{}, {} loaded, {} touched by samples, {} written{}",
                self.files(),
                count(functions.loaded, "function"),
                functions.touched,
                count(objects, "object"),
                self.elf_dir
                    .as_ref()
                    .map_or(String::new(), |folder| format!(" to {folder}")),
            );
        }
        if let Some(CacheSummary { path, objects, added }) = &self.build_id_cache {
            let objects = count(*objects, "object");
            let _ = writeln!(
                text,
                "{objects} in the build-id cache {path}, {added} of them new"
            );
        }
        let samples = &self.samples;
        let _ = match samples.jit {
            0 if self.traces.is_empty() => {
                writeln!(text, "{}, none in JIT code", count(samples.total, "sample"))
            }
            0 => writeln!(text, "{}", count(samples.total, "sample")),
            jit => writeln!(
                text,
                "{}, {jit} in JIT code, {} of them named ({:.1} %){}",
                count(samples.total, "sample"),
                samples.named,
                samples.named_percent,
                match samples.named_by_map {
                    0 => String::new(),
                    number => format!(", {number} by a perf map"),
                },
            ),
        };
        for (count, reason) in samples.unnamed.reasons() {
            let _ = writeln!(text, "  {count} not named: {reason}");
        }
        for tier in self.tiers.iter().flatten() {
            let functions = count(tier.functions, "function");
            let samples = count(tier.samples, "sample");
            let _ = writeln!(text, "  {samples} in {functions} of tier {}", tier.tier);
        }
        if self.output != "-" && self.has_names() {
            let _ = writeln!(text, "next: perf report -i {}", shell_word(&self.output));
        }
        text
    }
}

/// How many warnings of one kind are shown, and how many warnings and notes at all: of thousands of files, each may
/// have its own.
const SHOWN_OF_A_KIND: u64 = 10;
const SHOWN: u64 = 100;

/// Warnings and notes as lines of text, not too many of one kind; `all` tells where all of them are.
pub fn put_warnings(text: &mut String, warnings: &[Warning], notes: &[String], all: &str) {
    let mut kinds: HashMap<&str, u64> = HashMap::default();
    let (mut shown, mut hidden) = (0, 0);
    for warning in warnings {
        let of_kind = kinds.entry(&warning.what).or_default();
        *of_kind += 1;
        if *of_kind > SHOWN_OF_A_KIND || shown == SHOWN {
            hidden += 1;
            continue;
        }
        shown += 1;
        let _ = writeln!(text, "warning: {warning}");
    }
    if hidden > 0 {
        let _ = writeln!(text, "warning: there are {hidden} more; {all}");
    }
    let shown = notes.len().min(SHOWN as usize);
    for note in notes.iter().take(shown) {
        let _ = writeln!(text, "note: {note}");
    }
    let hidden = notes.len() - shown;
    if hidden > 0 {
        let _ = writeln!(text, "note: there are {hidden} more; {all}");
    }
}

impl SampledFunction {
    /// What the compiler is called where all of them have a name.
    pub fn tier_name(&self) -> &str {
        self.tier.as_deref().unwrap_or("not known")
    }
}

impl DumpSummary {
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
    /// The reasons that occur, each with its count.
    fn reasons(&self) -> impl Iterator<Item = (u64, &'static str)> {
        [
            (
                self.doubtful,
                "at an address that held several functions, and the clocks are not known well enough to tell which",
            ),
            (
                self.before_load,
                "taken before a function was loaded at that address",
            ),
            (
                self.not_in_dump,
                "the jitdump has no function at that address (a perf map may: see --perf-map)",
            ),
            (
                self.dump_unusable,
                "the jitdump of the process is missing or unusable",
            ),
            (
                self.no_dump,
                "the process wrote no jitdump, and no perf map has a symbol there",
            ),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
    }
}

/// So many of something, whose plural ends in "s".
pub fn count(number: u64, what: &str) -> String {
    count_of(number, what, &format!("{what}s"))
}

/// A number with the words that fit it.
pub fn count_of(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A word that a shell reads back as it is.
fn shell_word(word: &str) -> String {
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
    fn names_with_spaces_are_quoted_for_the_shell() {
        assert_eq!(shell_word("out.data"), "out.data");
        assert_eq!(shell_word("my out.data"), "'my out.data'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }

    #[test]
    fn a_warning_tells_how_often_and_where_first() {
        let mut warning = Warning::new("cut");
        assert_eq!(warning.to_string(), "cut");
        warning.file = Some("a.dump".into());
        warning.first_offset = Some(16);
        assert_eq!(warning.to_string(), "a.dump: cut (at 0x10)");
        warning.count = 3;
        assert_eq!(warning.to_string(), "a.dump: cut (3, the first at 0x10)");
    }

    #[test]
    fn warnings_and_notes_have_a_limit_and_the_rest_is_counted() {
        let of_kind = |kind: u64| (0..12).map(move |_| Warning::new(format!("kind {kind}")));
        let notes: Vec<String> = (0..103).map(|note| format!("note {note}")).collect();
        let mut text = String::new();
        put_warnings(
            &mut text,
            &of_kind(1).chain(of_kind(2)).collect::<Vec<_>>(),
            &notes,
            "see FILE",
        );
        let shown = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(
            (
                shown("warning: kind 1"),
                shown("warning: kind 2"),
                shown("note: note")
            ),
            (10, 10, 100)
        );
        assert!(text.contains("warning: there are 4 more; see FILE\n"), "{text}");
        assert!(text.contains("note: there are 3 more; see FILE\n"), "{text}");
        let warnings: Vec<Warning> = (0..150)
            .map(|kind| Warning::new(format!("kind {kind}")))
            .collect();
        text.clear();
        put_warnings(&mut text, &warnings, &[], "see FILE");
        assert_eq!(text.lines().count(), 101);
        assert!(text.ends_with("warning: there are 50 more; see FILE\n"), "{text}");
    }
}
