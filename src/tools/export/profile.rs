//! The samples of an export, and what the formats have in common.

use std::borrow::Cow;
use std::io::{self, Write};
use std::mem;

use regex_lite::Regex;

use crate::bytes::printable_path;
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::IndexedTable;
use crate::frames::ranking::counts::SamplesByStack;
use crate::frames::stream::call_tree::Weight;
use crate::frames::stream::tables::{
    Frame, NamedFunctionIndex, NamedModule, NamedModuleIndex, SourceFileIndex, StackIndex, Thread,
    ThreadIndex, TierIndex,
};
use crate::frames::stream::{Kind, Sample, SampleFilter, StreamOptions, Tables, read_then};
use crate::load::Progress;
use crate::results::diagnostics::Diagnostic;
use crate::results::summary::count;
use crate::results::summary::profile::EventSummary;
use crate::tools::export::markers::Markers;
use crate::tools::source_texts::Texts;

/// Most events in a file. A profile can have any number, and formats have a value of each in every sample.
const MAX_EVENTS: usize = 64;

/// Time of a sample without one after the sample before it, in nanoseconds.
const SUBSTITUTED_INTERVAL: u64 = 1_000_000;

/// Longest text of a frame in characters, where each frame has its own.
const MAX_TEXT: usize = 1000;

/// What a format has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormatScope {
    /// Whether it has each sample with its time, instead of the sums of equal stacks.
    pub has_times: bool,
    /// Whether it has one event only.
    pub one_event: bool,
    /// Whether it has one thread only.
    pub one_thread: bool,
    /// Whether it has events of runtimes.
    pub has_markers: bool,
    /// Whether it has source text.
    pub has_texts: bool,
}

/// What distinguishes a format from the others.
pub struct FormatDescription {
    /// Name on the command line.
    pub name: &'static str,
    /// End of the names of its files.
    pub end: &'static str,
    /// Whether its files are text.
    pub is_text: bool,
    /// What opens its files, if that is one program.
    pub viewer: Option<&'static str>,
    /// What opens its files, and what they have, for the help.
    pub help: &'static str,
    /// What it has room for.
    pub scope: FormatScope,
    /// Writes a file.
    pub write: fn(&ExportedProfile, &mut dyn Write) -> io::Result<()>,
}

/// A sample, or all samples of an event, thread and stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WeightedStack {
    /// The thread.
    pub thread: ThreadIndex,
    /// Index of the event in [`Tables::events`].
    pub event: u32,
    /// Nanoseconds since the first record; 0 for sums.
    pub time: u64,
    /// The stack; `None` if nothing of it was recorded.
    pub stack: Option<StackIndex>,
    /// Number of samples, and sum of their periods.
    pub weight: Weight,
}

/// The file that has the code of a frame, or what takes its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Home {
    /// An executable, a library, or a module of the kernel.
    Module(NamedModuleIndex),
    /// The kernel.
    Kernel,
    /// Code of a runtime in memory, by the compiler that made it.
    Jit(Option<TierIndex>),
    /// Anything else.
    Unknown,
}

impl Home {
    /// Returns what has code of a kind, in `module` if that is known, by the compiler `tier`.
    pub fn of(module: Option<NamedModuleIndex>, kind: Kind, tier: Option<TierIndex>) -> Self {
        match (module, kind) {
            (Some(module), _) => Self::Module(module),
            (None, Kind::Kernel | Kind::Idle) => Self::Kernel,
            (None, Kind::Language | Kind::Native | Kind::Compiler | Kind::Gc) => Self::Jit(tier),
            (None, Kind::Unknown) => Self::Unknown,
        }
    }
}

/// The samples to export.
#[derive(Debug)]
pub struct ExportedProfile {
    /// What samples refer to.
    pub tables: Tables,
    /// Nanoseconds that samples were taken in, if records have times.
    pub duration: Option<u64>,
    /// Name of the profile.
    pub title: String,
    /// Events of runtimes.
    pub markers: Markers,
    /// Texts of files that the tables have no text of, as far as they are wanted.
    pub texts: HashMap<SourceFileIndex, Vec<u8>>,
    /// Samples by thread, event and time.
    pub rows: Vec<WeightedStack>,
    /// Indices of the events of the samples.
    pub events: Vec<u32>,
    /// What the format has no room for.
    pub left_out: Option<String>,
    /// Whether the samples are those of the whole profile.
    pub is_whole: bool,
    /// Whether a stack is that of a sample, or of a caller.
    used: IndexedTable<StackIndex, bool>,
}

impl ExportedProfile {
    /// Reads the samples that have a function that matches in their stack, as far as the format has room for them. Functions
    /// without samples have markers if `marks_all` is true.
    pub fn read(
        options: &StreamOptions,
        filter: Option<&Regex>,
        scope: FormatScope,
        marks_all: bool,
        progress: &mut dyn Progress,
    ) -> Result<Self, Diagnostic> {
        let mut rows: Vec<WeightedStack> = Vec::new();
        let mut counts = SamplesByStack::default();
        let mut substituted: u64 = 0;
        let mut add = |sample: &Sample| {
            if scope.has_times {
                rows.push(WeightedStack {
                    thread: sample.thread,
                    event: sample.event,
                    time: time_of(sample, &mut substituted),
                    stack: sample.stack,
                    weight: sample.weight(),
                });
            } else {
                counts.add(sample);
            }
        };
        let (tables, markers) = read_then(options, &mut add, progress, |namer| {
            let markers = scope
                .has_markers
                .then(|| Markers::of(namer, &options.filter, marks_all));
            Ok((mem::take(&mut namer.tables), markers.unwrap_or_default()))
        })?;
        rows.extend(counts.iter().map(|samples| WeightedStack {
            thread: samples.thread,
            event: samples.event,
            time: 0,
            stack: samples.stack,
            weight: samples.weight,
        }));
        let (start, _) = tables.times.unwrap_or_default();
        rows.iter_mut()
            .for_each(|row| row.time = row.time.saturating_sub(start.0));
        if let Some(filter) = filter {
            let matches = matching_stacks(&tables, filter);
            rows.retain(|row| row.stack.is_some_and(|stack| matches[stack]));
        }
        let mut profile = Self {
            duration: options.filter.duration(tables.times),
            title: printable_path(&options.load.input),
            is_whole: filter.is_none() && options.filter == SampleFilter::default(),
            tables,
            markers: Markers::default(),
            texts: HashMap::default(),
            rows,
            events: Vec::new(),
            left_out: None,
            used: IndexedTable::default(),
        };
        profile.select(scope);
        if let [event] = profile.events[..] {
            profile.tables.losses = profile.tables.losses_of(event);
        }
        // Samples of equal time stay in the order of the file.
        let key = |row: &WeightedStack| (row.thread, row.event, row.time);
        if scope.has_times {
            profile.rows.sort_by_key(key)
        } else {
            profile.rows.sort_unstable_by_key(|row| (key(row), row.stack))
        }
        profile.used = profile.used_stacks();
        profile.markers = profile.with_threads(markers);
        Ok(profile)
    }

    /// Reads the texts of files: copies that were kept beside the profile and, if `has_all` is true, files of this machine.
    pub fn read_texts(&mut self, options: &StreamOptions, has_all: bool) {
        let mut texts = Texts::new(&options.load, &options.sources);
        for (index, file) in self.tables.files.enumerate() {
            if file.text.is_some() {
                continue;
            }
            let text = if has_all {
                Some(texts.read(&file.name))
            } else {
                texts.read_kept(&file.name)
            };
            match text {
                Some(Ok(text)) => self.texts.extend([(index, text)]),
                Some(Err(issue)) => texts.faults.add(issue, 0),
                None => {}
            }
        }
        let faults = texts.faults.iter();
        self.tables
            .diagnostics
            .extend(faults.map(|(issue, fault)| Diagnostic::new(issue).times(fault.count)));
    }

    /// Leaves out what the format has no room for.
    fn select(&mut self, scope: FormatScope) {
        let max_events = if scope.one_event { 1 } else { MAX_EVENTS };
        let events = self.keep_events(max_events);
        let threads = scope.one_thread.then(|| self.keep_busiest_thread()).flatten();
        let left_out: Vec<String> = events.into_iter().chain(threads).collect();
        self.left_out = (!left_out.is_empty()).then(|| left_out.join(", "));
    }

    /// Keeps the samples of the first events that have some, up to `max` events. Returns what is left out, if anything.
    fn keep_events(&mut self, max: usize) -> Option<String> {
        self.events = self.rows.iter().map(|row| row.event).collect();
        self.events.sort_unstable();
        self.events.dedup();
        let omitted = self.events.split_off(self.events.len().min(max));
        let before = samples(&self.rows);
        self.rows
            .retain(|row| self.events.binary_search(&row.event).is_ok());
        (!omitted.is_empty()).then(|| {
            format!(
                "{} of {} (--event selects one)",
                count(before.saturating_sub(samples(&self.rows)), "sample"),
                count(omitted.len() as u64, "other event"),
            )
        })
    }

    /// Keeps the samples of the thread with most of them; of several, of the first. Returns what is left out, if anything.
    fn keep_busiest_thread(&mut self) -> Option<String> {
        let mut of_threads: HashMap<ThreadIndex, u64> = HashMap::default();
        for row in &self.rows {
            let own = of_threads.entry(row.thread).or_default();
            *own = own.saturating_add(row.weight.samples);
        }
        let busiest = of_threads
            .iter()
            .max_by_key(|&(&thread, &samples)| (samples, std::cmp::Reverse(thread)))
            .map(|(&thread, _)| thread);
        let before = samples(&self.rows);
        self.rows.retain(|row| Some(row.thread) == busiest);
        let others = of_threads.len().saturating_sub(1) as u64;
        (others > 0).then(|| {
            format!(
                "{} of {} (--tid selects one)",
                count(before.saturating_sub(samples(&self.rows)), "sample"),
                count(others, "other thread"),
            )
        })
    }

    /// Returns markers on the threads of the samples.
    fn with_threads(&self, mut markers: Markers) -> Markers {
        let threads = self.by_thread().filter_map(|rows| rows.first());
        markers.put_on(threads.map(|row| &self.tables.threads[row.thread]));
        markers
    }

    /// Returns whether each stack is that of a sample to export, or of a caller.
    fn used_stacks(&self) -> IndexedTable<StackIndex, bool> {
        let stacks = &self.tables.stacks;
        let mut used = stacks.map(|_| false);
        for stack in self.rows.iter().filter_map(|row| row.stack) {
            used[stack] = true;
        }
        // Callers come before what they call.
        for (index, stack) in stacks.enumerate().rev() {
            if let Some(caller) = stack.caller.filter(|_| used[index]) {
                used[caller] = true;
            }
        }
        used
    }

    /// Whether a stack is that of a sample, or of a caller.
    pub fn is_used(&self, stack: StackIndex) -> bool {
        self.used[stack]
    }

    /// Returns the rows of each thread and event.
    pub fn by_thread(&self) -> impl Iterator<Item = &[WeightedStack]> {
        self.rows
            .chunk_by(|one, next| (one.thread, one.event) == (next.thread, next.event))
    }

    /// Returns the rows of the thread with most samples of the first event, and their position in [`Self::by_thread`].
    pub fn busiest(&self) -> Option<(usize, &[WeightedStack])> {
        let first = *self.events.first()?;
        self.by_thread()
            .enumerate()
            .filter(|(_, rows)| rows.first().is_some_and(|row| row.event == first))
            .max_by_key(|&(position, rows)| (rows.len(), std::cmp::Reverse(position)))
    }

    /// Returns the events whose samples have different periods: those of logs and traces, and those with a frequency.
    pub fn weighted_events(&self) -> Vec<u32> {
        let has_weights = |&event: &u32| {
            let mut periods = self.rows.iter().filter(|row| row.event == event);
            let first = periods.next().map(|row| row.weight.period);
            periods.any(|row| Some(row.weight.period) != first)
        };
        self.events.iter().copied().filter(has_weights).collect()
    }

    /// Returns an event.
    pub fn event(&self, event: u32) -> Option<&EventSummary> {
        self.tables.events.get(event as usize)
    }

    /// Returns the names of the events.
    pub fn event_names(&self) -> String {
        let events = self.events.iter().filter_map(|&event| self.event(event));
        let names: Vec<&str> = events.map(|event| &*event.name).collect();
        names.join(", ")
    }

    /// Returns the first event.
    pub fn first_event(&self) -> Option<&EventSummary> {
        self.event(*self.events.first()?)
    }

    /// Returns the sum of all samples.
    pub fn total(&self) -> Weight {
        let mut total = Weight::default();
        self.rows.iter().for_each(|row| total.add(row.weight));
        total
    }

    /// Returns the name of a function. One without a name has that of its module, in brackets.
    pub fn name(&self, function: NamedFunctionIndex) -> Cow<'_, str> {
        let function = &self.tables.functions[function];
        if function.is_named || function.name.starts_with('[') {
            Cow::Borrowed(&function.name)
        } else {
            Cow::Owned(format!("[{}]", function.name))
        }
    }

    /// Returns the path of the file in which a function is declared.
    pub fn path(&self, function: NamedFunctionIndex) -> Option<&str> {
        let file = self.tables.functions[function].file?;
        Some(&self.tables.files[file].path)
    }

    /// Returns the name of a function, with its file and line if it has them.
    pub fn name_and_place(&self, function: NamedFunctionIndex) -> String {
        let name = self.name(function);
        match (self.path(function), self.tables.functions[function].line) {
            (None, _) => name.into_owned(),
            (Some(path), 0) => format!("{name} {path}"),
            (Some(path), line) => format!("{name} {path}:{line}"),
        }
    }

    /// Returns what has the code of a frame.
    pub fn home(&self, frame: &Frame) -> Home {
        Home::of(frame.module, frame.kind, frame.tier)
    }

    /// Returns the module of the code of a frame, if it is a file.
    pub fn module(&self, home: Home) -> Option<&NamedModule> {
        match home {
            Home::Module(module) => Some(&self.tables.modules[module]),
            _ => None,
        }
    }

    /// Returns the path of what has the code of a frame, or a name in brackets.
    pub fn home_path(&self, home: Home) -> Cow<'_, str> {
        match home {
            Home::Module(module) => Cow::Borrowed(&self.tables.modules[module].path),
            Home::Kernel => Cow::Borrowed("[kernel.kallsyms]"),
            Home::Jit(None) => Cow::Borrowed("[JIT]"),
            Home::Jit(Some(tier)) => Cow::Owned(format!("[JIT {}]", self.tables.tiers[tier])),
            Home::Unknown => Cow::Borrowed("[unknown]"),
        }
    }
}

/// Returns the start of a text of a frame, if it is too long.
pub fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(MAX_TEXT);
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Returns the time of a sample in nanoseconds, or another one for each sample without a time. `substituted` is the last of these.
fn time_of(sample: &Sample, substituted: &mut u64) -> u64 {
    *substituted = substituted.saturating_add(SUBSTITUTED_INTERVAL);
    sample.time.map_or(*substituted, |time| time.0)
}

fn samples(rows: &[WeightedStack]) -> u64 {
    rows.iter().map(|row| row.weight.samples).sum()
}

/// A function, as the lines of a file.
pub type FunctionKey = (NamedFunctionIndex, Option<SourceFileIndex>);

/// Returns the name of a thread, with its IDs.
pub fn thread_label(thread: &Thread) -> String {
    let name = known_name(thread.name());
    format!("{name} {}/{}", thread.pid_text(), thread.tid_text())
}

/// Returns the name of a thread or process, or `?`.
pub fn known_name(name: &str) -> &str {
    match name {
        "" => "?",
        name => name,
    }
}

/// Returns whether each stack has a function that matches.
fn matching_stacks(tables: &Tables, filter: &Regex) -> IndexedTable<StackIndex, bool> {
    let matches_module = |module: Option<NamedModuleIndex>| {
        module.is_some_and(|module| filter.is_match(&tables.modules[module].path))
    };
    let files = tables.files.map(|file| filter.is_match(&file.path));
    let in_file = |file: Option<SourceFileIndex>| file.is_some_and(|file| files[file]);
    let functions = tables.functions.map(|function| {
        filter.is_match(&function.name) || in_file(function.file) || matches_module(function.module)
    });
    let frames = tables.frames.map(|frame| {
        let mut lines = frame.lines.iter();
        // Most runtimes log no declarations.
        lines.any(|line| functions[line.function] || in_file(line.file))
    });
    let mut stacks: IndexedTable<StackIndex, bool> = IndexedTable::default();
    for stack in &tables.stacks {
        let caller_matches = stack.caller.is_some_and(|caller| stacks[caller]);
        stacks.push(caller_matches || frames[stack.frame]);
    }
    stacks
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitdump::Time;

    fn profile(rows: &[(u32, u32)]) -> ExportedProfile {
        let rows = rows.iter().map(|&(thread, event)| WeightedStack {
            thread: ThreadIndex(thread),
            event,
            time: 0,
            stack: None,
            weight: Weight {
                samples: 1,
                period: 10,
            },
        });
        ExportedProfile {
            tables: Tables::default(),
            markers: Markers::default(),
            texts: HashMap::default(),
            duration: None,
            title: String::new(),
            rows: rows.collect(),
            events: Vec::new(),
            left_out: None,
            is_whole: true,
            used: IndexedTable::default(),
        }
    }

    const ALL: FormatScope = FormatScope {
        has_times: false,
        one_event: false,
        one_thread: false,
        has_markers: false,
        has_texts: false,
    };

    #[test]
    fn events_have_a_limit() {
        let rows: Vec<(u32, u32)> = (0..100).map(|event| (0, event)).collect();
        let mut many = profile(&rows);
        many.select(ALL);
        assert_eq!([many.events.len(), many.rows.len()], [64; 2]);
        let left_out = "36 samples of 36 other events (--event selects one)";
        assert_eq!(many.left_out.as_deref(), Some(left_out));
        let mut few = profile(&rows[..64]);
        few.select(ALL);
        assert_eq!((few.events.len(), few.left_out), (64, None));
    }

    #[test]
    fn samples_without_times_are_a_millisecond_apart() {
        let mut substituted = 0;
        let times = [None, None, Some(Time(5)), None].map(|time| {
            let sample = Sample {
                event: 0,
                thread: ThreadIndex(0),
                time,
                cpu: None,
                period: 1,
                stack: None,
            };
            time_of(&sample, &mut substituted)
        });
        assert_eq!(times, [1_000_000, 2_000_000, 5, 4_000_000]);
    }

    #[test]
    fn one_thread_is_the_one_with_most_samples() {
        let mut found = profile(&[(0, 3), (1, 3), (2, 3), (1, 3), (2, 3), (0, 4), (0, 4)]);
        found.select(FormatScope {
            one_event: true,
            one_thread: true,
            ..ALL
        });
        assert!(
            found
                .rows
                .iter()
                .all(|row| row.thread == ThreadIndex(1) && row.event == 3)
        );
        let left_out = "2 samples of 1 other event (--event selects one), \
                        3 samples of 2 other threads (--tid selects one)";
        assert_eq!(found.left_out.as_deref(), Some(left_out));
    }
}
