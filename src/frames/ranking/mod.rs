//! The functions, lines, modules or threads with most samples, of all processes and tiers together.
//!
//! ```text
//! samples of [`crate::frames::stream`] ─► [counts]: samples by stack and thread ─► [groups]: row of each frame ─► rows, sorted
//! ```

pub mod counts;
mod groups;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::collections::indexed_table::IndexedTable;
use crate::frames::ranking::counts::{SamplesByStack, StackSamples};
use crate::frames::ranking::groups::{RowGroups, RowIndex};
use crate::frames::stream::call_tree::Weight;
use crate::frames::stream::tables::{NamedFunction, NamedFunctionIndex, SourceFileIndex, ThreadIndex};
use crate::frames::stream::{Kind, Tables};

/// What rows are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Functions of the source code.
    #[default]
    Function,
    /// Symbols, as perf report shows them: inlined calls count for the function that they were inlined into.
    Symbol,
    /// Source lines.
    Line,
    /// Source files.
    File,
    /// Executables, libraries, parts of the kernel, and JIT code.
    Module,
    /// Compiler tiers.
    Tier,
    /// Kinds of code.
    Kind,
    /// Threads.
    Thread,
    /// Processes.
    Process,
}

impl By {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Function,
        Self::Symbol,
        Self::Line,
        Self::File,
        Self::Module,
        Self::Tier,
        Self::Kind,
        Self::Thread,
        Self::Process,
    ];

    /// Whether rows have callees, whose samples can be charged to them.
    pub fn has_charged(self) -> bool {
        match self {
            Self::Function | Self::Symbol | Self::Line | Self::File => true,
            Self::Module | Self::Tier | Self::Kind | Self::Thread | Self::Process => false,
        }
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Symbol => "symbol",
            Self::Line => "line",
            Self::File => "file",
            Self::Module => "module",
            Self::Tier => "tier",
            Self::Kind => "kind",
            Self::Thread => "thread",
            Self::Process => "process",
        }
    }

    /// Whether rows depend on lines and inlined calls; if not, those of native code are not read. Symbols do not:
    /// inlined calls count for the symbol that they are in.
    pub fn has_lines(self) -> bool {
        match self {
            Self::Function | Self::Line | Self::File => true,
            Self::Symbol | Self::Module | Self::Tier | Self::Kind | Self::Thread | Self::Process => false,
        }
    }

    /// Returns what rows are by its name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}

/// Samples of a row.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct RankedRow {
    /// Name.
    pub name: String,
    /// Kind of code, if it is that of one kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Source file, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// First line of a function, or the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Module of native code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Whether it is all code of an executable or library that has no symbol.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_without_symbol: bool,
    /// Whether that is because no file of its build was found.
    #[serde(skip)]
    pub is_without_file: bool,
    /// Compiler tiers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<String>,
    /// Functions that it was inlined into.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inlined_into: Vec<String>,
    /// The functions, if rows are those of functions.
    #[serde(skip)]
    pub functions: BTreeSet<NamedFunctionIndex>,
    /// Source file of a line that has neither its name nor its file yet: many lines may have a long path.
    #[serde(skip)]
    pub file_of_line: Option<SourceFileIndex>,
    /// Samples in its own code.
    #[serde(rename = "self")]
    pub own: Weight,
    /// Samples with it in their stack.
    pub total: Weight,
    /// Samples in its own code, and in native code below it without another function of the language between. Native code
    /// without such a function has its own.
    pub charged: Weight,
}

impl RankedRow {
    /// Returns the row of a function, without samples.
    pub fn of_function(tables: &Tables, function: &NamedFunction) -> Self {
        let file = function.file.map(|file| tables.files[file].path.clone());
        let module = function.module.map(|module| &tables.modules[module]);
        let is_in_file = module.is_some_and(|module| module.path.starts_with('/'));
        let is_without_symbol = is_in_file && !function.is_named && function.kind == Kind::Native;
        Self {
            name: function.name.clone(),
            kind: Some(function.kind),
            line: Some(function.line).filter(|&line| line > 0 && file.is_some()),
            file,
            is_without_symbol,
            is_without_file: is_without_symbol && module.is_some_and(|module| !module.has_file),
            module: module.map(|module| module.path.clone()),
            ..Self::default()
        }
    }

    /// Returns the name.
    pub fn name(&self, tables: &Tables) -> Cow<'_, str> {
        match (self.path(tables), self.line) {
            (Some(path), Some(line)) if self.file_of_line.is_some() => Cow::Owned(format!("{path}:{line}")),
            _ => Cow::Borrowed(&self.name),
        }
    }

    /// Returns the path of the source file.
    pub fn path<'t>(&'t self, tables: &'t Tables) -> Option<&'t str> {
        match self.file_of_line {
            Some(file) => Some(&tables.files[file].path),
            None => self.file.as_deref(),
        }
    }

    /// Returns the row with its name and its file.
    pub fn named(mut self, tables: &Tables) -> Self {
        if self.file_of_line.is_some() {
            self.name = self.name(tables).into_owned();
            self.file = self.path(tables).map(str::to_owned);
            self.file_of_line = None;
        }
        self
    }
}

/// Samples of a kind of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct KindRow {
    /// The kind.
    pub kind: Kind,
    /// Samples in it.
    pub samples: Weight,
}

/// Rows, those with most samples first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Ranking {
    /// All samples.
    pub all: Weight,
    /// Samples of each kind of code.
    pub kinds: Vec<KindRow>,
    /// Rows. Those of lines are to be [`RankedRow::named`].
    pub rows: Vec<RankedRow>,
}

impl Ranking {
    /// Ranks the samples of an event.
    pub fn of(tables: &Tables, counts: &SamplesByStack, event: u32, by: By) -> Self {
        let groups = RowGroups::of(tables, by);
        let mut kinds: BTreeMap<Kind, Weight> = BTreeMap::new();
        let mut all = Weight::default();
        let mut counted = CountedRows {
            tables,
            seen: groups.rows.map(|_| 0),
            groups,
        };
        for (number, samples) in (1..).zip(counts.of_event(event)) {
            all.add(samples.weight);
            let kind = tables.kind(samples.stack, samples.thread);
            kinds.entry(kind).or_default().add(samples.weight);
            match counted.groups.of_sample(kind, samples.thread) {
                Some(row) => counted.add_to_row(row, samples.weight),
                None => counted.add_to_frames(number, &samples, kind),
            }
        }
        let rows = counted.groups.rows.into_iter();
        let mut rows: Vec<RankedRow> = rows.filter(|row| row.total.samples > 0).collect();
        sort(&mut rows, by, tables);
        Self {
            all,
            kinds: kinds
                .into_iter()
                .map(|(kind, samples)| KindRow { kind, samples })
                .collect(),
            rows,
        }
    }
}

/// The rows, while samples are added to them.
struct CountedRows<'t> {
    tables: &'t Tables,
    groups: RowGroups,
    /// Number of the stack in which a row was seen last, from 1, so that it counts once for each.
    seen: IndexedTable<RowIndex, u64>,
}

impl CountedRows<'_> {
    /// Adds samples of which all are in one row, as those of a thread.
    fn add_to_row(&mut self, row: RowIndex, weight: Weight) {
        let row = &mut self.groups.rows[row];
        for part in [&mut row.own, &mut row.total, &mut row.charged] {
            part.add(weight);
        }
    }

    /// Adds samples to the rows of their frames: the innermost frame has its own samples, each one of the stack has them in its
    /// total, and the innermost one of the language is charged with them, or else the innermost of all in native code.
    fn add_to_frames(&mut self, stack_number: u64, samples: &StackSamples, kind: Kind) {
        let Self { tables, groups, seen } = self;
        let weight = samples.weight;
        let mut frames = tables.frame_indices(samples.stack);
        let leaf = frames.next();
        let row_of_leaf = leaf.and_then(|leaf| groups.innermost(leaf));
        if let Some(row) = row_of_leaf {
            groups.rows[row].own.add(weight);
        }
        let mut charged = None;
        for frame in leaf.into_iter().chain(frames) {
            if charged.is_none() && tables.frames[frame].kind == Kind::Language {
                charged = groups.innermost(frame);
            }
            for row in groups.of_frame(frame) {
                if std::mem::replace(&mut seen[row], stack_number) != stack_number {
                    groups.rows[row].total.add(weight);
                }
            }
        }
        let without_language = row_of_leaf.filter(|_| kind == Kind::Native);
        if let Some(row) = charged.or(without_language) {
            groups.rows[row].charged.add(weight);
        }
    }
}

/// Sorts rows: those with most samples first, as their first column counts them.
fn sort(rows: &mut [RankedRow], by: By, tables: &Tables) {
    /// The name; of a line, whose name is not made yet, its path.
    fn text<'t>(row: &'t RankedRow, tables: &'t Tables) -> &'t str {
        match row.file_of_line {
            Some(file) => &tables.files[file].path,
            None => &row.name,
        }
    }
    rows.sort_by(|one, other| {
        let charged = |row: &RankedRow| {
            if by.has_charged() {
                row.charged
            } else {
                Weight::default()
            }
        };
        let key = |row: &RankedRow| [charged(row), row.own, row.total].map(|part| Reverse(part.period));
        let by_name = || {
            let texts = text(one, tables).cmp(text(other, tables));
            texts.then_with(|| (&one.file, one.line).cmp(&(&other.file, other.line)))
        };
        key(one).cmp(&key(other)).then_with(by_name)
    });
}

/// Returns the first event with samples.
pub fn first_event(tables: &Tables) -> u32 {
    let sampled = tables.events.iter().position(|event| event.samples > 0);
    sampled.and_then(|index| u32::try_from(index).ok()).unwrap_or(0)
}

/// A thread as text.
fn thread_name(tables: &Tables, thread: ThreadIndex) -> String {
    let thread = &tables.threads[thread];
    format!("{} {}", thread.name(), thread.tid_text())
}

/// A process as text.
fn process_name(tables: &Tables, thread: ThreadIndex) -> String {
    let thread = &tables.threads[thread];
    let name = if thread.process_name.is_empty() {
        thread.name()
    } else {
        &thread.process_name
    };
    format!("{name} {}", thread.pid_text())
}
